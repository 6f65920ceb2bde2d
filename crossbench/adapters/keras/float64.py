"""Have Keras compute in float64 what it computes in float32 whatever the arrays are: for the proof.

What is set here holds for the process, and changes nothing in float32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule
from keras.src import backend
from keras.src.backend.common import dtypes


def set_results(dtype: str) -> None:
    """Set the dtype of results of float64: on JAX and PyTorch it is float32 by Keras' rules."""
    dtypes.BIT64_TO_BIT32_DTYPE["float64"] = dtype


@cache
def install() -> None:
    """Give Keras an attention, a GELU, a leaky ReLU and an upsampling that compute in float64."""
    gelu, leaky_relu = backend.nn.gelu, backend.nn.leaky_relu
    attend, resize = backend.nn.dot_product_attention, backend.image.resize

    def attend_in_float64(
        query: Any, key: Any, value: Any, mask: Any = None, is_causal: bool = False, **how: Any
    ) -> Any:
        # TensorFlow's scale and JAX' softmax are in float32
        if keras.backend.standardize_dtype(query.dtype) != "float64":
            return attend(query, key, value, mask=mask, is_causal=is_causal, **how)
        length, width = query.shape[1], query.shape[-1]
        scores = ops.einsum("nqhd,nkhd->nhqk", query, key) / np.sqrt(width)
        for allowed in (mask, np.tri(length, dtype=bool) if is_causal else None):
            scores = scores if allowed is None else ops.where(allowed, scores, -np.inf)
        return ops.einsum("nhqk,nkhd->nqhd", ops.softmax(scores), value)

    def gelu_in_float64(x: Any, approximate: bool = True) -> Any:
        # TensorFlow's constants are in float32: an error of 5e-9 (2.21)
        if keras.backend.standardize_dtype(x.dtype) != "float64":
            return gelu(x, approximate)
        if not approximate:
            return x / 2 * (1 + ops.erf(x / np.sqrt(2)))
        return x / 2 * (1 + ops.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def leaky_relu_in_float64(x: Any, negative_slope: float = 0.2) -> Any:
        if keras.backend.standardize_dtype(x.dtype) != "float64":
            return leaky_relu(x, negative_slope)
        return ops.where(x > 0, x, negative_slope * x)  # TensorFlow's slope is in float32

    def resize_in_float64(images: Any, size: Any, **options: Any) -> Any:
        # TensorFlow's result is in float32
        if keras.backend.standardize_dtype(images.dtype) != "float64":
            return resize(images, size, **options)
        shares = []
        for length, to in zip(images.shape[1:3], size, strict=True):
            places = np.clip((np.arange(to) + 0.5) * length / to - 0.5, 0, length - 1)
            shares.append(np.maximum(1 - np.abs(places[:, None] - np.arange(length)), 0))
        return ops.einsum("hi,nijc,wj->nhwc", shares[0], images, shares[1])

    if backend.backend() != "torch":
        backend.nn.dot_product_attention = attend_in_float64
    if backend.backend() == "tensorflow":
        backend.nn.gelu = gelu_in_float64
        backend.nn.leaky_relu = leaky_relu_in_float64
        backend.image.resize = resize_in_float64


def set_exact(optimizer: Any) -> None:
    """Have TensorFlow make float64 of an optimizer's numbers, as of its schedule's: it makes
    float32 of a Python float, but not of NumPy's.
    """
    rate = optimizer._learning_rate
    joined = (part for part in vars(rate).values() if isinstance(part, LearningRateSchedule))
    for holder in (optimizer, rate, *joined):
        for name, value in list(vars(holder).items()):
            # rho stands before a variable, which NumPy's number would take for an array
            if type(value) is float and name != "rho":
                setattr(holder, name, np.float64(value))
            elif type(value) is list and value and all(type(v) is float for v in value):
                setattr(holder, name, list(map(np.float64, value)))
