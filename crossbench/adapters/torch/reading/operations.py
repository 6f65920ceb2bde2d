"""Reads ATen's operations as layers of a description.

A value of the graph is an array of the description whose axes may be in another order, as behind a
permute, or with axes of 1 beside them, as behind an adaptive pool: `axes` says which is which.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .... import models
from ....inputs.errors import SpecError
from ....models import Layer
from ....models.layers.branches import ADD, CONCATENATE, MULTIPLY
from ....models.parameters import Shape
from .graph import BATCH, Graph, called, line_of, operation, refused, shape_of
from .steps import Step

Axes = tuple[int | None, ...]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Value:
    """Says what a tensor of the graph is: an array that a step computes, of this shape without the
    batch. axes: the array's axis of each of the tensor's, behind the batch; None for one of 1.
    """

    step: Step | None
    shape: Shape
    axes: Axes

    @property
    def channel_axis(self) -> int:
        """Return the array's axis of channels or features."""
        return 0 if len(self.shape) == 3 else len(self.shape) - 1

    @property
    def is_plain(self) -> bool:
        """Return whether the tensor has the array's axes, in their order."""
        return self.axes == tuple(range(len(self.shape)))


Read = Callable[["Reader", Any, Value], "Value"]
READ: dict[str, Read] = {}
"""Reads an operation of one value, by its name."""


def reads(*names: str) -> Callable[[Read], Read]:
    def register(function: Read) -> Read:
        READ.update(dict.fromkeys(names, function))
        return function

    return register


class Reader:
    """Reads a graph, node by node. What cannot be read is an error where it is needed."""

    def __init__(self, graph: Graph, shape: Shape, whole: Callable[..., Value | None]) -> None:
        self.graph = graph
        self.constants = dict(graph.constants)
        self.values: dict[str, Value | SpecError] = {
            graph.input.name: Value(None, shape, tuple(range(len(shape))))
        }
        self.joins: dict[tuple[int, ...], Value] = {}
        self.attended: set[str] = set()
        """Nodes behind attention whose places are in front of the batch."""
        self.exact: dict[str, Tensor] = {}
        """The float64 values of buffers that hold cosines or sines."""
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            is_constant = self._is_constant(node)
            if is_in_place(node) and not is_constant and self._is_read_later(node):
                raise refused(node, "changes what is read elsewhere, which has no description")
            try:
                if is_constant:
                    if not is_in_place(node):  # as a batch norm counts its batches
                        self.constants[node.name] = self._computed(node)
                else:
                    self.values[node.name] = whole(self, node) or self._read(node)
            except SpecError as error:
                self.values[node.name] = error
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                # a layer that does not fit, or arguments of another form
                self.values[node.name] = SpecError(f"{line_of(node)}: {of_layer(error, node)}")

    def value(self, node: Any) -> Value:
        """Return the value of a node; raise SpecError if it has no description, and KeyError for
        one that does not depend on the input.
        """
        found = self.values[node.name]
        if isinstance(found, SpecError):
            raise found
        return found

    def value_of(self, name: str) -> Value:
        """Return the value of a node that has one, by its name."""
        found = self.values[name]
        assert isinstance(found, Value)
        return found

    def constant(self, node: Any) -> Tensor | None:
        """Return the tensor of a node that does not depend on the input, or None."""
        return self.constants.get(node.name) if isinstance(node, torch.fx.Node) else None

    def add(self, node: Any, before: Value, layer: Layer, **given: Any) -> Value:
        """Return the output of one more layer; the tensor has the axes of its array."""
        shape = layer.output_shape(before.shape)
        step = Step((before.step,), shape, line_of(node), node.name, layer, **given)
        return Value(step, shape, tuple(range(len(shape))))

    def same_axes(self, node: Any, before: Value, layer: Layer, **given: Any) -> Value:
        """Return the output of a layer that leaves all axes where they are."""
        after = self.add(node, before, layer, **given)
        return Value(after.step, after.shape, before.axes)

    def keep_exact(self, node: Any, table: Callable[[Tensor], Tensor | None]) -> None:
        """Keep the float64 values of the named tensors that a node comes from. table: returns those
        of one that it knows, None for another one.
        """
        waiting = [node]
        while waiting:
            one = waiting.pop()
            waiting.extend(one.all_input_nodes)
            if one.name in self.graph.names:
                exact = table(self.constants[one.name])
                if exact is not None:
                    self.exact[self.graph.names[one.name]] = exact

    def _is_read_later(self, node: Any) -> bool:
        """Return whether what an in-place operation changes has a name that is read behind it."""
        one = node.args[0]
        while True:
            if any(user > node for user in one.users):
                return True
            if operation(one) not in VIEWS:
                return False
            one = one.all_input_nodes[0]

    def _is_constant(self, node: Any) -> bool:
        return all(argument.name in self.constants for argument in node.all_input_nodes)

    def _computed(self, node: Any) -> Any:
        given = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: self.constants[n.name])
        args, kwargs = given
        if operation(node) == "embedding" and is_counting(args[1]):
            return args[0][: args[1].numel()]  # rows that share the parameter's memory
        with torch.no_grad():
            return node.target(*args, **{k: v for k, v in kwargs.items() if k != "device"})

    def _read(self, node: Any) -> Value:
        name = operation(node).removesuffix("_") or operation(node)
        variable = [n for n in node.all_input_nodes if n.name in self.values]
        if name in JOINED:
            return JOINED[name](self, node)
        value = self.value(variable[0])
        if name not in READ:
            raise refused(node)
        return READ[name](self, node, value)

    def joined(self, node: Any, values: Sequence[Value], join: str) -> Value:
        """Return several values as one, by a join of the description."""
        if len(values) == 1:
            return values[0]
        first, steps = values[0], [value.step for value in values]
        all_steps = tuple(map(id, steps))
        if join == CONCATENATE:  # what begins as an earlier one goes on from it, as in a DenseNet
            for count in range(len(steps) - 1, 1, -1):
                earlier = self.joins.get(all_steps[:count])
                if earlier is not None:
                    steps, values = [earlier.step, *steps[count:]], [earlier, *values[count:]]
                    break
        shapes = [value.shape for value in values]
        if join == CONCATENATE:
            axis = first.channel_axis
            sizes = list(first.shape)
            sizes[axis] = sum(shape[axis] for shape in shapes)
            whole = tuple(sizes)
        else:
            whole = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        step = Step(tuple(steps), whole, line_of(node), node.name, join=join)
        value = Value(step, whole, max((v.axes for v in values), key=len))
        if join == CONCATENATE:
            self.joins[all_steps] = value
        return value


