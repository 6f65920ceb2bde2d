"""Removes from a text what tells whose machine it comes from: paths and names."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PATH = re.compile(r"""(?<![\w./~])(?!(?<=:)//)/(?:[^\s'"`()<>\[\]{}:;,/]+/)+""")
"""The folders of an absolute path, but not of a URL: "/home/ann/" in "/home/ann/data.bin"."""
PACKAGES = "site-packages/"
HARMLESS = {"root", "localhost"}
"""Names that tell nothing."""


def anonymous(value: Any) -> Any:
    """Return the text without its folders, user and host; of a dict or a list, all texts in it."""
    match value:
        case str():
            return _without_names(PATH.sub(_shortened, _without_known_folders(value)))
        case Mapping():
            return {name: anonymous(inner) for name, inner in value.items()}
        case list() | tuple():
            return [anonymous(inner) for inner in value]
    return value


def _shortened(folders: re.Match[str]) -> str:
    """Return what is kept of a path's folders: those inside of an installed package."""
    _, found, inner = folders[0].rpartition(PACKAGES)
    return f"…/{found}{inner if found else ''}"


def _without_known_folders(text: str) -> str:
    """Shorten the home and the working directory, whose names may have spaces."""
    known = set[str]()
    for folder in (Path.cwd, Path.home):
        with suppress(OSError, RuntimeError):  # it was removed, or there is none
            known.add(str(folder()))
    for path in sorted(known - {"/"}, key=len, reverse=True):
        text = re.sub(rf"{re.escape(path)}(?![\w-])", "/…", text)
    return text


def _without_names(text: str) -> str:
    """Replace the names of the user and of the host where they are whole words."""
    for name, word in ((_user(), "USER"), (socket.gethostname(), "HOST")):
        if name and name not in HARMLESS:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", word, text)
    return text


def _user() -> str:
    with suppress(OSError, KeyError, ImportError):  # an id without an account
        return getpass.getuser()
    return os.environ.get("USER", "")
