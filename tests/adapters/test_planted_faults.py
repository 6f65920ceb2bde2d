"""The proof can fail: each fault that is seen in the wild, planted in each adapter, is caught.

A fault changes one translation of the adapter and leaves all else as it is.
"""

from dataclasses import replace

import numpy as np
import pytest
from planting import Plant, over_the_bound, with_other_weights
from small_models import FITTED, SMALL_MODELS

from crossbench import models
from crossbench.engine import parity
from crossbench.models import (
    GELU,
    SGD,
    Adadelta,
    Adam,
    AdamW,
    BatchNorm,
    Dropout,
    Flatten,
    InverseTimeDecay,
    LayerNorm,
    RMSNorm,
    RMSprop,
    SoftmaxCrossEntropy,
)

pytestmark = pytest.mark.short(adapter_name=("torch",))

FAULTS = {
    "a transposed kernel": "conv1.weight|logits",
    "a flipped kernel": "conv1.weight|logits",
    "a wrong flatten order": "dense1.weight|logits",
    "a double softmax": "loss|gradient",
    "a wrong momentum form": "steps",
    "a summed loss": "loss|gradient",
}


def plant_in_reference(fault, plant):
    module = plant.package
    if fault == "a wrong flatten order":
        original = module.forward

        def forward(layer, named, x, run):
            if not isinstance(layer, Flatten):
                return original(layer, named, x, run)
            last = x.transpose(0, 2, 3, 1)
            back = lambda dy: dy.reshape(last.shape).transpose(0, 3, 1, 2)  # noqa: E731
            return last.reshape(len(x), -1), back

        plant.part("forward", forward)
    elif fault == "a wrong momentum form":
        plant.part("update", dampened)
    else:
        original = module.loss_and_gradient

        def loss_and_gradient(loss, logits, labels):
            if fault == "a double softmax":
                logits = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            value, gradient = original(loss, logits, labels)
            n = len(labels) if fault == "a summed loss" else 1
            return n * value, n * gradient

        plant.part("loss_and_gradient", loss_and_gradient)


def dampened(optimizer, gradient, state, t):
    state["velocity"] = 0.9 * state.get("velocity", 0) + 0.1 * gradient
    return state["velocity"]


def plant_in_torch(fault, plant):
    import torch
    from torch import nn

    module = plant.package

    class WrongFlatten(nn.Module):
        def forward(self, x):
            return x.permute(0, 2, 3, 1).flatten(1)

    class DoubleSoftmax(nn.CrossEntropyLoss):
        def forward(self, logits, labels):
            return super().forward(logits.softmax(1), labels)

    if fault == "a wrong flatten order":
        original = module.module
        plant.part(
            "module",
            lambda n: WrongFlatten() if isinstance(n.layer, Flatten) else original(n),
        )
    elif fault == "a double softmax":
        plant.part("criterion", lambda *_: DoubleSoftmax())
    elif fault == "a summed loss":
        plant.part("criterion", lambda *_: nn.CrossEntropyLoss(reduction="sum"))
    else:
        wrong = lambda d, p, **options: torch.optim.SGD(  # noqa: E731
            p, lr=d.learning_rate, momentum=0.9, nesterov=True, **options
        )
        plant.part("optimizer", wrong)


def plant_in_jax(fault, plant):
    import jax
    import optax

    module = plant.package
    each = optax.softmax_cross_entropy_with_integer_labels
    if fault == "a wrong flatten order":
        original = module.module
        wrong = lambda x: x.reshape(len(x), -1)  # noqa: E731
        plant.part(
            "module",
            lambda n, *rest: wrong if isinstance(n.layer, Flatten) else original(n, *rest),
        )
    elif fault == "a double softmax":
        loss = lambda logits, labels: each(jax.nn.softmax(logits), labels).mean()  # noqa: E731
        plant.part("loss_function", lambda _: loss)
    elif fault == "a summed loss":
        loss = lambda logits, labels: each(logits, labels).sum()  # noqa: E731
        plant.part("loss_function", lambda _: loss)
    else:
        wrong = lambda d, decays: optax.chain(  # noqa: E731
            optax.ema(0.9, debias=False), optax.scale(-d.learning_rate)
        )
        plant.part("transformation", wrong)


