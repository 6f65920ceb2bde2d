"""Opens files that a user has named: regular files alone, since reading another might never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file, or of a link to one; a named pipe is not waited for.

    Raise OSError, whose strerror says why it cannot be opened or what else it is, and ValueError
    for a path that no file can have.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        what = KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {what}, not a regular file", str(path))
    return descriptor


def read(path: str | Path, limit: int) -> bytes:
    """Return the bytes of a regular file, at most `limit`; raise as open_regular() does."""
    with open(open_regular(path), "rb") as file:
        return file.read(limit)
