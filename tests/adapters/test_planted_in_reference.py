"""The proof can fail: each fault that is seen in the wild is planted in the reference, which is
proved like any adapter, and is caught. Five of them are planted in each adapter too
(test_planted_faults.py).
"""

from dataclasses import replace

import numpy as np
import pytest
from planting import Plant, over_the_bound, with_other_weights
from small_models import (
    BIDIRECTIONAL,
    BRANCHED,
    DROPPED,
    FITTED,
    GENERATED,
    PLAIN,
    SEGMENTED,
    SMALL_MODELS,
)

from crossbench import models
from crossbench.adapters.reference import ADAPTER, Rounding, rounded
from crossbench.adapters.reference.attention import rotate, window_mask
from crossbench.adapters.reference.norms import normalized
from crossbench.adapters.reference.sequences import sinusoids
from crossbench.engine import dropout, parity
from crossbench.inputs.names import BFLOAT16, TF32
from crossbench.models import (
    ELU,
    GELU,
    LSTM,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    AveragePool1D,
    BatchNorm,
    Branches,
    Conv,
    Conv1D,
    Dropout,
    Flatten,
    GroupNorm,
    Huber,
    InverseTimeDecay,
    LayerNorm,
    Lion,
    MaxPool1D,
    MultiHeadAttention,
    Optimizer,
    ReLU,
    ReLU6,
    Rescaling,
    RMSNorm,
    RMSprop,
    SoftmaxCrossEntropy,
    Unembedding,
)
from crossbench.workload import Job


def wrong_layer(kind, wrong):
    """Return a fault in one kind of layer.

    wrong: takes the output, its backward pass, the input and the pass of the layer, and returns
    another output and another backward pass.
    """

    def plant_fault(plant):
        forward = plant.package.forward

        def other(layer, named, x, run):
            y, back = forward(layer, named, x, run)
            return wrong(y, back, x, run) if isinstance(layer, kind) else (y, back)

        plant.part("forward", other)

    return plant_fault


def wrong_loss(change_outputs=lambda z: z, factor=lambda z: 1):
    """Return a fault in the loss: of other outputs, or times a factor."""

    def plant_fault(plant):
        right = plant.package.loss_and_gradient

        def other(loss, outputs, labels):
            value, gradient = right(loss, change_outputs(outputs), labels)
            return factor(outputs) * value, factor(outputs) * gradient

        plant.part("loss_and_gradient", other)

    return plant_fault


def wrong_part(name, wrong):
    return lambda plant: plant.part(name, wrong)


def wrong_rate(change_step):
    """Return a fault in the learning rate: that of another step."""
    right = Optimizer.rate
    return lambda plant: plant.method(Optimizer, "rate", lambda o, t: right(o, change_step(t)))


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def last_channel_first(y, back, x, run):
    """Return what a flatten gives of pictures with channels last."""
    last = x.transpose(0, 2, 3, 1)
    return last.reshape(len(x), -1), lambda dy: dy.reshape(last.shape).transpose(0, 3, 1, 2)


def last_place(plant):
    """Take the outputs of the last place, which is where a reverse cell begins."""
    forward = plant.package.forward

    def other(layer, named, x, run):
        if not isinstance(layer, LSTM) or layer.sequences:
            return forward(layer, named, x, run)
        y, back = forward(replace(layer, sequences=True), named, x, run)

        def backward(dy):
            whole = np.zeros_like(y)
            whole[:, -1] = dy
            return back(whole)

        return y[:, -1], backward

    plant.part("forward", other)


def interleaved(plant):
    """Give the channels one after the other to different groups."""
    forward = plant.package.forward

    def other(layer, named, x, run):
        if not isinstance(layer, Conv):
            return forward(layer, named, x, run)
        order = np.arange(x.shape[1]).reshape(layer.groups, -1).ravel("F")
        y, back = forward(layer, named, x[:, order], run)
        return y, lambda dy: back(dy)[:, np.argsort(order)]

    plant.part("forward", other)


