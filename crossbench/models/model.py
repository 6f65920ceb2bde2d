"""Describe a model once, for every framework: its layers, loss, optimizer and data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Annotated, Any

import numpy as np

from ..data.dataset import ExampleShapes
from ..data.sources import Source, Synthetic
from ..inputs.checks import (
    SHAPE,
    Checked,
    Line,
    Size,
    instance_of,
    integer,
    optional,
    short_error,
    shown,
)
from ..inputs.errors import SpecError
from .layers.branches import Branches
from .layers.layer import Layer, Layers
from .layers.sequences import Embedding, OneHot, Unembedding
from .parameters import Parameter, Shape
from .training import Loss, Optimizer

LOSS = instance_of("a loss of crossbench.models.training", Loss)
OPTIMIZER = instance_of("an optimizer of crossbench.models.training", Optimizer)
SOURCE = instance_of("a source of crossbench.data.sources, such as MNIST()", Source)
WEIGHTS = instance_of("a dict of arrays by the parameters' names", dict)
OWN_PATHS = instance_of("a dict of paths in a module by the layers' names", dict)
FUNCTION = instance_of("a function from a size to a Model", Callable)

Weights = dict[str, np.ndarray]
"""Canonical parameters by name, such as "conv1.weight" (float32; float64 for the proof)."""
Path = tuple[str, ...]
"""Names that lead to something in a module, from the outermost one."""


@dataclass(frozen=True)
class NamedLayer:
    """Holds a layer with its name and shapes in a model.

    branches: the layers of Branches. own_path: the names that lead to it in the module which it was
    read from, such as ("layer1", "0", "conv2"); () where there is none.
    """

    name: str
    layer: Layer
    input_shape: Shape
    output_shape: Shape
    branches: tuple[tuple[NamedLayer, ...], ...] = ()
    own_path: Path = ()

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Return the layer's own parameters by name ("conv1.weight"), not its inner layers'."""
        own = self.layer.parameters(self.input_shape)
        return {f"{self.name}.{name}": parameter for name, parameter in own.items()}

    def description(self) -> dict[str, Any]:
        """Return the layer's type, name, input shape and fields, with those of its inner layers."""
        fields = vars(self.layer) | {"name": self.name, "input_shape": self.input_shape}
        if self.branches:
            fields["branches"] = [[named.description() for named in b] for b in self.branches]
        return {"type": type(self.layer).__name__} | fields


