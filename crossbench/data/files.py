"""Read data files and archives safely: regular files only, and no more than the caller allows.

What the bytes mean is left to each source's module.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..inputs.errors import DataError

FOLDERS_BELOW, MAX_FOLDERS = 3, 1_000
"""How deep, and in how many folders, the one that holds a data set is looked for."""
GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
"""What a packed file begins with."""
CHUNK = 2**16  # bytes read at once, so that memory grows with what the file holds, not claims


class DamagedFile(DataError):
    """A file does not hold what its format requires; `path` is that file."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(path, what)
        self.path = path
        self.what = what

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


@dataclass(frozen=True)
class ArchiveBounds:
    """Limit what is read of a .tar.gz.

    packed, unpacked: bytes of the archive before and after decompression.
    member: bytes of one file in it. members: the number of entries, of any kind.
    """

    packed: int
    unpacked: int
    member: int
    members: int


def is_directory(path: Path) -> bool:
    """Return whether the path is a directory; False if the system refuses to say."""
    return os.path.isdir(path)  # noqa: PTH112, Path.is_dir raises for a name that is too long


def exists(path: Path) -> bool:
    """Return whether there is such a file or folder; False if the system refuses to say."""
    return os.path.exists(path)  # noqa: PTH110, Path.exists raises where it must not be read


def find_folder(directory: Path, holds: Callable[[Path], object]) -> Path | None:
    """Return the folder that holds a data set: the directory itself, or the nearest one below it.

    Raise DataError if several are equally near. At most MAX_FOLDERS are looked into.
    """
    level, left = [directory], MAX_FOLDERS
    for _ in range(1 + FOLDERS_BELOW):
        if found := [folder for folder in level if holds(folder)]:
            if len(found) > 1:
                raise DataError(f"{directory} holds {found[0]} and {found[1]}: name one of them")
            return found[0]
        level = [inner for folder in level for inner in _folders_in(folder)][:left]
        left -= len(level)
    return None


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:  # it must not be read: then nothing is found there
        return []


def begins_with(path: Path, magic: bytes, takes: str) -> bool:
    """Return whether a regular file begins with these bytes; raise as open_regular_file() does.

    takes: what the user may name, for the message if there is no such file.
    """
    with open_regular_file(path, sys.maxsize, takes) as file:
        return read_up_to(file, len(magic)) == magic


@contextmanager
def open_regular_file(
    path: Path, limit: int, missing: str, packed: bool = False
) -> Iterator[io.BufferedIOBase]:
    """Open a regular file, or a link to one, to read bytes from it.

    limit: the most bytes that the file may have on the disk. missing: the end of the message if
    there is no file, which says what to do. packed: decompress the file by gzip. Raise DataError
    if it cannot be opened, and DamagedFile if it is too large. The body of the `with` must only
    read the file: its OSErrors and gzip errors are reported as the file's.
    """
    try:
        _require_regular(path, path.stat())  # before: opening a device may already disturb it
        with open(path, "rb", opener=_open_nonblocking) as file:
            status = os.fstat(file.fileno())
            _require_regular(path, status)  # again, because it may have been replaced
            if status.st_size > limit:
                raise _too_large(path, limit)
            if packed:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedFile(path, f"is damaged: {str(error).rstrip('.')}") from None
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {missing}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def read(path: Path, limit: int, missing: str) -> bytes:
    """Return the bytes of a regular file; raise as open_regular_file() does."""
    with open_regular_file(path, limit, missing) as file:
        raw = read_up_to(file, limit + 1)
    if len(raw) > limit:
        raise _too_large(path, limit)
    return raw


def read_up_to(file: io.BufferedIOBase, limit: int) -> bytes:
    """Return the next bytes of an open file, up to its end but at most `limit`."""
    chunks: list[bytes] = []
    while limit > 0 and (chunk := file.read(min(CHUNK, limit))):
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def read_archive(
    path: Path, wanted: Callable[[tarfile.TarInfo], bool], bounds: ArchiveBounds
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each wanted regular file in a .tar.gz, in the archive's order.

    Raise DamagedFile if the archive is damaged or exceeds the bounds. A wrong checksum raises only
    after the last member, because gzip stores it at the end.
    """
    with open_regular_file(path, bounds.packed, "it is not in the cache", packed=True) as unpacked:
        stream = _ForwardStream(path, unpacked, bounds)
        try:
            yield from _members(path, stream, wanted, bounds)
            while stream.read(CHUNK):  # to the end, where gzip compares the checksum
                pass
        except (OSError, EOFError, zlib.error, DataError):
            raise
        except Exception as error:  # whatever tarfile raises while it parses a damaged header
            what = f"is damaged: a header in it cannot be read ({type(error).__name__})"
            raise DamagedFile(path, what) from None


def _members(
    path: Path,
    stream: _ForwardStream,
    wanted: Callable[[tarfile.TarInfo], bool],
    bounds: ArchiveBounds,
) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for number, member in enumerate(tar, 1):
            if number > bounds.members:
                raise DamagedFile(path, f"holds more than {bounds.members:,} files")
            if member.isfile() and wanted(member):
                if member.size > bounds.member:
                    what = f"is too large: {member.name!r} in it has {member.size:,} bytes"
                    raise DamagedFile(path, f"{what}, where at most {bounds.member:,} are read")
                file = tar.extractfile(member)
                assert file is not None  # because the member is a regular file
                yield member.name, file.read(member.size)


class _ForwardStream(io.BufferedIOBase):
    """Lets tarfile read a decompressed archive forwards only, and within the bounds.

    To seek backwards, gzip decompresses from the start again: a malicious archive could demand
    that without end.
    """

    def __init__(self, path: Path, file: io.BufferedIOBase, bounds: ArchiveBounds) -> None:
        self._path = path
        self._file = file
        self._bounds = bounds

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= max(self._bounds.member, CHUNK):
            raise DamagedFile(self._path, "is damaged: a header in it has no sensible size")
        raw = self._file.read(size)
        self._require_within(self.tell())
        return raw

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        if whence != os.SEEK_SET or position < self.tell():
            raise DamagedFile(self._path, "is damaged: its parts overlap")
        self._require_within(position)
        return self._file.seek(position)

    def _require_within(self, position: int) -> None:
        if position > self._bounds.unpacked:
            raise DamagedFile(
                self._path,
                f"is too large: it holds more than {self._bounds.unpacked:,} bytes decompressed",
            )


def _too_large(path: Path, limit: int) -> DamagedFile:
    return DamagedFile(path, f"is too large: it has more than {limit:,} bytes")


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(None, "Is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise DataError(
            f"{path} cannot be read: it is {_kind_of_file(status.st_mode)}, not a regular file"
        )


def _kind_of_file(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _open_nonblocking(path: str, flags: int) -> int:
    """Open the file without waiting for a writer, in case a named pipe has replaced it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
