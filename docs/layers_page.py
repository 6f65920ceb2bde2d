"""Write docs/layers.md from the docstrings and the adapters: python docs/layers_page.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
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
OWN = " (own)"


def nothing_own(text: str) -> Sequence[str]:
    return ()


HEAD = """# Layers, losses and optimizers

What a [model](extending/model.md) may be made of: the formula of each, and how its row in each
framework writes an example of it. All names are those of `crossbench.models`. Shapes leave out the
batch: pictures are (channels, height, width), sequences (length, features). "(own)" marks a
class or function that the framework lacks: a [program](programs.md) has its text.

This page is written by `python docs/layers_page.py`, from the docstrings and the adapters.
"""
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
            models.Conv(16, (3, 3), padding=(1, 1), groups=16),
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
            models.MultiHeadAttention(
                4, causal=True, bias=False, kv_heads=2, rotary=models.Rotary(500_000.0)
            ),
            models.LSTM(32),
            models.LSTM(32, sequences=True),
            models.GRU(32),
        ],
    }.items()
    for layer in layers
]
"""Examples of each layer, with the shape of the input."""
JOINED = {
    "PyTorch": "`Residual(body, shortcut)`, `Add(...)`, `Multiply(...)`, `Concatenate(...)`",
    "JAX": "`x + y`, `x * y`, `jnp.concatenate([x, y], axis=-1)`",
    "Keras": "`layers.Add()`, `layers.Multiply()`, `layers.Concatenate()` of `[x, y]`",
    "Flux.jl": "`SkipConnection(body, +)`, `Parallel(+, ...)`, `Parallel(vcat, ...)`",
    "Lux.jl": "`SkipConnection(body, +)`, `Parallel(+, ...)`, `Parallel(vcat, ...)`",
}
EXAMPLE_LOSSES = [
    (models.SoftmaxCrossEntropy(), 10),
    (models.BinaryCrossEntropy(), 1),
    (models.MeanSquaredError(), 10),
    (models.AbsoluteError(), 10),
    (models.Huber(1.0), 10),
]
EXAMPLE_OPTIMIZERS = [
    models.SGD(0.01, momentum=0.9),
    models.SGD(0.1, 0.9, nesterov=True, weight_decay=5e-4),
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
    for title, module in FAMILIES.items():
        yield f"## {title}\n"
        for name, kind in vars(module).items():
            is_own = getattr(kind, "__module__", "") == module.__name__
            if not is_own or getattr(models, name, None) is not kind or name in ABSTRACT:
                continue
            yield from _described(name, kind)
            for layer, shape in (example for example in EXAMPLES if type(example[0]) is kind):
                yield from _table(f"{_example(layer)} of {shape}", _written(layer, shape))
            if kind is models.Branches:
                yield from _table("outputs x and y", JOINED)
    missing = [
        name
        for name, kind in vars(models).items()
        if isinstance(kind, type)
        and issubclass(kind, models.Layer)
        and kind not in (*(type(layer) for layer, _ in EXAMPLES), models.Branches)
        and name not in ABSTRACT
    ]
    if missing:
        raise LookupError(f"docs/layers_page.py has no example of {', '.join(missing)}")


def _described(name: str, described: Any) -> Iterator[str]:
    """Yield a heading, the arguments and the docstring."""
    parameters = inspect.signature(described).parameters.values()
    arguments = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    yield f"### {name}\n"
    yield f"`{name}({', '.join(arguments)})`\n"
    yield f"{inspect.getdoc(described)}\n"


def _example(described: Any) -> str:
    """Return the call that makes a description, without what it has by default."""
    given = [
        f"{each.name}={value!r}"
        for each in fields(described)
        if (value := getattr(described, each.name)) != each.default
    ]
    return f"`{type(described).__name__}({', '.join(given)})`"


def _table(example: str, rows: dict[str, str]) -> Iterator[str]:
    yield f"| | {example} |"
    yield "|---|---|"
    for title, text in rows.items():
        yield f"| {title} | {text} |"
    yield ""


def _written(layer: models.Layer, shape: tuple[int, ...]) -> dict[str, str]:
    """Return how each framework writes a layer."""
    named = NamedLayer("layer1", layer, shape, layer.output_shape(shape))
    is_tied = isinstance(layer, models.Unembedding)
    in_flux = ["Unembedding(embedding.weight)"] if is_tied else flux.layer_source(named)
    in_lux = "TiedModel(embedding, body)" if is_tied else lux.layer_source(named)
    return {
        "PyTorch": _cell([torch.layer_source(named)], torch.definitions),
        "JAX": _of_parts(jax.layer_source(named), lambda _: jax.layer_source(named).definitions),
        "Keras": _of_parts(keras.layer_source(named), keras.definitions),
        "Flux.jl": _cell(in_flux, _in_julia("Flux")),
        "Lux.jl": _cell([in_lux], _in_julia("Lux")),
    }


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
    return ", ".join(f"`{text}`" for text in texts) + OWN * bool(own("\n".join(texts)))


def _in_julia(package: str) -> Definitions:
    return lambda text: layers_in(text, f"CrossBench{package}")


def _losses() -> Iterator[str]:
    yield "## Losses\n"
    for loss, outputs in EXAMPLE_LOSSES:
        yield from _described(type(loss).__name__, type(loss))
        model = replace(models.get("mlp7_relu"), layers=(models.Dense(outputs),), loss=loss)
        in_flux, in_lux = flux.loss_source(model), lux.loss_source(model)
        rows = {
            "PyTorch": _cell([torch.loss_source(loss, (outputs,))], torch.definitions),
            "JAX": _cell(jax.loss_source(loss), nothing_own),
            "Keras": _cell([keras.loss_source(loss)], keras.definitions),
            "Flux.jl": _cell([f"{in_flux.function}(outputs, {in_flux.targets})"], nothing_own),
            "Lux.jl": _cell([f"{in_lux.made}(outputs, {in_lux.targets})"], nothing_own),
        }
        yield from _table(_example(loss), rows)


def _optimizers() -> Iterator[str]:
    yield "## Optimizers\n"
    yield f"Each takes, beside its own: {_one_line(models.Optimizer)}\n"
    described: type | None = None
    for optimizer in EXAMPLE_OPTIMIZERS:
        if type(optimizer) is not described:
            described = type(optimizer)
            yield from _described(described.__name__, described)
        in_julia = julia.optimizer_source(optimizer)
        rows = {
            "PyTorch": _cell(torch.optimizer_source(optimizer), torch.definitions),
            "JAX": _cell([jax.optimizer_source(optimizer, "is_matrix")], nothing_own),
            "Keras": _cell(keras.optimizer_source(optimizer, "vectors"), keras.definitions),
            "Flux.jl, Lux.jl": _cell([in_julia], nothing_own),
        }
        yield from _table(_example(optimizer), rows)
    yield "## Schedules of the learning rate\n"
    for schedule in training.Schedule.__subclasses__():
        yield from _described(schedule.__name__, schedule)


def _one_line(described: type) -> str:
    return " ".join((inspect.getdoc(described) or "").split("\n\n")[-1].split())


if __name__ == "__main__":
    (Path(__file__).parent / "layers.md").write_text(page(), "utf-8")
