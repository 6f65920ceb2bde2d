"""Describe models, and find them by name: in the catalogue, or in a user's Python file.

The catalogue is every module of this package with a MODEL, which is named as its file. An adapter
takes a description apart by this module: `case models.Conv(kernel=(height, width))`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..inputs import python_file
from ..inputs.checks import shown
from ..inputs.errors import SpecError
from .layers import (
    GELU,
    GRU,
    LSTM,
    BatchNorm,
    ClassToken,
    Conv,
    Dense,
    Dropout,
    Embedding,
    FirstOfSequence,
    Flatten,
    GlobalAveragePool,
    Layer,
    LayerNorm,
    MaxPool,
    MultiHeadAttention,
    OneHot,
    PositionEmbedding,
    Recurrent,
    ReLU,
    Residual,
    RMSNorm,
    ToSequence,
    Unembedding,
)
from .model import Model, NamedLayer, Weights
from .training import (
    SGD,
    Adadelta,
    Adam,
    AdamW,
    BinaryCrossEntropy,
    InverseTimeDecay,
    Loss,
    MeanSquaredError,
    Optimizer,
    RMSprop,
    SoftmaxCrossEntropy,
    WarmupCosine,
)

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "SGD",
    "Adadelta",
    "Adam",
    "AdamW",
    "BatchNorm",
    "BinaryCrossEntropy",
    "ClassToken",
    "Conv",
    "Dense",
    "Dropout",
    "Embedding",
    "FirstOfSequence",
    "Flatten",
    "GlobalAveragePool",
    "InverseTimeDecay",
    "Layer",
    "LayerNorm",
    "Loss",
    "MaxPool",
    "MeanSquaredError",
    "Model",
    "MultiHeadAttention",
    "NamedLayer",
    "OneHot",
    "Optimizer",
    "PositionEmbedding",
    "RMSNorm",
    "RMSprop",
    "ReLU",
    "Recurrent",
    "Residual",
    "SoftmaxCrossEntropy",
    "ToSequence",
    "Unembedding",
    "WarmupCosine",
    "Weights",
    "get",
    "names",
]


def names() -> list[str]:
    """Return the names of the models in the catalogue."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in modules if hasattr(import_module(f"{__name__}.{name}"), "MODEL")]


def get(name: str) -> Model:
    """Return the catalogue's model of that name, or FILE.py:NAME's; raise SpecError if none."""
    model: Model
    if ":" in name:
        model = python_file.load(name, Model, "model")
    elif name in names():
        model = import_module(f"{__name__}.{name}").MODEL
    else:
        hint = f"; a model in a file is named as {name}:NAME" if name.endswith(".py") else ""
        raise SpecError(f"there is no model {shown(name)}: choose from {', '.join(names())}{hint}")
    return model
