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
    GELU as GELU,
    GRU as GRU,
    LSTM as LSTM,
    BatchNorm as BatchNorm,
    ClassToken as ClassToken,
    Conv as Conv,
    Dense as Dense,
    Dropout as Dropout,
    Embedding as Embedding,
    FirstOfSequence as FirstOfSequence,
    Flatten as Flatten,
    GlobalAveragePool as GlobalAveragePool,
    Layer as Layer,
    LayerNorm as LayerNorm,
    MaxPool as MaxPool,
    MultiHeadAttention as MultiHeadAttention,
    OneHot as OneHot,
    PositionEmbedding as PositionEmbedding,
    Recurrent as Recurrent,
    ReLU as ReLU,
    Residual as Residual,
    RMSNorm as RMSNorm,
    ToSequence as ToSequence,
    Unembedding as Unembedding,
)
from .model import (
    Model as Model,
    NamedLayer as NamedLayer,
    Weights as Weights,
)
from .training import (
    SGD as SGD,
    Adadelta as Adadelta,
    Adam as Adam,
    AdamW as AdamW,
    BinaryCrossEntropy as BinaryCrossEntropy,
    InverseTimeDecay as InverseTimeDecay,
    Loss as Loss,
    MeanSquaredError as MeanSquaredError,
    Optimizer as Optimizer,
    RMSprop as RMSprop,
    SoftmaxCrossEntropy as SoftmaxCrossEntropy,
    WarmupCosine as WarmupCosine,
)


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
