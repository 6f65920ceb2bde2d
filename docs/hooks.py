"""What MkDocs does to a page beside rendering it; mkdocs.yml names this file.

The pages are written to be read on GitHub too, so three things differ on the site: the marks of the
tests are left out, a link to a file of the repository that is no page becomes its text, and the
command line's options and the arguments of a run are put in, from their descriptions.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"^ *<!-- (test|not run: .*) -->$")
FENCE = re.compile(r"^ *(`{3,}|~{3,})")
LINK = re.compile(r'(?<!!)\[([^\]]+)\]\(([^)\s]+)(?: "[^"]*")?\)')
COMMAND_LINE = "<!-- the options of every command, from the parser -->"
ARGUMENTS = "<!-- the arguments of a run, from their descriptions -->"

log = logging.getLogger("mkdocs.hooks.crossbench")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page's Markdown as the site shows it."""
    source = Path(page.file.abs_src_path)
    lines = [
        line if fenced else LINK.sub(lambda link: _link(link, source), line)
        for line, fenced in _lines(markdown)
        if fenced or not MARK.match(line)
    ]
    text = "\n".join(lines)
    for mark, made in ((COMMAND_LINE, command_line), (ARGUMENTS, arguments)):
        if mark in text:
            text = text.replace(mark, made())
    return text


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it belongs to a fenced block."""
    fence = ""
    for line in markdown.splitlines():
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
            yield line, True
        else:
            yield line, bool(fence)
            if fence and line.strip() == fence:
                fence = ""


def _link(link: re.Match[str], source: Path) -> str:
    """Return the link, or its text alone where it leads out of docs/ to a file of the repository.

    A link to what does not exist gets a warning, with which a strict build fails.
    """
    text, target = link.groups()
    path = target.partition("#")[0]
    if ":" in target or not path:
        return link[0]
    file = (source.parent / path).resolve()
    if not file.exists():
        log.warning("%s links to %s, which does not exist", source.relative_to(ROOT), target)
    return link[0] if file.is_relative_to(ROOT / "docs") else text


class _Parser(Exception):
    """Carries the parser out of a command."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def arguments() -> str:
    """Return an item of a Markdown list for each argument of a run."""
    _find_crossbench()
    from crossbench.arguments import ARGUMENTS

    return "\n".join(f"- `{name}`: {argument.sentence}" for name, argument in ARGUMENTS.items())


def command_line() -> str:
    """Return a section of Markdown for each command, from its own argument parser."""
    with mock.patch.dict(os.environ, COLUMNS="80"):  # not as wide as the builder's terminal
        return "\n\n".join(_section(parser) for parser in parsers())


def parsers() -> list[argparse.ArgumentParser]:
    """Return the parser of each command, the benchmark's first."""
    _find_crossbench()
    from crossbench import commands

    def stop(parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        raise _Parser(parser)

    found = []
    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        for name in ("run", *commands.NAMES):
            try:
                commands.find(name)([])
            except _Parser as parsed:
                found.append(parsed.parser)
    return found


def _find_crossbench() -> None:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))


def _section(parser: argparse.ArgumentParser) -> str:
    texts = [text for text in (parser.description, parser.epilog) if text]
    usage = f"```text\n{parser.format_usage().strip()}\n```"
    options = "\n".join(_item(parser, action) for action in parser._actions)
    return "\n\n".join([f"## {parser.prog}", *texts[:1], usage, options, *texts[1:]])


def _item(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return a line of a list: the option with its argument, and what it means."""
    names = [f"`{name}`" for name in action.option_strings]
    if action.nargs != 0:
        argument = str(action.metavar or action.dest.upper())
        names = [f"`{name} {argument}`" for name in action.option_strings] or [f"`{argument}`"]
    meaning = (action.help or "") % (vars(action) | {"prog": parser.prog})
    return f"- {', '.join(names)}" + (f": {meaning}" if meaning else "")
