"""Makes temporary directories that are locked for as long as their process lives.

The kernel releases the lock however the process ends, so a directory that a killed process left
can be told from one that is in use.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SUFFIX = r"[a-z0-9_]{8}"
"""Pattern of what tempfile.mkdtemp adds to the prefix; only directories that match are removed."""
ATTEMPTS = 5
"""How often to try to remove a directory: Ctrl-C or a file that a thread creates may interfere."""


@contextmanager
def locked_directory(folder: Path, prefix: str) -> Iterator[Path]:
    """Make a directory in the folder and remove it on exit; OSError if it cannot be made."""
    directory, lock = _make(folder, prefix)
    try:
        yield directory
    finally:
        _remove(directory)
        os.close(lock)


def remove_abandoned_directories(folder: Path, prefix: str) -> None:
    """Remove this user's directories whose processes have ended: their locks are free."""
    name = re.compile(re.escape(prefix) + SUFFIX)
    with suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError), _opened(entry.path) as lock:
                    _lock(lock)
                    if os.fstat(lock).st_uid == os.getuid():
                        shutil.rmtree(entry.path, ignore_errors=True)


def _make(folder: Path, prefix: str) -> tuple[Path, int]:
    """Return a new directory and its lock, an open file descriptor.

    If another process removes the directory before it is locked, make another one.
    """
    while True:
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        with suppress(FileNotFoundError), _opened(directory) as opened:
            if _lock_if_possible(opened) and directory.exists():
                return directory, os.dup(opened)  # it keeps the lock after `opened` is closed


def _lock_if_possible(directory: int) -> bool:
    """Lock an open directory; return False if another process holds the lock."""
    try:
        _lock(directory)
    except BlockingIOError:
        return False
    except OSError:  # a network folder without locks: no process can take it for abandoned
        pass
    return True


def _lock(directory: int) -> None:
    """Lock an open directory; BlockingIOError if another process holds the lock."""
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _opened(directory: str | Path) -> Iterator[int]:
    """Open a directory, but no symbolic link, and yield its file descriptor."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield opened
    finally:
        os.close(opened)


def _remove(directory: Path) -> None:
    """Remove the directory; raise a Ctrl-C that comes meanwhile only afterwards.

    It is renamed first: a thread that still writes to it no longer finds it and cannot refill it.
    """
    renamed = directory.with_name(directory.name[:-8] + secrets.token_hex(4))
    interrupted: KeyboardInterrupt | None = None
    for _ in range(ATTEMPTS):
        try:
            with suppress(OSError):
                directory.rename(renamed)
            for path in (directory, renamed):
                shutil.rmtree(path, ignore_errors=True)
        except KeyboardInterrupt as error:
            interrupted = error
        if not directory.exists() and not renamed.exists():
            break
    if interrupted:
        raise interrupted