def in_order_of_the_cell(plant):
    """Leave a reverse cell's outputs in its own order."""
    turned = plant.package._turned
    plant.part("_turned", lambda x, suffix: x if x.shape[-1] == 4 else turned(x, suffix))


def outside_of_the_reset(plant):
    """Add a GRU's second bias to the first."""
    right = plant.package._gru
    plant.part("_gru", lambda run, x, ih, hh, bias, second: right(run, x, ih, hh, bias + second))


def padded_with_zeros(plant):
    right = plant.package.patches
    plant.part("patches", lambda x, windows, fill=0: right(x, windows))


def aligned_corners(length, factor, mode):
    places = np.linspace(0, length - 1, factor * length)
    return np.maximum(1 - np.abs(places[:, None] - np.arange(length)), 0)


def saturated(y, back, x, run):
    return np.minimum(y, 6), lambda dy: back(np.where(y < 6, dy, 0))


def channels_turned(y, back, x, run):
    axis = 1 if y.ndim == 4 else -1
    return np.flip(y, axis), lambda dy: back(np.flip(dy, axis))


def without_its_gradient(y, back, x, run):
    def backward(dy):
        before = dict(run.gradients)
        dx = back(dy)
        run.gradients = before
        return dx

    return y, backward


def norm(gradients):
    return np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))


def by_value(gradients, bound):
    return {name: g.clip(-bound, bound) for name, g in gradients.items()} if bound else gradients


def dampened(optimizer, gradient, state, t):
    state["velocity"] = 0.9 * state.get("velocity", 0) + 0.1 * gradient
    return state["velocity"]


def not_ahead(optimizer, gradient, state, t):
    state["velocity"] = optimizer.momentum * state.get("velocity", 0) + gradient
    return state["velocity"]


def each_array(gradients, bound):
    scales = {name: bound / max(bound, norm({name: g})) for name, g in gradients.items()}
    return {name: scales[name] * g for name, g in gradients.items()}


def endless(y, back, x, run):
    return np.maximum(x, 0), lambda dy: np.where(x > 0, dy, 0)


def squared_epsilon(x, axis, epsilon, centres=True):
    """As Flux before 0.16.11 has it in a layer norm."""
    return normalized(x, axis, epsilon**2, centres)


def epsilon_outside_of_the_root(x, axis, epsilon, centres=True):
    normal, back = normalized(x, axis, epsilon, centres)
    root = np.sqrt(((x - centres * x.mean(axis, keepdims=True)) ** 2).mean(axis, keepdims=True))
    factor = np.sqrt(root**2 + epsilon) / (root + epsilon)
    return factor * normal, lambda dy: back(factor * dy)


def over_the_places(x, axis, *rest):
    return normalized(x, (2, 3) if x.ndim == 4 else axis, *rest)


def interleaved_groups(plant):
    """Plant that a group has every third channel, where there are three of them."""
    forward = plant.package.forward

    def other(layer, named, x, run):
        if not isinstance(layer, GroupNorm):
            return forward(layer, named, x, run)
        order = np.arange(x.shape[1]).reshape(-1, layer.groups).T.ravel()
        y, back = forward(layer, named, x[:, order], run)
        return y[:, order.argsort()], lambda dy: back(dy[:, order])[:, order.argsort()]

    plant.part("forward", other)


CAUSAL = lambda length: np.triu(np.ones((length, length), bool), 2)  # noqa: E731
SPEAKING, BENT = SMALL_MODELS["speaking"], SMALL_MODELS["bent"]
SPEAKING, ROTATED = SMALL_MODELS["speaking"], SMALL_MODELS["rotated"]


def other_pairs(x, rotary, sign=1):
    other = rotary and replace(rotary, interleaved=not rotary.interleaved)
    return rotate(x, other, sign)


def queries_alone(x, rotary, sign=1):
    """Rotate nothing where there is one head, as of the keys of an attention in ROTATED."""
    return x if x.shape[1] == 1 else rotate(x, rotary, sign)


