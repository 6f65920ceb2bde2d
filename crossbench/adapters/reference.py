"""Train a model in NumPy, layer by layer from the definitions.

In float64 this is the reference that the frameworks are compared with. In float32 it computes as
inaccurately as any of them may rightly do, which is as Flux does: a max-pool gives the gradient to
the first value of a window within a tolerance of the largest (near ties, NNlib), and a batch norm
adds up a channel one value after another (the sums over dimensions of Julia's Statistics).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, singledispatch
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..models.layers import (
    GELU,
    GRU,
    LSTM,
    BatchNorm,
    ClassToken,
    Conv,
    Dense,
    Dropout,
    Embedding,
    FirstOfSequence,
    Flatten,
    GlobalAveragePool,
    Layer,
    LayerNorm,
    MaxPool,
    MultiHeadAttention,
    OneHot,
    PositionEmbedding,
    ReLU,
    Residual,
    RMSNorm,
    ToSequence,
    Unembedding,
)
from ..models.model import Model, NamedLayer, Weights
from ..models.training import (
    SGD,
    Adadelta,
    Adam,
    AdamW,
    BinaryCrossEntropy,
    MeanSquaredError,
    RMSprop,
    SoftmaxCrossEntropy,
)
from ..workload import Adapter, Batch, Batches, Job, versions

Backward = Callable[[np.ndarray], np.ndarray]
"""Maps the output's gradient to the input's, and adds the parameters' to Pass.gradients."""


TIED_WEIGHT = "embedding1.weight"
"""The parameter that an Unembedding shares."""
SEED = 0
"""Seed of the dropout masks."""
PIECE_SIZE = 64
"""Examples that go through a model with convolutions or attention at a time: NumPy spends most of
the time of a larger batch on getting memory."""
PIECE_VALUES = 2**24
"""Values of the largest layer of so many examples, at most."""
BLOCK_VALUES = 2**19
"""Values of a convolution's patches that are computed at a time."""


@dataclass
class Pass:
    """Hold what one pass through the model, forward and perhaps backward, reads and computes.

    weights: the parameters before the pass, by full name ("conv1.weight").
    masks: the dropout masks by the dropout's name; None to draw them with `random`.
    running: the running statistics after the pass, by full name.
    near_ties: how many windows of max-pools had near ties: two values so close that a framework may
        give the gradient to either.
    """

    weights: Weights
    training: bool
    masks: Mapping[str, np.ndarray] | None = None
    random: np.random.Generator = field(default_factory=partial(np.random.default_rng, SEED))
    gradients: Weights = field(default_factory=dict)
    running: Weights = field(default_factory=dict)
    near_ties: int = 0

    def parameters(self, named: NamedLayer) -> Weights:
        """Return the layer's parameters by their short name ("weight")."""
        prefix = f"{named.name}."
        return {name.removeprefix(prefix): self.weights[name] for name in named.parameters}

    def add_gradients(self, named: NamedLayer, **gradients: np.ndarray) -> None:
        """Add to the gradients of the layer's parameters, given by their short name."""
        for name, gradient in gradients.items():
            self.add_to(f"{named.name}.{name}", gradient)

    def add_to(self, name: str, gradient: np.ndarray) -> None:
        """Add to the gradient of a parameter, which another layer may have added to before."""
        before = self.gradients.get(name)
        self.gradients[name] = gradient if before is None else before + gradient


