"""Describe models, and find them by name: in the catalogue, or in a user's Python file.

The catalogue is every module of this package with a MODEL, which is named as its file. An adapter
takes a description apart by this module: `case models.Conv(kernel=(height, width))`.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from ..inputs import python_file
from ..inputs.checks import shown
from ..inputs.errors import SpecError
from .layers.activations import (
    ELU as ELU,
    GELU as GELU,
    HardSwish as HardSwish,
    LeakyReLU as LeakyReLU,
    PReLU as PReLU,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    Rescaling as Rescaling,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    Softplus as Softplus,
    Tanh as Tanh,
)
from .layers.attention import MultiHeadAttention as MultiHeadAttention, Rotary as Rotary
from .layers.branches import Branches as Branches, Residual as Residual
from .layers.convolutions import (
    Conv as Conv,
    Conv1D as Conv1D,
    Convolution as Convolution,
    TransposedConv as TransposedConv,
)
from .layers.dense import Dense as Dense, Dropout as Dropout
from .layers.layer import Layer as Layer
from .layers.norms import (
    BatchNorm as BatchNorm,
    GroupNorm as GroupNorm,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
    Scale as Scale,
)
from .layers.pictures import (
    AveragePool as AveragePool,
    AveragePool1D as AveragePool1D,
    Flatten as Flatten,
    GlobalAveragePool as GlobalAveragePool,
    GlobalMaxPool as GlobalMaxPool,
    MaxPool as MaxPool,
    MaxPool1D as MaxPool1D,
    Pad as Pad,
    Pool as Pool,
    Reshape as Reshape,
    ToSequence as ToSequence,
    Transpose as Transpose,
    Upsample as Upsample,
)
from .layers.recurrent import GRU as GRU, LSTM as LSTM, Recurrent as Recurrent
from .layers.sequences import (
    ClassToken as ClassToken,
    Embedding as Embedding,
    FirstOfSequence as FirstOfSequence,
    OneHot as OneHot,
    PositionEmbedding as PositionEmbedding,
    SinusoidalPositions as SinusoidalPositions,
    Unembedding as Unembedding,
)
from .model import Model as Model, NamedLayer as NamedLayer, Weights as Weights
from .training import (
    SGD as SGD,
    AbsoluteError as AbsoluteError,
    Adadelta as Adadelta,
    Adagrad as Adagrad,
    Adam as Adam,
    AdamW as AdamW,
    BinaryCrossEntropy as BinaryCrossEntropy,
    Cosine as Cosine,
    Decaying as Decaying,
    GivenGradient as GivenGradient,
    Huber as Huber,
    InverseTimeDecay as InverseTimeDecay,
    Lion as Lion,
    Loss as Loss,
    MeanSquaredError as MeanSquaredError,
    OneCycle as OneCycle,
    Optimizer as Optimizer,
    RMSprop as RMSprop,
    SoftmaxCrossEntropy as SoftmaxCrossEntropy,
    Steps as Steps,
    WarmupCosine as WarmupCosine,
)


def __getattr__(name: str) -> NoReturn:
    """Raise AttributeError with the nearest names, which models in files run into."""
    known = {word.lower(): word for word in globals() if word[0].isupper()}
    near = [known[word] for word in difflib.get_close_matches(name.lower(), known)]
    hint = f": {' or '.join(near)}?" if near else ""
    raise AttributeError(f"crossbench.models has no {name}{hint}")


def names() -> list[str]:
    """Return the names of the models in the catalogue."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return [name for name in modules if hasattr(import_module(f"{__name__}.{name}"), "MODEL")]


def get(name: str, convert: Callable[[Any], Any] = lambda found: found) -> Model:
    """Return the catalogue's model of that name, or FILE.py:NAME's; raise SpecError if none.

    convert: what makes a Model of another object in a file, which it returns as it is otherwise.
    """
    model: Model
    if ":" in name:
        model = python_file.load(name, Model, "model", convert)
    elif name in names():
        model = import_module(f"{__name__}.{name}").MODEL
    else:
        hint = f"; a model in a file is named as {name}:NAME" if name.endswith(".py") else ""
        raise SpecError(f"there is no model {shown(name)}: choose from {', '.join(names())}{hint}")
    return model