@dataclass(frozen=True)
class Model(Checked):
    """Describes what is trained, and how, without any framework.

    input_shape: one example's, without the batch axis. batches: the number per epoch; None for all
    of the data. source: where the model was published. data: without it, examples are made for the
    model by a formula. Raise SpecError for a value that is not
    allowed, and ValueError if the layers do not fit one another or the loss.
    """

    name: Line
    input_shape: Annotated[Shape, SHAPE]
    layers: Layers
    loss: Annotated[Loss, LOSS]
    optimizer: Annotated[Optimizer, OPTIMIZER]
    batch_size: Size
    source: Line
    data: Annotated[Source, SOURCE] = field(default_factory=Synthetic)
    batches: Annotated[int | None, optional(integer(1))] = None
    for_vocabulary: Annotated[Callable[[int], Model] | None, optional(FUNCTION)] = field(
        default=None, compare=False, repr=False
    )
    """Returns the same model for a vocabulary of that size; None if the data does not decide it."""
    weights: Annotated[Weights | None, optional(WEIGHTS)] = field(
        default=None, compare=False, repr=False
    )
    """The initial weights, such as those of a trained module; None to draw them by each parameter's
    initializer."""
    own_paths: Annotated[dict[str, Path] | None, optional(OWN_PATHS)] = field(
        default=None, compare=False, repr=False
    )
    """What leads to the layers in the module that the model was read from, by their names here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.classes  # raises if the layers do not fit, because it computes all shapes
        for named in list(self.all_layers())[1:]:
            if isinstance(named.layer, Embedding | OneHot):
                raise ValueError(f"{named.name} takes token ids: put it first")
            if isinstance(named.layer, Unembedding):
                self._check_tied(named, named.layer)
        if not self.trained_parameter_count:
            raise ValueError(f"the model {self.name} has no weights to train")
        is_augmented = isinstance(self.data, Synthetic) and self.data.augmentation is not None
        if is_augmented and not self.example_shapes.are_pictures:
            raise ValueError(f"the model {self.name} takes no pictures: only they are augmented")
        if self.weights is not None:
            self._check_weights(self.weights)

    def with_vocabulary(self, vocabulary: int | None) -> Model:
        """Return the model for data with that many token ids (None for pictures).

        Raise SpecError if for_vocabulary fails or does not return a Model.
        """
        if vocabulary is None or self.for_vocabulary is None:
            return dataclasses.replace(self, for_vocabulary=None)
        what = f"the model {self.name} for a vocabulary of {vocabulary:,}"
        try:
            model = self.for_vocabulary(vocabulary)
        except Exception as error:
            raise SpecError(f"{what}: {short_error(error)}") from error
        if not isinstance(model, Model):
            raise SpecError(f"{what}: for_vocabulary must return a Model, not {shown(model)}")
        return dataclasses.replace(model, for_vocabulary=None)

    def _check_weights(self, weights: Weights) -> None:
        """Raise ValueError unless there is an array of the right shape for each parameter."""
        for name, parameter in self.parameters.items():
            if name not in weights or weights[name].shape != parameter.shape:
                raise ValueError(f"the weights of {self.name} have no {name} of {parameter.shape}")

    def _check_tied(self, named: NamedLayer, layer: Unembedding) -> None:
        """Raise ValueError unless the first layer is an Embedding that fits the Unembedding."""
        if layer not in self.layers:
            raise ValueError(f"{named.name} cannot be inside of another layer")
        expected, first = (layer.vocabulary, named.input_shape[-1]), self.layers[0]
        if not isinstance(first, Embedding) or (first.vocabulary, first.features) != expected:
            raise ValueError(
                f"{named.name} shares the weight of the first layer, which must be an Embedding of "
                f"{expected[0]:,} token ids and {expected[1]:,} features, not {first}"
            )

    def named_layers(self) -> Iterator[NamedLayer]:
        """Yield the layers in order, named by type and number ("conv1", "conv2", "dense1")."""
        return _name_layers(self.layers, self.input_shape, Counter(), self.own_paths or {})

    def all_layers(self) -> Iterator[NamedLayer]:
        """Yield the layers in order, each followed by its inner layers."""
        return with_inner_layers(self.named_layers())

    @property
    def output_shape(self) -> Shape:
        return list(self.named_layers())[-1].output_shape

    @property
    def classes(self) -> int | None:
        """Return the number of classes; None for a model that predicts numbers."""
        return self.loss.classes(self.output_shape)

    @property
    def has_accuracy(self) -> bool:
        """Return whether an example has one class: a language model's accuracy tells little."""
        return self.classes is not None and not self.label_shape

    @property
    def label_shape(self) -> Shape:
        """Return the shape of an example's label: () for a class, (L,) for one at each place of a
        sequence, that of its numbers otherwise.
        """
        return self.loss.label_shape(self.output_shape)

    @property
    def example_shapes(self) -> ExampleShapes:
        """Return the shapes of the examples that the model takes, with the numbers of token ids and
        classes.
        """
        return ExampleShapes(self.input_shape, self.label_shape, self.vocabulary, self.classes)

    @property
    def vocabulary(self) -> int | None:
        """Return the number of token ids that an example may hold; None for pictures."""
        first = self.layers[0]
        return first.vocabulary if isinstance(first, Embedding | OneHot) else None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Return every parameter by its full name, in the order of the layers."""
        return {k: v for named in self.all_layers() for k, v in named.parameters.items()}

    @property
    def parameter_count(self) -> int:
        """Return the number of values in all parameters, including those that are not trained."""
        return sum(parameter.size for parameter in self.parameters.values())

    @property
    def trained_parameter_count(self) -> int:
        """Return the number of values that the optimizer updates."""
        return sum(parameter.size for parameter in self.parameters.values() if parameter.trained)

    def initial_weights(self, seed: int) -> Weights:
        """Return canonical float32 weights: those of the model, or those that the seed decides."""
        if self.weights is not None:
            return {name: self.weights[name].astype(np.float32) for name in self.parameters}
        random = np.random.default_rng(seed)
        return {
            name: parameter.initializer.sample(random, parameter.shape)
            for name, parameter in self.parameters.items()
        }

    @property
    def forward_flops(self) -> int:
        """Return the FLOPs of one example's forward pass (see Layer.forward_flops)."""
        return sum(n.layer.forward_flops(n.input_shape) for n in self.all_layers())

    @property
    def training_flops(self) -> int:
        """Return the FLOPs of an example's forward and backward pass (see Layer.training_flops)."""
        return _training_flops(self.named_layers(), False)[0]

    def description(self) -> Any:
        """Return the model as JSON values, for results files and languages other than Python."""
        plain = {
            "name": self.name,
            "input_shape": self.input_shape,
            "output_shape": self.output_shape,
            "classes": self.classes,
            "layers": [named.description() for named in self.named_layers()],
            "loss": _as_dict(self.loss),
            "optimizer": _as_dict(self.optimizer),
            "data": _as_dict(self.data),
            "parameters": self.parameter_count,
            "trained_parameters": self.trained_parameter_count,
            "forward_flops": self.forward_flops,
            "training_flops": self.training_flops,
            "source": self.source,
        }
        if self.weights is not None:
            plain["weights"] = f"sha256 {self._weights_digest()}"
        # tuples become lists, as they are when read from a results file
        return json.loads(json.dumps(plain, default=_as_dict))

    def _weights_digest(self) -> str:
        """Return the SHA-256 of the initial weights, in the order of the parameters."""
        digest = hashlib.sha256()
        for array in self.initial_weights(0).values():
            digest.update(array.tobytes())
        return digest.hexdigest()


