"""The proof can fail: each fault that is seen in the wild, planted in each adapter, is caught.

A fault changes one translation of the adapter and leaves all else as it is.
"""

import importlib

import numpy as np
import pytest

from crossbench.engine import parity
from crossbench.models.layers import Flatten
from crossbench.workload import Job

FAULTS = {
    "a transposed kernel": "conv1.weight|logits",
    "a flipped kernel": "conv1.weight|logits",
    "a wrong flatten order": "dense1.weight|logits",
    "a double softmax": "loss|gradient",
    "a wrong momentum form": "steps",
    "a summed loss": "loss|gradient",
}


def plant_in_reference(fault, monkeypatch):
    module = importlib.import_module("crossbench.adapters.reference")
    if fault in ("a transposed kernel", "a flipped kernel"):
        change = {"a transposed kernel": transpose, "a flipped kernel": flip}[fault]
        _change_kernels(module.ReferenceWorkload, change, monkeypatch)
    elif fault == "a wrong flatten order":
        original = module.forward

        def forward(layer, weights, x):
            if not isinstance(layer, Flatten):
                return original(layer, weights, x)
            last = x.transpose(0, 2, 3, 1)
            return last.reshape(len(x), -1), lambda dy: (
                dy.reshape(last.shape).transpose(0, 3, 1, 2),
                {},
            )

        monkeypatch.setattr(module, "forward", forward)
    elif fault == "a wrong momentum form":
        monkeypatch.setattr(module, "step", dampened_step)
    else:
        original = module.loss_and_gradient

        def loss_and_gradient(loss, logits, labels):
            if fault == "a double softmax":
                logits = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            value, gradient = original(loss, logits, labels)
            n = len(labels) if fault == "a summed loss" else 1
            return n * value, n * gradient

        monkeypatch.setattr(module, "loss_and_gradient", loss_and_gradient)


def dampened_step(optimizer, weights, gradients, state):
    for name, gradient in gradients.items():
        state[name] = 0.9 * state.get(name, 0) + 0.1 * gradient
        weights[name] -= 0.01 * state[name]


def plant_in_torch(fault, monkeypatch):
    import torch
    from torch import nn

    module = importlib.import_module("crossbench.adapters.torch")

    class WrongFlatten(nn.Module):
        def forward(self, x):
            return x.permute(0, 2, 3, 1).flatten(1)

    class DoubleSoftmax(nn.CrossEntropyLoss):
        def forward(self, logits, labels):
            return super().forward(logits.softmax(1), labels)

    if fault in ("a transposed kernel", "a flipped kernel"):
        change = {"a transposed kernel": transpose, "a flipped kernel": flip}[fault]
        _change_kernels(module.TorchWorkload, change, monkeypatch)
    elif fault == "a wrong flatten order":
        original = module.module
        monkeypatch.setattr(
            module,
            "module",
            lambda n: WrongFlatten() if isinstance(n.layer, Flatten) else original(n),
        )
    elif fault == "a double softmax":
        monkeypatch.setattr(module, "criterion", lambda loss: DoubleSoftmax())
    elif fault == "a summed loss":
        monkeypatch.setattr(module, "criterion", lambda loss: nn.CrossEntropyLoss(reduction="sum"))
    else:
        wrong = lambda d, p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True)  # noqa: E731
        monkeypatch.setattr(module, "optimizer", wrong)


