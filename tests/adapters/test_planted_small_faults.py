"""The proof can see small faults too: a lower precision, a decay of the weights, a clipped
gradient, a saturation, another dropout. Each is planted in each adapter, and nothing else changes.
"""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from planting import with_other_weights
from small_models import DROPPED, PLAIN, SMALL_MODELS

from crossbench.engine import dropout, parity
from crossbench.models import Dropout, Optimizer, ReLU
from crossbench.workload import Job

pytestmark = pytest.mark.short(adapter_name=("torch",))

FLOAT32 = {
    "weights in TensorFloat-32": "float32",
    "weights in bfloat16": "float32",
    "float64 for float32": "are computed in float64",
    "float16 in training": "losses of the steps",
    "bfloat16 in training": "losses of the steps",
    "bfloat16 in all": "float32",
    "products of medium precision": "float32",
}
OPTIMIZER = {
    "a weight decay of 1e-6": "steps",
    "gradients clipped at 10": "from large values",
    "a schedule one step ahead": "steps",
    "no schedule": "steps",
    "a ReLU that ends at 6": "from large values",
}
DROPOUTS = ("off", "unscaled", "another rate", "the same in each step", "one for the batch")
SCHEDULED = ("a schedule one step ahead", "no schedule")


def rounded(array, bits):
    """Return float32 with so many bits of the mantissa; float64 as it is."""
    if array.dtype != np.float32:
        return array
    cut = 23 - bits
    whole = np.ascontiguousarray(array).view(np.int32)
    return ((whole + (1 << (cut - 1))) & ~((1 << cut) - 1)).view(np.float32)


def in_any(fault, build):
    """Return `build` with a fault that needs nothing of the framework; None where it needs it."""
    bits = {"weights in TensorFloat-32": 10, "weights in bfloat16": 7}.get(fault)
    if bits:
        return with_other_weights(build, lambda w: {n: rounded(a, bits) for n, a in w.items()})
    if fault == "float64 for float32":

        def disguised(job):
            workload = build(replace(job, dtype="float64"))
            place, gradients = workload.place, workload.loss_and_gradients
            predict, load = workload.predict, workload.load_weights
            workload.place = lambda batches: place(doubled(batches))
            workload.loss_and_gradients = lambda batch: gradients(doubled(batch))
            workload.predict = lambda inputs: predict(inputs.astype(np.float64))
            workload.load_weights = lambda w: load({n: a.astype(np.float64) for n, a in w.items()})
            return workload

        return disguised
    return None


def doubled(batches):
    return replace(batches, inputs=batches.inputs.astype(np.float64))


def in_torch(fault, plant):
    import torch
    from torch import nn

    module = plant.package
    workload, optimizer = module.TorchWorkload, module.optimizer
    if fault.endswith(" in training"):
        train, half = workload.train_epoch, getattr(torch, fault.split()[0])
        if plant.variant == "tuned":  # a thread of its own would not know of it
            plant.part("PIECES_PER_THREAD", ())

        def train_epoch(self):
            with torch.autocast("cpu", half, enabled=self.dtype == torch.float32):
                return train(self)

        plant.method(workload, "train_epoch", train_epoch)
    elif fault == "bfloat16 in all":
        logits = workload._logits

        def in_bfloat16(self, inputs, masks):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.float32):
                return logits(self, inputs, masks)

        plant.method(workload, "_logits", in_bfloat16)
    elif fault == "products of medium precision":
        train = workload.train_epoch

        def medium(work):
            torch.set_float32_matmul_precision("medium")
            try:
                return work()
            finally:
                torch.set_float32_matmul_precision("highest")

        one = torch.rand((256, 256))
        whole = one.double() @ one.double()
        if torch.dist(medium(lambda: one @ one), whole) < 1e-5 * torch.linalg.norm(whole):
            pytest.skip("this CPU's products are of full precision all the same")
        plant.method(workload, "train_epoch", lambda self: medium(lambda: train(self)))
    elif fault == "a weight decay of 1e-6":

        def decaying(description, parameters, **options):
            found = optimizer(description, parameters, **options)
            found.param_groups[0]["weight_decay"] = 1e-6
            return found

        plant.part("optimizer", decaying)
    elif fault == "gradients clipped at 10":

        def clipping(description, parameters, **options):
            parameters = list(parameters)
            found = optimizer(description, iter(parameters), **options)
            found.register_step_pre_hook(
                lambda *_: nn.utils.clip_grad_norm_(parameters, 10) and None
            )
            return found

        plant.part("optimizer", clipping)
    elif fault == "a schedule one step ahead":

        def wrong(description, optimizer):
            if description.schedule is None:
                return None
            ahead = lambda step: description.schedule.factor(step + 1)  # noqa: E731
            return torch.optim.lr_scheduler.LambdaLR(optimizer, ahead)

        plant.part("schedule", wrong)
    elif fault == "no schedule":
        plant.part("schedule", lambda description, optimizer: None)
    else:
        original = module.module
        relu6 = lambda n: nn.ReLU6() if isinstance(n.layer, ReLU) else original(n)  # noqa: E731
        plant.part("module", relu6)