VIEWS = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze"}
VIEWS |= {"permute", "transpose", "t", "movedim", "swapaxes", "expand", "select", "slice", "narrow"}
VIEWS |= {"getitem", "chunk", "split", "split_with_sizes", "unbind"}
VIEWS |= {"alias", "detach", "contiguous", "to"}
"""Operations whose outputs may have their input's memory."""


def of_layer(error: Exception, node: Any) -> str:
    """Return what a layer's description says of its arguments, or that the operation has none."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    is_own = isinstance(error, ValueError) and last.startswith(str(Path(models.__file__).parent))
    return str(error) if is_own else f"{called(node)} in this form has no description"


def is_in_place(node: Any) -> bool:
    return operation(node).endswith("_") and not operation(node).endswith("__")


def is_counting(places: Tensor) -> bool:
    """Return whether a tensor has the places 0, 1, 2 and so on."""
    return torch.equal(places.flatten(), torch.arange(places.numel()))


def argument(node: Any, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a node, by its place or its name."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def pair(given: int | Sequence[int]) -> Pair:
    """Return (a, b) of a number for both, of [a] or of [a, b]."""
    values = [given] if isinstance(given, int) else list(given)
    return (values[0], values[-1])


def plain(node: Any, value: Value, rank: int) -> Value:
    """Return a value whose tensor has its array's axes; raise SpecError for another one."""
    if len(value.shape) != rank or not value.is_plain:
        raise refused(node, f"of {describe(value)} has no description")
    return value


def describe(value: Value) -> str:
    kind = {1: "a vector", 2: "a sequence", 3: "a picture"}[len(value.shape)]
    return kind if value.is_plain else f"{kind} with its axes in another order"


def weights(reader: Reader, **nodes: Any) -> dict[str, Tensor]:
    """Return the tensors of parameters by their names in the description; None is left out."""
    found = {name: reader.constant(node) for name, node in nodes.items() if node is not None}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


# Convolutions and matrix multiplications