IN_CODE = {
    "a wrong flatten order": (PLAIN, "logits", wrong_layer(Flatten, last_channel_first)),
    "channels that change from group to group": (GENERATED, "logits", interleaved),
    "a max-pool padded with zeros": (GENERATED, "logits", padded_with_zeros),
    "corners that are aligned": (GENERATED, "logits", wrong_part("upsampling", aligned_corners)),
    "a summed loss": (PLAIN, "loss", wrong_loss(factor=len)),
    "a wrong momentum form": (PLAIN, "steps", wrong_part("update", dampened)),
    "a schedule one step ahead": (DROPPED, "steps", wrong_rate(lambda t: t + 1)),
    "a double softmax": (PLAIN, "loss", wrong_loss(softmax)),
    "the sum of the squared errors": (FITTED, "loss", wrong_loss(factor=np.size)),
    "half of the squared errors": (FITTED, "loss", wrong_loss(factor=lambda z: 0.5)),
    "a ReLU that ends at 6": (PLAIN, "from large values", wrong_layer(ReLU, saturated)),
    "a weight decay of 1e-6": (
        PLAIN,
        "steps",
        lambda plant: plant.method(SGD, "weight_decay_of", lambda *_: 1e-6),
    ),
    "a decay beside the gradient": (
        BRANCHED,
        "steps",
        lambda plant: plant.method(SGD, "is_coupled", False),
    ),
    "a momentum without Nesterov's step": (BRANCHED, "steps", wrong_part("update", not_ahead)),
    "a milestone that is a step late": (
        SEGMENTED,
        "steps",
        wrong_rate(lambda t: t - (t == 1)),
    ),
    "the last place of a reverse cell": (BIDIRECTIONAL, "logits", last_place),
    "a reverse cell's own order": (BIDIRECTIONAL, "logits", in_order_of_the_cell),
    "a second bias outside of the reset": (
        SMALL_MODELS["gated_both_ways"],
        "logits",
        outside_of_the_reset,
    ),
    "a schedule that is a step late": (SPEAKING, "steps", wrong_rate(lambda t: max(0, t - 1))),
    "a mask that is off by one": (SPEAKING, "logits", wrong_part("causal_mask", CAUSAL)),
    "no scale": (SPEAKING, "logits", wrong_part("attention_scale", lambda width: 1.0)),
    "a window that is off by one": (
        ROTATED,
        "logits",
        wrong_part("window_mask", lambda length, window: window_mask(length, window + 1)),
    ),
    "key heads in turn": (
        ROTATED,
        "logits",
        wrong_part("shared_heads", lambda heads, key_heads: np.arange(heads) % key_heads),
    ),
    "a rotation of other pairs": (ROTATED, "logits", wrong_part("rotate", other_pairs)),
    "a rotation of the queries alone": (ROTATED, "logits", wrong_part("rotate", queries_alone)),
    # the same in a rotation changes nothing: the scores are of differences of places
    "sines of places from 1": (
        ROTATED,
        "logits",
        wrong_part("sinusoids", lambda length, features: sinusoids(length + 1, features)[1:]),
    ),
    "no gradient through the last layer": (
        SPEAKING,
        "gradient of embedding1.weight",
        wrong_layer(Unembedding, without_its_gradient),
    ),
    "a join of channels in another order": (
        BRANCHED,
        "logits",
        wrong_layer(Branches, channels_turned),
    ),
    "clipping by value": (SPEAKING, "steps", wrong_part("clip", by_value)),
    "a ReLU6 that does not end": (BENT, "from large values", wrong_layer(ReLU6, endless)),
    "epsilon squared": (BENT, "logits", wrong_part("normalized", squared_epsilon)),
    "epsilon outside of the root": (
        BENT,
        "logits",
        wrong_part("normalized", epsilon_outside_of_the_root),
    ),
    "a layer norm over the places": (BENT, "logits", wrong_part("normalized", over_the_places)),
    "groups of other channels": (BENT, "logits", interleaved_groups),
    "clipping each array": (SPEAKING, "steps", wrong_part("clip", each_array)),
}
"""Faults in the code: the model, a word of the tensors that must be wrong, and the fault."""


