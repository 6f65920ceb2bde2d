"""Makes the temporary directory of a run, for the data that all workers map and their own files.

It is locked for as long as its process lives. The kernel releases the lock however the process
ends, so a directory that a killed process left can be told from one that is in use.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..inputs.errors import DataError
from ..results.file import try_lock, try_lock_if_possible

PREFIX = "crossbench-run-"
NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
"""Names that tempfile.mkdtemp makes; only directories that match are removed."""
ATTEMPTS = 5
"""How often to try to remove a directory: Ctrl-C or a file that a thread creates may interfere."""


@contextmanager
def run_directory() -> Iterator[Path]:
    """Make a directory for a run and remove it on exit; first remove those of killed runs.

    Raises DataError, which names the folder, if the directory cannot be made.
    """
    folder = temporary_folder()
    try:
        remove_abandoned_directories(folder)
        directory, lock = _make(folder)
    except OSError as error:
        raise no_space_error(folder, error) from None
    try:
        yield directory
    finally:
        _remove(directory)
        os.close(lock)


def temporary_folder() -> Path:
    """Return the folder that TMPDIR names, or else Python's choice; DataError if there is none."""
    try:
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    except FileNotFoundError as error:
        raise DataError(f"there is no folder for temporary files: set TMPDIR ({error})") from None


def no_space_error(folder: Path, error: OSError) -> DataError:
    """Return the error to raise if the run's data cannot be written to the folder."""
    why = error.strerror or "only a part of it was written"  # NumPy's OSErrors have no strerror
    return DataError(
        f"cannot write the data to the temporary folder {folder}: {why}: "
        "set TMPDIR to a folder with enough space"
    )


def remove_abandoned_directories(folder: Path) -> None:
    """Remove this user's directories whose processes have ended: their locks are free."""
    for entry in list(os.scandir(folder)):
        if NAME.fullmatch(entry.name):
            with suppress(OSError), _opened(entry.path) as directory:
                if try_lock(directory) and os.fstat(directory).st_uid == os.getuid():
                    shutil.rmtree(entry.path, ignore_errors=True)


def _make(folder: Path) -> tuple[Path, int]:
    """Return a new directory and its lock, an open file descriptor.

    If another process removes the directory before it is locked, make another one. A network folder
    may have no locks: there no process can take the directory for abandoned.
    """
    while True:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
        with suppress(FileNotFoundError), _opened(directory) as opened:
            if try_lock_if_possible(opened) and directory.exists():
                return directory, os.dup(opened)  # it keeps the lock after `opened` is closed


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
