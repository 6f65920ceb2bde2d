import nvml
import pynvml
import pytest
from nvml import Card

from crossbench import plan
from crossbench.spec import make_spec

CARD, OTHER = Card("GPU-1"), Card("GPU-2", "NVIDIA T4")


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def no_gpu(monkeypatch):
    nvml.install(monkeypatch)


@pytest.mark.usefixtures("plugin", "no_gpu")
def test_named_cells_that_cannot_run_have_a_reason():
    cells = plan.make_plan(make_spec("absent,reference", "cpu,gpu"))
    assert [(c.framework, c.device, bool(c.unavailable)) for c in cells] == [
        ("absent", "cpu", True),
        ("absent", "gpu", True),
        ("reference", "cpu", False),
        ("reference", "gpu", True),
    ]
    assert cells[0].unavailable == "absent is not installed: pip install absent"
    assert all(c.named for c in cells)


@pytest.mark.usefixtures("plugin", "no_gpu")
def test_by_default_installed_frameworks_run_on_the_cpu(monkeypatch):
    known = ["absent", "broken", "reference", "torch", "well"]  # each takes its time
    monkeypatch.setattr("crossbench.adapters.names", lambda: known)
    cells = plan.make_plan(make_spec())
    assert {c.device for c in cells} == {"cpu"}
    assert "well" in {c.framework for c in cells}  # a third party's, by its entry point
    assert not {"absent", "broken", "reference"} & {c.framework for c in cells}
    assert not any(c.named for c in cells)


def test_a_gpu_adds_cells_by_default(monkeypatch):
    nvml.install(monkeypatch, CARD)
    cpu, gpu = plan.make_plan(make_spec("reference"))
    assert (cpu.device, cpu.named, cpu.unavailable) == ("cpu", True, None)
    assert (gpu.device, gpu.named) == ("gpu", False)
    assert gpu.unavailable == "NumPy runs on the CPU only"


def test_each_number_of_threads_is_a_cell(monkeypatch):
    nvml.install(monkeypatch, CARD)
    monkeypatch.setattr("crossbench.spec.usable_cpus", lambda: [0, 1, 2, 3])
    cells = plan.make_plan(make_spec("reference", threads=[1, 4]))
    assert [(c.name, c.threads) for c in cells] == [
        ("reference cpu, 1 thread", 1),
        ("reference cpu, 4 threads", 4),
        ("reference gpu", 4),
    ]
    assert plan.make_plan(make_spec("reference", threads=4))[0].name == "reference cpu"


def test_each_precision_is_a_cell_or_has_its_reason(monkeypatch):
    nvml.install(monkeypatch, Card("GPU-old", capability=(7, 5)))
    cells = plan.make_plan(make_spec("flux,torch", "cpu,gpu", compute="bfloat16,tf32,float32"))
    reasons = {(c.framework, c.device, c.compute): c.unavailable for c in cells}
    assert reasons["torch", "cpu", "bfloat16"] is None
    on_cpu = "tf32 is a precision of NVIDIA's GPUs, and this row is on the CPU"
    assert reasons["torch", "cpu", "tf32"] == on_cpu
    old = "bfloat16 needs a GPU of compute capability 8.0, and this one has 7.5"
    assert reasons["torch", "gpu", "bfloat16"] == old
    assert "Flux.jl has no mixed precision" in reasons["flux", "cpu", "bfloat16"]
    names = [c.name for c in cells if c.framework == "torch" and c.device == "cpu"]
    assert names == ["torch cpu, float32", "torch cpu, tf32", "torch cpu, bfloat16"]
    (cell,) = plan.make_plan(make_spec("reference", "cpu", compute="bfloat16"))
    assert cell.unavailable == "the adapter of NumPy reference computes in float32 alone"


@pytest.mark.usefixtures("plugin")
def test_one_of_several_gpus(monkeypatch):
    nvml.install(monkeypatch, CARD, OTHER)
    cpu, gpu, missing = plan.make_plan(make_spec("runs_on_gpu", "cpu,gpu:1,gpu:2"))
    assert (cpu.name, cpu.device_type, cpu.on_gpu) == ("runs_on_gpu cpu", "cpu", False)
    assert (gpu.name, gpu.device_type, gpu.gpu_index) == ("runs_on_gpu gpu:1", "gpu", 1)
    assert gpu.unavailable is None
    assert missing.unavailable == "there is no gpu:2: the last visible one is gpu:1"


@pytest.mark.usefixtures("plugin")
def test_without_nvml_a_gpu_is_planned_only_if_named(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: None)  # the driver is there
    nvml.install(monkeypatch, init=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert plan.make_plan(make_spec("runs_on_gpu", "gpu"))[0].unavailable is None
    assert {cell.device for cell in plan.make_plan(make_spec("runs_on_gpu"))} == {"cpu"}


def test_a_gpu_that_is_named_twice_is_planned_once():
    assert make_spec(devices="gpu:1,gpu,cpu,gpu:0,gpu:1").devices == ("gpu:1", "gpu:0", "cpu")
    assert make_spec(devices="gpu,gpu:0").devices == ("gpu:0",)
    assert make_spec(devices="gpu").devices == ("gpu",)
