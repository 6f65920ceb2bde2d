"""The temporary directory of a run: its data, mapped by all workers, and their temporary files.

It is locked for as long as its run lives, so that the next run can remove what a killed one left.
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

from .errors import DataError

PREFIX = "crossbench-run-"
NAME = re.compile(PREFIX + r"[a-z0-9_]{8}")
"""What tempfile.mkdtemp makes of the prefix: nothing else in the folder is touched."""
ATTEMPTS = 5
"""To remove the directory, which a thread of an interrupted run may still be writing to."""


@contextmanager
def run_directory() -> Iterator[Path]:
    """Make a directory for a run and remove it at the end; remove those of killed runs before.

    Raises DataError, in a line that names the folder, where it cannot be made.
    """
    folder = temporary_folder()
    try:
        remove_abandoned(folder)
        directory, lock = _make(folder)
    except OSError as error:
        raise no_room(folder, error) from None
    try:
        yield directory
    finally:
        _remove(directory)
        os.close(lock)


def temporary_folder() -> Path:
    """Return the folder that TMPDIR names, else Python's choice; DataError where there is none."""
    try:
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    except FileNotFoundError as error:
        raise DataError(f"there is no folder for temporary files: set TMPDIR ({error})") from None


def no_room(folder: Path, error: OSError) -> DataError:
    """Return the error for a folder that the run's data cannot be written to."""
    why = error.strerror or "only a part of it was written"  # NumPy's errors have no strerror
    return DataError(
        f"the data cannot be written to the temporary folder {folder}: {why}: "
        "set TMPDIR to a folder with room for it"
    )


def remove_abandoned(folder: Path) -> None:
    """Remove this user's directories of runs that live no more: their locks are free."""
    for entry in list(os.scandir(folder)):
        if NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            with suppress(OSError), _opened(entry.path) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(entry.path, ignore_errors=True)


def _make(folder: Path) -> tuple[Path, int]:
    """Return a new directory and its lock. Another run may remove it before it is locked: then make
    another one.
    """
    while True:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
        with suppress(FileNotFoundError, BlockingIOError), ExitStack() as stack:
            lock = stack.enter_context(_opened(directory))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:  # a network folder without locks, where nobody removes it either
                pass
            if directory.exists():
                return directory, os.dup(lock)  # a copy holds the lock too


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
