"""Write docs/layers.md from the docstrings and the adapters: python docs/layers_page.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossbench import models
from crossbench.adapters.flux import source as flux
from crossbench.adapters.jax import source as jax
from crossbench.adapters.keras import source as keras
from crossbench.adapters.lux import source as lux
from crossbench.adapters.torch import source as torch
from crossbench.in_julia import source as julia
from crossbench.in_julia.definitions import layers_in
from crossbench.models import training
from crossbench.models.layers import (
    activations,
    attention,
    branches,
    convolutions,
    dense,
    norms,
    pictures,
    recurrent,
    sequences,
)
from crossbench.models.model import NamedLayer
from crossbench.source.layers import LayerSource

Definitions = Callable[[str], Sequence[str]]
"""Returns the classes and functions of crossbench that a text names."""
OWN = "\\*"


def nothing_own(text: str) -> Sequence[str]:
    return ()


HEAD = """# Layers, losses and optimizers

What a [model](getting-started.md#a-model-of-your-own) may be made of, and what each framework's row
calls it. All names are those of `crossbench.models`; `help(crossbench.models.Conv)` says what its
arguments mean. Shapes leave out the batch: pictures are (channels, height, width), sequences
(length, features). A star marks what the framework lacks:
[the row's program](check-us.md#the-program-of-a-row) has its text.

This page is written by `python docs/layers_page.py`, from the docstrings and the adapters.
"""
FRAMEWORKS = ("PyTorch", "JAX/Flax", "Keras", "Flux.jl", "Lux.jl")
BAR = "\\|"
OF_ALL_OPTIMIZERS = ("clip_norm", "schedule")
MAX_CODE = 28
"""Characters of code that a cell shows; of longer code it has the name that is called."""
FAMILIES = {
    "Dense layers and dropouts": dense,
    "Activations": activations,
    "Branches": branches,
    "Convolutions": convolutions,
    "Pictures": pictures,
    "Norms": norms,
    "Sequences": sequences,
    "Attention": attention,
    "Recurrent layers": recurrent,
}
ABSTRACT = ("Convolution", "Layer", "Recurrent", "Pool")
PICTURE, SEQUENCE, TOKENS, VECTOR = (16, 8, 8), (32, 64), (32,), (64,)
EXAMPLES: list[tuple[models.Layer, tuple[int, ...]]] = [
    (layer, shape)
    for shape, layers in {
        VECTOR: [
            models.Dense(10),
            models.Reshape((4, 4, 4)),
            models.ReLU(),
            models.ReLU6(),
            models.LeakyReLU(0.2),
            models.PReLU(),
            models.ELU(),
            models.GELU(),
            models.SiLU(),
            models.HardSwish(),
            models.Rescaling(2.0, -1.0),
            models.Sigmoid(),
            models.Tanh(),
            models.Softplus(),
            models.Dropout(0.5),
        ],
        PICTURE: [
            models.Conv(32, (3, 3), padding=(1, 1)),
            models.TransposedConv(8, (4, 4), stride=(2, 2), padding=(1, 1)),
            models.MaxPool((2, 2), (2, 2)),
            models.AveragePool((2, 2), (2, 2)),
            models.GlobalAveragePool(),
            models.GlobalMaxPool(),
            models.Upsample(2),
            models.Pad((1, 1)),
            models.Flatten(),
            models.ToSequence(),
            models.BatchNorm(1e-5, 0.9),
            models.GroupNorm(4, 1e-5),
            models.Scale(0.1),
        ],
        TOKENS: [models.Embedding(1000, 64), models.OneHot(1000)],
        SEQUENCE: [
            models.Conv1D(32, 3, padding=1),
            models.MaxPool1D(3, stride=2, padding=1),
            models.AveragePool1D(2, stride=2),
            models.Transpose(),
            models.LayerNorm(1e-5),
            models.RMSNorm(1e-6),
            models.Unembedding(1000),
            models.PositionEmbedding(),
            models.SinusoidalPositions(),
            models.ClassToken(),
            models.FirstOfSequence(),
            models.MultiHeadAttention(4, causal=True),
            models.LSTM(32),
            models.GRU(32),
        ],
    }.items()
    for layer in layers
]
"""Examples of each layer, with the shape of the input."""
JOINED = (
    "`Residual`, `Add`, `Multiply`, `Concatenate`\\*",
    "`x + y`, `x * y`, `jnp.concatenate`",
    "`layers.Add`, `layers.Multiply`, `layers.Concatenate`",
    "`SkipConnection`, `Parallel`",
    "`SkipConnection`, `Parallel`",
)
EXAMPLE_LOSSES = [
    (models.SoftmaxCrossEntropy(), 10),
    (models.BinaryCrossEntropy(), 1),
    (models.MeanSquaredError(), 10),
    (models.AbsoluteError(), 10),
    (models.Huber(1.0), 10),
]
EXAMPLE_OPTIMIZERS = [
    models.SGD(0.01, momentum=0.9),
    models.Adam(1e-3, 0.9, 0.999, 1e-8),
    models.AdamW(1e-3, 0.9, 0.999, 1e-8, 0.01),
    models.Lion(1e-4, 0.9, 0.99, 0.1),
    models.RMSprop(1e-3, 0.9, 1e-8),
    models.Adagrad(0.01, 0.1, 1e-7),
    models.Adadelta(1.0, 0.9, 1e-6),
]


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_layers(), *_losses(), *_optimizers()])


def _layers() -> Iterator[str]:
    examples: dict[type, tuple[models.Layer, tuple[int, ...]]] = {}
    for layer, shape in EXAMPLES:
        examples.setdefault(type(layer), (layer, shape))
    for title, module in FAMILIES.items():
        yield from _header(title, FRAMEWORKS)
        for name, kind in vars(module).items():
            is_own = getattr(kind, "__module__", "") == module.__name__
            if not is_own or getattr(models, name, None) is not kind or name in ABSTRACT:
                continue
            if kind is models.Branches:
                yield _line(kind, JOINED)
            elif kind in examples:
                yield _line(kind, _written(*examples[kind]))
            elif isinstance(kind, type) and issubclass(kind, models.Layer):
                raise LookupError(f"docs/layers_page.py has no example of {name}")
            else:
                yield _line(kind, [""] * len(FRAMEWORKS))
        yield ""


def _header(title: str, columns: Sequence[str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"|{'|'.join(('', 'what it does', *columns))}|"
    yield "|---" * (len(columns) + 2) + "|"


def _line(described: Any, cells: Sequence[str]) -> str:
    """Return the line of a class: its call, the first paragraph of its docstring, and its cells."""
    parameters = inspect.signature(described).parameters.values()
    own = [p for p in parameters if p.name not in OF_ALL_OPTIMIZERS]
    arguments = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in own]
    call = f"`{described.__name__}({', '.join(arguments)})`"
    what = " ".join((inspect.getdoc(described) or "").split("\n\n")[0].split())
    return f"|{'|'.join((call, what.replace('|', BAR), *cells))}|"


def _written(layer: models.Layer, shape: tuple[int, ...]) -> list[str]:
    """Return what each framework calls a layer."""
    named = NamedLayer("layer1", layer, shape, layer.output_shape(shape))
    is_tied = isinstance(layer, models.Unembedding)
    in_flux = ["Unembedding(embedding.weight)"] if is_tied else flux.layer_source(named)
    in_lux = "TiedModel(embedding, body)" if is_tied else lux.layer_source(named)
    return [
        _cell([torch.layer_source(named)], torch.definitions),
        _of_parts(jax.layer_source(named), lambda _: jax.layer_source(named).definitions),
        _of_parts(keras.layer_source(named), keras.definitions),
        _cell(in_flux, _in_julia("Flux")),
        _cell([in_lux], _in_julia("Lux")),
    ]


def _of_parts(source: LayerSource, own: Definitions) -> str:
    """Return how a layer is made and applied."""
    parts = [*source.before, *([source.build] if source.build else [])]
    if source.output != LayerSource.output:
        parts.append(source.output.format(layer="layer", x="x"))
    return _cell(parts, own)


def _cell(parts: Iterable[Any], own: Definitions) -> str:
    """Return parts of source code, with a mark where the framework lacks what one names."""
    texts = [
        re.sub(r"\n *(\S)", r" \1", str(part)).replace("( ", "(").replace(" )", ")")
        for part in parts
    ]
    return ", ".join(f"`{_short(text)}`" for text in texts) + OWN * bool(own("\n".join(texts)))


def _short(code: str) -> str:
    code = re.sub("^(?:optimizer =|return) ", "", code)
    return code if len(code) <= MAX_CODE else code.partition("(")[0]


def _in_julia(package: str) -> Definitions:
    return lambda text: layers_in(text, f"CrossBench{package}")


def _losses() -> Iterator[str]:
    yield from _header("Losses", FRAMEWORKS)
    for loss, outputs in EXAMPLE_LOSSES:
        model = replace(models.get("mlp7_relu"), layers=(models.Dense(outputs),), loss=loss)
        cells = [
            _cell([torch.loss_source(loss, (outputs,))], torch.definitions),
            _cell(jax.loss_source(loss), nothing_own),
            _cell([keras.loss_source(loss)], keras.definitions),
            _cell([flux.loss_source(model).function], nothing_own),
            _cell([lux.loss_source(model).made], nothing_own),
        ]
        yield _line(type(loss), cells)
    yield ""


def _optimizers() -> Iterator[str]:
    yield from _header("Optimizers", (*FRAMEWORKS[:3], "Flux.jl, Lux.jl"))
    for optimizer in EXAMPLE_OPTIMIZERS:
        cells = [
            _cell(torch.optimizer_source(optimizer), torch.definitions),
            _cell([jax.optimizer_source(optimizer, "is_matrix")], nothing_own),
            _cell(keras.optimizer_source(optimizer, "vectors"), keras.definitions),
            _cell([julia.optimizer_source(optimizer)], nothing_own),
        ]
        yield _line(type(optimizer), cells)
    yield f"\nEach takes, beside its own: {_one_line(models.Optimizer)}\n"
    yield from _header("Schedules of the learning rate", ())
    for schedule in training.Schedule.__subclasses__():
        yield _line(schedule, ())


def _one_line(described: type) -> str:
    return " ".join((inspect.getdoc(described) or "").split("\n\n")[-1].split())


if __name__ == "__main__":
    (Path(__file__).parent / "layers.md").write_text(page(), "utf-8")
