"""Encode and decode a worker's answers as msgspec's JSON.

They are plain typed records, never pickles, so no code of an adapter runs in the parent. They are
JSON because the results file is: what cannot be read back there, such as a NaN, cannot arrive here.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

MAX_BYTES = 2**26
"""Bytes of an answer, at most: an epoch of a million steps takes a third of it."""

T = TypeVar("T")


class Answer(msgspec.Struct, Generic[T], frozen=True, tag="answer"):
    """Carry the value that a request returned."""

    value: T


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """Say why a request failed; error is one line.

    unavailable: whether the framework is not available, rather than something failed in it.
    unsupported: whether the adapter does not support a layer, loss or optimizer.
    """

    error: str
    traceback: str | None = None
    unavailable: bool = False
    unsupported: bool = False


class UnreadableReply(Exception):
    """A reply cannot be decoded as the requested type; str() says why, in a line."""


def encode(reply: Answer[Any] | Failure) -> bytes:
    """Return the reply as JSON; TypeError, ValueError or OverflowError where that has no form."""
    return msgspec.json.encode(reply)


def decode(content: bytes, value_type: Any) -> Answer[Any] | Failure:
    """Return the reply, whose value has that type; UnreadableReply where it is not."""
    try:
        return msgspec.json.decode(content, type=Answer[value_type] | Failure)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise UnreadableReply(str(error)) from None
