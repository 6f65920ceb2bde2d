"""The proof can fail: each fault that is seen in the wild, planted in each adapter, is caught.

A fault changes one translation of the adapter and leaves all else as it is.
"""

import importlib

import numpy as np
import pytest

from crossbench.engine import parity
from crossbench.models.layers import Flatten
from crossbench.results.records import FLOAT64_BOUND
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

        def forward(layer, named, x, run):
            if not isinstance(layer, Flatten):
                return original(layer, named, x, run)
            last = x.transpose(0, 2, 3, 1)
            back = lambda dy: dy.reshape(last.shape).transpose(0, 3, 1, 2)  # noqa: E731
            return last.reshape(len(x), -1), back

        monkeypatch.setattr(module, "forward", forward)
    elif fault == "a wrong momentum form":
        monkeypatch.setattr(module, "change", dampened)
    else:
        original = module.loss_and_gradient

        def loss_and_gradient(loss, logits, labels):
            if fault == "a double softmax":
                logits = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            value, gradient = original(loss, logits, labels)
            n = len(labels) if fault == "a summed loss" else 1
            return n * value, n * gradient

        monkeypatch.setattr(module, "loss_and_gradient", loss_and_gradient)


def dampened(optimizer, gradient, state, t):
    state["velocity"] = 0.9 * state.get("velocity", 0) + 0.1 * gradient
    return optimizer.learning_rate * state["velocity"]


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
        wrong = lambda d, p: torch.optim.SGD(  # noqa: E731
            p, lr=d.learning_rate, momentum=0.9, nesterov=True
        )
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
        wrong = lambda d: optax.chain(  # noqa: E731
            optax.ema(0.9, debias=False), optax.scale(-d.learning_rate)
        )
        monkeypatch.setattr(module, "transformation", wrong)


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
        "a wrong momentum form": "w -> (w.rule = Nesterov(w.rule.eta, 0.9))",
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
def test_a_planted_fault_is_caught(adapter, adapter_name, lenet, fault, monkeypatch, tmp_path):
    expected = parity.reference(lenet, tmp_path / "expected")
    PLANT[adapter_name](fault, monkeypatch)
    observed = parity.observe(adapter.build, Job(lenet, "cpu", 1, "float64"))
    deviations = parity.compare(observed, expected.tensors())
    caught = parity.Parity(deviations, deviations, expected.float32)
    assert not caught.agrees
    wrong = {n for n, value in deviations.items() if value is None or value > FLOAT64_BOUND}
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
    a, b = np.array(a), np.array(b)
    assert parity.deviation("x", a, b, np.linalg.norm(b)) == expected


def test_a_gradient_of_rounding_alone_is_measured_by_all_of_them():
    expected = {"gradient of a": np.array([3.0, 4.0]), "gradient of b": np.array([1e-16])}
    small, large = ({**expected, "gradient of b": np.array([x])} for x in (2e-16, 0.1))
    assert parity.compare(small, expected)["gradient of b"] == pytest.approx(2e-17, rel=1e-6)
    assert parity.compare(large, expected)["gradient of b"] == pytest.approx(0.02)
    # what is no gradient, or more than rounding, has its own size
    other = {"gradient of a": np.array([3.0, 4.0]), "gradient of b": np.array([1e-8])}
    assert parity.compare(small, other)["gradient of b"] == pytest.approx(1)
