"""README.md and docs/: the blocks that can run do, and what the pages name is there.

A ```python or ```console block has a mark in the line above it: `<!-- test -->`, or
`<!-- not run: REASON -->`. The marked blocks of a page run in order, in one directory and one
Python process. A Python block that begins with the comment `# NAME.py` is saved under that name
first. Of a console block the lines after "$ " run, and their output is not compared.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from crossbench import models
from crossbench.report import columns
from crossbench.results.schema import schema

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
EXAMPLE = ROOT / "examples" / "plugin_adapter"
SECONDS = 300
"""A page may take this long on a busy machine; on a quiet one it takes less than a minute."""

BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>test|not run: .+) -->\n)?"
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>\S*).*\n"
    r"(?P<code>(?:.*\n)*?) *(?P=fence) *$",
    re.MULTILINE,
)
LINK = re.compile(r'(?<!!)\[[^\]]+\]\(([^)\s]+)(?: "[^"]*")?\)')
SAVED = re.compile(r"# (\w+\.py)$", re.MULTILINE)
PART_OF = "part of "
"""How the reason begins of a block that is quoted from a file."""
INSTALLS = ("python3 -m venv ", "pip install ")
"""How a ```sh block begins: it sets an environment up. CI runs the README's second one."""
OTHER_NAMES = {"bash", "py", "pycon", "shell", "shell-session"}
"""What a ```python or ```console block must not be called."""

PROGRAM = """
import json as _json, pathlib as _pathlib, subprocess as _subprocess, sys as _sys
for _step in _json.load(_sys.stdin):
    print(f"--- {_step['place']}", flush=True)
    if "command" in _step:
        _command = ["bash", "-ec", _step["command"]]
        _subprocess.run(_command, check=True, stdin=_subprocess.DEVNULL)
        continue
    if _step["save_as"]:
        _pathlib.Path(_step["save_as"]).write_text(_step["code"])
    exec(compile(_step["padding"] + _step["code"], _step["page"], "exec", dont_inherit=True))
"""


@dataclass(frozen=True)
class Block:
    """A fenced block. line: of its fence, from 1. mark: in the line above, or None."""

    page: Path
    line: int
    language: str
    code: str
    mark: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def quoted_from(self) -> Path | None:
        """Return the file that a block of a page quotes, or None."""
        reason = (self.mark or "").removeprefix("not run: ")
        return ROOT / reason.removeprefix(PART_OF) if reason.startswith(PART_OF) else None

    def steps(self) -> list[dict[str, Any]]:
        """Return what PROGRAM does for the block."""
        if self.language == "console":
            return [{"place": self.place, "command": command} for command in commands(self.code)]
        saved = SAVED.match(self.code)
        step = {"place": self.place, "page": str(self.page), "code": self.code}
        return [step | {"save_as": saved and saved[1], "padding": "\n" * self.line}]


def commands(code: str) -> list[str]:
    r"""Return the commands of a console block; one that ends in "\" goes on in the next line."""
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)$", code, re.MULTILINE)
    return [command for command in found if command.strip()]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page,
            1 + text.count("\n", 0, found.start("indent")),
            found["language"],
            textwrap.dedent(found["code"]),
            found["mark"],
        )
        for found in BLOCK.finditer(text)
    ]


def prose(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return BLOCK.sub("", page.read_text())


BLOCKS = [block for page in PAGES for block in blocks(page)]
TESTED = sorted({block.page for block in BLOCKS if block.mark == "test"})


def name(value: Path | Block) -> str:
    return value.place if isinstance(value, Block) else str(value.relative_to(ROOT))


@pytest.mark.long
@pytest.mark.parametrize("page", TESTED, ids=name)
def test_the_blocks_of_a_page_run(page, tmp_path, install_package):
    steps = [s for b in blocks(page) if b.mark == "test" for s in b.steps()]
    extra = [install_package(EXAMPLE)] if "plain_numpy" in page.read_text() else []
    path = [str(ROOT), *extra, os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "CROSSBENCH_CACHE": str(tmp_path / ".cache"),
        # nothing is downloaded: no proxy listens there
        **dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(steps),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"


@pytest.mark.parametrize("block", BLOCKS, ids=name)
def test_a_block_names_its_language_and_is_tested_or_says_why_not(block):
    assert block.language, "name the language of the block"
    if block.language == "sh":
        assert block.code.startswith(INSTALLS), "only what installs is ```sh"
    assert block.language not in OTHER_NAMES, "write ```python or ```console"
    if block.language in ("python", "console"):
        assert block.mark, "mark the block with test, or with why it is not run"
    if block.language == "console" and block.mark == "test":
        assert commands(block.code), "a command begins with '$ '"
    if block.quoted_from:
        assert block.code in block.quoted_from.read_text(), "it is not in its file"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_files_that_a_page_links_to_and_the_paths_that_it_names_are_there(page):
    targets = [target.partition("#")[0] for target in LINK.findall(prose(page))]
    files = [target for target in targets if target and ":" not in target]
    assert [file for file in files if not (page.parent / file).exists()] == []
    folders = "crossbench|julia|tests|scripts|benchmarks|examples|docs"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", prose(page))
    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "reference" / "api.html").stat().st_size > 10_000