def check_caught(build, model, right, word):
    found = over_the_bound(build, model, right)
    assert any(word in tensor for tensor in found), found
    if word in ("steps", "from large values", "running"):  # the model itself is right
        assert all("steps" in tensor for tensor in found)
    if word == "loss":
        assert "logits" not in found


@pytest.mark.parametrize("fault", IN_CODE)
def test_a_fault_in_the_code_is_caught(fault, expected, monkeypatch):
    model, word, plant_fault = IN_CODE[fault]
    right = expected(model)
    plant_fault(Plant("reference", monkeypatch))
    check_caught(ADAPTER.build, model, right, word)


def next_gate(name, array, _):
    """The gates' rows, one further."""
    return np.roll(array, len(array) // 4, 0) if "lstm" in name or "gru" in name else array


def other_direction(name, array, weights):
    other = f"{name.removesuffix('_reverse')}{'' if name.endswith('_reverse') else '_reverse'}"
    return weights.get(other, array)


def kernels(change):
    return lambda name, array, _: change(array) if array.ndim == 4 else array


def of_layer(layer, change):
    """Return what changes the weight of a layer, and gives it the shape that it had."""
    weight = f"{layer}.weight"
    return lambda name, array, _: change(array).reshape(array.shape) if name == weight else array


LOADED = {
    "a transposed kernel": ("residual", kernels(lambda kernel: kernel.swapaxes(2, 3))),
    "a flipped kernel": ("plain", kernels(lambda kernel: kernel[:, :, ::-1, ::-1])),
    "a transposed convolution that does not flip": (
        "generated",
        of_layer("transposedconv1", lambda kernel: kernel[..., ::-1, ::-1]),
    ),
    "in and out of a transposed convolution": (
        "generated",
        of_layer("transposedconv2", lambda kernel: kernel.swapaxes(0, 1)),
    ),
    "features of a depthwise convolution": (
        "convolved",
        of_layer("conv1d2", lambda kernel: kernel.reshape(8, 2, 4).swapaxes(0, 1)),
    ),
    "gates of an LSTM": ("bidirectional", next_gate),
    "directions of an LSTM": ("bidirectional", other_direction),
    "gates of a GRU": ("gated_both_ways", next_gate),
    "directions of a GRU": ("gated_both_ways", other_direction),
    "rows": ("averaged", lambda n, a, w: a[::-1] if "embedding" in n else a),
    "a running mean": ("normed", lambda n, a, w: a * 0 if "running_mean" in n else a),
    "a running variance": ("normed", lambda n, a, w: a * 2 if "running_var" in n else a),
    "one slope for all channels": (
        "bent",
        lambda n, a, w: np.full_like(a, a.mean()) if "prelu1" in n else a,
    ),
    "a bias of a shortcut": ("residual", lambda n, a, w: a * 0 if n == "conv4.bias" else a),
}


@pytest.mark.parametrize("fault", LOADED)
def test_wrongly_loaded_weights_are_caught(expected, fault):
    name, change = LOADED[fault]
    model = SMALL_MODELS[name]
    changed = lambda w: {n: np.ascontiguousarray(change(n, a, w)) for n, a in w.items()}  # noqa: E731
    build = with_other_weights(ADAPTER.build, changed)
    check_caught(build, model, expected(model), "logits")


def other_side(padding):
    """Return a padding with what is before an axis behind it; of a picture for each axis."""
    if isinstance(padding, int) or all(isinstance(side, int) for side in padding):
        return padding if isinstance(padding, int) else padding[::-1]
    return tuple(map(other_side, padding))


UNDILATED = {
    "padding": lambda padding: (1, 1) if padding == (2, 2) else padding,
    "dilation": lambda _: (1, 1),
}
VALUES = [
    ("plain", SGD, {"learning_rate": 0.0101}, "steps"),
    ("plain", SGD, {"momentum": 0.91}, "steps"),
    ("plain", SGD, {"clip_norm": 10.0}, "from large values"),
    ("normed", BatchNorm, {"epsilon": 1.01e-3}, "logits"),
    ("normed", BatchNorm, {"momentum": 0.81}, "running"),
    ("normed", Adam, {"beta1": 0.81}, "steps"),
    ("normed", Adam, {"beta2": 0.991}, "steps"),
    ("normed", Adam, {"epsilon": 1.1e-3}, "steps"),
    ("dropped", Dropout, {"rate": 0.26}, "loss"),
    ("dropped", RMSprop, {"rho": 0.81}, "steps"),
    ("dropped", RMSprop, {"epsilon": 1.01e-4}, "steps"),
    ("dropped", RMSprop, {"schedule": InverseTimeDecay(0.51)}, "steps"),
    ("dropped", RMSprop, {"schedule": None}, "steps"),
    ("branched", SGD, {"weight_decay": 0.101}, "steps"),
    ("branched", SGD, {"matrices_only": False}, "steps"),
    ("branched", SGD, {"schedule": lambda s: replace(s, start=0.21)}, "steps"),
    ("branched", SGD, {"schedule": lambda s: replace(s, end=0.06)}, "steps"),
    ("branched", SGD, {"schedule": lambda s: replace(s, steps=s.steps + 1)}, "steps"),
    ("branched", SGD, {"schedule": lambda s: replace(s, linear=True)}, "steps"),
    ("gated_both_ways", SGD, {"weight_decay": 0.0}, "steps"),
    ("unbiased", Huber, {"delta": 0.501}, "loss"),
    ("robust", Adagrad, {"initial_accumulator": 0.101}, "steps"),
    ("robust", Adagrad, {"epsilon": 1.1e-3}, "steps"),
    ("segmented", Lion, {"beta1": 0.5}, "steps"),
    ("segmented", Lion, {"beta2": 0.5}, "steps"),
    ("segmented", Lion, {"weight_decay": 0.21}, "steps"),
    ("segmented", Lion, {"schedule": lambda s: replace(s, gamma=0.31)}, "steps"),
    ("fitted", GELU, {"tanh": True}, "logits"),
    ("generated", Conv, {"padding": other_side}, "logits"),
    ("generated", Conv, UNDILATED, "logits"),
    ("convolved", Conv1D, {"padding": other_side}, "logits"),
    ("convolved", Rescaling, {"offset": 0.2001}, "logits"),
    ("convolved", MaxPool1D, {"window": 1, "padding": 0}, "logits"),
    ("convolved", AveragePool1D, {"window": 1, "padding": 0}, "logits"),
    ("convolved", BatchNorm, {"momentum": lambda momentum: 0.99 * momentum}, "running"),
    ("convolved", AdamW, {"schedule": lambda s: replace(s, minimum=0.11)}, "steps"),
    ("convolved", AdamW, {"schedule": lambda s: replace(s, steps=s.steps + 1)}, "steps"),
    ("averaged", Adadelta, {"learning_rate": 0.51}, "steps"),
    ("averaged", Adadelta, {"rho": 0.91}, "steps"),
    ("averaged", Adadelta, {"epsilon": 1.01e-5}, "steps"),
    ("bent", ELU, {"alpha": 1.0}, "logits"),
    ("bent", GroupNorm, {"epsilon": lambda epsilon: 1.01 * epsilon}, "logits"),
    ("speaking", RMSNorm, {"epsilon": 1.01e-3}, "logits"),
    ("speaking", AdamW, {"beta2": 0.991}, "steps"),
    ("speaking", AdamW, {"weight_decay": 0.303}, "steps"),
    ("speaking", AdamW, {"matrices_only": False}, "steps"),
    ("speaking", AdamW, {"clip_norm": lambda bound: 1.01 * bound}, "steps"),
    ("speaking", AdamW, {"clip_norm": lambda bound: None}, "steps"),
    ("speaking", AdamW, {"clip_norm": lambda bound: bound / 1e3}, "steps"),
    ("speaking", AdamW, {"schedule": lambda s: replace(s, warmup=s.warmup + 1)}, "steps"),
    ("speaking", AdamW, {"schedule": lambda s: replace(s, steps=s.steps + 1)}, "steps"),
    ("speaking", AdamW, {"schedule": lambda s: replace(s, minimum=0.21)}, "steps"),
    ("branched", Branches, {"join": lambda join: join.replace("multiply", "add")}, "logits"),
    ("patched", LayerNorm, {"epsilon": 1.01e-3}, "logits"),
    ("rotated", MultiHeadAttention, {"rotary": None}, "logits"),
    ("patched", SoftmaxCrossEntropy, {"label_smoothing": 0.201}, "loss"),
]


@pytest.mark.short(name=("plain", "normed", "dropped", "fitted", "patched"))
@pytest.mark.parametrize(("name", "part", "values", "word"), VALUES)
def test_every_value_of_the_description_counts(expected, name, part, values, word):
    model = SMALL_MODELS[name]
    check_caught(with_other_values(ADAPTER.build, part, values), model, expected(model), word)


def with_other_values(build, part, values):
    """Return `build` that is given other values of a part than the reference was."""

    def other(thing):
        if type(thing) is not part:
            return thing
        changed = {n: v(getattr(thing, n)) if callable(v) else v for n, v in values.items()}
        return replace(thing, **changed)

    def build_other(job):
        right = job.model
        optimizer, loss = other(right.optimizer), other(right.loss)
        layers = tuple(map(other, right.layers))
        wrong = replace(right, layers=layers, optimizer=optimizer, loss=loss)
        return build(replace(job, model=wrong))

    return build_other


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [
        {"schedule": lambda s: replace(s, warmup=s.warmup + 1)},
        {"clip_norm": lambda bound: 1.01 * bound},
    ],
)
def test_a_fault_is_caught_in_a_model_whose_proof_is_shortened(installed, expected, values):
    """In its blocks, places and tokens; in torch alone, since its reference takes a minute."""
    model = models.get("gpt2_small")
    build = with_other_values(installed("torch").build, AdamW, values)
    assert over_the_bound(build, model, expected(model))


