"""How a worker's answers travel: msgspec's JSON, in frames that begin with their length.

They are plain typed records, never pickles: no code of an adapter runs in the parent. They are JSON
because the results file is: what cannot be read back there, such as a NaN, cannot arrive here.
"""

from __future__ import annotations

import struct
from typing import Any, Generic, TypeVar

import msgspec

LENGTH = struct.Struct(">Q")
MAX_BYTES = 2**26
"""Of a frame: an epoch of a million steps takes a third of it."""

T = TypeVar("T")


class Answer(msgspec.Struct, Generic[T], frozen=True, tag="answer"):
    """What a request gave."""

    value: T


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """Why a request failed: error is one line.

    unavailable: the framework cannot be had; else something went wrong in it.
    """

    error: str
    traceback: str | None = None
    unavailable: bool = False


class Unreadable(Exception):
    """A reply is none, or not of the type that was asked for; str() says why, in a line."""


def encode(reply: Answer[Any] | Failure) -> bytes:
    """Return the reply's frame; TypeError, ValueError or OverflowError where it is not plain."""
    content = msgspec.json.encode(reply)
    return LENGTH.pack(len(content)) + content


def decode_length(header: bytes) -> int:
    """Return how many bytes follow the header; Unreadable where they are too many."""
    (length,) = LENGTH.unpack(header)
    if length > MAX_BYTES:
        raise Unreadable(f"it says that it has {length:,} bytes, of at most {MAX_BYTES:,}")
    return length


def decode(content: bytes, kind: Any) -> Answer[Any] | Failure:
    """Return the reply to a request whose value is of that type; Unreadable where it is not."""
    try:
        return msgspec.json.decode(content, type=Answer[kind] | Failure)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise Unreadable(str(error)) from None
