"""A model described once, for every framework: its layers, loss, optimizer and data."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from ..checks import SHAPE, Checked, Line, Size, one_of, optional, shown, shown_error, whole
from ..data.sources import CIFAR10, Source
from ..errors import SpecError
from .layers import Embedding, Layer, Layers, OneHot, Parameter, Residual, Shape
from .training import Loss, Optimizer

LOSS = one_of("a loss of crossbench.models.training", Loss)
OPTIMIZER = one_of("an optimizer of crossbench.models.training", Optimizer)
SOURCE = one_of("a source of crossbench.data.sources, such as MNIST()", Source)
FUNCTION = one_of("a function from a size to a Model", Callable)

Weights = dict[str, np.ndarray]
"""Canonical parameters by name, such as "conv1.weight" (float32, or float64 in parity)."""


@dataclass(frozen=True)
class NamedLayer:
    """A layer at its place in a model; body and shortcut are the layers inside of a Residual."""

    name: str
    layer: Layer
    input_shape: Shape
    output_shape: Shape
    body: tuple[NamedLayer, ...] = ()
    shortcut: tuple[NamedLayer, ...] = ()

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The layer's own parameters by their full name: "conv1.weight"."""
        own = self.layer.parameters(self.input_shape)
        return {f"{self.name}.{name}": parameter for name, parameter in own.items()}

    def description(self) -> dict[str, Any]:
        fields = vars(self.layer) | {"name": self.name, "input_shape": self.input_shape}
        for way in ("body", "shortcut"):
            if way in fields:
                fields[way] = [named.description() for named in getattr(self, way)]
        return {"type": type(self.layer).__name__} | fields


@dataclass(frozen=True)
class Model(Checked):
    """What is trained, and how, without any framework.

    input_shape is one example's shape, without the batch axis. batches: of an epoch; None for as
    many as the data has. ValueError where a value is none, and where the layers do not fit one
    another, or the loss.
    """

    name: Line
    input_shape: Annotated[Shape, SHAPE]
    layers: Layers
    loss: Annotated[Loss, LOSS]
    optimizer: Annotated[Optimizer, OPTIMIZER]
    batch_size: Size
    source: Line
    data: Annotated[Source, SOURCE] = field(default_factory=CIFAR10)
    batches: Annotated[int | None, optional(whole(1))] = None
    for_vocabulary: Annotated[Callable[[int], Model] | None, optional(FUNCTION)] = field(
        default=None, compare=False, repr=False
    )
    """Where the data decides over its size: the same model for a vocabulary of that many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.classes  # goes through all layers
        for named in list(self.all_layers())[1:]:
            if isinstance(named.layer, Embedding | OneHot):
                raise ValueError(f"{named.name} takes numbers of a vocabulary: put it first")
        if not self.trained_count:
            raise ValueError(f"the model {self.name} has no weights to train")

    def fitted(self, vocabulary: int | None) -> Model:
        """The model for data with that many numbers; SpecError where for_vocabulary has none."""
        if vocabulary is None or self.for_vocabulary is None:
            return dataclasses.replace(self, for_vocabulary=None)
        what = f"the model {self.name} for a vocabulary of {vocabulary:,}"
        try:
            model = self.for_vocabulary(vocabulary)
        except Exception as error:
            raise SpecError(f"{what}: {shown_error(error)}") from error
        if not isinstance(model, Model):
            raise SpecError(f"{what}: for_vocabulary must return a Model, not {shown(model)}")
        return dataclasses.replace(model, for_vocabulary=None)

    def named_layers(self) -> Iterator[NamedLayer]:
        """The layers in order, named by kind and number ("conv1", "conv2", "dense1")."""
        return _named(self.layers, self.input_shape, Counter())

    def all_layers(self) -> Iterator[NamedLayer]:
        """The same with the layers inside of other ones, each after the one that it is in."""
        return _deep(self.named_layers())

    @property
    def output_shape(self) -> Shape:
        return list(self.named_layers())[-1].output_shape

    @property
    def classes(self) -> int:
        """How many labels it tells apart."""
        return self.loss.classes(self.output_shape)

    @property
    def vocabulary(self) -> int | None:
        """How many different numbers an example may hold; None where it holds measurements."""
        first = self.layers[0]
        return first.vocabulary if isinstance(first, Embedding | OneHot) else None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Every parameter by its full name, in the order of the layers."""
        return {k: v for named in self.all_layers() for k, v in named.parameters.items()}

    @property
    def parameter_count(self) -> int:
        """Those that are not trained counted too."""
        return sum(parameter.size for parameter in self.parameters.values())

    @property
    def trained_count(self) -> int:
        return sum(parameter.size for parameter in self.parameters.values() if parameter.trained)

    def initial_weights(self, seed: int) -> Weights:
        """Canonical float32 weights, the same for the same seed in every framework."""
        random = np.random.default_rng(seed)
        return {
            name: parameter.initial.sample(random, parameter.shape)
            for name, parameter in self.parameters.items()
        }

    @property
    def forward_flops(self) -> int:
        """FLOPs of one example's forward pass (see Layer.forward_flops)."""
        return sum(n.layer.forward_flops(n.input_shape) for n in self.all_layers())

    @property
    def training_flops(self) -> int:
        """FLOPs of one example's forward and backward pass (see Layer.training_flops)."""
        total, trained_before = 0, False
        for named in self.all_layers():
            total += named.layer.training_flops(named.input_shape, trained_before)
            trained_before |= bool(named.parameters)
        return total

    def description(self) -> Any:
        """The model as JSON's own values (for results, and for languages other than Python)."""
        plain = {
            "name": self.name,
            "input_shape": self.input_shape,
            "output_shape": self.output_shape,
            "layers": [named.description() for named in self.named_layers()],
            "loss": _plain(self.loss),
            "optimizer": _plain(self.optimizer),
            "data": _plain(self.data),
            "parameters": self.parameter_count,
            "trained_parameters": self.trained_count,
            "forward_flops": self.forward_flops,
            "training_flops": self.training_flops,
            "source": self.source,
        }
        return json.loads(json.dumps(plain))  # lists for tuples, as a results file gives them back


def _named(layers: tuple[Layer, ...], shape: Shape, seen: Counter[str]) -> Iterator[NamedLayer]:
    for layer in layers:
        kind = type(layer).__name__.lower()
        seen[kind] += 1
        named = NamedLayer(f"{kind}{seen[kind]}", layer, shape, layer.output_shape(shape))
        if isinstance(layer, Residual):
            body = tuple(_named(layer.body, shape, seen))
            shortcut = tuple(_named(layer.shortcut, shape, seen))
            named = dataclasses.replace(named, body=body, shortcut=shortcut)
        yield named
        shape = named.output_shape


def _deep(layers: Iterator[NamedLayer]) -> Iterator[NamedLayer]:
    for named in layers:
        yield named
        yield from _deep(iter(named.body + named.shortcut))


def _plain(description: Any) -> dict[str, Any]:
    return {"type": type(description).__name__, **dataclasses.asdict(description)}