def plant_in_jax(fault, monkeypatch):
    import jax
    import optax

    module = importlib.import_module("crossbench.adapters.jax")
    each = optax.softmax_cross_entropy_with_integer_labels
    if fault in ("a transposed kernel", "a flipped kernel"):
        change = {"a transposed kernel": transpose, "a flipped kernel": flip}[fault]
        _change_kernels(module.JaxWorkload, change, monkeypatch)
    elif fault == "a wrong flatten order":
        original = module.module
        wrong = lambda x: x.reshape(len(x), -1)  # noqa: E731
        monkeypatch.setattr(
            module, "module", lambda n, o: wrong if isinstance(n.layer, Flatten) else original(n, o)
        )
    elif fault == "a double softmax":
        loss = lambda logits, labels: each(jax.nn.softmax(logits), labels).mean()  # noqa: E731
        monkeypatch.setattr(module, "loss_function", lambda _: loss)
    elif fault == "a summed loss":
        loss = lambda logits, labels: each(logits, labels).sum()  # noqa: E731
        monkeypatch.setattr(module, "loss_function", lambda _: loss)
    else:
        wrong = optax.chain(optax.ema(0.9, debias=False), optax.scale(-0.01))
        monkeypatch.setattr(module, "transformation", lambda _: wrong)


def plant_in_flux(fault, monkeypatch):
    """Into each workload as it is built: its fields can be changed."""
    module = importlib.import_module("crossbench.adapters.flux")
    if fault in ("a transposed kernel", "a flipped kernel"):
        change = {"a transposed kernel": transpose, "a flipped kernel": flip}[fault]
        _change_kernels(module.FluxWorkload, change, monkeypatch)
        return
    change = {
        "a wrong flatten order": """w -> (w.model = Chain(map(w.model.layers) do l
            l === Flux.flatten ? (x -> Flux.flatten(permutedims(x, (2, 1, 3, 4)))) : l
        end...))""",
        "a double softmax": "w -> (w.loss = (z, y) -> Flux.logitcrossentropy(softmax(z), y))",
        "a summed loss": "w -> (w.loss = (z, y) -> Flux.logitcrossentropy(z, y; agg = sum))",
        "a wrong momentum form": "w -> (w.rule = Nesterov(0.01, 0.9))",
    }[fault]
    original = module.FluxWorkload.__init__

    def build(self, job):
        original(self, job)
        import juliacall

        juliacall.Main.seval("using Flux")
        juliacall.Main.seval(change)(self.workload)

    monkeypatch.setattr(module.FluxWorkload, "__init__", build)


def transpose(kernel):
    return np.ascontiguousarray(kernel.swapaxes(2, 3))


def flip(kernel):
    return np.ascontiguousarray(kernel[:, :, ::-1, ::-1])


def _change_kernels(workload, change, monkeypatch):
    """On the way in only: as where an adapter maps the kernels wrongly."""
    original = workload.load_weights

    def load_weights(self, weights):
        original(self, {n: change(w) if w.ndim == 4 else w for n, w in weights.items()})

    monkeypatch.setattr(workload, "load_weights", load_weights)


PLANT = {
    "reference": plant_in_reference,
    "torch": plant_in_torch,
    "jax": plant_in_jax,
    "flux": plant_in_flux,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(adapter, adapter_name, lenet, fault, monkeypatch):
    expected = parity.reference(lenet)
    PLANT[adapter_name](fault, monkeypatch)
    observed = parity.observe(adapter.build, Job(lenet, "cpu", 1, "float64"))
    deviations = parity.compare(observed, expected)
    caught = parity.Parity(float64=deviations, float32=deviations)
    assert not caught.agrees
    wrong = {name for name, value in deviations.items() if value is None or value > 1e-3}
    assert any(part in name for name in wrong for part in FAULTS[fault].split("|"))
    if fault == "a wrong momentum form":  # the model itself is right
        assert all("steps" in name for name in wrong)


def test_a_missing_tensor_and_a_wrong_shape_are_errors():
    with pytest.raises(ValueError, match=r"not in both .*: conv2\.bias"):
        parity.compare({"loss": np.ones(1)}, {"loss": np.ones(1), "conv2.bias": np.ones(1)})
    with pytest.raises(ValueError, match=r"loss has the shape \(2,\), the reference's is \(1,\)"):
        parity.compare({"loss": np.ones(2)}, {"loss": np.ones(1)})


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
    assert parity.deviation("x", np.array(a), np.array(b)) == expected
