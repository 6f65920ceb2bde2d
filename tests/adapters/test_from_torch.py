"""Modules of PyTorch are read as descriptions, with their weights, or refused in a line."""

import copy

import numpy as np
import pytest
from torch_modules import MODULES, ResNet

from crossbench import models
from crossbench.inputs.errors import SpecError
from crossbench.workload import Job

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import crossbench  # noqa: E402


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_described_with_its_weights(name):
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make()
    model = crossbench.from_torch(module, shape)
    own = sum(parameter.numel() for parameter in module.parameters())
    assert model.trained_parameter_count == own
    given = torch.randint(0, model.vocabulary, (3, *shape)) if model.vocabulary else None
    given = torch.rand(3, *shape) if given is None else given
    expected = copy.deepcopy(module).eval()(given).detach().numpy()
    workload = crossbench.adapters.get("torch").build(Job(model, "cpu", 1, "float32"))
    workload.load_weights(model.initial_weights(0))
    found = workload.predict(given.numpy())
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_the_resnet_of_pytorch_cifar_has_its_parameters():
    model = crossbench.from_torch(ResNet(), (3, 32, 32))
    assert model.trained_parameter_count == 11_173_962


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 2)

    def forward(self, x):
        return self.linear(torch.fft.rfft(x).real)


class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 2)

    def forward(self, x):
        if x.sum() > 0:
            return self.linear(x)
        return -self.linear(x)


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(F.relu(self.linear(x)))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(8, 8), nn.Linear(8, 2)
        self.linear1.requires_grad_(False)

    def forward(self, x):
        return self.linear2(F.relu(self.linear1(x)))


class Ceiling(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.linear = nn.MaxPool2d(2, ceil_mode=True), nn.Linear(16, 2)

    def forward(self, x):
        return self.linear(self.pool(x).flatten(1))


REFUSED = [
    (Spectrum, (8,), r"test_from_torch.py:\d+: torch.fft.rfft has no description"),
    (Deciding, (8,), r"test_from_torch.py:\d+ decides by a tensor's value"),
    (TwoInputs, (8,), "a forward pass with 2 inputs has no description"),
    (Twice, (8,), r"72 parameters, its description 144: one is used twice"),
    (Frozen, (8,), r"linear1.weight does not train"),
    (Ceiling, (1, 7, 7), r"test_from_torch.py:\d+: .*ceil_mode"),
]


@pytest.mark.parametrize(("make", "shape", "message"), REFUSED)
def test_what_has_no_description_is_refused_with_its_line(make, shape, message):
    with pytest.raises(SpecError, match=message):
        crossbench.from_torch(make(), shape)


def test_a_loss_and_an_optimizer_are_read():
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    matrices = [p for p in module.parameters() if p.ndim > 1]
    others = [p for p in module.parameters() if p.ndim < 2]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    model = crossbench.from_torch(
        module,
        (4,),
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        optimizer=torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1),
    )
    assert model.loss == models.SoftmaxCrossEntropy(0.1)
    assert model.optimizer == models.AdamW(3e-4, 0.9, 0.95, 1e-8, 0.1, matrices_only=True)
    with pytest.raises(SpecError, match=r"dampening=0\.5 has no description"):
        crossbench.from_torch(
            module,
            (4,),
            optimizer=torch.optim.SGD(module.parameters(), momentum=0.9, dampening=0.5),
        )


def test_a_module_that_is_another_one_is_refused(monkeypatch):
    """The proof can fail: a layer that is read wrongly."""
    from crossbench.adapters.torch.reading import operations

    monkeypatch.setitem(operations.PLAIN, "relu", models.SiLU())
    with pytest.raises(SpecError, match="is not the module's"):
        crossbench.from_torch(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), (4,))
