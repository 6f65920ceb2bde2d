"""Results files on the disk: read whole, replaced in one go, and held by one run at a time.

What the content means is none of this module's business.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..checks import shown
from ..errors import ResultsError

FILE_BYTES = 2**29
"""The largest file that is read or written: 200,000 epochs of 100 steps, of 14 bytes a loss and
1,000 bytes an epoch, which take seconds to load."""

Write = Callable[[bytes], None]


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the file's content; ResultsError where it is empty, too large or no regular file."""
    path = _path(path)
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else a fifo waits for a writer
        try:
            _check_regular(path, number)
            with open(number, "rb", closefd=False) as file:
                content = file.read(FILE_BYTES + 1)
        finally:
            os.close(number)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {_why(error)}") from None
    if not content:
        raise ResultsError(
            f"{path} is empty: its run was killed before it wrote anything: run that again, with "
            "--json and this name"
        )
    _check_size(path, len(content), "is no results file")
    return content


def replace(path: str | os.PathLike[str], content: bytes) -> None:
    """Write the file in one go: whatever happens, it holds the old content or this one."""
    os.close(_replace(Path(path), content))


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Write]:
    """Hold a new file for a run, and remove it where nothing was written. Yield what writes it.

    Nothing is overwritten: ResultsError where it exists already, unless it is empty, as a run
    leaves it that was killed early.
    """
    path = _path(path)
    with _held(path, os.O_CREAT) as write:
        if path.stat().st_size:
            raise ResultsError(f"{path} exists already: choose another name")
        try:
            yield write
        finally:
            with suppress(OSError):
                if path.stat().st_size == 0:
                    path.unlink()


@contextmanager
def old_file(path: str | os.PathLike[str]) -> Iterator[Write]:
    """Hold a file that is there, for a run that resumes it. Yield what writes it."""
    with _held(_path(path)) as write:
        yield write


def _path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise ResultsError(f"a results file is named by its path, not {shown(path)}") from None


@contextmanager
def _held(path: Path, flags: int = 0) -> Iterator[Write]:
    """Lock the file; every new one that replaces it is locked before it gets its name."""
    held = _lock(path, flags)
    _remove_parts(path)

    def write(content: bytes) -> None:
        nonlocal held
        before, held = held, _replace(path, content)
        os.close(before)

    try:
        yield write
    finally:
        os.close(held)


def _lock(path: Path, flags: int) -> int:
    """Return a descriptor of the file, locked until it is closed or its process ends."""
    while True:
        try:
            number = os.open(path, os.O_RDWR | os.O_NONBLOCK | flags, 0o666)
        except (OSError, ValueError) as error:
            does = "written" if flags else "read"
            raise ResultsError(f"{path} cannot be {does}: {_why(error)}") from None
        try:
            _check_regular(path, number)
            if not _try_lock(number):
                raise ResultsError(
                    f"{path} is being written by another run{_holder(number)}: wait for it, or "
                    "name another file"
                )
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(number), path.stat()):
                    return number
        except BaseException:
            os.close(number)
            raise
        os.close(number)  # it was replaced before it was locked


def _replace(path: Path, content: bytes) -> int:
    """Return a descriptor of the new file, locked."""
    _check_size(path, len(content), "cannot be written")
    # the file's own name with a suffix may be too long for the file system
    part = path.parent / f"{_part_prefix(path)}{secrets.token_hex(4)}"
    try:
        number = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            _try_lock(number)
            with open(number, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(number)
            part.replace(path)
        except BaseException:
            os.close(number)
            with suppress(OSError):
                part.unlink()
            raise
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be written: {_why(error)}") from None
    return number


def _part_prefix(path: Path) -> str:
    return f".crossbench-{zlib.crc32(os.fsencode(path.name)):08x}-"


def _remove_parts(path: Path) -> None:
    """Remove what a killed run left half written: nobody holds its lock."""
    for part in path.parent.glob(f"{_part_prefix(path)}*"):
        with suppress(OSError), open(part, "rb") as file:
            if _try_lock(file.fileno()):
                part.unlink()


def _try_lock(number: int) -> bool:
    """Return whether nobody else holds the file. Some network file systems have no locks."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _holder(number: int) -> str:
    """Return " (process N)" for the one that holds the lock, or nothing where it is not told."""
    inode = f":{os.fstat(number).st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: FLOCK  ADVISORY  WRITE 4321 fd:01:6789 0 EOF
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(inode):
                return f" (process {words[4]})"
    return ""


def _check_regular(path: str | os.PathLike[str], number: int) -> None:
    if not stat.S_ISREG(os.fstat(number).st_mode):
        raise ResultsError(f"{path} is no regular file: name one that crossbench wrote")


def _check_size(path: str | os.PathLike[str], size: int, what: str) -> None:
    if size > FILE_BYTES:
        raise ResultsError(f"{path} {what}: it has more than {FILE_BYTES / 2**20:,.0f} MiB")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