def plant_in_flux(fault, plant):
    """Into each workload as it is built: its fields can be changed."""
    change = {
        "a wrong flatten order": """w -> (w.model = Chain(map(w.model.layers) do l
            l === Flux.flatten ? (x -> Flux.flatten(permutedims(x, (2, 1, 3, 4)))) : l
        end...))""",
        "a double softmax": "w -> (w.loss = (z, y) -> Flux.logitcrossentropy(softmax(z), y))",
        "a summed loss": "w -> (w.loss = (z, y) -> Flux.logitcrossentropy(z, y; agg = sum))",
        "a wrong momentum form": "w -> (w.rule = Nesterov(w.rule.eta, 0.9))",
    }[fault]
    plant.in_julia(change)


def plant_in_lux(fault, plant):
    """Into each workload as it is built: its fields can be changed."""
    change = {
        "a wrong flatten order": """w -> (w.model = Chain(map(w.model.layers) do l
            l isa FlattenLayer || return l
            WrappedFunction(x -> reshape(permutedims(x, (2, 1, 3, 4)), :, size(x, 4)))
        end))""",
        "a double softmax": """w -> (w.loss = (model, ps, st, (x, y)) -> begin
            outputs, st = model(x, ps, st)
            CrossEntropyLoss(; logits = Val(true))(softmax(outputs), y), st, (;)
        end)""",
        "a summed loss": "w -> (w.loss = CrossEntropyLoss(; logits = Val(true), agg = sum))",
        "a wrong momentum form": "w -> (w.rule = Optimisers.Nesterov(w.rule.eta, 0.9))",
    }[fault]
    plant.in_julia(change)


def plant_in_keras(fault, plant):
    import keras
    from keras.losses import SparseCategoricalCrossentropy

    module = plant.package

    class DoubleSoftmax(SparseCategoricalCrossentropy):
        def call(self, labels, logits):
            powers = keras.ops.exp(logits)  # of a softmax itself, Keras would take the logits
            return super().call(labels, powers / keras.ops.sum(powers, axis=-1, keepdims=True))

    if fault == "a wrong flatten order":
        original = module.keras_layers
        wrong = lambda n: (  # noqa: E731
            [keras.layers.Flatten()] if isinstance(n.layer, Flatten) else original(n)
        )
        plant.part("keras_layers", wrong)
    elif fault == "a double softmax":
        plant.part("loss_function", lambda _: DoubleSoftmax(from_logits=True))
    elif fault == "a summed loss":
        summed = lambda _: SparseCategoricalCrossentropy(from_logits=True, reduction="sum")  # noqa: E731
        plant.part("loss_function", summed)
    else:

        def wrong(description, _):
            return keras.optimizers.SGD(description.learning_rate, 0.9, nesterov=True)

        plant.part("optimizer", wrong)


KERNELS = {
    "a transposed kernel": lambda kernel: kernel.swapaxes(2, 3),
    "a flipped kernel": lambda kernel: kernel[:, :, ::-1, ::-1],
}
PLANT = {
    "reference": plant_in_reference,
    "torch": plant_in_torch,
    "jax": plant_in_jax,
    "flux": plant_in_flux,
    "lux": plant_in_lux,
    "keras": plant_in_keras,
}


def planted(fault, plant, build):
    """Return `build` with the fault: in the kernels that it loads, or in a part of the adapter."""
    if fault not in KERNELS:
        PLANT[plant.framework](fault, plant)
        return build

    def change(array):
        return np.ascontiguousarray(KERNELS[fault](array)) if array.ndim == 4 else array

    return with_other_weights(build, lambda weights: {n: change(a) for n, a in weights.items()})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(adapter, device, lenet, fault, plant, expected):
    right = expected(lenet)
    wrong = over_the_bound(planted(fault, plant, adapter.build), lenet, right, device)
    assert any(part in name for name in wrong for part in FAULTS[fault].split("|"))
    if fault == "a wrong momentum form":  # the model itself is right
        assert all("steps" in name for name in wrong)


REGRESSION_FAULTS = {
    "a GELU by tanh": "logits",
    "the sum of the squared errors": "loss|gradient",
    "half of the squared errors": "loss|gradient",
}


def regression_in_reference(fault, plant):
    module = plant.package
    if fault == "a GELU by tanh":
        original = module.forward

        def forward(layer, named, x, run):
            if not isinstance(layer, GELU):
                return original(layer, named, x, run)
            root = np.sqrt(2 / np.pi)
            tanh = np.tanh(root * (x + 0.044715 * x**3))
            slope = x * (1 - tanh**2) * root * (1 + 3 * 0.044715 * x**2)
            return x * (1 + tanh) / 2, lambda dy: dy * (1 + tanh + slope) / 2

        plant.part("forward", forward)
        return
    original = module.loss_and_gradient

    def loss_and_gradient(loss, outputs, targets):
        value, gradient = original(loss, outputs, targets)
        factor = outputs.size if "sum" in fault else 0.5
        return factor * value, factor * gradient

    plant.part("loss_and_gradient", loss_and_gradient)


