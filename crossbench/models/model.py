"""A model described once, for every framework: its layers, loss and optimizer."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .layers import Layer, Parameter, Shape
from .training import Loss, Optimizer

Weights = dict[str, np.ndarray]
"""Canonical parameters by name, such as "conv1.weight" (float32, or float64 in parity)."""


@dataclass(frozen=True)
class NamedLayer:
    """A layer at its place in a model."""

    name: str
    layer: Layer
    input_shape: Shape
    output_shape: Shape

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by their full name: "conv1.weight"."""
        own = self.layer.parameters(self.input_shape)
        return {f"{self.name}.{name}": parameter for name, parameter in own.items()}


@dataclass(frozen=True)
class Model:
    """What is trained, and how, without any framework.

    input_shape is one example's shape, without the batch axis. ValueError where the layers
    do not fit one another.
    """

    name: str
    input_shape: Shape
    layers: tuple[Layer, ...]
    loss: Loss
    optimizer: Optimizer
    batch_size: int
    source: str

    def __post_init__(self) -> None:
        list(self.named_layers())

    def named_layers(self) -> Iterator[NamedLayer]:
        """The layers in order, named by kind and number ("conv1", "conv2", "dense1")."""
        shape, seen = self.input_shape, Counter[str]()
        for layer in self.layers:
            kind = type(layer).__name__.lower()
            seen[kind] += 1
            named = NamedLayer(f"{kind}{seen[kind]}", layer, shape, layer.output_shape(shape))
            yield named
            shape = named.output_shape

    @property
    def output_shape(self) -> Shape:
        return list(self.named_layers())[-1].output_shape

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Every parameter by its full name, in the order of the layers."""
        return {k: v for named in self.named_layers() for k, v in named.parameters.items()}

    @property
    def parameter_count(self) -> int:
        return sum(parameter.size for parameter in self.parameters.values())

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
        return sum(n.layer.forward_flops(n.input_shape) for n in self.named_layers())

    @property
    def training_flops(self) -> int:
        """FLOPs of one example's forward and backward pass.

        The backward pass repeats a layer's products for the weights' gradient, and again for
        the input's, which the first layer with parameters does not need.
        """
        total, first = 0, True
        for named in self.named_layers():
            flops = named.layer.forward_flops(named.input_shape)
            if named.parameters:
                total += flops * (2 if first else 3)
                first = False
            else:
                total += flops * 2
        return total

    def description(self) -> Any:
        """The model as JSON's own values (for results, and for languages other than Python)."""
        plain = {
            "name": self.name,
            "input_shape": self.input_shape,
            "layers": [
                {
                    "name": named.name,
                    "input_shape": named.input_shape,
                    **_plain(named.layer),
                }
                for named in self.named_layers()
            ],
            "loss": _plain(self.loss),
            "optimizer": _plain(self.optimizer),
            "parameters": self.parameter_count,
            "forward_flops": self.forward_flops,
            "training_flops": self.training_flops,
            "source": self.source,
        }
        return json.loads(json.dumps(plain))  # lists for tuples, as a results file gives them back


def _plain(description: Any) -> dict[str, Any]:
    return {"type": type(description).__name__, **dataclasses.asdict(description)}