def trained_between(workload, whole):
    """Predict, but as a framework does that updates its weights meanwhile."""
    logits = list(workload.predict_batches())
    workload.train_epoch()
    return np.stack([*logits[:-1], list(workload.predict_batches())[-1]])


PREDICTIONS = {
    "the batches in another order": lambda workload, whole: whole[::-1],
    "a batch twice": lambda workload, whole: np.stack([*whole[:-1], whole[-2]]),
    "probabilities": lambda workload, whole: softmax(whole),
    "trained between": trained_between,
}


@pytest.mark.parametrize("fault", PREDICTIONS)
def test_a_fault_in_the_timed_prediction_is_caught(expected, fault):
    """`predict` itself is right."""
    model = SMALL_MODELS["normed"]

    def build(job):
        workload = ADAPTER.build(job)
        right = workload.predict_epoch
        workload.predict_epoch = lambda: PREDICTIONS[fault](workload, right())
        return workload

    wrong = over_the_bound(build, model, expected(model))
    assert "logits of an epoch" in wrong
    assert "logits" not in wrong


def rounded_float32(array, precision):
    return rounded(array, precision) if array.dtype == np.float32 else array


def loading(precision):
    def change(weights):
        return {name: rounded_float32(array, precision) for name, array in weights.items()}

    return with_other_weights(ADAPTER.build, change)


