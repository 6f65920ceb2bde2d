"""The proof sees faults in each adapter's own code: five that are seen in the wild are planted
there. These and the others are planted in the reference too (test_planted_in_reference.py).

A fault changes one translation of the adapter and leaves all else as it is.
"""

from dataclasses import replace

import numpy as np
import pytest
from planting import over_the_bound
from small_models import DROPPED, PLAIN

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