def test_every_page_is_in_the_navigation():
    nav = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(nav) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def sections(page: Path) -> dict[str, str]:
    """Return the text below each heading of the second level."""
    found = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_the_page_of_columns_has_a_line_for_every_column():
    text = sections(DOCS / "columns.md")["The columns"]
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    described = {name.strip() for cell in cells for name in cell.replace(", or", ",").split(",")}
    headers = {columns.header(name) for name in (*columns.TIMES, *columns.WORK)}
    headers |= {columns.header(name, brief=True) for name in columns.SUMMARY}
    assert {" ".join(header.split()) for header in headers} <= described


def test_the_results_file_schema_says_what_every_field_means():
    records = json.loads(schema())["$defs"]
    fields = [field for record in records.values() for field in record["properties"].items()]
    assert [name for name, field in fields if not field["description"]] == []
    model = set(re.findall(r"\w+", records["Comparison"]["properties"]["model"]["description"]))
    assert set(models.get("lenet").description()) <= model


def module(name: str) -> Any:
    """Return a module of docs/."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_page_of_layers_is_what_the_docstrings_and_the_adapters_say():
    page = module("layers_page").page()
    assert (DOCS / "layers.md").read_text("utf-8") == page, "run python docs/layers_page.py"


def test_the_command_line_page_gets_every_option_of_every_command():
    hooks = module("hooks")
    text = hooks.command_line()
    assert hooks.COMMAND_LINE in (DOCS / "reference" / "command-line.md").read_text()
    for parser in hooks.parsers():
        assert f"## {parser.prog}\n" in text
        for action in parser._actions:
            assert all(f"`{option}" in text for option in action.option_strings)
    assert "`--rounds N|auto`" in text


PACKAGE = ROOT / "crossbench"


def test_every_module_begins_with_a_sentence_that_says_what_is_in_it():
    for file in PACKAGE.rglob("*.py"):
        first = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n")[0]
        assert re.fullmatch(r"[A-Z].* .*\.", first), file.relative_to(ROOT)


def folders_in_the_tree() -> list[str]:
    """Return the paths of the folders that have a line in the architecture's tree."""
    (tree,) = [b for b in blocks(DOCS / "architecture.md") if b.language == "text"]
    found, path = [], list[str]()
    for indent, folder in re.findall(r"^((?:  )*)(\w+)/ +\w.*$", tree.code, re.MULTILINE):
        path = [*path[: len(indent) // 2], folder]
        found.append("/".join(path))
    return found


def test_the_architectures_tree_has_a_line_for_every_folder():
    folders = [str(init.parent.relative_to(ROOT)) for init in PACKAGE.rglob("__init__.py")]
    assert sorted(folders_in_the_tree()) == sorted(folders)


def drawn() -> dict[str, set[str]]:
    """Return the arrows of the architecture's picture."""
    (picture,) = [b for b in blocks(DOCS / "architecture.md") if b.language == "mermaid"]
    arrows: dict[str, set[str]] = {}
    for start, end in re.findall(r"^ *(\w+)(?:\[.*?\])? --> (\w+)", picture.code, re.MULTILINE):
        arrows.setdefault(start, set()).add(end)
    return arrows


def imported(part: str, package: Path = PACKAGE) -> set[str]:
    """Return the parts of a package that a module or a folder of it imports, also for types."""
    folder, found = package / part, set[str]()
    for file in folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
        level = len(file.relative_to(package).parts)  # of an import from the package itself
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == level:
                whole = [node.module] if node.module else [alias.name for alias in node.names]
                found |= {name.partition(".")[0] for name in whole}
    return found - {part}


@pytest.mark.parametrize("folder", ["results", "report"])
def test_no_modules_of_a_folder_import_one_another_in_a_circle(folder):
    modules = {file.stem for file in (PACKAGE / folder).glob("*.py")} - {"__init__"}
    names = modules | {init.parent.name for init in (PACKAGE / folder).glob("*/__init__.py")}
    below = {name: imported(name, PACKAGE / folder) & names for name in names}
    assert any(below.values())
    TopologicalSorter(below).prepare()  # raises CycleError for a circle


def test_the_architectures_arrows_are_the_imports():
    """Each arrow is an import, and each import among the parts goes along the arrows."""
    arrows, below = drawn(), {}
    parts = list(TopologicalSorter(arrows).static_order())  # raises CycleError for a circle
    for part in parts:
        ends = arrows.get(part, set())
        below[part] = ends.union(*(below[end] for end in ends))
        there = imported(part) & set(parts)
        assert ends <= there, f"{part} does not import all that is drawn"
        assert there <= below[part], f"{part} imports against the arrows"
