"""The proof sees faults in each adapter's own code: in the statements of the row, and five that are
seen in the wild in what writes them. These and the others are planted in the reference too
(test_planted_in_reference.py).

A fault changes one translation of the adapter and leaves all else as it is.
"""

from dataclasses import replace

import numpy as np
import pytest
from planting import over_the_bound
from small_models import BENT, BRANCHED, DROPPED, GENERATED, PLAIN, ROTATED

from crossbench.engine import dropout
from crossbench.models import Dropout, Flatten
from crossbench.source.statements import call
from crossbench.workload import Job

pytestmark = [pytest.mark.idiomatic, pytest.mark.short(adapter_name=("torch",))]

FLATTEN, SUM, MOMENTUM, SCHEDULE, MASKS = (
    "a wrong flatten order",
    "a summed loss",
    "a wrong momentum form",
    "a schedule one step ahead",
    "one dropout mask for the batch",
)
FAULTS = {
    FLATTEN: (PLAIN, "logits"),
    SUM: (PLAIN, "loss"),
    MOMENTUM: (PLAIN, "steps"),
    SCHEDULE: (DROPPED, "steps"),
}
"""The model that each is planted in, and a word of the tensors that must be wrong."""


def plant_in_torch(fault, plant):
    """Into the source code that the row runs, but for the masks, which PyTorch draws."""
    import torch
    from torch import nn

    layer_source, schedule_source = plant.package.layer_source, plant.package.schedule_source
    draw = nn.Dropout.forward
    nesterov = "optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, nesterov=True)"

    def wrong_flatten(named):
        wrong = call("nn.Sequential", "ToSequence()", "nn.Flatten()")
        return wrong if isinstance(named.layer, Flatten) else layer_source(named)

    def ahead(optimizer):
        definitions, statements = schedule_source(optimizer)
        return definitions, [text.replace("* step", "* (step + 1)") for text in statements]

    def one_mask(self, x):
        return x * draw(self, torch.ones_like(x[:1])) if self.training else x

    if fault == MASKS:
        plant.method(nn.Dropout, "forward", one_mask)
        return
    wrong = {
        FLATTEN: ("layer_source", wrong_flatten),
        SUM: ("loss_source", lambda *_: call("nn.CrossEntropyLoss", reduction='"sum"')),
        MOMENTUM: ("optimizer_source", lambda *_, **options: [nesterov]),
        SCHEDULE: ("schedule_source", ahead),
    }
    plant.part(*wrong[fault])


def plant_in_jax(fault, plant):
    """Into the source code that the row runs."""
    import jax
    from flax import nnx

    layer_source, schedule_source = plant.package.layer_source, plant.package.schedule_source

    def wrong_flatten(named, *rest):
        right = layer_source(named, *rest)
        is_flatten = isinstance(named.layer, Flatten)
        return replace(right, output="{x}.reshape(len({x}), -1)") if is_flatten else right

    def dampened(optimizer, _):
        return call(
            "optax.chain", "optax.ema(0.9, False)", f"optax.scale(-{optimizer.learning_rate})"
        )

    def ahead(optimizer):
        definitions, statements = schedule_source(optimizer)
        return [text.replace("* step", "* (step + 1)") for text in definitions], statements

    def one_mask(self, x):
        if self.deterministic:
            return x
        masks = jax.random.bernoulli(self.rngs(), 1 - self.rate, (1, *x.shape[1:]))
        return x * masks / (1 - self.rate)

    if fault == MASKS:
        plant.method(nnx.Dropout, "__call__", one_mask)
        return
    each = "optax.softmax_cross_entropy_with_integer_labels(outputs, labels)"
    wrong = {
        FLATTEN: ("layer_source", wrong_flatten),
        SUM: ("loss_source", lambda _: [f"return {each}.sum()"]),
        MOMENTUM: ("optimizer_source", dampened),
        SCHEDULE: ("schedule_source", ahead),
    }
    plant.part(*wrong[fault])


