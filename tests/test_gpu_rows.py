"""Check GPU rows from end to end, with made-up GPUs and adapters that only claim to use them."""

import json
import os
import time
from dataclasses import replace
from functools import partial

import nvml
import pytest
from nvml import Card
from samples import QUIET, comparison, epoch, result, rows
from small_models import TINY

import crossbench
from crossbench import adapters
from crossbench.adapters.reference import NumpyArrays
from crossbench.engine import parity
from crossbench.models import Dense, Flatten
from crossbench.report.details import all_details as table
from crossbench.report.remarks import remarks
from crossbench.results.epochs import Usage
from crossbench.results.parity import Parity
from crossbench.workload import Job

CARDS = Card("GPU-1111", "NVIDIA A100"), Card("GPU-2222", "NVIDIA T4")

pytestmark = pytest.mark.usefixtures("plugin", "two_cards")


@pytest.fixture
def two_cards(monkeypatch):
    """Install two made-up GPUs in this process; the workers find none and lack NVML's figures."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.install(monkeypatch, *CARDS)


@pytest.fixture
def run(run):
    """Return crossbench.run with small data and a model of one layer."""
    return partial(run, model=TINY)


def notes(text, name):
    """Return the notes on a row below the table."""
    return [line.partition(": ")[2] for line in text.splitlines() if line.startswith(f"{name}: ")]


def test_a_row_on_the_second_gpu(run, tmp_path):
    asked = {"price": {"cpu": 1.0, "gpu": 3.0}, "json": tmp_path / "r.json"}
    found = run("runs_on_gpu", devices="cpu,gpu:1", **asked)
    cpu, gpu = found.results
    assert found.complete
    assert gpu.cell.device == "gpu:1"
    assert set(gpu.parity.full_float32) == {"convolution", "matrix multiplication"}
    assert cpu.parity.full_float32 == {}
    assert [e.repeats == 1 for e in gpu.epochs] == [True, False]
    assert all(e.timed_seconds >= 1 for e in gpu.steady)
    assert {e.repeats for e in cpu.cold} == {1}
    assert (gpu.steady[0].losses, gpu.test_accuracy) == (cpu.steady[0].losses, cpu.test_accuracy)
    assert gpu.peak_memory is None
    assert crossbench.load(tmp_path / "r.json") == found
    text = table(found)
    assert "; gpu:1 NVIDIA T4 of 2 GPUs; " in text
    assert "or on a GPU, and where the runtime tells seconds of its own, a whole second" in text
    assert found.gpu_speedup(gpu)
    assert found.cost(gpu).median == pytest.approx(3.0 / 3600 * found.steady(gpu).median)
    assert rows(text)["on a GPU"]["peak MiB"] == "–"


def test_the_bound_tells_float32_from_tensorfloat32(plugin):
    def deviations(name):
        build = adapters.get(name).build
        return parity.single_deviations(build, Job(None, "gpu", 1, "float32")).values()

    assert max(deviations("runs_on_gpu")) < 1e-6
    assert min(deviations("rounds")) > 1e-4


@pytest.mark.parametrize(
    ("deviation", "words"),
    [(None, "is not finite"), (2e-4, "it computes in TensorFloat-32 or a lower precision")],
)
def test_a_convolution_in_tensorfloat32_or_not_finite_is_a_disagreement(deviation, words):
    odd = Parity({"loss": 0.0}, {"loss": 0.0}, {"loss": 0.0}, {"convolution": deviation})
    assert odd.disagreement.startswith("a float32 convolution ")
    assert words in odd.disagreement


def test_a_peak_that_the_row_exceeds_is_measured_again(run, monkeypatch):
    """An honest row must keep its rank where something slowed the matrix multiplication down."""
    told, multiply = [], NumpyArrays.multiply

    def slow_at_first(self, *arrays):
        time.sleep(0.0 if "once more" in told[-1] else 0.1)
        return multiply(self, *arrays)

    monkeypatch.setattr(NumpyArrays, "multiply", slow_at_first)
    model = replace(TINY, layers=(Flatten(), Dense(1024), Dense(10)))
    found = run("reference", devices="cpu", model=model, progress=told.append)
    (result,) = found.results
    assert told[-1] == "reference cpu: matrix multiplication and copy once more"
    slow_gflops = 2 * 256**3 / 0.1 / 1e9
    assert result.peak.gflops > found.gflops(result) > slow_gflops
    assert found.complete


def test_without_memory_for_the_peak_only_the_peak_is_missing(run, tmp_path):
    saved_epochs = []
    path = tmp_path / "r.json"

    def look(what):
        if "matrix multiplication and copy" in what:
            saved_epochs.append(len(json.loads(path.read_bytes())["results"][0]["epochs"]))

    found = run("well,reference", devices="cpu", rounds=2, json=path, progress=look)
    without, other = found.results
    assert found.complete
    assert saved_epochs[0] == 2  # the round was saved before
    assert len(saved_epochs) == 2  # the peak of each row is measured once
    assert without.peak_problem == "MemoryError: 768 MiB wanted"
    assert len(without.epochs) == 4
    assert found.ratio(other)
    (note,) = [line for line in notes(table(found), "well cpu") if "matrix" in line]
    assert note.startswith("the speed of its matrix multiplication and copy was not measured: Mem")


@pytest.mark.long
def test_frameworks_are_installed_before_the_parity_checks(run, tmp_path, monkeypatch):
    noted = tmp_path / "notes"
    monkeypatch.setenv("CROSSBENCH_TEST_NOTES", str(noted))
    found = run("installed", devices="cpu", threads=[1, 2], rounds=1)
    assert all(r.status == "ran" for r in found.results)
    lines = noted.read_text().split()
    assert lines[:2] == ["install", "install"]
    assert set(lines[2:]) == {"build"}


@pytest.mark.long
def test_required_environment_variables_override_the_users(run, monkeypatch):
    for name in ("LIKES", "NEEDS"):
        monkeypatch.setenv(f"CROSSBENCH_TEST_{name}", "user")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    (first, second) = run("particular", devices="gpu,gpu:1", rounds=1).results
    assert first.details == {
        "CROSSBENCH_TEST_LIKES": "user",
        "CROSSBENCH_TEST_NEEDS": "adapter on gpu",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-2222",
        "NVIDIA_TF32_OVERRIDE": "0",
    }
    assert second.details["CUDA_VISIBLE_DEVICES"] == "GPU-1111"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,0"


def usage_of(busy=0.8, megahertz=1500.0, lowest=1450.0, throttled=()):
    return Usage(1, 9, 0.001, 1.5, 2**30, busy, 2**31, 200.0, megahertz, lowest, list(throttled))


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        ([usage_of()], []),
        ([usage_of(None, None, None)], []),
        ([usage_of(0.2), usage_of(0.3), usage_of(0.9)], ["the GPU was busy for 30% of the"]),
        ([usage_of(lowest=1000.0)], ["clock fell to 1,000 MHz, from 1,500 in its fastest round"]),
        ([usage_of(throttled=["power cap"])], ["lowered its clock, to 1,500 MHz (power cap)"]),
        ([usage_of(lowest=900.0, throttled=["power cap"])], ["in its fastest round (power cap)"]),
        ([usage_of(None, None, None, ["brake"])], ["the GPU lowered its clock (brake)"]),
    ],
)
def test_a_gpu_that_waits_or_throttles_has_a_remark(usage, words):
    gpu = result("torch", [9, 1, 1], device="gpu")
    gpu.usage = usage
    for line, text in zip(remarks(comparison(gpu), gpu), words, strict=True):
        assert text in line


def test_the_activity_of_other_processes_is_relative_to_all_repetitions():
    """0.3 CPU seconds of other processes are too many in 0.5 s of work, but not in 5 s."""
    noisy = replace(QUIET, other_processes_cpu_seconds=0.3)
    gpu = result("torch", [9, 0.5], device="gpu", threads=1)
    gpu.epochs = [epoch(1, 0.5, noisy)]
    assert any("other processes" in line for line in remarks(comparison(gpu), gpu))
    gpu.epochs = [replace(epoch(1, 0.5, noisy), repeats=10)]
    assert remarks(comparison(gpu), gpu) == []


@pytest.mark.parametrize(
    ("names", "problem", "devices", "words"),
    [
        ([], None, ["cpu"], "no GPU"),
        ([], "NVML cannot list the GPUs", ["gpu"], "; NVML cannot list the GPUs; "),
        (["A"], None, ["gpu"], "; A; "),
        (["A", "B"], None, ["cpu"], "; A, B; "),
        (["A", "B", "C"], None, ["gpu", "gpu:2"], "; gpu:0 A, gpu:2 C of 3 GPUs; "),
    ],
)
def test_the_heading_names_the_measured_gpus(names, problem, devices, words):
    found = comparison(*(result("torch", [9, 1], device=device) for device in devices))
    found.machine = replace(found.machine, gpus=names, gpu_problem=problem)
    assert words in table(found).splitlines()[2]
