import pytest

from crossbench import plan
from crossbench.spec import make_spec


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(plan, "gpu_names", list)


@pytest.mark.usefixtures("plugin", "no_gpu")
def test_what_was_named_is_there_with_its_reason():
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
def test_without_names_what_is_installed_runs_on_the_cpu():
    cells = plan.make_plan(make_spec())
    assert {c.device for c in cells} == {"cpu"}
    assert "well" in {c.framework for c in cells}  # a third party's, by its entry point
    assert not {"absent", "reference"} & {c.framework for c in cells}
    assert not any(c.named for c in cells)


def test_a_gpu_adds_cells_that_were_not_named(monkeypatch):
    monkeypatch.setattr(plan, "gpu_names", lambda: ["NVIDIA H100"])
    cpu, gpu = plan.make_plan(make_spec("reference"))
    assert (cpu.device, cpu.named, cpu.unavailable) == ("cpu", True, None)
    assert (gpu.device, gpu.named) == ("gpu", False)
    assert gpu.unavailable == "NumPy runs on the CPU only"


def test_several_numbers_of_threads_are_cells_of_their_own(monkeypatch):
    monkeypatch.setattr(plan, "gpu_names", lambda: ["NVIDIA H100"])
    monkeypatch.setattr("crossbench.spec.usable_cpus", lambda: [0, 1, 2, 3])
    cells = plan.make_plan(make_spec("reference", threads=[1, 4]))
    assert [(c.name, c.threads) for c in cells] == [
        ("reference cpu, 1 thread", 1),
        ("reference cpu, 4 threads", 4),
        ("reference gpu", 4),
    ]
    assert plan.make_plan(make_spec("reference", threads=4))[0].name == "reference cpu"