def in_jax(fault, plant):
    import jax.numpy as jnp
    import optax
    from flax import nnx

    module = plant.package
    workload, transformation, original = module.JaxWorkload, module.transformation, module.module
    if " in " in fault:
        half = getattr(jnp, fault.split()[0])

        def in_half(named, options, build):
            if options["dtype"] == jnp.float32:
                options = options | {"dtype": half}
            return original(named, options, build)

        if fault == "bfloat16 in all":
            plant.part("module", in_half)
            return
        init = workload.__init__

        def build(self, job):
            init(self, job)
            with plant.monkeypatch.context() as patch:
                plant.part("module", in_half, patch)
                wrong = workload.__new__(workload)
                init(wrong, job)
            self.step, self.untraced_step = wrong.step, wrong.untraced_step
            self.differentiated = wrong.differentiated

        plant.method(workload, "__init__", build)
    elif fault == "products of medium precision":
        pytest.skip("on a CPU XLA's products are always of full precision")
    elif fault == "a weight decay of 1e-6":
        wrong = lambda d, decays: optax.chain(  # noqa: E731
            optax.add_decayed_weights(1e-6), transformation(d, decays)
        )
        plant.part("transformation", wrong)
    elif fault == "gradients clipped at 10":
        wrong = lambda d, decays: optax.chain(  # noqa: E731
            optax.clip_by_global_norm(10), transformation(d, decays)
        )
        plant.part("transformation", wrong)
    elif fault in SCHEDULED:
        learning_rate = module.learning_rate

        def wrong(d):
            rate = learning_rate(d)
            ahead = lambda step: rate(step + 1)  # noqa: E731
            return d.learning_rate if fault == "no schedule" or not d.schedule else ahead

        plant.part("learning_rate", wrong)
    else:
        relu6 = lambda n, *o: nnx.relu6 if isinstance(n.layer, ReLU) else original(n, *o)  # noqa: E731
        plant.part("module", relu6)


IN_JULIA = {
    "a weight decay of 1e-6": (
        "w -> (w.rule = Optimisers.OptimiserChain(Optimisers.WeightDecay(1e-6), w.rule))"
    ),
    "gradients clipped at 10": (
        "w -> (w.rule = Optimisers.OptimiserChain(Optimisers.ClipNorm(10), w.rule))"
    ),
    "a schedule one step ahead": (
        "w -> (s = w.schedule; isnothing(s) || (w.schedule = t -> s(t + 1)))"
    ),
    "no schedule": "w -> (w.schedule = nothing)",
}
"""Changes of a workload in Julia, whichever framework's."""


def in_flux(fault, plant):
    """Into each workload as it is built: its fields can be changed."""
    change = {
        **IN_JULIA,
        "a ReLU that ends at 6": """w -> (w.model = Chain(map(w.model.layers) do l
            hasproperty(l, :σ) && l.σ === relu || return l
            l isa Dense ? Dense(l.weight, l.bias, relu6) :
                Conv(relu6, l.weight, l.bias, l.stride, l.pad, l.dilation, l.groups)
        end...))""",
    }.get(fault)
    if change is None:
        pytest.skip("Flux has no switch for it")
    plant.in_julia(change)


def in_lux(fault, plant):
    """Into each workload as it is built: its fields can be changed."""
    change = {
        **IN_JULIA,
        "a ReLU that ends at 6": """w -> (w.model = Chain(map(w.model.layers) do l
            hasproperty(l, :activation) && l.activation === relu || return l
            fields = (n === :activation ? relu6 : getfield(l, n) for n in fieldnames(typeof(l)))
            Base.typename(typeof(l)).wrapper(fields...)
        end))""",
    }.get(fault)
    if change is None:
        pytest.skip("Lux has no switch for it")
    plant.in_julia(change)


