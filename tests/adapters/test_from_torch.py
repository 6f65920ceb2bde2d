"""Modules of PyTorch are read as descriptions, with their weights, or refused in a line."""

import copy
import random
from collections import OrderedDict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scripting import invoke

from crossbench import models
from crossbench.engine import parity
from crossbench.engine.batches import BatchList
from crossbench.inputs.errors import ResultsError, SpecError
from crossbench.models.parts import parts
from crossbench.workload import Batch, Job

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
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules()):
        module(torch.rand(4, *shape))
    module.eval()
    return module, crossbench.from_torch(module, shape)


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


@pytest.mark.parametrize("name", ["resnet", "gpt"])
def test_the_losses_of_the_torch_row_are_the_modules(installed, name):
    """What a user's own loop computes, in float64."""
    module, model = described(name)
    model = replace(model, optimizer=models.AdamW(1e-3, 0.9, 0.999, 1e-8, 0.01))
    own = copy.deepcopy(module).double().train()
    optimizer = torch.optim.AdamW(own.parameters(), lr=1e-3)
    batches, losses = list(made_batches(model, 4, np.float64)), []
    for batch in batches:
        logits = own(torch.from_numpy(batch.inputs)).flatten(0, -2)
        loss = F.cross_entropy(logits, torch.from_numpy(batch.labels).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    workload = installed("torch").build(Job(model, "cpu", 1, "float64"))
    workload.load_weights(model.initial_weights(0))
    workload.place(BatchList(batches, streamed=False))
    np.testing.assert_allclose(workload.train_epoch(), losses, rtol=1e-9)
    with torch.no_grad():
        expected = own.eval()(torch.from_numpy(batches[0].inputs)).numpy()
    np.testing.assert_allclose(workload.predict(batches[0].inputs), expected, rtol=1e-9)


def made_batches(model, count, dtype):
    """Yield batches of four random examples."""
    random = np.random.default_rng(0)
    for _ in range(count):
        shape = (4, *model.input_shape)
        if model.vocabulary:
            inputs = random.integers(0, model.vocabulary, shape, np.int32)
        else:
            inputs = random.normal(size=shape).astype(dtype)
        yield Batch(inputs, random.integers(0, model.classes, (4, *model.label_shape)))


class Named(nn.Module):
    """Has names that Python uses, that are numbers, and that JAX' writer would give itself."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"in": nn.Linear(4, 5), "linear2": nn.Linear(5, 6)})
        self.rest = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))

    def forward(self, x):
        x = self.parts["linear2"](F.relu(self.parts["in"](x)))
        return self.rest(x)


def test_jax_calls_layers_as_the_module_does():
    from crossbench.adapters.jax.network import Network

    def paths(model):
        return list(dict(Network(model.named_layers()).paths))

    assert paths(crossbench.from_torch(Named().parts["linear2"], (5,))) == ["linear"]
    assert paths(crossbench.from_torch(Named().rest, (6,))) == ["linear1", "linear2"]
    named = crossbench.from_torch(Named(), (4,))
    assert paths(named) == ["parts_in", "parts_linear2", "rest_0", "rest_1"]
    both = nn.Sequential(OrderedDict(linear2=nn.Linear(4, 5), lambda_=nn.Linear(5, 4)))
    both.register_module("in", nn.Linear(4, 3))
    assert paths(crossbench.from_torch(both, (4,))) == ["linear2", "lambda_", "linear"]
    model = described("resnet")[1]
    of_parts = [paths(part.whole.model) for part in parts(model)]
    assert ["batch_norm", "conv"] in of_parts  # the first convolution of a part is another one
    assert not any("bn1" in names for names in of_parts[:-1])  # the last one is the whole model
    names = paths(model)
    assert names[:4] == ["conv1", "bn1", "layer1.0.conv1", "layer1.0.bn1"]
    assert {"layer2_0_shortcut_0", "layer4_1_bn2", "linear"} < set(names)


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


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.other = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        return self.linear(x)


class TwoOutputs(Unused):
    def forward(self, x):
        return self.linear(x), self.other(x)


class Probabilities(Unused):
    def forward(self, x):
        return F.softmax(self.linear(x), dim=1)


class Broken(Unused):
    def forward(self, x):
        return self.linear(x[:, :5])


class Parts(nn.Module):
    """Two layers, and what a forward pass does between them."""

    def __init__(self, between=None):
        super().__init__()
        self.first, self.between, self.last = nn.Linear(8, 6), between, nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.between(self.first(x)))


def always_drops(x):
    return F.dropout(x)


def clamps_a_view(x):
    x.view(-1).clamp_(-0.1, 0.1)
    return x


def draws(x):
    return x if random.random() < 2 else x * x


class Dropping(Parts):
    def forward(self, x):
        return self.last(torch.dropout(self.first(x), 0.5, self.training))


class Counting(Parts):
    def forward(self, x):
        return {"logits": self.first(x)}


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.linear = nn.Embedding(2_000, 6, padding_idx=0), nn.Linear(6, 2)

    def forward(self, x):
        return self.linear(self.embedding(x).mean(1))


class Unscaled(nn.Module):
    """Attention without the root of the width, which zeros hide."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        for layer in (self.q, self.k):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        weights = (self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1)
        return self.out(weights @ self.v(x))


def encoder(**options):
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


def pooled(pool):
    return nn.Sequential(pool, nn.Flatten(), nn.LazyLinear(2))


REFUSED = [
    (lambda: Parts(torch.detach), (8,), r"py:\d+: .*before which nothing trains"),
    (lambda: Parts(always_drops), (8,), "drops values in evaluation mode too"),
    (lambda: Parts(clamps_a_view), (8,), r"py:\d+: .*clamp_ changes what is read elsewhere"),
    (lambda: Parts(draws), (8,), "Parts draws a number in Python"),
    (Counting, (8,), "returns anything but one tensor, which it computes"),
    (Padded, (7,), r"py:\d+: F.embedding with padding_idx, whose row does not train"),
    (Unscaled, (5, 8), r"is not the module's: \w+.py:\d+, MultiHeadAttention"),
    (lambda: torch.jit.script(nn.Linear(8, 2)), (8,), "compiled by torch.jit"),
    (lambda: nn.Sequential(nn.LazyLinear(2)), (8,), "lazy layers: call it once"),
    (lambda: nn.Sequential(nn.Linear(8, 2), nn.Mish()), (8,), "its layer 1: F.mish has no desc"),
    (lambda: nn.Linear, (8,), "module must be an nn.Module, not <class"),
    (lambda: nn.Linear(8, 2), (8.5,), "input_shape must be one, two or three whole numbers"),
    (Unused, (8,), r"other\.weight takes no part in the forward pass"),
    (TwoOutputs, (8,), "TwoOutputs: a forward pass that returns anything but one"),
    (Probabilities, (8,), r"test_from_torch.py:\d+: F.softmax has no .*: return the logits"),
    (Broken, (8,), r"test_from_torch.py:\d+: .*must have same reduction dim"),
    (encoder, (6, 8), "with dropout of its weights has no description: dropout=0"),
    (lambda: nn.BatchNorm2d(3, track_running_stats=False), (3, 4, 4), "without running statistics"),
    (
        lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        (1, 4, 4),
        "align_c",
    ),
    (lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False), (1, 4, 4), "count_include_pad"),
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


def arithmetic(x):
    return 1 - (2 * x - 1) / 4 - sum([x, -x * 3])


def in_float32(x):
    return x.to(torch.float32) + torch.zeros(6, dtype=torch.float32).sum()


def test_numbers_are_read():
    _, *between, _ = crossbench.from_torch(Parts(arithmetic), (8,)).layers
    rescaled, opposite = models.Rescaling(-0.5, 1.25), models.Rescaling(-3.0)
    _, (*_, last) = between[0].branches
    assert rescaled in between[0].branches[0]
    assert last == models.Rescaling(-1.0)
    assert opposite in between[0].branches[1][0].branches[1]


def test_a_dtype_or_a_dropout_in_the_forward_pass_is_read():
    assert crossbench.from_torch(Dropping(), (8,)).layers[1] == models.Dropout(0.5)
    assert len(crossbench.from_torch(Parts(in_float32), (8,)).layers) == 2


def test_outputs_that_are_numbers_have_any_shape():
    decoder = nn.Sequential(nn.Linear(8, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 1, 1))
    model = crossbench.from_torch(decoder, (8,), loss=nn.MSELoss())
    assert (model.layers[-1], model.output_shape) == (models.Flatten(), (16,))
    one = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    assert crossbench.from_torch(one, (8,)).loss == models.MeanSquaredError()


def test_an_optimizer_of_other_parameters_is_refused():
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    for held in (module[2].parameters(), nn.Linear(4, 6).parameters()):
        with pytest.raises(
            SpecError, match=r"SGD trains other parameters: make it of module\.parameters"
        ):
            crossbench.from_torch(module, (4,), optimizer=torch.optim.SGD(held))


def test_a_compiled_module_is_read_as_what_it_was_made_of():
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    plain = crossbench.from_torch(module, (4,)).layers
    assert crossbench.from_torch(torch.compile(module), (4,)).layers == plain
    assert crossbench.from_torch(nn.DataParallel(module), (4,)).layers == plain


def test_a_log_softmax_at_the_end_is_that_of_the_loss():
    module = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(dim=1))
    plain = crossbench.from_torch(module[0], (4,))
    for loss in (None, nn.NLLLoss(), nn.CrossEntropyLoss()):
        model = crossbench.from_torch(module, (4,), loss=loss)
        assert (model.layers, model.loss) == (plain.layers, models.SoftmaxCrossEntropy())
    for loss in (nn.MSELoss(), models.BinaryCrossEntropy()):
        with pytest.raises(SpecError, match="of a log_softmax has no description"):
            crossbench.from_torch(module, (4,), loss=loss)
    with pytest.raises(SpecError, match=r"NLLLoss\(\) has no description"):
        crossbench.from_torch(module[0], (4,), loss=nn.NLLLoss())


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


