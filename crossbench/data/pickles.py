"""Read pickles that hold arrays, lists, bytes and dictionaries, and call nothing else."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

_RECONSTRUCT: Any = np.empty(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,  # NumPy 1
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,  # NumPy 2
    ("_codecs", "encode"): lambda text, _: text.encode("latin1"),  # bytes of Python 3, protocol 2
}
"""What a pickle of arrays names, by module and name."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}")
        return _ALLOWED[module, name]


def unpickle(raw: bytes) -> Any:
    """Return what a pickle holds; raise ValueError if it is damaged, or would call anything but
    what makes arrays. Strings of Python 2 become bytes.
    """
    try:
        return _PlainUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises whatever its opcodes run into
        what = str(error) if isinstance(error, pickle.UnpicklingError) else type(error).__name__
        raise ValueError(f"it is no pickle of arrays ({what})") from None