def in_keras(fault, plant):
    import keras

    module = plant.package
    optimizer, original = module.optimizer, module.keras_layers
    if fault == "bfloat16 in all":
        set_policy = keras.config.set_dtype_policy
        wrong = lambda d: set_policy("mixed_bfloat16" if d == "float32" else d)  # noqa: E731
        plant.method(keras.config, "set_dtype_policy", wrong)
    elif " in training" in fault:
        pytest.skip("a layer of Keras has one precision in training and in prediction")
    elif fault == "products of medium precision":
        pytest.skip("Keras has no switch for it")
    elif fault in ("a weight decay of 1e-6", "gradients clipped at 10"):
        name, value = ("weight_decay", 1e-6) if "decay" in fault else ("global_clipnorm", 10.0)

        def changed(*arguments):
            found = optimizer(*arguments)
            setattr(found, name, value)
            return found

        plant.part("optimizer", changed)
    elif fault in SCHEDULED:
        learning_rate = module.learning_rate

        class OneStepAhead(keras.optimizers.schedules.LearningRateSchedule):
            def __init__(self, schedule):
                self.schedule = schedule

            def __call__(self, step):
                return self.schedule(step + 1)

        def wrong(d, exact):
            if fault == "no schedule" or not d.schedule:
                return d.learning_rate
            return OneStepAhead(learning_rate(d, exact))

        plant.part("learning_rate", wrong)
    else:
        relu6 = lambda n: (  # noqa: E731
            [keras.layers.ReLU(6)] if isinstance(n.layer, ReLU) else original(n)
        )
        plant.part("keras_layers", relu6)


def in_reference(fault, plant):
    module = plant.package
    forward = module.forward
    if fault == "a ReLU that ends at 6":

        def ending(layer, named, x, run):
            y, back = forward(layer, named, x, run)
            if not isinstance(layer, ReLU):
                return y, back
            return np.minimum(y, 6), lambda dy: back(np.where(y < 6, dy, 0))

        plant.part("forward", ending)
    elif fault in SCHEDULED:
        rate = Optimizer.rate

        def wrong(optimizer, step):
            return optimizer.learning_rate if fault == "no schedule" else rate(optimizer, step + 1)

        plant.method(Optimizer, "rate", wrong)
    elif fault == "gradients clipped at 10":
        backward = module.ReferenceWorkload._backward

        def clipped(self, batch, random):
            loss, run = backward(self, batch, random)
            norm = np.sqrt(sum((g**2).sum() for g in run.gradients.values()))
            for gradient in run.gradients.values():
                gradient *= min(1, 10 / norm)
            return loss, run

        plant.method(module.ReferenceWorkload, "_backward", clipped)
    else:
        pytest.skip("the reference has no switch for it")


PLANT = {
    "reference": in_reference,
    "torch": in_torch,
    "jax": in_jax,
    "flux": in_flux,
    "lux": in_lux,
    "keras": in_keras,
}


@pytest.mark.parametrize("fault", [*FLOAT32, *OPTIMIZER])
def test_a_small_fault_is_caught(adapter, device, fault, plant, expected):
    model = DROPPED if fault in SCHEDULED else PLAIN
    right = expected(model)
    build = in_any(fault, adapter.build)
    if build is None:
        PLANT[plant.framework](fault, plant)
        build = adapter.build
    words = (FLOAT32 | OPTIMIZER)[fault]
    found = parity.prove(build, Job(model, device, 1, "float32"), right).disagreement
    assert found, "the proof sees nothing"
    assert words in found


@pytest.mark.parametrize("name", ["plain", "residual", "dropped", "bidirectional", "unbiased"])
def test_half_of_a_precision_is_caught_in_each_kind_of_model(adapter, device, name, expected):
    """In each kind of model: with pools, batch norms, dropouts, recurrence, and numbers."""
    build = in_any("weights in bfloat16", adapter.build)
    model = SMALL_MODELS[name]
    found = parity.prove(build, Job(model, device, 1, "float32"), expected(model))
    assert "in float32" in found.disagreement


def draws_in_torch(fault, plant):
    import torch
    from torch import nn

    module = plant.package

    class Wrong(nn.Dropout):
        def forward(self, x):
            if not self.training or fault == "off":
                return x
            if fault == "unscaled":
                return super().forward(x) * (1 - self.p)
            if fault == "another rate":
                return nn.functional.dropout(x, self.p + 0.01) * (1 - self.p - 0.01) / (1 - self.p)
            if fault == "the same in each step":
                torch.manual_seed(0)
                return super().forward(x)
            return x * super().forward(torch.ones_like(x[:1]))

    class WrongPiece(Wrong):
        def __init__(self, rate, generator):
            super().__init__(rate)

    original = module.module
    wrong = lambda n: Wrong(n.layer.rate) if isinstance(n.layer, Dropout) else original(n)  # noqa: E731
    plant.part("module", wrong)
    if plant.variant == "tuned":
        plant.part("PieceDropout", WrongPiece)


