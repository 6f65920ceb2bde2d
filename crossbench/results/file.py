"""Read, replace and lock results files: each is replaced atomically and held by one run at a time.

The meaning of the content is not known here.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..inputs import regular_file
from ..inputs.checks import shown
from ..inputs.errors import ResultsError

FILE_BYTES = 2**29
"""Bytes of the largest file that is read or written: 200,000 epochs of 100 steps, with 14 bytes per
loss and 1,000 bytes per epoch, which take seconds to load."""

Write = Callable[[bytes], None]
"""Replaces the content of a file that is held."""


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the file's content; ResultsError if it is empty, too large or not a regular file."""
    path = _path(path)
    try:
        content = regular_file.read(path, FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {_why(error)}") from None
    if not content:
        raise ResultsError(
            f"{path} is empty: its run was killed before it wrote anything; start that run again "
            "with --json and this name"
        )
    _check_size(path, len(content), "is not a results file")
    return content


def packed(content: bytes) -> bytes:
    """Return the content, packed by gzip: the same bytes for the same content."""
    return gzip.compress(content, mtime=0)


def unpacked(content: bytes) -> bytes:
    """Return the content, unpacked where gzip packed it; ValueError where that is damaged or too
    large.
    """
    if not content.startswith(b"\x1f\x8b"):
        return content
    unpacker = zlib.decompressobj(wbits=31)  # 31: with the header of gzip
    try:
        found = unpacker.decompress(content, FILE_BYTES)
    except zlib.error as error:
        raise ValueError(f"gzip cannot unpack it: {error}") from None
    if not unpacker.eof:
        size = f"{FILE_BYTES / 2**20:,.0f} MiB"
        raise ValueError(f"what gzip packed is cut off, or has more than {size}")
    return found


def replace(path: str | os.PathLike[str], content: bytes) -> None:
    """Write the file atomically: whatever happens, it holds the old content or this one."""
    os.close(_replace(Path(path), content))


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Write]:
    """Hold a new file for a run, and yield the function that writes it.

    Removes the file if nothing was written. ResultsError if it exists already, unless it is empty,
    as after a run that was killed early.
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
    """Hold an existing file for a run that resumes it, and yield the function that writes it."""
    with _held(_path(path)) as write:
        yield write


def _path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise ResultsError(f"a results file is named by its path, not {shown(path)}") from None


@contextmanager
def _held(path: Path, flags: int = 0) -> Iterator[Write]:
    """Lock the file; each file that replaces it is locked before it gets its name."""
    held = _lock(path, flags)
    _remove_leftovers(path)

    def write(content: bytes) -> None:
        nonlocal held
        before, held = held, _replace(path, content)
        os.close(before)

    try:
        yield write
    finally:
        os.close(held)


def _lock(path: Path, flags: int) -> int:
    """Return a descriptor of the file, locked until it is closed or its process exits."""
    while True:
        try:
            descriptor = regular_file.open_regular(path, os.O_RDWR | flags)
        except (OSError, ValueError) as error:
            action = "written" if flags else "read"
            raise ResultsError(f"{path} cannot be {action}: {_why(error)}") from None
        try:
            if not try_lock_if_possible(descriptor):
                raise ResultsError(
                    f"{path} is being written by another run{_holder(descriptor)}: wait for it, or "
                    "name another file"
                )
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the file was replaced before it was locked


def _replace(path: Path, content: bytes) -> int:
    """Replace the file's content; return a locked descriptor of the new file."""
    _check_size(path, len(content), "cannot be written")
    # a name made from the file's own may be too long for the file system
    temporary = path.parent / f"{_temporary_prefix(path)}{secrets.token_hex(4)}"
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try_lock_if_possible(descriptor)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            os.close(descriptor)
            with suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be written: {_why(error)}") from None
    return descriptor


def _temporary_prefix(path: Path) -> str:
    return f".crossbench-{zlib.crc32(os.fsencode(path.name)):08x}-"


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files that a killed run left: nobody holds their locks."""
    for temporary in path.parent.glob(f"{_temporary_prefix(path)}*"):
        with suppress(OSError), open(temporary, "rb") as file:
            if try_lock_if_possible(file.fileno()):
                temporary.unlink()


def try_lock(descriptor: int) -> bool:
    """Lock the file; return False if another process holds it.

    Raise OSError where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def try_lock_if_possible(descriptor: int) -> bool:
    """Lock the file where its file system has locks; return False if another process holds it."""
    try:
        return try_lock(descriptor)
    except OSError:
        return True


def _holder(descriptor: int) -> str:
    """Return " (process N)" for the process that holds the lock, or "" where it is not known."""
    inode = f":{os.fstat(descriptor).st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: FLOCK  ADVISORY  WRITE 4321 fd:01:6789 0 EOF
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(inode):
                return f" (process {words[4]})"
    return ""


def _check_size(path: str | os.PathLike[str], size: int, problem: str) -> None:
    if size > FILE_BYTES:
        raise ResultsError(f"{path} {problem}: it has more than {FILE_BYTES / 2**20:,.0f} MiB")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
