"""Proves that a description is the module that it was read from."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from ....inputs.errors import SpecError
from ....models import Dropout, Model
from ...reference import Pass
from ...reference.passes import forward_all
from .graph import BATCH, operation
from .operations import Reader, logits_of
from .steps import Link, all_links, in_order

NEGLIGIBLE_GRADIENT = 1e-10
"""A gradient whose norm is a smaller part of the norm of all gradients is only rounding."""
FLOAT64_BOUND = 1e-9
"""The largest deviation of the description from the module, ‖a - b‖ / ‖b‖."""
INPUTS = 2
"""Inputs that the module and its description compute with."""


def prove(module: nn.Module, model: Model, reader: Reader, links: tuple[Link, ...]) -> None:
    """Raise SpecError, with the first layer that differs, unless the description is the module.

    reader: what has read the module's graph; links: the description's layers.
    """
    exact = copy.deepcopy(module).double()
    for part in exact.modules():
        if isinstance(part, nn.RNNBase):
            part.dropout = 0.0  # that between its layers
    buffers = dict(exact.named_buffers())
    for name, table in reader.exact.items():
        buffers[name].copy_(table)
    weights = {n: array.astype(np.float64) for n, array in model.initial_weights(0).items()}
    random = np.random.default_rng(0)
    for _ in range(INPUTS):
        inputs = _inputs(model, random)
        for is_training in (True, False):
            run = Recorded(weights, is_training, ones(model, len(inputs)))
            exact.train(is_training)
            differences = dict(
                _differences(copy.deepcopy(exact), model, reader, links, run, inputs)
            )
            whole = math.hypot(
                *(np.linalg.norm(a) for n, (a, _) in differences.items() if "grad" in n)
            )
            for what, (expected, found) in differences.items():
                size = float(np.linalg.norm(expected))
                if size < NEGLIGIBLE_GRADIENT * whole:  # that of a bias before a batch norm
                    size = whole
                if expected.shape != found.shape or not (
                    np.linalg.norm(found - expected) <= FLOAT64_BOUND * (size or 1.0)
                ):
                    mode = "training" if is_training else "evaluation"
                    where = _first_difference(reader, links, run, inputs)
                    raise SpecError(f"the {what} in {mode} mode is not the module's{where}")


def _inputs(model: Model, random: np.random.Generator) -> np.ndarray:
    shape = (BATCH, *model.input_shape)
    if model.vocabulary is not None:
        return random.integers(0, model.vocabulary, shape)
    return random.normal(size=shape)


def _differences(
    module: nn.Module,
    model: Model,
    reader: Reader,
    links: tuple[Link, ...],
    run: Recorded,
    inputs: np.ndarray,
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield what the module and its description compute, by what it is."""
    given = torch.from_numpy(inputs)
    if given.is_floating_point():
        given.requires_grad_()
    with exactly():
        output = module(given)
    x, backward = forward_all(list(model.named_layers()), inputs, run)
    logits = torch.from_numpy(x).requires_grad_()
    has_softmax = logits_of(reader.graph.output) is not reader.graph.output
    found = logits.log_softmax(-1) if has_softmax else logits
    yield "output", (output.detach().numpy(), found.detach().numpy())
    if not run.training:
        return
    gradient = torch.from_numpy(np.random.default_rng(1).normal(size=x.shape))
    output.backward(gradient)
    (of_logits,) = torch.autograd.grad(found, logits, gradient)
    dx = backward(of_logits.numpy())
    if given.grad is not None:
        yield "gradient of the input", (given.grad.numpy(), dx)
    state = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    names = {
        tensor.untyped_storage().data_ptr(): reader.graph.names[node]
        for node, tensor in reader.graph.constants.items()
        if node in reader.graph.names
    }
    for named, link in zip(model.all_layers(), all_links(links), strict=True):
        for short, tensor in link.step.weights.items():
            name, own = f"{named.name}.{short}", names[tensor.untyped_storage().data_ptr()]
            place = (tensor.size(), tensor.stride(), tensor.storage_offset())  # rows of own, or all
            held = state[own]
            if name in run.running:
                # a mean behind another batch norm is only rounding: the spread is its measure
                spread = np.sqrt(run.running[f"{named.name}.running_var"])
                expected = np.append(held.detach().numpy(), spread)
                yield f"running statistic {own}", (expected, np.append(run.running[name], spread))
            elif held.grad is not None:
                yield (
                    f"gradient of {own}",
                    (held.grad.as_strided(*place).numpy(), run.gradients[name]),
                )


@dataclass
class Recorded(Pass):
    """Keeps the output of each layer, in the order in which they are computed."""

    outputs: list[np.ndarray] = field(default_factory=list)

    def activation(self, array: np.ndarray) -> np.ndarray:
        self.outputs.append(array)
        return array


def ones(model: Model, count: int) -> dict[str, np.ndarray]:
    """Return dropout masks that leave everything as it is."""
    return {
        named.name: np.full((count, *named.output_shape), 1 - named.layer.rate)
        for named in model.all_layers()
        if isinstance(named.layer, Dropout)
    }


@contextmanager
def exactly() -> Iterator[None]:
    """Compute in float64 throughout, without dropout."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with (
            mock.patch("torch.nn.functional.dropout", lambda x, *_, **__: x),
            mock.patch.object(torch.Tensor, "float", lambda x: x.double()),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)


def _first_difference(
    reader: Reader, links: tuple[Link, ...], run: Recorded, inputs: np.ndarray
) -> str:
    """Return ": FILE:LINE, LAYER" of the first layer whose output is not the module's; "" where
    that is none, as where a gradient alone is another one.
    """
    graph = Values(reader, inputs)
    for link, found in zip(in_order(links), run.outputs, strict=False):
        value = reader.value_of(link.step.node)
        tensor = graph.tensors[link.step.node].detach().numpy()
        axes = [1 + axis for axis in value.axes if axis is not None]
        sizes = [value.shape[axis - 1] for axis in axes]
        expected = np.moveaxis(tensor.reshape(BATCH, *sizes), range(1, 1 + len(axes)), axes)
        size = np.linalg.norm(expected) or 1.0
        if expected.shape != found.shape or np.linalg.norm(expected - found) > 1e-6 * size:
            return f": {link.step.line}, {link.layer}"
    return ""


class Values(torch.fx.Interpreter):  # type: ignore[misc]
    """Computes the tensor of each node of a graph, in training mode without dropout."""

    def __init__(self, reader: Reader, inputs: np.ndarray) -> None:
        super().__init__(reader.graph.module.graph_module)
        self.tensors: dict[str, Any] = {}
        given = torch.from_numpy(inputs)
        placeholders = (node for node in reader.graph.nodes if node.op == "placeholder")
        arguments = [reader.constants.get(node.name, given) for node in placeholders]
        with exactly(), torch.no_grad():
            self.run(*(t.double() if t.is_floating_point() else t for t in arguments))

    def run_node(self, node: torch.fx.Node) -> Any:
        is_dropout = operation(node) == "dropout"
        self.tensors[node.name] = self.env[node.args[0]] if is_dropout else super().run_node(node)
        return self.tensors[node.name]