def regression_in_torch(fault, plant):
    from torch import nn

    original = plant.package.module

    class Half(nn.MSELoss):
        def forward(self, outputs, targets):
            return super().forward(outputs, targets) / 2

    if fault == "a GELU by tanh":
        tanh = lambda n: (  # noqa: E731
            nn.GELU(approximate="tanh") if isinstance(n.layer, GELU) else original(n)
        )
        plant.part("module", tanh)
    else:
        wrong = nn.MSELoss(reduction="sum") if "sum" in fault else Half()
        plant.part("criterion", lambda *_: wrong)


def regression_in_jax(fault, plant):
    from flax import nnx

    original = plant.package.module
    if fault == "a GELU by tanh":
        tanh = lambda n, *o: nnx.gelu if isinstance(n.layer, GELU) else original(n, *o)  # noqa: E731
        plant.part("module", tanh)
    elif "sum" in fault:
        plant.part("loss_function", lambda _: lambda a, b: ((a - b) ** 2).sum())
    else:
        plant.part("loss_function", lambda _: lambda a, b: ((a - b) ** 2).mean() / 2)


def regression_in_flux(fault, plant):
    change = {
        "a GELU by tanh": """w -> (w.model = Chain(map(w.model.layers) do l
            l.σ === gelu_erf ? Dense(l.weight, l.bias, gelu_tanh) : l
        end...))""",
        "the sum of the squared errors": "w -> (w.loss = (a, b) -> Flux.mse(a, b; agg = sum))",
        "half of the squared errors": "w -> (w.loss = (a, b) -> Flux.mse(a, b) / 2)",
    }[fault]
    plant.in_julia(change)


def regression_in_lux(fault, plant):
    change = {
        "a GELU by tanh": """w -> (w.model = Chain(map(w.model.layers) do l
            l.activation === Lux.NNlib.gelu_erf || return l
            Dense(l.in_dims => l.out_dims, Lux.NNlib.gelu_tanh)
        end))""",
        "the sum of the squared errors": "w -> (w.loss = MSELoss(; agg = sum))",
        "half of the squared errors": """w -> (w.loss = (model, ps, st, data) -> begin
            value, st, _ = MSELoss()(model, ps, st, data)
            value / 2, st, (;)
        end)""",
    }[fault]
    plant.in_julia(change)


def regression_in_keras(fault, plant):
    import keras
    from keras.losses import MeanSquaredError

    module = plant.package
    original = module.keras_layers

    class Half(MeanSquaredError):
        def call(self, targets, outputs):
            return super().call(targets, outputs) / 2

    if fault == "a GELU by tanh":
        tanh = lambda x: keras.activations.gelu(x, approximate=True)  # noqa: E731
        wrong = lambda n: (  # noqa: E731
            [keras.layers.Activation(tanh)] if isinstance(n.layer, GELU) else original(n)
        )
        plant.part("keras_layers", wrong)
    else:
        loss = MeanSquaredError(reduction="sum") if "sum" in fault else Half()
        plant.part("loss_function", lambda _: loss)


PLANT_REGRESSION = {
    "reference": regression_in_reference,
    "torch": regression_in_torch,
    "jax": regression_in_jax,
    "flux": regression_in_flux,
    "lux": regression_in_lux,
    "keras": regression_in_keras,
}


@pytest.mark.parametrize("fault", REGRESSION_FAULTS)
def test_a_fault_in_a_regression_is_caught(adapter, device, fault, plant, expected):
    right = expected(FITTED)
    PLANT_REGRESSION[plant.framework](fault, plant)
    wrong = over_the_bound(adapter.build, FITTED, right, device)
    assert any(part in name for name in wrong for part in REGRESSION_FAULTS[fault].split("|"))
    if fault != "a GELU by tanh":  # the model itself is right
        assert "logits" not in wrong


def trained_between(workload):
    """Predict, but as a framework does that updates its weights meanwhile."""
    logits = list(workload.predict_batches())
    workload.train_epoch()
    return np.stack([*logits[:-1], list(workload.predict_batches())[-1]])


