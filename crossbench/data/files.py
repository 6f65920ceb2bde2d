"""Find data files and archives, and read them safely.

It reads regular files only, and no more than the caller allows. What the bytes mean is left to each
source's module.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..inputs.errors import DataError
from ..inputs.regular_file import open_regular

FOLDERS_BELOW, MAX_FOLDERS = 3, 1_000
"""How deep, and in how many folders, the one that holds a data set is looked for."""
GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
"""What a packed file begins with."""
CHUNK = 2**16  # bytes read at once, so that memory grows with what the file holds, not claims


@dataclass(frozen=True)
class Forms:
    """Describe in which forms users have a data set on their disks.

    title: what a folder or a file holds then. takes: what the user may name, for messages. folders:
    for each form of an unpacked folder, names one of which it holds. packed: names of the files one
    of which holds everything. magic: what such a file begins with.
    """

    title: str
    takes: str
    folders: tuple[tuple[str, ...], ...]
    packed: tuple[str, ...]
    magic: bytes

    def find(self, path: Path) -> tuple[Path, str]:
        """Return the unpacked folder, and the name that it was known by; or the packed file, and
        "".

        path: one of the two, or a folder above it. Raise DataError if it is none.
        """
        if is_directory(path):
            for names in self.folders:
                if found := _find_folder(path, names):
                    return found
            if found := _find_folder(path, self.packed):
                return found[0] / found[1], ""
        else:
            with open_regular_file(path, sys.maxsize, self.takes) as file:
                if read_up_to(file, len(self.magic)) == self.magic:
                    return path, ""
        raise DataError(f"{path} holds no {self.title}: {self.takes}")


def is_directory(path: Path) -> bool:
    """Return whether the path is a directory; False if the system refuses to say."""
    return os.path.isdir(path)  # noqa: PTH112, Path.is_dir raises for a name that is too long


def exists(path: Path) -> bool:
    """Return whether there is such a file or folder; False if the system refuses to say."""
    return os.path.exists(path)  # noqa: PTH110, Path.exists raises where it must not be read


def _find_folder(directory: Path, names: tuple[str, ...]) -> tuple[Path, str] | None:
    """Return the folder that holds one of the names, and the name: the directory itself, or the
    nearest one below it.

    Raise DataError if several are equally near. At most MAX_FOLDERS are looked into.
    """
    level, left = [directory], MAX_FOLDERS
    for _ in range(1 + FOLDERS_BELOW):
        found = [folder for folder in level if _first_in(folder, names)]
        if len(found) > 1:
            raise DataError(f"{directory} holds {found[0]} and {found[1]}: name one of them")
        if found:
            return found[0], _first_in(found[0], names)
        level = [inner for folder in level for inner in _folders_in(folder)][:left]
        left -= len(level)
    return None


def _first_in(folder: Path, names: tuple[str, ...]) -> str:
    """Return the first of the names that the folder has; "" without one."""
    return next((name for name in names if exists(folder / name)), "")


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:  # it must not be read: then nothing is found there
        return []


@contextmanager
def open_regular_file(
    path: Path, limit: int, missing: str, packed: bool = False
) -> Iterator[io.BufferedIOBase]:
    """Open a regular file, or a link to one, to read bytes from it.

    limit: the most bytes that the file may have on the disk. missing: the end of the message if
    there is no file, which says what to do. packed: decompress the file by gzip. Raise DataError
    if it cannot be opened or is too large. The body of the `with` must only
    read the file: its OSErrors and gzip errors are reported as the file's.
    """
    try:
        with open(open_regular(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise _too_large(path, limit)
            if packed:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {str(error).rstrip('.')}") from None
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


def read_archive(
    path: Path, wanted: Callable[[tarfile.TarInfo], bool], bounds: ArchiveBounds
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each wanted regular file in a .tar.gz, in the archive's order.

    Raise DataError if the archive is damaged or exceeds the bounds. A wrong checksum raises only
    after the last member, because gzip stores it at the end.
    """
    with open_regular_file(path, bounds.packed, "it is not in the cache", packed=True) as unpacked:
        stream = _BoundedReader(path, unpacked, bounds.unpacked)
        try:
            yield from _members(path, stream, wanted, bounds)
            while stream.read(CHUNK):  # to the end, where gzip compares the checksum
                pass
        except (OSError, EOFError, zlib.error, DataError):
            raise
        except Exception as error:  # whatever tarfile raises while it parses a damaged header
            what = f"is damaged: a header in it cannot be read ({type(error).__name__})"
            raise DataError(f"{path} {what}") from None


def _members(
    path: Path,
    stream: _BoundedReader,
    wanted: Callable[[tarfile.TarInfo], bool],
    bounds: ArchiveBounds,
) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r|") as tar:  # | reads forwards only
        for number, member in enumerate(tar, 1):
            if number > bounds.members:
                raise DataError(f"{path} holds more than {bounds.members:,} files")
            if member.isfile() and wanted(member):
                if member.size > bounds.member:
                    what = f"is too large: {member.name!r} in it has {member.size:,} bytes"
                    raise DataError(f"{path} {what}, where at most {bounds.member:,} are read")
                file = tar.extractfile(member)
                assert file is not None  # because the member is a regular file
                yield member.name, file.read(member.size)


class _BoundedReader(io.BufferedIOBase):
    """Reads a decompressed archive for tarfile, up to a limit of bytes.

    tarfile would read on behind the end as often as a header makes it.
    """

    def __init__(self, path: Path, file: io.BufferedIOBase, limit: int) -> None:
        self._path = path
        self._file = file
        self._limit = limit
        self._reads_behind_end = 0

    def read(self, size: int | None = -1, /) -> bytes:
        raw = self._file.read(size)
        if self._file.tell() > self._limit:
            what = f"is too large: it holds more than {self._limit:,} bytes decompressed"
            raise DataError(f"{self._path} {what}")
        if not raw:
            self._reads_behind_end += 1
            if self._reads_behind_end > 2:  # one finds the end of the archive, one that of gzip
                raise DataError(f"{self._path} is damaged: it ends within a file")
        return raw


def _too_large(path: Path, limit: int) -> DataError:
    return DataError(f"{path} is too large: it has more than {limit:,} bytes")