def draws_in_jax(fault, plant):
    import jax

    layers = importlib.import_module("crossbench.adapters.jax.layers")
    right = layers.Dropout.__call__

    def wrong(self, x):
        if self.mask is not None or self.deterministic:
            return right(self, x)
        if fault == "off":
            return x
        if fault == "unscaled":
            return right(self, x) * (1 - self.rate)
        rate, shape = self.rate, x.shape
        key = jax.random.key(0) if fault == "the same in each step" else self.rngs()
        if fault == "another rate":
            rate += 0.01
        if fault == "one for the batch":
            shape = (1, *shape[1:])
        return x * jax.random.bernoulli(key, 1 - rate, shape) / (1 - self.rate)

    plant.method(layers.Dropout, "__call__", wrong)


def draws_in_flux(fault, plant):
    if fault not in ("another rate", "one for the batch"):
        pytest.skip("Flux' own Dropout has no switch for it")
    change = {
        "another rate": "Dropout(l.p + 0.01, l.dims, l.active, l.rng)",
        "one for the batch": "Dropout(l.p, l isa Dropout ? 1 : l.dims, l.active, l.rng)",
    }[fault]
    plant.in_julia(
        f"w -> (w.model = Chain(map(l -> l isa Dropout ? {change} : l, w.model.layers)...))"
    )


def draws_in_lux(fault, plant):
    if fault not in ("another rate", "one for the batch"):
        pytest.skip("Lux' own Dropout has no switch for it")
    change = {"another rate": "Dropout(l.p + 0.01)", "one for the batch": "Dropout(l.p; dims = 1)"}
    plant.in_julia(
        "w -> (w.model = Chain(map(w.model.layers) do l\n"
        f"    l isa Dropout ? {change[fault]} : l\n"
        "end))"
    )


def draws_in_keras(fault, plant):
    import keras

    layers = importlib.import_module("crossbench.adapters.keras.layers")
    right = layers.Dropout.call

    def wrong(self, x, training=False):
        if self.given is not None or not training:
            return right(self, x, training)
        if fault == "off":
            return x
        if fault == "unscaled":
            return right(self, x, training) * (1 - self.rate)
        draw = keras.random.dropout
        if fault == "another rate":
            rate = self.rate + 0.01
            return draw(x, rate, seed=self.seed_generator) * (1 - rate) / (1 - self.rate)
        if fault == "the same in each step":
            return draw(x, self.rate, seed=0)
        return x * draw(keras.ops.ones_like(x[:1]), self.rate, seed=self.seed_generator)

    plant.method(layers.Dropout, "call", wrong)


def draws_in_reference(fault, plant):
    module = plant.package
    forward = module.forward

    def wrong(layer, named, x, run):
        if not isinstance(layer, Dropout) or not run.training or run.masks:
            return forward(layer, named, x, run)
        if fault == "the same in each step":
            run.random = np.random.default_rng(0)
        shape = (1, *x.shape[1:]) if fault == "one for the batch" else x.shape
        rate = layer.rate + (0.01 if fault == "another rate" else 0)
        masks = run.random.random(shape) >= (0 if fault == "off" else rate)
        scale = masks / (1 - (0 if fault in ("off", "unscaled") else layer.rate))
        return x * scale, lambda dy: dy * scale

    plant.part("forward", wrong)


DRAWS = {
    "reference": draws_in_reference,
    "torch": draws_in_torch,
    "jax": draws_in_jax,
    "flux": draws_in_flux,
    "lux": draws_in_lux,
    "keras": draws_in_keras,
}


@pytest.mark.parametrize("fault", DROPOUTS)
def test_another_dropout_is_caught(adapter, device, fault, plant):
    DRAWS[plant.framework](fault, plant)
    found = dropout.probe(adapter.build, Job(DROPPED, device, 1, "float32"))
    assert max(np.inf if value is None else value for value in found.values()) > 1


def test_its_own_dropout_is_the_described_one(adapter, device):
    found = dropout.probe(adapter.build, Job(DROPPED, device, 1, "float32"))
    assert len(found) == 5
    assert max(found.values()) < 1
    assert dropout.probe(adapter.build, Job(PLAIN, device, 1, "float32")) == {}