@reads("conv2d", "conv1d")
def conv(reader: Reader, node: Any, value: Value) -> Value:
    given = weights(reader, weight=node.args[1], bias=argument(node, 2, "bias"))
    kernel = given["weight"].shape
    features, size, is_picture = kernel[0], tuple(kernel[2:]), len(kernel) == 4
    stride, dilation = argument(node, 3, "stride", 1), argument(node, 5, "dilation", 1)
    options = {"bias": "bias" in given, "groups": argument(node, 6, "groups", 1)}
    padding = argument(node, 4, "padding", 0)
    if isinstance(padding, str):
        spans = [(n - 1) * d for n, d in zip(size, pair(dilation), strict=False)]
        padding = [0 if padding == "valid" else (n // 2, n - n // 2) for n in spans]
    else:
        padding = list(pair(padding))[: len(size)]
    if is_picture:
        if value.axes == (1, 2, 0):
            raise refused(node, "of a picture with its channels last has no description")
        options |= {"stride": pair(stride), "dilation": pair(dilation)}
        layer: Layer = models.Conv(features, size, padding=tuple(padding), **options)
        return reader.add(node, plain(node, value, 3), layer, weights=given)
    value = sequence(reader, node, value)
    options |= {"stride": pair(stride)[0], "dilation": pair(dilation)[0]}
    layer = models.Conv1D(features, size[0], padding=padding[0], **options)
    return reader.same_axes(node, value, layer, weights=given)


def sequence(reader: Reader, node: Any, value: Value) -> Value:
    """Return a value (batch, features, places) as a sequence with its axes in this order."""
    if len(value.shape) != 2 or None in value.axes:
        raise refused(node, f"of {describe(value)} has no description")
    return transposed(reader, node, value) if value.is_plain else value


def transposed(reader: Reader, node: Any, value: Value) -> Value:
    """Return a value with two axes as an array that has them in the other order."""
    after = reader.add(node, value, models.Transpose())
    return Value(after.step, after.shape, (1, 0) if value.is_plain else (0, 1))


@reads("conv_transpose2d")
def conv_transpose(reader: Reader, node: Any, value: Value) -> Value:
    given = weights(reader, weight=node.args[1], bias=argument(node, 2, "bias"))
    if argument(node, 6, "groups", 1) != 1 or pair(argument(node, 7, "dilation", 1)) != (1, 1):
        raise refused(node, "with groups or a dilation has no description")
    layer = models.TransposedConv(
        given["weight"].shape[1],
        tuple(given["weight"].shape[2:]),
        stride=pair(argument(node, 3, "stride", 1)),
        padding=pair(argument(node, 4, "padding", 0)),
        output_padding=pair(argument(node, 5, "output_padding", 0)),
        bias="bias" in given,
    )
    return reader.add(node, plain(node, value, 3), layer, weights=given)


@reads("linear")
def linear(reader: Reader, node: Any, value: Value) -> Value:
    given = weights(reader, weight=node.args[1], bias=argument(node, 2, "bias"))
    return dense(reader, node, value, given)


def dense(reader: Reader, node: Any, value: Value, given: dict[str, Tensor]) -> Value:
    """Return a Dense of the last axis; of a picture with its channels last, a 1 by 1 convolution;
    of the rows of the embedding that the model begins with, an Unembedding.
    """
    weight, has_bias = given["weight"], "bias" in given
    if value.axes == (1, 2, 0):
        given = given | {"weight": weight[:, :, None, None]}
        layer: Layer = models.Conv(len(weight), (1, 1), bias=has_bias)
        return reader.same_axes(node, value, layer, weights=given)
    if value.axes == (1, 0):  # along the places
        value = transposed(reader, node, value)
    if value.axes and value.axes[-1] != value.channel_axis:
        raise refused(node, f"of {describe(value)} has no description")
    if len(value.shape) == 3:
        raise refused(node, "of the rows of a picture has no description")
    first = first_step(value.step)
    is_behind_embedding = first is not None and isinstance(first.layer, models.Embedding)
    if first and is_behind_embedding and first.weights["weight"] is weight and not has_bias:
        return reader.same_axes(node, value, models.Unembedding(len(weight)))
    return reader.same_axes(node, value, models.Dense(len(weight), has_bias), weights=given)


def first_step(step: Step | None) -> Step | None:
    while step is not None and step.start is not None:
        step = step.start
    return step


@reads("embedding")
def embedding(reader: Reader, node: Any, value: Value) -> Value:
    weight = reader.constant(node.args[0])
    if weight is None or value.step is not None:
        raise refused(node, "behind another layer has no description")
    if argument(node, 2, "padding_idx", -1) != -1:
        raise refused(node, "with padding_idx, whose row does not train, has no description")
    if argument(node, 3, "scale_grad_by_freq") or argument(node, 4, "sparse"):
        raise refused(node, "with other gradients has no description: scale_grad_by_freq, sparse")
    layer = models.Embedding(*weight.shape)
    return reader.add(node, value, layer, weights={"weight": weight})


# Norms


@reads("batch_norm")
def batch_norm(reader: Reader, node: Any, value: Value) -> Value:
    _, weight, bias, mean, variance, is_training, momentum, epsilon = node.args[:8]
    if mean is None:
        raise refused(node, "without running statistics has no description")
    if not is_training:
        raise refused(node, "that does not train in training mode has no description")
    given = weights(reader, weight=weight, bias=bias, running_mean=mean, running_var=variance)
    layer = models.BatchNorm(epsilon, 1 - momentum, affine=weight is not None)
    if len(value.axes) == 2:
        value = sequence(reader, node, value)
    if value.axes[:1] != (value.channel_axis,):
        raise refused(node, f"of {describe(value)} has no description")
    return reader.same_axes(node, value, layer, weights=given)


@reads("layer_norm")
def layer_norm(reader: Reader, node: Any, value: Value) -> Value:
    given = weights(reader, weight=argument(node, 2, "weight"), bias=argument(node, 3, "bias"))
    require_last(node, value)
    options = {"affine": "weight" in given, "bias": "bias" in given or not given}
    layer = models.LayerNorm(argument(node, 4, "eps", 1e-5), **options)
    return reader.same_axes(node, value, layer, weights=given)


@reads("rms_norm")
def rms_norm(reader: Reader, node: Any, value: Value) -> Value:
    given = weights(reader, weight=argument(node, 2, "weight"))
    require_last(node, value)
    epsilon = argument(node, 3, "eps")
    if epsilon is None:
        raise refused(node, "without eps has one epsilon for each dtype: give it a number")
    return reader.same_axes(node, value, models.RMSNorm(epsilon, bool(given)), weights=given)


def require_last(node: Any, value: Value) -> None:
    """Raise SpecError unless a norm is over the last axis, and that holds the channels."""
    if len(node.args[1]) != 1 or not value.axes or value.axes[-1] != value.channel_axis:
        raise refused(node, "over other axes than the channels has no description")


@reads("group_norm", "instance_norm")
def group_norm(reader: Reader, node: Any, value: Value) -> Value:
    if operation(node) == "group_norm":
        groups, weight, bias = node.args[1], argument(node, 2, "weight"), argument(node, 3, "bias")
        epsilon = argument(node, 4, "eps", 1e-5)
    else:
        groups, weight, bias, epsilon = value.shape[0], node.args[1], node.args[2], node.args[7]
        if not node.args[5]:
            raise refused(node, "with running statistics has no description")
    given = weights(reader, weight=weight, bias=bias)
    layer = models.GroupNorm(groups, epsilon, affine=bool(given))
    return reader.same_axes(node, plain(node, value, 3), layer, weights=given)


# Activations and dropout

PLAIN: dict[str, Layer] = {
    "relu": models.ReLU(),
    "relu6": models.ReLU6(),
    "silu": models.SiLU(),
    "tanh": models.Tanh(),
    "sigmoid": models.Sigmoid(),
    "hardswish": models.HardSwish(),
}


@reads(*PLAIN)
def activation(reader: Reader, node: Any, value: Value) -> Value:
    return reader.same_axes(node, value, PLAIN[operation(node).rstrip("_")])


@reads("gelu")
def gelu(reader: Reader, node: Any, value: Value) -> Value:
    is_tanh = node.kwargs.get("approximate", "none") == "tanh"
    return reader.same_axes(node, value, models.GELU(is_tanh))


def logits_of(node: Any) -> Any:
    """Return what a log_softmax over the last axis is of; any other node itself."""
    is_last = operation(node) == "log_softmax" and node.args[1] in (-1, len(shape_of(node)) - 1)
    return node.args[0] if is_last else node


@reads("softmax", "log_softmax")
def softmax(reader: Reader, node: Any, value: Value) -> Value:
    raise refused(node, "has no description: return the logits, the loss has the softmax")


@reads("leaky_relu", "elu", "softplus", "hardtanh", "clamp")
def with_number(reader: Reader, node: Any, value: Value) -> Value:
    given, name = tuple(node.args[1:]), operation(node).rstrip("_")
    made: Layer | None = None
    if name == "leaky_relu":
        made = models.LeakyReLU(*(given or (0.01,)))
    elif name == "elu" and len(given) < 2:
        made = models.ELU(*map(float, given))
    elif name == "softplus" and given in ((), (1,), (1.0,), (1, 20), (1.0, 20.0)):
        made = models.Softplus()
    elif given in ((0, 6), (0.0, 6.0)):
        made = models.ReLU6()
    if made is None:
        raise refused(node, f"with {', '.join(map(str, given))} has no description")
    return reader.same_axes(node, value, made)


@reads("prelu")
def prelu(reader: Reader, node: Any, value: Value) -> Value:
    given = weights(reader, slope=node.args[1])
    is_each = given["slope"].numel() > 1
    return reader.same_axes(node, value, models.PReLU(is_each), weights=given)


@reads("dropout")
def dropout(reader: Reader, node: Any, value: Value) -> Value:
    rate, is_training = node.args[1:3]
    if not is_training or not rate:
        return value
    return reader.same_axes(node, value, models.Dropout(rate))


# Pools, paddings and sizes


@reads("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d")
def pool(reader: Reader, node: Any, value: Value) -> Value:
    window = pair(node.args[1])
    stride = pair(argument(node, 2, "stride") or window)
    padding = pair(argument(node, 3, "padding", 0))
    is_max = "max" in operation(node)
    if is_max and pair(argument(node, 4, "dilation", 1)) != (1, 1):
        raise refused(node, "with a dilation has no description")
    if not is_max and any(padding) and not argument(node, 5, "count_include_pad", True):
        raise refused(
            node, "that does not count its padding (count_include_pad) has no description"
        )
    if not is_max and argument(node, 6, "divisor_override"):
        raise refused(node, "with a divisor of its own has no description")
    after = pooled(reader, node, value, window, stride, padding)
    if sizes_of(after) != shape_of(node)[1:]:  # a window that is not whole counts
        raise refused(node, "with ceil_mode has no description for this size")
    return after


@reads("adaptive_avg_pool2d", "adaptive_max_pool2d", "adaptive_avg_pool1d", "adaptive_max_pool1d")
def adaptive_pool(reader: Reader, node: Any, value: Value) -> Value:
    before, after = sizes_of(value)[1:], shape_of(node)[2:]
    if any(n % m for n, m in zip(before, after, strict=True)):
        sizes = " to ".join(" by ".join(map(str, size)) for size in (before, after))
        raise refused(node, f"of {sizes} has no description")
    window = pair([n // m for n, m in zip(before, after, strict=True)])
    return value if window == (1, 1) else pooled(reader, node, value, window, window)


def sizes_of(value: Value) -> Shape:
    """Return the sizes of a value's tensor, without the batch."""
    return tuple(1 if axis is None else value.shape[axis] for axis in value.axes)


def pooled(
    reader: Reader, node: Any, value: Value, window: Pair, stride: Pair, padding: Pair = (0, 0)
) -> Value:
    """Return a pool of a picture, or of a sequence with its features in front of its places."""
    is_max = "max" in operation(node)
    if len(value.axes) == 2:
        value = sequence(reader, node, value)
        if (window[0], padding[0]) == (value.shape[0], 0):
            return all_places(reader, node, value, [2])
        along = models.MaxPool1D if is_max else models.AveragePool1D
        return reader.same_axes(node, value, along(window[0], stride[0], padding[0]))
    kind = models.MaxPool if is_max else models.AveragePool
    layer = kind(window, stride, padding)
    return reader.add(node, plain(node, value, 3), layer, is_whole=window == value.shape[1:])


@reads("mean", "amax", "max")
def global_pool(reader: Reader, node: Any, value: Value) -> Value:
    given = argument(node, 1, "dim")
    rank = len(value.axes) + 1
    axes = [axis % rank for axis in ([given] if isinstance(given, int) else given or [0])]
    return all_places(reader, node, value, axes)


def all_places(reader: Reader, node: Any, value: Value, axes: Sequence[int]) -> Value:
    """Return the mean or the maximum over all places, which leaves the channels."""
    rank, out = len(value.axes) + 1, shape_of(node)
    places = {value.axes[axis - 1] for axis in axes if axis}
    if len(value.shape) == 2 and places == {value.channel_axis}:
        value = transposed(reader, node, value)
        places = {0}
    if 0 in axes or places != set(range(len(value.shape))) - {value.channel_axis}:
        raise refused(node, "over other axes than all places has no description")
    is_max = "max" in operation(node)
    if len(value.shape) == 3 and len(out) == rank and value.is_plain:  # keepdim
        window = (value.shape[1], value.shape[2])
        kind = models.MaxPool if is_max else models.AveragePool
        return reader.add(node, value, kind(window, window), is_whole=True)
    layer = models.GlobalMaxPool() if is_max else models.GlobalAveragePool()
    after = reader.add(node, value, layer)
    kept = [a for i, a in enumerate(value.axes, start=1) if i not in axes or len(out) == rank]
    return Value(
        after.step, after.shape, tuple(0 if a == value.channel_axis else None for a in kept)
    )


@reads("upsample_nearest2d", "upsample_bilinear2d")
def upsample(reader: Reader, node: Any, value: Value) -> Value:
    _, *before = plain(node, value, 3).shape
    factors = {after / n for after, n in zip(shape_of(node)[2:], before, strict=True)}
    mode = "bilinear" if "bilinear" in operation(node) else "nearest"
    if mode == "bilinear" and argument(node, 2, "align_corners"):
        raise refused(node, "with align_corners has no description")
    if len(factors) != 1 or (factor := factors.pop()) != int(factor):
        raise refused(node, "by another factor than a whole number has no description")
    return reader.add(node, value, models.Upsample(int(factor), mode))


@reads("pad", "constant_pad_nd", "reflection_pad2d")
def pad(reader: Reader, node: Any, value: Value) -> Value:
    sides = list(node.args[1]) + [0, 0] * (2 - len(node.args[1]) // 2)
    mode = "reflect" if "reflect" in (operation(node), *node.args) else "zeros"
    if operation(node) == "reflection_pad2d":
        mode = "reflect"
    number = node.args[-1] if isinstance(node.args[-1], int | float) else 0
    if number or len(sides) > 4 or set(node.args[2:3]) & {"replicate", "circular"}:
        raise refused(node, "with other values than zeros or a reflection has no description")
    left, right, top, bottom = sides
    layer = models.Pad(((top, bottom), (left, right)), mode)
    return reader.add(node, plain(node, value, 3), layer)


# Axes and sizes


@reads("contiguous", "clone", "alias", "to", "_to_copy", "type_as", "float")
@reads("expand", "expand_as")
def unchanged(reader: Reader, node: Any, value: Value) -> Value:
    return value


@reads("detach")
def detached(reader: Reader, node: Any, value: Value) -> Value:
    raise refused(node, "before which nothing trains has no description")


@reads("permute", "transpose", "t", "movedim", "swapaxes")
def permute(reader: Reader, node: Any, value: Value) -> Value:
    rank = len(value.axes) + 1
    order = list(range(rank))
    if operation(node) == "permute":
        order = [axis % rank for axis in node.args[1]]
    else:
        a, b = (axis % rank for axis in node.args[1:3])
        order[a], order[b] = order[b], order[a]
    if order[0] != 0:
        raise refused(node, "of the batch has no description")
    return Value(value.step, value.shape, tuple(value.axes[axis - 1] for axis in order[1:]))


@reads("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel")
def sized(reader: Reader, node: Any, value: Value) -> Value:
    """Read any change of the axes by the sizes that it makes."""
    batch, *rest = shape_of(node)
    out = tuple(rest)
    before = sizes_of(value)
    if batch != BATCH and math.prod(out) * batch != BATCH * math.prod(before):
        raise refused(node, "of the batch has no description")
    if batch != BATCH:
        raise refused(node, "of examples and places together has no description")
    real = [axis for axis, size in zip(value.axes, before, strict=True) if size != 1]
    if tuple(size for size in before if size != 1) == tuple(size for size in out if size != 1):
        # axes of 1 come and go
        if len(out) == len(value.shape) and not any(a is None for a in value.axes):
            return value
        if len(value.shape) == 1:
            if len(out) == 1:
                return Value(value.step, value.shape, (0,))
            if len(out) == 3 and out[1:] == (1, 1):
                return reader.add(node, value, models.Reshape(out))
            left = iter(real)
            return Value(
                value.step, value.shape, tuple(next(left) if n != 1 else None for n in out)
            )
    if value.axes == (1, 0) and len(out) in (1, 3):
        value, real = transposed(reader, node, value), [0, 1]
    is_ordered = real == sorted(axis for axis in real if axis is not None)
    if len(out) == 1 and is_ordered:
        if len(value.shape) == 1:
            return Value(value.step, value.shape, (0,))
        return reader.add(node, value, models.Flatten())
    if len(value.shape) == 3 and value.is_plain and out == (before[0], before[1] * before[2]):
        after = reader.add(node, value, models.ToSequence())
        return Value(after.step, after.shape, (1, 0))
    if is_ordered and value.is_plain and len(out) < 4:
        return reader.add(node, value, models.Reshape(out))
    raise refused(node, f"of {describe(value)} to {out} has no description")


@reads("slice")
def sliced(reader: Reader, node: Any, value: Value) -> Value:
    if shape_of(node) != shape_of(node.args[0]):
        raise refused(node, "of a part has no description")
    return value


@reads("select")
def select(reader: Reader, node: Any, value: Value) -> Value:
    """The first place of a sequence."""
    axis, place = node.args[1] % (len(value.axes) + 1), node.args[2]
    is_places = len(value.shape) == 2 and axis and value.axes[axis - 1] == 0
    if is_places and place == 0:
        return reader.add(node, value, models.FirstOfSequence())
    raise refused(node, "of one of several has no description")


# What joins values

JOINED: dict[str, Callable[[Reader, Any], Value]] = {}


def joins(*names: str) -> Callable[[Callable[[Reader, Any], Value]], Any]:
    def register(function: Callable[[Reader, Any], Value]) -> Any:
        JOINED.update(dict.fromkeys(names, function))
        return function

    return register


@reads("neg")
def negative(reader: Reader, node: Any, value: Value) -> Value:
    return rescaled(reader, node, value, -1.0)


def rescaled(reader: Reader, node: Any, value: Value, scale: float, offset: float = 0.0) -> Value:
    if (scale, offset) == (1, 0):  # as in a sum that begins with 0
        return value
    return reader.same_axes(node, value, models.Rescaling(scale, offset))


def number_of(reader: Reader, operand: Any) -> float | None:
    """Return a number, or that in a tensor that does not train; None for anything else."""
    tensor = reader.constant(operand)
    if tensor is not None and tensor.numel() == 1 and not is_trained(reader, operand):
        return float(tensor)
    return float(operand) if isinstance(operand, int | float) else None


@joins("add", "mul", "sub", "rsub", "div", "__iadd__", "__imul__")
def add_or_multiply(reader: Reader, node: Any) -> Value:
    name = operation(node).rstrip("_")
    if node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("rounding_mode"):
        raise refused(node, "with alpha or rounding_mode has no description")
    operands = list(node.args[:2])
    if name == "rsub":
        operands, name = operands[::-1], "sub"
    is_sum = "mul" not in name and name != "div"
    first, second = (number_of(reader, operand) for operand in operands)
    if first is not None and name != "div":
        value = reader.value(operands[1])
        scale = -1.0 if name == "sub" else 1.0
        return rescaled(reader, node, value, *((scale, first) if is_sum else (first,)))
    if second is not None:
        value = reader.value(operands[0])
        if is_sum:
            return rescaled(reader, node, value, 1.0, -second if name == "sub" else second)
        return rescaled(reader, node, value, 1 / second if name == "div" else second)
    if name == "div":
        raise refused(node, "by another value has no description")
    fixed = [operand for operand in operands if reader.constant(operand) is not None]
    if fixed and name == "sub":
        raise refused(node, "of constant numbers has no description")
    if fixed:
        (given,) = (operand for operand in operands if reader.constant(operand) is None)
        return with_constant(reader, node, reader.value(given), fixed[0], is_sum)
    values = [reader.value(operand) for operand in operands]
    if name == "sub":
        values[1] = rescaled(reader, node, values[1], -1.0)
    if {value.axes for value in values} == {(0, 1), (1, 0)}:
        values = [v if v.is_plain else transposed(reader, node, v) for v in values]
    a, b = values
    if len(a.shape) != len(b.shape) or len(a.axes) != len(b.axes):
        values = [as_picture(reader, node, v, max(len(a.shape), len(b.shape))) for v in values]
        a, b = values
    if a.axes != b.axes:
        raise refused(node, "of values with their axes in different orders has no description")
    return reader.joined(node, values, ADD if is_sum else MULTIPLY)


def as_picture(reader: Reader, node: Any, value: Value, rank: int) -> Value:
    """Return one number for each channel as a picture of one place, which counts for all."""
    if len(value.shape) == rank:
        return value
    if len(value.shape) == 1 and rank == 3 and value.axes == (0, None, None):
        return reader.add(node, value, models.Reshape((*value.shape, 1, 1)))
    raise refused(node, "of values with other numbers of axes has no description")


def with_constant(reader: Reader, node: Any, value: Value, given: Any, is_sum: bool) -> Value:
    """Return a sum with numbers for each place, or a product with one for each channel."""
    tensor = reader.constants[given.name]
    if not is_trained(reader, given):
        table = tensor.reshape(-1, tensor.shape[-1]) if tensor.ndim > 1 else tensor
        if is_sum and tuple(table.shape) == value.shape and sinusoidal(table) is not None:
            reader.keep_exact(given, sinusoidal)
            return reader.same_axes(node, value, models.SinusoidalPositions())
        raise refused(node, "of constant numbers has no description")
    if is_sum:
        table = tensor.reshape(tensor.shape[-2:]) if tensor.ndim > 1 else tensor
        if tuple(table.shape) == value.shape and len(value.shape) == 2 and value.is_plain:
            positions = models.PositionEmbedding()
            return reader.same_axes(node, value, positions, weights={"weight": table})
        raise refused(node, "of a parameter that is not one for each place has no description")
    channels = value.shape[value.channel_axis]
    place = value.axes.index(value.channel_axis)
    sizes = [1] * (len(value.axes) - tensor.ndim) + list(tensor.shape)[-len(value.axes) :]
    if tensor.numel() != channels or sizes[place] != channels:
        raise refused(node, "of a parameter that is not one for each channel has no description")
    return reader.same_axes(node, value, models.Scale(), weights={"weight": tensor.reshape(-1)})


def sinusoidal(held: Tensor) -> Tensor | None:
    """Return a table (..., places, features) of sines and cosines in turn in float64; None for
    another one.
    """
    if held.ndim < 2:
        return None
    table = held.reshape(-1, held.shape[-1])
    places, features = table.shape
    rates = 10_000.0 ** (-torch.arange(0, features, 2, dtype=torch.float64) / features)
    angles = torch.arange(places)[:, None] * rates
    expected = torch.stack((angles.sin(), angles.cos()), 2).flatten(1)[:, :features]
    is_like = bool((table - expected).abs().max() < 1e-4)
    return expected.reshape(held.shape) if is_like else None


def is_trained(reader: Reader, node: Any) -> bool:
    """Return whether a constant is a parameter, or rows of one."""
    return bool(reader.constants[node.name].requires_grad) or any(
        isinstance(reader.constants.get(before.name), torch.nn.Parameter)
        or is_trained(reader, before)
        for before in node.all_input_nodes
    )


@joins("cat", "concat")
def concatenated(reader: Reader, node: Any) -> Value:
    given, axis = node.args[0], argument(node, 1, "dim", 0)
    if isinstance(reader.constant(given[0]), Tensor) and len(given) == 2:
        return class_token(reader, node, given, axis)
    values = [reader.value(one) for one in given]
    axes = {value.axes for value in values}
    (order,) = axes if len(axes) == 1 else ((),)
    if not order or order[axis % (len(order) + 1) - 1] != values[0].channel_axis or axis == 0:
        raise refused(node, "along another axis than the channels has no description")
    return reader.joined(node, values, CONCATENATE)


def class_token(reader: Reader, node: Any, given: Any, axis: int) -> Value:
    value, source = reader.value(given[1]), given[0]
    while operation(source) in ("repeat", "expand"):
        source = source.args[0]
    token = reader.constants[source.name]
    is_one = token.numel() == token.shape[-1]
    if len(value.shape) != 2 or not value.is_plain or axis != 1 or not is_one:
        raise refused(node, "with a constant has no description")
    return reader.add(node, value, models.ClassToken(), weights={"weight": token.reshape(-1)})