MINE = """
import torch
from torch import nn


def make():
    torch.manual_seed({seed})
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


NET = make()
"""


def test_a_module_in_a_file_is_ported_with_its_weights(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(MINE.format(seed=1))
    torch.manual_seed(1)
    expected = nn.Linear(4, 3).weight.detach().numpy()
    for name in ("NET", "make"):
        asked = ["--model", f"{tmp_path}/mine.py:{name}", "--frameworks", "torch", "--batches", 1]
        asked += ["--out", tmp_path / name]
        status, _, errors = invoke(capsys, *asked)
        assert status == 2
        assert "give the shape of one example" in errors
        assert invoke(capsys, *asked, "--input", 4)[0] == 0
        weights = np.load(tmp_path / name / "weights_torch.npz")
        assert np.array_equal(weights["0.weight"], expected)


def test_a_run_of_a_module_is_resumed_with_the_same_weights_alone(tmp_path):
    (tmp_path / "mine.py").write_text(MINE.format(seed=1))
    asked = {"model": f"{tmp_path}/mine.py:make", "input": [4], "batches": 2, "rounds": 1}
    file = tmp_path / "r.json"
    whole = crossbench.run("reference", "cpu", json=file, threads=1, **asked)
    assert whole.complete
    assert crossbench.resume(file).results == whole.results
    (tmp_path / "mine.py").write_text(MINE.format(seed=2))
    with pytest.raises(ResultsError, match="its model differs"):
        crossbench.resume(file)


def test_a_module_in_a_script_is_compared_as_it_is():
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    asked = {"batches": 2, "rounds": 1, "threads": 1}
    comparison = crossbench.run("reference", "cpu", model=module, input=[4], **asked)
    assert comparison.model["name"] == "sequential"
    assert comparison.complete
    with pytest.raises(SpecError, match="Sequential is a model of PyTorch: give the shape"):
        crossbench.run("reference", "cpu", model=module, **asked)


def test_an_input_of_another_shape_than_the_models_is_refused():
    with pytest.raises(SpecError, match=r"input is \(3, 16, 16\), but the model lenet takes"):
        crossbench.run("reference", "cpu", input=[3, 16, 16])