def computing(rounding, in_training=False):
    """Return a `build` whose workloads round in float32, perhaps in their epochs alone."""

    def build(job):
        workload = ADAPTER.build(job)
        train, used = workload.train_epoch, rounding if job.dtype == "float32" else None

        def train_epoch():
            workload.rounding = used
            try:
                return train()
            finally:
                workload.rounding = None

        if in_training:
            workload.train_epoch = train_epoch
        else:
            workload.rounding = used
        return workload

    return build


def in_float64(job):
    """Build a workload that computes in float64, whatever it is asked for."""
    return ADAPTER.build(replace(job, dtype="float64"))


PRECISIONS = {
    "weights in TensorFloat-32": (loading(TF32), "in float32"),
    "weights in bfloat16": (loading(BFLOAT16), "in float32"),
    "float64 for float32": (in_float64, "are computed in float64"),
    "bfloat16 in training": (computing(Rounding(BFLOAT16, True), True), "losses of the steps"),
    "bfloat16 in all": (computing(Rounding(BFLOAT16, True)), "in float32"),
    "products in TensorFloat-32": (computing(Rounding(TF32, False), True), "in float32"),
}


@pytest.mark.parametrize("fault", PRECISIONS)
def test_another_precision_is_caught(expected, fault):
    build, words = PRECISIONS[fault]
    found = parity.prove(build, Job(PLAIN, "cpu", 1, "float32"), expected(PLAIN)).disagreement
    assert found, "the proof sees nothing"
    assert words in found