def _name_layers(
    layers: tuple[Layer, ...], shape: Shape, counts: Counter[str], own: Mapping[str, Path]
) -> Iterator[NamedLayer]:
    for layer in layers:
        kind = layer.join if isinstance(layer, Branches) else type(layer).__name__.lower()
        counts[kind] += 1
        name, output = f"{kind}{counts[kind]}", layer.output_shape(shape)
        inner = layer.branches if isinstance(layer, Branches) else ()
        branches = tuple(tuple(_name_layers(b, shape, counts, own)) for b in inner)
        yield (named := NamedLayer(name, layer, shape, output, branches, own.get(name, ())))
        shape = named.output_shape


def common_path(paths: Iterable[Path]) -> Path:
    """Return the names that all paths begin with; none of no paths."""
    equal = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return tuple(name for name, *_ in equal)


def with_inner_layers(layers: Iterable[NamedLayer]) -> Iterator[NamedLayer]:
    for named in layers:
        yield named
        for branch in named.branches:
            yield from with_inner_layers(branch)


def _training_flops(layers: Iterable[NamedLayer], trained_before: bool) -> tuple[int, bool]:
    """Return the FLOPs of layers, and whether one of them, or one before them, is trained: an input
    before which nothing is needs no gradient. All branches have the same input.
    """
    total = 0
    for named in layers:
        total += named.layer.training_flops(named.input_shape, trained_before)
        branches = [_training_flops(branch, trained_before) for branch in named.branches]
        total += sum(flops for flops, _ in branches)
        trained_before |= bool(named.parameters) or any(is_trained for _, is_trained in branches)
    return total, trained_before


def _as_dict(description: Any) -> dict[str, Any]:
    """Return the type and the fields of a description, with those of the ones inside of it."""
    fields = {
        name: _as_dict(value) if dataclasses.is_dataclass(value) else value
        for name, value in vars(description).items()
    }
    return {"type": type(description).__name__} | fields