def plant_in_keras(fault, plant):
    """Into the source code that the row runs, but for the masks, which Keras draws."""
    import keras

    layer_source, schedule_source = plant.package.layer_source, plant.package.schedule_source
    draw = keras.layers.Dropout.call

    def wrong_flatten(named, *rest):
        right = layer_source(named, *rest)
        return replace(right, before=()) if isinstance(named.layer, Flatten) else right

    def ahead(optimizer):
        return [
            f"{line}\nrate.__class__ = type('Ahead', (type(rate),), {{'__call__': "
            "lambda self, step, call=type(rate).__call__: call(self, step + 1)})"
            for line in schedule_source(optimizer)
        ]

    def one_mask(self, x, training=False):
        if not training:
            return draw(self, x, training)
        ones = keras.ops.ones_like(x[:1])
        return x * keras.random.dropout(ones, self.rate, seed=self.seed_generator)

    if fault == MASKS:
        plant.method(keras.layers.Dropout, "call", one_mask)
        return
    summed = call("keras.losses.SparseCategoricalCrossentropy", from_logits=True, reduction='"sum"')
    nesterov = "optimizer = keras.optimizers.SGD(0.01, 0.9, nesterov=True)"
    wrong = {
        FLATTEN: ("layer_source", wrong_flatten),
        SUM: ("loss_source", lambda _: summed),
        MOMENTUM: ("optimizer_source", lambda *_: [nesterov]),
        SCHEDULE: ("schedule_source", ahead),
    }
    plant.part(*wrong[fault])


def plant_in_flux(fault, plant):
    if fault == MASKS:
        dropout = "Dropout(l.p, 1, l.active, l.rng)"
        plant.in_julia(
            f"w -> (w.model = Chain(map(l -> l isa Dropout ? {dropout} : l, w.model.layers)))"
        )
        return
    turned = ["x -> Flux.flatten(permutedims(x, (2, 1, 3, 4)))"]
    summed = "(z, y) -> Flux.logitcrossentropy(z, y; agg = sum)"
    plant_in_text(fault, plant, {Flatten: lambda _: turned}, summed)


def plant_in_lux(fault, plant):
    turned = "x -> reshape(permutedims(x, (2, 1, 3, 4)), :, size(x, 4))"
    layers = {
        FLATTEN: {Flatten: lambda _: turned},
        MASKS: {Dropout: lambda named: f"Dropout({named.layer.rate}; dims = 1)"},
    }
    summed = "CrossEntropyLoss(; logits = Val(true), agg = sum)"
    plant_in_text(fault, plant, layers.get(fault, {}), summed)


def plant_in_text(fault, plant, layers, summed):
    """Into the source code that the row runs, but for the schedule. layers: how it writes them."""
    layer_source, loss_source = plant.package.layer_source, plant.package.loss_source

    def wrong_layer(named, *rest):
        write = layers.get(type(named.layer))
        return write(named) if write else layer_source(named, *rest)

    wrong = {
        SUM: ("loss_source", lambda *rest: replace(loss_source(*rest), made=summed)),
        MOMENTUM: ("optimizer_source", lambda _: "Nesterov(0.01, 0.9)"),
    }
    if fault == SCHEDULE:
        plant.in_julia("w -> (s = w.rate; isnothing(s) || (w.rate = t -> s(t + 1)))")
    else:
        plant.part(*wrong.get(fault, ("layer_source", wrong_layer)))


PLANT = {
    "torch": plant_in_torch,
    "jax": plant_in_jax,
    "keras": plant_in_keras,
    "flux": plant_in_flux,
    "lux": plant_in_lux,
}


@pytest.fixture
def plant_fault(adapter_name, plant):
    """Return a function that plants a fault in the adapter."""
    if adapter_name not in PLANT:
        pytest.skip("faults in the reference are in test_planted_in_reference.py")
    return lambda fault: PLANT[adapter_name](fault, plant)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(adapter, device, fault, plant_fault, expected):
    model, word = FAULTS[fault]
    right = expected(model)
    plant_fault(fault)
    wrong = over_the_bound(adapter.build, model, right, device)
    assert any(word in name for name in wrong)
    if word == "steps":  # the model itself is right
        assert all("steps" in name for name in wrong)


def test_another_dropout_is_caught(adapter, device, plant_fault):
    plant_fault(MASKS)
    found = dropout.probe(adapter.build, Job(DROPPED, device, 1, "float32"))
    assert max(np.inf if value is None else value for value in found.values()) > 1