PREDICTION_FAULTS = {
    "the batches in another order": lambda workload, whole: whole[::-1],
    "a batch twice": lambda workload, whole: np.stack([*whole[:-1], whole[-2]]),
    "probabilities": lambda workload, whole: np.exp(whole) / np.exp(whole).sum(-1, keepdims=True),
    "trained between": lambda workload, whole: trained_between(workload),
}


@pytest.mark.parametrize("fault", PREDICTION_FAULTS)
def test_a_fault_in_the_timed_prediction_is_caught(adapter, device, expected, fault):
    """`predict` itself is right."""
    model = whole(SMALL_MODELS["normed"])
    change = PREDICTION_FAULTS[fault]

    def build(job):
        workload = adapter.build(job)
        right = workload.predict_epoch
        workload.predict_epoch = lambda: change(workload, right())
        return workload

    wrong = over_the_bound(build, model, expected(model), device)
    assert "logits of an epoch" in wrong
    assert "logits" not in wrong


@pytest.mark.parametrize(
    ("name", "part", "values", "where"),
    [
        ("plain", SGD, {"learning_rate": 0.0101}, "steps"),
        ("plain", SGD, {"momentum": 0.91}, "steps"),
        ("normed", BatchNorm, {"epsilon": 1.01e-3}, "logits|gradient"),
        ("normed", BatchNorm, {"momentum": 0.81}, "running"),
        ("normed", Adam, {"beta1": 0.81}, "steps"),
        ("normed", Adam, {"beta2": 0.991}, "steps"),
        ("normed", Adam, {"epsilon": 1.1e-3}, "steps"),
        ("dropped", Dropout, {"rate": 0.26}, "loss|gradient"),
        ("dropped", RMSprop, {"rho": 0.81}, "steps"),
        ("dropped", RMSprop, {"epsilon": 1.01e-4}, "steps"),
        ("dropped", RMSprop, {"schedule": InverseTimeDecay(0.51)}, "steps"),
        ("averaged", Adadelta, {"learning_rate": 0.51}, "steps"),
        ("averaged", Adadelta, {"rho": 0.91}, "steps"),
        ("averaged", Adadelta, {"epsilon": 1.01e-5}, "steps"),
        ("speaking", RMSNorm, {"epsilon": 1.01e-3}, "logits|gradient"),
        ("speaking", AdamW, {"beta2": 0.991}, "steps"),
        ("speaking", AdamW, {"weight_decay": 0.303}, "steps"),
        ("speaking", AdamW, {"matrices_only": False}, "steps"),
        ("speaking", AdamW, {"clip_norm": lambda bound: 1.01 * bound}, "steps"),
        ("speaking", AdamW, {"clip_norm": lambda bound: None}, "steps"),
        ("speaking", AdamW, {"clip_norm": lambda bound: bound / 1e3}, "steps"),
        ("speaking", AdamW, {"schedule": lambda s: replace(s, warmup=s.warmup + 1)}, "steps"),
        ("speaking", AdamW, {"schedule": lambda s: replace(s, steps=s.steps + 1)}, "steps"),
        ("speaking", AdamW, {"schedule": lambda s: replace(s, minimum=0.21)}, "steps"),
        ("patched", LayerNorm, {"epsilon": 1.01e-3}, "logits|gradient"),
        ("patched", SoftmaxCrossEntropy, {"label_smoothing": 0.201}, "loss|gradient|steps"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else None,
)
def test_every_value_of_the_description_counts(adapter, expected, name, part, values, where):
    model = whole(SMALL_MODELS[name])
    build = with_other_values(adapter.build, part, values)
    found = over_the_bound(build, model, expected(model))
    assert any(word in tensor for tensor in found for word in where.split("|"))
    if where in ("steps", "running"):  # the model itself is right
        assert all("steps" in tensor for tensor in found)


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


def whole(model):
    """The model whose steps in the proof are of its whole learning rate."""
    optimizer = model.optimizer.with_scaled_learning_rate(1 / parity.LEARNING_RATE_SCALE)
    return replace(model, optimizer=optimizer)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("resnet63", "a transposed kernel"),
        ("resnet63", "a double softmax"),
        ("resnet63", (BatchNorm, {"epsilon": 1.01e-3})),
        ("resnet63", (BatchNorm, {"momentum": 0.98})),
        ("resnet63", (Adam, {"beta2": 0.9991})),
        ("bignet", "a flipped kernel"),
        ("bignet", "a wrong flatten order"),
        ("bignet", "a summed loss"),
        ("bignet", (Dropout, {"rate": 0.26})),
        ("bignet", (Adam, {"epsilon": 1.01e-7})),
    ],
)
def test_a_fault_is_caught_in_a_model_whose_proof_is_shortened(
    installed, monkeypatch, expected, name, fault
):
    """In torch alone: each proof takes many seconds."""
    build, model = installed("torch").build, models.get(name)
    if isinstance(fault, str):
        build = planted(fault, Plant("torch", monkeypatch), build)
    else:
        build = with_other_values(build, *fault)
    assert over_the_bound(build, model, expected(model))


