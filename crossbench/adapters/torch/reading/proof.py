"""Proves that a description is the module that it was read from."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from ....inputs.checks import short_error
from ....inputs.errors import SpecError
from ....models import Dropout, Model
from ...reference import Pass
from ...reference.passes import forward_all
from .graph import BATCH, attribute_of, operation
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
    random = np.random.default_rng(0)
    exact = _exact(module, reader, random)
    held = list(_held(model, reader, links))
    state = _state(exact)
    weights = {one.name: one.of(state[one.own]) for one in held}
    for _ in range(INPUTS):
        inputs = _inputs(model, random)
        for is_training in (True, False):
            run = Recorded(weights, is_training, ones(model, len(inputs)))
            exact.train(is_training)
            try:
                differences = dict(
                    _differences(copy.deepcopy(exact), model, reader, held, run, inputs)
                )
            except RuntimeError as error:
                raise SpecError(
                    f"{type(module).__name__} fails in float64, in which the proof computes: "
                    f"{short_error(error)}"
                ) from error
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
                    where = _first_difference(reader, links, run, inputs) if is_training else ""
                    raise SpecError(f"the {what} in {mode} mode is not the module's{where}")


def _exact(module: nn.Module, reader: Reader, random: np.random.Generator) -> nn.Module:
    """Return a copy of a module in float64, without dropout in recurrent networks, with noise in
    parameters of equal numbers: what is multiplied by zeros could be anything.
    """
    exact = copy.deepcopy(module).cpu().double()
    for part in exact.modules():
        if isinstance(part, nn.RNNBase):
            part.dropout = 0.0  # that between its layers
        for name, tensor in vars(part).items():
            if isinstance(tensor, Tensor) and tensor.dtype in DOUBLE:
                setattr(part, name, tensor.to(DOUBLE[tensor.dtype]))
    for name, table in reader.exact.items():
        attribute_of(exact, name).copy_(table)
    for name, tensor in _state(exact).items():
        is_drawn = tensor.requires_grad or "running_" in name
        if is_drawn and tensor.is_floating_point() and tensor.min() == tensor.max():
            noise = torch.from_numpy(random.uniform(-0.1, 0.1, tuple(tensor.shape)))
            tensor.data.add_(noise)
    return exact


DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def _state(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, a shared one by each of its names."""
    named = dict(module.named_parameters(remove_duplicate=False))
    return named | dict(module.named_buffers(remove_duplicate=False))


@dataclass(frozen=True)
class Held:
    """Says where a module holds a parameter of its description: in `own`, or rows of that."""

    name: str
    own: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    def of(self, tensor: Tensor) -> np.ndarray:
        array: np.ndarray = tensor.detach().as_strided(self.size, self.stride, self.start).numpy()
        return array


def _held(model: Model, reader: Reader, links: tuple[Link, ...]) -> Iterator[Held]:
    """Yield where the module holds each parameter of its description."""
    names = {
        tensor.untyped_storage().data_ptr(): reader.graph.names[node]
        for node, tensor in reader.graph.constants.items()
        if node in reader.graph.names
    }
    for named, link in zip(model.all_layers(), all_links(links), strict=True):
        for short, tensor in link.step.weights.items():
            own = names[tensor.untyped_storage().data_ptr()]
            place = (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
            yield Held(f"{named.name}.{short}", own, *place)


def _inputs(model: Model, random: np.random.Generator) -> np.ndarray:
    shape = (BATCH, *model.input_shape)
    if model.vocabulary is not None:
        return random.integers(0, model.vocabulary, shape)
    return random.normal(size=shape)


def _differences(
    module: nn.Module,
    model: Model,
    reader: Reader,
    held: Iterable[Held],
    run: Recorded,
    inputs: np.ndarray,
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Yield what the module and its description compute, by what it is."""
    given = torch.from_numpy(inputs)
    if given.is_floating_point():
        given.requires_grad_()
    with exactly(run.training):
        output = module(given.clone())  # which it may change in place
    x, backward = forward_all(list(model.named_layers()), inputs, run)
    logits = torch.from_numpy(x).requires_grad_()
    has_softmax = logits_of(reader.graph.output) is not reader.graph.output
    found = logits.log_softmax(-1) if has_softmax else logits
    output = output.reshape(found.shape)  # numbers with several axes, or with none
    yield "output", (output.detach().numpy(), found.detach().numpy())
    if not run.training:
        return
    gradient = torch.from_numpy(np.random.default_rng(1).normal(size=x.shape))
    output.backward(gradient)
    (of_logits,) = torch.autograd.grad(found, logits, gradient)
    dx = backward(of_logits.numpy())
    if given.is_floating_point():
        yield "gradient of the input", (_gradient(given).numpy(), dx)
    state = _state(module)
    for one in held:
        tensor = state[one.own]
        if one.name in run.running:
            # a mean behind another batch norm is only rounding: the spread is its measure
            layer = one.name.rpartition(".")[0]
            spread = np.sqrt(run.running[f"{layer}.running_var"])
            found = np.append(run.running[one.name], spread)
            yield f"running statistic {one.own}", (np.append(one.of(tensor), spread), found)
        else:
            gradient = one.of(_gradient(tensor))
            yield f"gradient of {one.own}", (gradient, run.gradients[one.name])


def _gradient(tensor: Tensor) -> Tensor:
    """Return a tensor's gradient, zeros if nothing goes back to it."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


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


class Exactly(TorchFunctionMode):  # type: ignore[misc]
    """Computes in float64 where a module names float32, and without dropout."""

    DROPOUTS = (nn.functional.dropout, torch.dropout, torch.dropout_)

    def __init__(self, is_training: bool) -> None:
        super().__init__()
        self.is_training = is_training

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = in_double((args, kwargs or {}))
        if function in self.DROPOUTS:
            drops = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
            if drops and not self.is_training:
                raise SpecError(
                    "the module drops values in evaluation mode too, which has no description: "
                    "F.dropout(x, training=self.training)"
                )
            return args[0]
        return (Tensor.double if function is Tensor.float else function)(*args, **kwargs)


def in_double(given: Any) -> Any:
    """Return arguments with float64 for float32."""
    return tree_map(lambda one: torch.float64 if one is torch.float32 else one, given)


@contextmanager
def exactly(is_training: bool = True) -> Iterator[None]:
    """Compute in float64 throughout, without dropout; raise SpecError for one in evaluation."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Exactly(is_training):
            yield
    finally:
        torch.set_default_dtype(dtype)


def _first_difference(
    reader: Reader, links: tuple[Link, ...], run: Recorded, inputs: np.ndarray
) -> str:
    """Return ": FILE:LINE, LAYER" of the first layer whose output is not the module's; "" where
    that is none, as where a gradient alone is another one.
    """
    try:
        graph = Values(reader, inputs)
    except RuntimeError:  # where the module makes numbers of another type
        return ""
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
        node.args, node.kwargs = in_double((node.args, node.kwargs))
        is_dropout = operation(node) == "dropout"
        self.tensors[node.name] = self.env[node.args[0]] if is_dropout else super().run_node(node)
        return self.tensors[node.name]