@singledispatch
def forward(
    layer: Layer, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    """Return the layer's output for `x`, (batch, *input_shape), and its backward pass."""
    raise NotImplementedError(
        f"the NumPy reference does not support the layer {type(layer).__name__}"
    )


def _sum(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Sum in float64: NumPy's own sums over outer axes are inaccurate in float32."""
    return x.sum(axes, dtype=np.float64).astype(x.dtype)


def _channel_sum(x: np.ndarray) -> np.ndarray:
    """Sum each channel (axis 1); in float32 as Julia does: one value after another, all rounded."""
    values = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
    return np.cumsum(values, 1)[:, -1] if x.dtype == np.float32 else values.sum(1)


def forward_all(
    layers: Iterable[NamedLayer], x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    """Return the output of all layers, in order, and their backward pass."""
    backwards = []
    for named in layers:
        x, backward = forward(named.layer, named, x, run)
        backwards.append(backward)

    def back(dy: np.ndarray) -> np.ndarray:
        for backward in reversed(backwards):
            dy = backward(dy)
        return dy

    return x, back


@forward.register
def _(layer: Conv, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    (sh, sw), (ph, pw), (kh, kw) = layer.stride, layer.padding, layer.kernel
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    patches = sliding_window_view(padded, (kh, kw), (2, 3))[:, :, ::sh, ::sw]
    parameters = run.parameters(named)
    kernel = parameters["weight"]
    height, width = patches.shape[2:4]
    blocks = _blocks(len(x), patches[:1].size)
    y = np.empty((len(x), height, width, layer.features), x.dtype)
    for block in blocks:
        y[block] = np.tensordot(patches[block], kernel, ((1, 4, 5), (1, 2, 3)))

    def backward(dy: np.ndarray) -> np.ndarray:
        dpadded, dkernel = np.zeros_like(padded), np.zeros_like(kernel)
        for block in blocks:
            dkernel += np.tensordot(dy[block], patches[block], ((0, 2, 3), (0, 2, 3)))
            dpatches = np.tensordot(dy[block], kernel, ((1,), (0,)))  # batch, h, w, channel, kh, kw
            for i in range(kh):
                for j in range(kw):
                    window = dpadded[block, :, i : i + sh * height : sh, j : j + sw * width : sw]
                    window += dpatches[..., i, j].transpose(0, 3, 1, 2)
        bias = {"bias": _sum(dy, (0, 2, 3))} if layer.bias else {}
        run.add_gradients(named, weight=dkernel, **bias)
        return dpadded[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]]

    y = y.transpose(0, 3, 1, 2)
    return y + parameters["bias"][:, None, None] if layer.bias else y, backward


def _blocks(examples: int, values: int) -> list[slice]:
    """Return slices of a batch whose patches, of so many values per example, fit the caches."""
    size = max(1, BLOCK_VALUES // values)
    return [slice(start, start + size) for start in range(0, examples, size)]


@forward.register
def _(layer: MaxPool, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    (sh, sw), (kh, kw) = layer.stride, layer.window
    windows = sliding_window_view(x, (kh, kw), (2, 3))[:, :, ::sh, ::sw]
    flat = windows.reshape(*windows.shape[:4], kh * kw)
    largest = flat.max(-1, keepdims=True)
    near = flat >= largest - np.sqrt(np.finfo(x.dtype).eps) * np.abs(largest)
    # exact ties, such as the zeros that a ReLU leaves, are harmless: all get the same gradient
    run.near_ties += int(((flat != largest) & near).any(-1).sum())
    winner = near.argmax(-1) if x.dtype == np.float32 else flat.argmax(-1)
    height, width = winner.shape[2:]

    def backward(dy: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        for cell in range(kh * kw):
            i, j = divmod(cell, kw)
            window = dx[:, :, i : i + sh * height : sh, j : j + sw * width : sw]
            window += np.where(winner == cell, dy, 0)
        return dx

    return largest[..., 0], backward


@forward.register
def _(layer: ReLU, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    return np.maximum(x, 0), lambda dy: np.where(x > 0, dy, 0)


@forward.register
def _(layer: GELU, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    if layer.tanh:
        scale = math.sqrt(2 / math.pi)
        tanh = np.tanh(scale * (x + 0.044715 * x**3))
        below = (1 + tanh) / 2
    else:
        from scipy.special import erf  # it takes a third of a worker process' start

        below = (1 + erf(x / math.sqrt(2))) / 2  # the share of the normal distribution below x

    def backward(dy: np.ndarray) -> np.ndarray:
        if layer.tanh:
            slope = (1 - tanh**2) / 2 * scale * (1 + 3 * 0.044715 * x**2)
        else:
            slope = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        return dy * (below + x * slope)

    return x * below, backward


@forward.register
def _(layer: Flatten, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    return x.reshape(len(x), -1), lambda dy: dy.reshape(x.shape)


@forward.register
def _(
    layer: ToSequence, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    y = x.reshape(*x.shape[:2], -1).transpose(0, 2, 1)
    return y, lambda dy: dy.transpose(0, 2, 1).reshape(x.shape)


@forward.register
def _(layer: Dense, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    parameters = run.parameters(named)
    y, back = _project(x, parameters["weight"], parameters.get("bias"))

    def backward(dy: np.ndarray) -> np.ndarray:
        dx, gradients = back(dy)
        run.add_gradients(named, **gradients)
        return dx

    return y, backward


def _project(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, Weights]]]:
    """Return x @ weight' + bias over the last axis, and its backward pass: the gradient of x, and
    those of the "weight" and, unless it is None, of the "bias".
    """
    rows = x.reshape(-1, x.shape[-1])  # a product of many small matrices is slow in NumPy

    def backward(dy: np.ndarray) -> tuple[np.ndarray, Weights]:
        drows = dy.reshape(-1, dy.shape[-1])
        gradients = {"weight": drows.T @ rows}
        if bias is not None:
            gradients["bias"] = _sum(drows, (0,))
        return (drows @ weight).reshape(x.shape), gradients

    y = (rows @ weight.T).reshape(*x.shape[:-1], -1)
    return y if bias is None else y + bias, backward


@forward.register
def _(layer: BatchNorm, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    parameters = run.parameters(named)
    n = x.size // x.shape[1]

    def channels(values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, *[1] * (x.ndim - 2))

    if run.training:
        mean = _channel_sum(x) / x.dtype.type(n)
        variance = _channel_sum((x - channels(mean)) ** 2) / x.dtype.type(n)
        momentum = layer.momentum
        for name, new in (("running_mean", mean), ("running_var", variance * (n / (n - 1)))):
            run.running[f"{named.name}.{name}"] = momentum * parameters[name] + (
                1 - momentum
            ) * new.astype(x.dtype)
    else:
        mean, variance = parameters["running_mean"], parameters["running_var"]
    deviation = np.sqrt(variance + layer.epsilon)
    normal = (x - channels(mean)) / channels(deviation)

    def backward(dy: np.ndarray) -> np.ndarray:
        dweight, dbias = _channel_sum(dy * normal), _channel_sum(dy)
        run.add_gradients(named, weight=dweight, bias=dbias)
        centred = dy - channels(dbias / n) - normal * channels(dweight / n)
        return centred * channels(parameters["weight"] / deviation)

    return normal * channels(parameters["weight"]) + channels(parameters["bias"]), backward


@forward.register(LayerNorm)
@forward.register(RMSNorm)
def _(
    layer: LayerNorm | RMSNorm, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    centres = isinstance(layer, LayerNorm)
    parameters = run.parameters(named)
    weight, bias = parameters["weight"], parameters.get("bias")

    def centred(values: np.ndarray) -> np.ndarray:
        return values - values.mean(-1, keepdims=True) if centres else values

    difference = centred(x)
    deviation = np.sqrt((difference**2).mean(-1, keepdims=True) + x.dtype.type(layer.epsilon))
    normal = difference / deviation

    def backward(dy: np.ndarray) -> np.ndarray:
        places = tuple(range(dy.ndim - 1))
        gradients = {"weight": _sum(dy * normal, places)}
        if bias is not None:
            gradients["bias"] = _sum(dy, places)
        run.add_gradients(named, **gradients)
        dnormal = dy * weight
        along = (dnormal * normal).mean(-1, keepdims=True)
        return (centred(dnormal) - normal * along) / deviation

    y = normal * weight
    return y if bias is None else y + bias, backward


@forward.register
def _(layer: Dropout, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    if not run.training:
        return x, lambda dy: dy
    mask = run.masks and run.masks[named.name]
    mask = run.random.random(x.shape) >= layer.rate if mask is None else mask
    scale = mask / x.dtype.type(1 - layer.rate)
    return x * scale, lambda dy: dy * scale


@forward.register
def _(
    layer: GlobalAveragePool, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    axes = (1,) if x.ndim == 3 else (2, 3)
    count = np.prod([x.shape[axis] for axis in axes]).astype(x.dtype)
    return x.mean(axes), lambda dy: np.broadcast_to(np.expand_dims(dy / count, axes), x.shape)


@forward.register
def _(layer: Embedding, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    weight = run.parameters(named)["weight"]

    def backward(dy: np.ndarray) -> np.ndarray:
        gradient = np.zeros_like(weight)
        np.add.at(gradient, x, dy)
        run.add_gradients(named, weight=gradient)
        return np.zeros(x.shape)  # integers have no gradient

    return weight[x], backward


@forward.register
def _(layer: OneHot, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    dtype = next(iter(run.weights.values())).dtype
    return np.eye(layer.vocabulary, dtype=dtype)[x], lambda dy: np.zeros(x.shape)


@forward.register
def _(
    layer: Unembedding, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    y, back = _project(x, run.weights[TIED_WEIGHT], None)

    def backward(dy: np.ndarray) -> np.ndarray:
        dx, gradients = back(dy)
        run.add_to(TIED_WEIGHT, gradients["weight"])
        return dx

    return y, backward


@forward.register
def _(
    layer: PositionEmbedding, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    def backward(dy: np.ndarray) -> np.ndarray:
        run.add_gradients(named, weight=_sum(dy, (0,)))
        return dy

    return x + run.parameters(named)["weight"], backward


@forward.register
def _(
    layer: ClassToken, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    weight = run.parameters(named)["weight"]
    token = np.broadcast_to(weight, (len(x), 1, len(weight)))

    def backward(dy: np.ndarray) -> np.ndarray:
        run.add_gradients(named, weight=_sum(dy[:, 0], (0,)))
        return dy[:, 1:]

    return np.concatenate([token, x], 1), backward


@forward.register
def _(
    layer: FirstOfSequence, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    def backward(dy: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        dx[:, 0] = dy
        return dx

    return x[:, 0], backward


def attention_scale(width: int) -> float:
    """Return the factor of the scores of a head with so many features."""
    return 1 / math.sqrt(width)


def causal_mask(length: int) -> np.ndarray:
    """Return where a place (row) must not attend to another (column): where that one is later."""
    return np.triu(np.ones((length, length), bool), 1)


@forward.register
def _(
    layer: MultiHeadAttention, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    parameters = run.parameters(named)
    backs = {}

    def project(name: str, inputs: np.ndarray) -> np.ndarray:
        y, backs[name] = _project(
            inputs, parameters[f"{name}_weight"], parameters.get(f"{name}_bias")
        )
        return y

    def project_back(name: str, dy: np.ndarray) -> np.ndarray:
        dx, gradients = backs[name](dy)
        run.add_gradients(named, **{f"{name}_{part}": value for part, value in gradients.items()})
        return dx

    def split(values: np.ndarray) -> np.ndarray:  # batch, heads, length, features of a head
        return values.reshape(*values.shape[:2], layer.heads, -1).swapaxes(1, 2)

    def join(values: np.ndarray) -> np.ndarray:
        return values.swapaxes(1, 2).reshape(x.shape)

    q, k, v = (split(project(name, x)) for name in ("query", "key", "value"))
    scale = attention_scale(q.shape[-1])
    scores = q @ k.swapaxes(2, 3) * x.dtype.type(scale)
    if layer.causal:
        scores[..., causal_mask(scores.shape[-1])] = -np.inf
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    shares = exponentials / exponentials.sum(-1, keepdims=True)

    def backward(dy: np.ndarray) -> np.ndarray:
        djoined = split(project_back("output", dy))
        dshares = djoined @ v.swapaxes(2, 3)
        dscores = shares * (dshares - (dshares * shares).sum(-1, keepdims=True))
        dscores *= x.dtype.type(scale)
        return (
            project_back("query", join(dscores @ k))
            + project_back("key", join(dscores.swapaxes(2, 3) @ q))
            + project_back("value", join(shares.swapaxes(2, 3) @ djoined))
        )

    return project("output", join(shares @ v)), backward


@forward.register(LSTM)
@forward.register(GRU)
def _(
    layer: LSTM | GRU, named: NamedLayer, x: np.ndarray, run: Pass
) -> tuple[np.ndarray, Backward]:
    """Run the cell along the sequence, and a second cell along the reversed sequence if asked."""
    run_cell = _lstm if isinstance(layer, LSTM) else _gru
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)
    parameters = run.parameters(named)
    directions = []
    for suffix in suffixes:
        weights = [parameters[f"{name}{suffix}"] for name in ("weight_ih", "weight_hh", "bias")]
        directions.append(run_cell(x[:, ::-1] if suffix else x, *weights))

    def backward(dy: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        halves = np.split(dy, len(directions), 1)
        for suffix, (_, back), half in zip(suffixes, directions, halves, strict=True):
            dsequence, dih, dhh, dbias = back(half)
            dx += dsequence[:, ::-1] if suffix else dsequence
            names = [f"{name}{suffix}" for name in ("weight_ih", "weight_hh", "bias")]
            run.add_gradients(named, **dict(zip(names, (dih, dhh, dbias), strict=True)))
        return dx

    return np.concatenate([h for h, _ in directions], 1), backward


RecurrentBackward = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
"""Maps the gradient of the last output to those of x, weight_ih, weight_hh and bias."""


def _lstm(
    x: np.ndarray, ih: np.ndarray, hh: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, RecurrentBackward]:
    h = c = np.zeros((len(x), hh.shape[1]), x.dtype)
    steps = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ ih.T + h @ hh.T + bias, 4, 1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        before, c = (h, c), f * c + i * g
        h = o * np.tanh(c)
        steps.append((before, (i, f, g, o), c))

    def backward(dh: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        dx, dih, dhh, dbias = (np.zeros_like(a) for a in (x, ih, hh, bias))
        dc = np.zeros_like(dh)
        for t in reversed(range(len(steps))):
            (h_before, c_before), (i, f, g, o), c = steps[t]
            tanh_c = np.tanh(c)
            dc = dc + dh * o * (1 - tanh_c**2)
            gates = (
                dc * g * i * (1 - i),
                dc * c_before * f * (1 - f),
                dc * i * (1 - g**2),
                dh * tanh_c * o * (1 - o),
            )
            dgates = np.concatenate(gates, 1)
            dx[:, t] = dgates @ ih
            dih += dgates.T @ x[:, t]
            dhh += dgates.T @ h_before
            dbias += dgates.sum(0)
            dh, dc = dgates @ hh, dc * f
        return dx, dih, dhh, dbias

    return h, backward


def _gru(
    x: np.ndarray, ih: np.ndarray, hh: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, RecurrentBackward]:
    h = np.zeros((len(x), hh.shape[1]), x.dtype)
    steps = []
    for t in range(x.shape[1]):
        from_x = np.split(x[:, t] @ ih.T + bias, 3, 1)
        from_h = np.split(h @ hh.T, 3, 1)
        r, z = (_sigmoid(a + b) for a, b in zip(from_x[:2], from_h[:2], strict=True))
        n = np.tanh(from_x[2] + r * from_h[2])
        steps.append((h, r, z, n, from_h[2]))
        h = (1 - z) * n + z * h

    def backward(dh: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        dx, dih, dhh, dbias = (np.zeros_like(a) for a in (x, ih, hh, bias))
        for t in reversed(range(len(steps))):
            before, r, z, n, new_from_h = steps[t]
            dn = dh * (1 - z) * (1 - n**2)
            dz = dh * (before - n) * z * (1 - z)
            dr = dn * new_from_h * r * (1 - r)
            dgates = np.concatenate((dr, dz, dn), 1)
            dfrom_h = np.concatenate((dr, dz, dn * r), 1)
            dx[:, t] = dgates @ ih
            dih += dgates.T @ x[:, t]
            dhh += dfrom_h.T @ before
            dbias += dgates.sum(0)
            dh = dh * z + dfrom_h @ hh
        return dx, dih, dhh, dbias

    return h, backward


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


@forward.register
def _(layer: Residual, named: NamedLayer, x: np.ndarray, run: Pass) -> tuple[np.ndarray, Backward]:
    body, body_back = forward_all(named.body, x, run)
    shortcut, shortcut_back = forward_all(named.shortcut, x, run)
    return body + shortcut, lambda dy: body_back(dy) + shortcut_back(dy)


@singledispatch
def loss_and_gradient(
    loss: Any, logits: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the loss and its gradient with respect to the logits, or to the outputs."""
    raise NotImplementedError(
        f"the NumPy reference does not support the loss {type(loss).__name__}"
    )


@loss_and_gradient.register
def _(
    loss: SoftmaxCrossEntropy, logits: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    classes, smoothing = logits.shape[-1], loss.label_smoothing
    flat, labels = logits.reshape(-1, classes), labels.reshape(-1)
    shifted = flat - flat.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    value = (1 - smoothing) * log_softmax[rows, labels].mean() + smoothing * log_softmax.mean()
    gradient = np.exp(log_softmax) - logits.dtype.type(smoothing / classes)
    gradient[rows, labels] -= logits.dtype.type(1 - smoothing)
    return -float(value), gradient.reshape(logits.shape) / len(labels)


@loss_and_gradient.register
def _(loss: BinaryCrossEntropy, logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    z, y = logits[:, 0], labels.astype(logits.dtype)
    losses = np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))
    return float(losses.mean()), ((_sigmoid(z) - y) / len(y))[:, None]


@loss_and_gradient.register
def _(loss: MeanSquaredError, outputs: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    difference = outputs - targets
    return float((difference**2).mean()), 2 * difference / difference.size


State = dict[str, dict[str, Any]]
"""An optimizer's state: by parameter, then by the name in the optimizer's formula ("velocity")."""


@singledispatch
def update(optimizer: Any, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    """Return what step t (from 0) subtracts from a weight, for a learning rate of 1.

    It follows the formula in the optimizer's docstring. state: the weight's, empty at the start;
    changed in place.
    """
    raise NotImplementedError(
        f"the NumPy reference does not support the optimizer {type(optimizer).__name__}"
    )


@update.register
def _(optimizer: SGD, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    state["velocity"] = optimizer.momentum * state.get("velocity", 0) + gradient
    velocity: np.ndarray = state["velocity"]
    return velocity


@update.register(Adam)
@update.register(AdamW)
def _(optimizer: Adam | AdamW, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    b1, b2 = optimizer.beta1, optimizer.beta2
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * gradient
    state["v"] = b2 * state.get("v", 0) + (1 - b2) * gradient**2
    m, v = state["m"] / (1 - b1 ** (t + 1)), state["v"] / (1 - b2 ** (t + 1))
    step: np.ndarray = m / (np.sqrt(v) + optimizer.epsilon)
    return step


@update.register
def _(optimizer: RMSprop, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    state["v"] = optimizer.rho * state.get("v", 0) + (1 - optimizer.rho) * gradient**2
    step: np.ndarray = gradient / (np.sqrt(state["v"]) + optimizer.epsilon)
    return step


@update.register
def _(optimizer: Adadelta, gradient: np.ndarray, state: dict[str, Any], t: int) -> np.ndarray:
    rho, epsilon, u = optimizer.rho, optimizer.epsilon, state.get("u", 0)
    state["v"] = rho * state.get("v", 0) + (1 - rho) * gradient**2
    step = gradient * np.sqrt(u + epsilon) / np.sqrt(state["v"] + epsilon)
    state["u"] = rho * u + (1 - rho) * step**2
    return step


def clip(gradients: Weights, clip_norm: float | None) -> Weights:
    """Return the gradients, each scaled down where the norm of them all is over clip_norm."""
    norm = global_norm(gradients)
    if clip_norm is None or norm <= clip_norm:
        return gradients
    return {name: g * g.dtype.type(clip_norm / norm) for name, g in gradients.items()}


def global_norm(gradients: Weights) -> float:
    """Return the Euclidean norm of all gradients together."""
    return math.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values()))


def unsupported_part(model: Model) -> str | None:
    """Return the name of a layer, loss or optimizer that is not supported here; None if all are.

    A model that has one cannot be compared with the reference.
    """
    parts: list[tuple[Any, Any]] = [(forward, named.layer) for named in model.all_layers()]
    parts += [(loss_and_gradient, model.loss), (update, model.optimizer)]
    for function, part in parts:
        if type(part) not in function.registry:  # a subclass may compute something else
            return type(part).__name__
    return None


class NumpyArrays:
    """Multiply and copy arrays in NumPy."""

    def put(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def fetch(self, array: np.ndarray, step: int = 1) -> np.ndarray:
        return array[::step]

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def multiply(self, a: np.ndarray, b: np.ndarray, into: np.ndarray) -> np.ndarray:
        return np.matmul(a, b, out=into)

    def copy(self, source: np.ndarray, into: np.ndarray) -> np.ndarray:
        np.copyto(into, source)
        return into


class ReferenceWorkload:
    """Train one model in NumPy."""

    def __init__(self, job: Job) -> None:
        self.model, self.dtype = job.model, np.dtype(job.dtype)
        self.layers, self.described = list(job.model.named_layers()), job.model.parameters
        self.near_ties = 0  # of all training passes so far; see Pass
        kinds = {type(named.layer) for named in job.model.all_layers()}
        self.piece_size = None
        if BatchNorm not in kinds and kinds & {Conv, MultiHeadAttention}:
            largest = max(math.prod(n.output_shape) for n in job.model.all_layers())
            self.piece_size = max(1, min(PIECE_SIZE, PIECE_VALUES // largest))

    def load_weights(self, weights: Weights) -> None:
        self.steps, self.state, self.random = 0, State(), np.random.default_rng(SEED)
        self.parameters = {name: array.astype(self.dtype) for name, array in weights.items()}

    def place(self, batches: Batches) -> None:
        self.batches = batches

    def train_epoch(self) -> np.ndarray:
        return np.array([self.step(batch) for batch in self.batches])

    def predict_epoch(self) -> np.ndarray:
        return np.stack(list(self.predict_batches()))

    def predict_batches(self) -> Iterator[np.ndarray]:
        return (self.predict(batch.inputs) for batch in self.batches)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        loss, run = self._backward(batch, np.random.default_rng(SEED))
        return loss, run.gradients

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return forward_all(self.layers, self._inputs(inputs), Pass(self.parameters, False))[0]

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self.parameters.items()}

    def step(self, batch: Batch) -> float:
        """Train on a batch and return its loss."""
        loss, run = self._backward(batch, self.random)
        optimizer = self.model.optimizer
        rate = optimizer.rate(self.steps)
        for name, gradient in clip(run.gradients, optimizer.clip_norm).items():
            step = update(optimizer, gradient, self.state.setdefault(name, {}), self.steps)
            decay = optimizer.weight_decay_of(self.described[name])
            step = rate * (step + decay * self.parameters[name])
            self.parameters[name] -= step.astype(self.dtype)
        for name, value in run.running.items():
            self.parameters[name] = value.astype(self.dtype)
        self.steps += 1
        return loss

    def loss(self, batch: Batch) -> float:
        """Return the loss of a batch in training mode; nothing changes."""
        run = Pass(self.parameters, True, batch.masks, np.random.default_rng(SEED))
        loss = 0.0
        for piece, share in self._pieces(batch):
            run.masks, x = piece.masks, self._inputs(piece.inputs)
            for named in self.layers:  # keep no backward pass: it would hold every layer's input
                x, _ = forward(named.layer, named, x, run)
            loss += share * loss_and_gradient(self.model.loss, x, piece.labels)[0]
        return loss

    def _backward(self, batch: Batch, random: np.random.Generator) -> tuple[float, Pass]:
        """Return the loss of a batch, and the pass with its gradients and running statistics."""
        total, loss = Pass(self.parameters, True, None, random), 0.0
        for piece, share in self._pieces(batch):
            run = Pass(self.parameters, True, piece.masks, random)
            logits, back = forward_all(self.layers, self._inputs(piece.inputs), run)
            value, gradient = loss_and_gradient(self.model.loss, logits, piece.labels)
            back(gradient * gradient.dtype.type(share))
            loss += share * value
            for name, part in run.gradients.items():
                before = total.gradients.get(name)
                total.gradients[name] = part if before is None else before + part
            total.running |= run.running
            total.near_ties += run.near_ties
        self.near_ties += total.near_ties
        return loss, total

    def _pieces(self, batch: Batch) -> Iterator[tuple[Batch, float]]:
        """Yield parts of the batch, each with its share, whose activations fit the caches.

        A model with a batch norm gets the whole batch. A model without a convolution does too: it
        may have a large embedding, whose gradient would be as large for each part.
        """
        length = len(batch.labels)
        size = self.piece_size or length
        for start in range(0, length, size):
            part = slice(start, start + size)
            masks = {name: mask[part] for name, mask in (batch.masks or {}).items()} or None
            labels = batch.labels[part]
            yield Batch(batch.inputs[part], labels, masks), len(labels) / length

    def _inputs(self, x: np.ndarray) -> np.ndarray:
        return x if x.dtype.kind == "i" else x.astype(self.dtype)

    def peak_memory(self) -> int | None:
        return None

    def free_memory(self) -> None:
        """Do nothing: NumPy frees memory at once."""

    def threads(self) -> int | None:
        return None

    def epoch_figures(self) -> dict[str, float]:
        return {}

    def allocated(self) -> int | None:
        return None

    def arrays(self) -> NumpyArrays:
        return NumpyArrays()

    def details(self) -> dict[str, str]:
        return versions("numpy")


class ReferenceAdapter(Adapter):
    """Build models in NumPy, on the CPU."""

    title = "NumPy reference"

    def available(self, device: str) -> str | None:
        return None if device == "cpu" else "NumPy runs on the CPU only"

    def installed(self) -> dict[str, str]:
        return versions("numpy")

    def build(self, job: Job) -> ReferenceWorkload:
        return ReferenceWorkload(job)


ADAPTER = ReferenceAdapter()
