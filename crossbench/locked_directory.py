"""Temporary directories that are locked for as long as their owner lives.

The kernel releases the lock however the process ends, so that what a killed one left can be told
from what another one uses.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

SUFFIX = r"[a-z0-9_]{8}"
"""What tempfile.mkdtemp adds to the prefix: nothing else in the folder is touched."""
ATTEMPTS = 5
"""To remove a directory, which a thread of an interrupted run may still be writing to."""


@contextmanager
def locked_directory(folder: Path, prefix: str) -> Iterator[Path]:
    """Make a directory in the folder and remove it at the end; OSError where it cannot be made."""
    directory, lock = _make(folder, prefix)
    try:
        yield directory
    finally:
        _remove(directory)
        os.close(lock)


def remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove this user's directories whose owners live no more: their locks are free."""
    name = re.compile(re.escape(prefix) + SUFFIX)
    with suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError), _opened(entry.path) as lock:
                    _lock(lock)
                    if os.fstat(lock).st_uid == os.getuid():
                        shutil.rmtree(entry.path, ignore_errors=True)


def _make(folder: Path, prefix: str) -> tuple[Path, int]:
    """Return a new directory and its lock. Another process may remove it before it is locked: then
    make another one.
    """
    while True:
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        with suppress(FileNotFoundError, BlockingIOError), ExitStack() as stack:
            lock = stack.enter_context(_opened(directory))
            try:
                _lock(lock)
            except BlockingIOError:
                raise
            except OSError:  # a network folder without locks, where nobody removes it either
                pass
            if directory.exists():
                return directory, os.dup(lock)  # a copy holds the lock too


def _lock(directory: int) -> None:
    """Take the lock of an open directory; BlockingIOError where another process has it."""
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _opened(directory: str | Path) -> Iterator[int]:
    """Open a directory that is no link."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield opened
    finally:
        os.close(opened)


def _remove(directory: Path) -> None:
    """Remove it also where Ctrl-C comes meanwhile, which is raised at the end."""
    interrupted: KeyboardInterrupt | None = None
    for _ in range(ATTEMPTS):
        try:
            shutil.rmtree(directory, ignore_errors=True)
        except KeyboardInterrupt as error:
            interrupted = error
        if not directory.exists():
            break
    if interrupted:
        raise interrupted