@pytest.mark.short(name=("bidirectional",))
@pytest.mark.parametrize("name", ["residual", "dropped", "bidirectional", "unbiased"])
def test_half_of_a_precision_is_caught_in_each_kind_of_model(name, expected):
    """With batch norms, dropouts, recurrence, and numbers; one with pools is above."""
    model = SMALL_MODELS[name]
    build = loading(BFLOAT16)
    found = parity.prove(build, Job(model, "cpu", 1, "float32"), expected(model))
    assert "in float32" in found.disagreement


DROPOUTS = {
    "off": {"rate": 0.0, "scaled": False},
    "unscaled": {"scaled": False},
    "another rate": {"more": 0.01},
    "the same in each step": {"seeded": True},
    "one mask for the batch": {"examples": 1},
}


@pytest.mark.parametrize("fault", DROPOUTS)
def test_another_dropout_is_caught(fault, monkeypatch):
    plant = Plant("reference", monkeypatch)
    forward = plant.package.forward

    def wrong(layer, named, x, run, rate=None, more=0.0, scaled=True, seeded=False, examples=None):
        if not isinstance(layer, Dropout) or not run.training:
            return forward(layer, named, x, run)
        if seeded:
            run.random = np.random.default_rng(0)
        drawn = run.random.random((examples or len(x), *x.shape[1:]))
        masks = drawn >= (layer.rate if rate is None else rate) + more
        scale = masks / (1 - layer.rate if scaled else 1)
        return x * scale, lambda dy: dy * scale

    plant.part("forward", lambda *arguments: wrong(*arguments, **DROPOUTS[fault]))
    found = dropout.probe(ADAPTER.build, Job(DROPPED, "cpu", 1, "float32"))
    assert max(np.inf if value is None else value for value in found.values()) > 1


def test_a_missing_tensor_and_a_wrong_shape_are_errors():
    with pytest.raises(ValueError, match=r"not in both .*: conv2\.bias"):
        parity.compare({"loss": np.ones(1)}, {"loss": np.ones(1), "conv2.bias": np.ones(1)}, {})
    with pytest.raises(ValueError, match=r"loss has the shape \(2,\), the reference's is \(1,\)"):
        parity.compare({"loss": np.ones(2)}, {"loss": np.ones(1)}, {"loss": 1.0})


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([3.0, 5.0], [3.0, 4.0], 0.2),
        ([0.0], [0.0], 0.0),
        ([1e-30], [0.0], None),
        ([np.nan], [1.0], None),
        ([np.inf], [1.0], None),
    ],
)
def test_deviation(a, b, expected):
    a, b = np.array(a), np.array(b)
    assert parity.deviation("x", a, b, np.linalg.norm(b)) == expected


def test_the_proofs_batches_are_streamed_where_those_of_the_run_are():
    assert [parity.proof_batches(model).streamed for model in (SPEAKING, PLAIN)] == [True, False]
