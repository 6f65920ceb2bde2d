"""Modules of PyTorch are read as descriptions, with their weights, or refused in a line."""

from functools import cache

import numpy as np
import pytest

from crossbench import models
from crossbench.engine import parity
from crossbench.inputs.errors import SpecError
from crossbench.workload import Job

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch_modules import MODULES, ResNet  # noqa: E402

import crossbench  # noqa: E402


@cache
def described(name):
    """Return a module, and its description."""
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make()
    if any(True for _ in module.buffers()):  # running statistics move
        module(torch.rand(4, *shape) if len(shape) == 3 or name == "generator" else tokens(shape))
    module.eval()
    return module, crossbench.from_torch(module, shape)


def tokens(shape):
    return torch.randint(0, 20, (4, *shape))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_described_with_its_weights(name):
    module, model = described(name)
    own = sum(parameter.numel() for parameter in module.parameters())
    assert model.trained_parameter_count == own
    state = module.state_dict()
    weights = model.initial_weights(0)
    assert not module.training
    for named in model.all_layers():
        if isinstance(named.layer, models.BatchNorm):  # what a trained module has moved
            held = weights[f"{named.name}.running_var"]
            assert any(np.array_equal(held, t) for n, t in state.items() if "running_var" in n)
            assert not np.all(held == 1)


@pytest.mark.idiomatic
@pytest.mark.short(adapter_name=("torch",), name=("convnext", "encoder", "resnet"))
@pytest.mark.parametrize("name", MODULES)
def test_a_framework_predicts_and_trains_as_the_module_does(adapter, device, expected, name):
    module, model = described(name)
    shape = (3, *model.input_shape)
    given = torch.randint(0, model.vocabulary, shape) if model.vocabulary else torch.rand(shape)
    found = module(given).detach().numpy()
    job = Job(model, device, 2, "float32")
    try:
        workload = adapter.build(job)
    except NotImplementedError as error:  # an LSTM with both biases
        pytest.skip(str(error))
    workload.load_weights(model.initial_weights(0))
    inputs = given.numpy().astype(np.int32) if model.vocabulary else given.numpy()
    predicted = workload.predict(inputs)
    assert np.linalg.norm(predicted - found) <= 1e-5 * np.linalg.norm(found)
    proof = parity.prove(adapter.build, job, expected(model))
    assert proof.agrees, proof.disagreement


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
    (Twice, (8,), r"72 parameters, its description 144: a layer is called twice"),
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
    with pytest.raises(SpecError, match=r"is not the module's: .*SiLU"):
        crossbench.from_torch(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), (4,))


def test_running_statistics_with_another_momentum_are_refused(monkeypatch):
    from crossbench.adapters.torch.reading import operations

    right = operations.models.BatchNorm
    wrong = lambda epsilon, momentum, affine: right(epsilon, momentum - 1e-6, affine)  # noqa: E731
    monkeypatch.setattr(operations.models, "BatchNorm", wrong)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    with pytest.raises(SpecError, match=r"the running statistic 1\.running_mean in training"):
        crossbench.from_torch(module, (4,))


def test_a_module_in_a_file_is_ported_with_its_weights(tmp_path):
    made = "import torch\nfrom torch import nn\n\n\ndef make():\n    torch.manual_seed(1)\n"
    made += (
        "    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))\n\n\nNET = make()\n"
    )
    (tmp_path / "mine.py").write_text(made)
    torch.manual_seed(1)
    expected = nn.Linear(4, 3).weight.detach().numpy()
    for name in ("NET", "make"):
        asked = {"model": f"{tmp_path}/mine.py:{name}", "frameworks": ["torch"], "batches": 1}
        crossbench.script(**asked, input=[4], out=tmp_path / name)
        weights = np.load(tmp_path / name / "weights_torch.npz")
        assert np.array_equal(weights["0.weight"], expected)
        with pytest.raises(SpecError, match="give the shape of one example"):
            crossbench.script(**asked, out=tmp_path / name)