def next_gate(name, array):
    """The gates' rows, one further."""
    return np.roll(array, len(array) // 4, 0) if "lstm" in name or "gru" in name else array


def other_direction(name, array, weights):
    other = f"{name.removesuffix('_reverse')}{'' if name.endswith('_reverse') else '_reverse'}"
    return weights.get(other, array)


@pytest.mark.parametrize(
    ("name", "change", "where"),
    [
        ("bidirectional", lambda n, a, w: next_gate(n, a), "logits"),
        ("bidirectional", other_direction, "logits"),
        ("gated_both_ways", lambda n, a, w: next_gate(n, a), "logits"),
        ("gated_both_ways", other_direction, "logits"),
        ("averaged", lambda n, a, w: a[::-1] if "embedding" in n else a, "logits"),
        ("normed", lambda n, a, w: a * 0 if "running_mean" in n else a, "logits"),
        ("normed", lambda n, a, w: a * 2 if "running_var" in n else a, "logits"),
        ("residual", lambda n, a, w: a * 0 if n == "conv4.bias" else a, "logits"),
    ],
    ids=["gates of an LSTM", "its directions", "gates of a GRU", "its directions", "rows",
         "running mean", "running variance", "a bias of a shortcut"],
)  # fmt: skip
def test_wrongly_loaded_weights_are_caught(adapter, expected, name, change, where):
    model = whole(SMALL_MODELS[name])
    build = with_other_weights(
        adapter.build,
        lambda weights: {
            n: np.ascontiguousarray(change(n, a, weights)) for n, a in weights.items()
        },
    )
    assert any(where in tensor for tensor in over_the_bound(build, model, expected(model)))


def test_a_missing_tensor_and_a_wrong_shape_are_errors():
    with pytest.raises(ValueError, match=r"not in both .*: conv2\.bias"):
        parity.compare({"loss": np.ones(1)}, {"loss": np.ones(1), "conv2.bias": np.ones(1)}, {})
    with pytest.raises(ValueError, match=r"loss has the shape \(2,\), the reference's is \(1,\)"):
        parity.compare({"loss": np.ones(2)}, {"loss": np.ones(1)}, {"loss": 1.0})


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
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


def test_a_bias_before_a_batch_norm_changes_by_chance(expected):
    """Its gradient is rounding, and is measured by all gradients."""
    found = expected(SMALL_MODELS["normed"])
    assert found.rounding_only == ["conv1.bias"]
    tensors, (small, large) = found.tensors(), (found.scales[d] for d in ("float32", "float64"))
    gradients = {n: np.linalg.norm(a) for n, a in tensors.items() if n.startswith("gradient")}
    assert large["gradient of conv1.bias"] == pytest.approx(np.hypot.reduce([*gradients.values()]))
    assert large["gradient of conv1.weight"] == gradients["gradient of conv1.weight"]
    assert large["conv1.bias after 4 steps"] == np.abs(tensors["conv1.bias after 4 steps"]).sum()
    assert "conv1.bias after 4 steps" not in small
    assert "conv1.weight after 4 steps" in small
    assert expected(SMALL_MODELS["plain"]).rounding_only == []


def test_weights_after_the_steps_are_measured_by_their_change(expected, small_model):
    found = expected(small_model)
    name = "dense1.weight"
    before = parity.proof_weights(small_model, found.seed)[name]
    after = found.tensors()[f"{name} after 4 steps"]
    assert found.scales["float64"][f"{name} after 4 steps"] == np.abs(after - before).sum()
    assert found.scales["float32"][f"{name} after 4 steps"] == np.abs(after).sum()


@pytest.mark.parametrize("dtype", parity.PRECISIONS)
def test_targets_are_of_the_proofs_precision(dtype):
    batches = parity.proof_batches(FITTED, dtype=dtype)
    assert batches.inputs.dtype == batches.labels.dtype == dtype
    assert batches.labels.shape == (parity.STEPS, parity.BATCH_SIZE, 3)
    assert parity.concatenate(batches).labels.shape == (parity.STEPS * parity.BATCH_SIZE, 3)