IN_TEXT = {
    "groups of other channels": (
        GENERATED,
        "logits",
        {
            "torch": (
                "nn.ZeroPad2d((2, 0, 0, 1)),",
                "nn.Sequential(nn.ZeroPad2d((2, 0, 0, 1)), nn.ChannelShuffle(2)),",
            ),
            "jax": ("self.conv1(x)", "self.conv1(jnp.roll(x, 1, -1))"),
            "keras": ("groups=2, strides=(2, 1))(x)", "groups=2, strides=(2, 1))(x[..., ::-1])"),
            "flux": ("bilinear(2),", "x -> bilinear(2)(x)[:, :, [2, 3, 4, 1], :],"),
            "lux": ("bilinear(2),", "x -> bilinear(2)(x)[:, :, [2, 3, 4, 1], :],"),
        },
    ),
    "padding on the other side": (
        GENERATED,
        "logits",
        {
            "torch": ("nn.ZeroPad2d((2, 0, 0, 1))", "nn.ZeroPad2d((0, 2, 1, 0))"),
            "jax": ("padding=((0, 1), (2, 0))", "padding=((1, 0), (0, 2))"),
            "keras": ("ZeroPadding2D(((0, 1), (2, 0)))", "ZeroPadding2D(((1, 0), (0, 2)))"),
            "flux": ("pad = (2, 0, 0, 1), groups", "pad = (0, 2, 1, 0), groups"),
            "lux": ("pad = (2, 0, 0, 1), groups", "pad = (0, 2, 1, 0), groups"),
        },
    ),
    "no dilation": (
        GENERATED,
        "logits",
        {
            "torch": ("padding=2, dilation=2", "padding=1"),
            "jax": ("kernel_dilation=2, ", ""),
            "keras": (", dilation_rate=2", ""),
            "flux": ("pad = 2, dilation = 2", "pad = 1"),
            "lux": ("pad = 2, dilation = 2", "pad = 1"),
        },
    ),
    "a max-pool that is padded with zeros": (
        GENERATED,
        "logits",
        {
            "torch": (
                "nn.MaxPool2d((3, 2), stride=2, padding=1)",
                "nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d((3, 2), stride=2))",
            ),
            "jax": (
                "nnx.max_pool(x, (3, 2), strides=(2, 2), padding=((1, 1), (1, 1)))",
                "nnx.max_pool(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 2), (2, 2))",
            ),
            "keras": ("InfinityPadding2D(1)", "layers.ZeroPadding2D(1)"),
            "flux": (
                "MaxPool((2, 3); stride = 2, pad = 1)",
                "Chain(padded(pad_zeros, (1, 1, 1, 1)), MaxPool((2, 3); stride = 2))",
            ),
            "lux": (
                "MaxPool((2, 3); stride = 2, pad = 1)",
                "Chain(padded(pad_zeros, (1, 1, 1, 1)), MaxPool((2, 3); stride = 2))",
            ),
        },
    ),
    "another interpolation": (
        GENERATED,
        "logits",
        {
            "torch": ('mode="bilinear"', 'mode="bilinear", align_corners=True'),
            "jax": ('"bilinear"', '"cubic"'),
            "keras": ('interpolation="bilinear"', 'interpolation="nearest"'),
            "flux": ("bilinear(2),", "Upsample(:bilinear; scale = 2),"),
            "lux": ("bilinear(2),", "Upsample(2, :bilinear),"),
        },
    ),
    "another slope of a leaky ReLU": (
        GENERATED,
        "logits",
        {
            "torch": ("nn.LeakyReLU(0.2)", "nn.LeakyReLU()"),
            "jax": ("nnx.leaky_relu(x, 0.2)", "nnx.leaky_relu(x)"),
            "keras": ("layers.LeakyReLU(0.2)", "layers.LeakyReLU()"),
            "flux": ("elementwise(leakyrelu, T(0.2))", "elementwise(leakyrelu)"),
            "lux": ("elementwise(leakyrelu, T(0.2))", "elementwise(leakyrelu)"),
        },
    ),
    "the other pairs of a rotation": (
        ROTATED,
        "logits",
        {
            "torch": ("Rotary(9, 6, 100.0)", "Rotary(9, 6, 100.0, interleaved=True)"),
            "jax": ("Rotary(100.0)", "Rotary(100.0, interleaved=True)"),
            "keras": ("Rotary(100.0)", "Rotary(100.0, interleaved=True)"),
            "flux": ("rotate_halves", "rotate_neighbours"),
            "lux": ("rotate_halves", "rotate_neighbours"),
        },
    ),
    "a key head that is used twice": (
        ROTATED,
        "logits",
        {
            "torch": (
                "queries, keys, values, self.mask",
                "queries, keys[:, :1].expand_as(keys), values, self.mask",
            ),
            "jax": (
                "(query, key, self.value(x)",
                "(query, key[:, :, :1].repeat(key.shape[2], 2), self.value(x)",
            ),
            "keras": (
                "ops.repeat(keys, self.shared, axis=2)",
                "ops.repeat(keys[:, :, :1], self.shared * keys.shape[2], axis=2)",
            ),
            # the rotary embedding sees four heads of queries, and two of keys
            "flux": (
                "Rotary(T, rotate_halves, 6, 9, 100.0)",
                "Chain(x -> size(x, 2) == 2 ? x[:, [1, 1], :, :] : x, "
                "Rotary(T, rotate_halves, 6, 9, 100.0))",
            ),
            "lux": (
                "rotary_embedding(T, rotate_halves, 6, 9, 100.0)",
                "Chain(x -> size(x, 2) == 2 ? x[:, [1, 1], :, :] : x, "
                "rotary_embedding(T, rotate_halves, 6, 9, 100.0))",
            ),
        },
    ),
    "a window that is one place wider": (
        ROTATED,
        "logits",
        {
            "torch": ("window_mask(9, 3,", "window_mask(9, 4,"),
            "jax": ("local_window_size=2,", "local_window_size=3,"),
            "keras": ("window=3", "window=4"),
            "flux": ("window = 3", "window = 4"),
            "lux": ("window = 3", "window = 4"),
        },
    ),
    "cosines before sines": (
        ROTATED,
        "logits",
        {
            "torch": ("(angles.sin(), angles.cos())", "(angles.cos(), angles.sin())"),
            "jax": ("[np.sin(angles), np.cos(angles)]", "[np.cos(angles), np.sin(angles)]"),
            "keras": ("[np.sin(angles), np.cos(angles)]", "[np.cos(angles), np.sin(angles)]"),
            "flux": ("sinusoids(T, 8, 9)", "sinusoids(T, 8, 9)[[2, 1, 4, 3, 6, 5, 8, 7], :]"),
            "lux": (
                "sinusoidal_positions(T, 8, 9)",
                "Chain(x -> x[end:-1:1, :, :], sinusoidal_positions(T, 8, 9), "
                "x -> x[end:-1:1, :, :])",
            ),
        },
    ),
    "epsilon squared": (
        BENT,
        "logits",
        {
            "torch": ("nn.GroupNorm(3, 6, eps=0.01)", "nn.GroupNorm(3, 6, eps=0.01**2)"),
            "jax": ("nnx.GroupNorm(6, 3, epsilon=0.01", "nnx.GroupNorm(6, 3, epsilon=0.01**2"),
            "keras": (
                "GroupNormalization(3, epsilon=0.01)",
                "GroupNormalization(3, epsilon=0.01**2)",
            ),
            "flux": ("GroupNorm(6, 3, swish; eps = 0.01", "GroupNorm(6, 3, swish; eps = 0.01^2"),
            "lux": (
                "GroupNorm(6, 3, swish; epsilon = 0.01",
                "GroupNorm(6, 3, swish; epsilon = 0.01^2",
            ),
        },
    ),
    "branches that are joined in another order": (
        BRANCHED,
        "logits",
        {
            "torch": (
                "torch.cat(self.outputs(x), 1 if",
                "torch.cat(self.outputs(x)[::-1], 1 if",
            ),
            "jax": ("[x, self.conv2(z)]", "[self.conv2(z), x]"),
            "keras": ("layers.Concatenate()([x, y2])", "layers.Concatenate()([y2, x])"),
            "flux": ("cat_channels,", "(a, b) -> cat_channels(b, a),"),
            "lux": ("cat_channels,", "(a, b) -> cat_channels(b, a),"),
        },
    ),
    "a product that is a sum": (
        BRANCHED,
        "logits",
        {
            "torch": ("y = y * other", "y = y + other"),
            "jax": ("self.conv3(z) * x", "self.conv3(z) + x"),
            "keras": ("layers.Multiply()([x, y2])", "layers.Add()([x, y2])"),
            "flux": ("Parallel(multiply, identity", "Parallel((a, b) -> a .+ b, identity"),
            "lux": ("Parallel(multiply, NoOpLayer()", "Parallel((a, b) -> a .+ b, NoOpLayer()"),
        },
    ),
    "momentum without Nesterov's step": (
        BRANCHED,
        "steps",
        {
            "torch": ("nesterov=True", "nesterov=False"),
            "jax": ("nesterov=True", "nesterov=False"),
            "keras": ("nesterov=True", "nesterov=False"),
            "flux": ("Velocity(0.9, true)", "Velocity(0.9, false)"),
            "lux": ("Velocity(0.9, true)", "Velocity(0.9, false)"),
        },
    ),
}
"""The model, a word of the tensors that must be wrong, and by adapter what its row says and what it
would say instead.
"""


@pytest.mark.parametrize("fault", IN_TEXT)
def test_a_fault_in_the_statements_of_a_row_is_caught(
    adapter, adapter_name, device, fault, plant, expected
):
    model, word, changes = IN_TEXT[fault]
    if adapter_name not in changes:
        pytest.skip("faults in the reference are in test_planted_in_reference.py")
    right = expected(model)
    done = plant.text(*changes[adapter_name])
    wrong = over_the_bound(adapter.build, model, right, device)
    assert done, "the row does not say what the fault is to replace"
    assert any(word in name for name in wrong)
    if word == "steps":  # the model itself is right
        assert all("steps" in name for name in wrong)
