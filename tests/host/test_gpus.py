"""Check which GPUs are found, with a stand-in for NVML."""

import ctypes
import os

import nvml
import pynvml
import pytest
from nvml import Card

from crossbench.commands import doctor
from crossbench.host.gpus import Gpus, find_gpus

A, B = Card("GPU-aaaa1111-22", "NVIDIA A100"), Card("GPU-aabb3333-44", "NVIDIA T4")


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    """Show all GPUs, and to the doctor no framework beside them."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("crossbench.adapters.names", lambda: ["reference"])


def no_library(name):
    raise OSError(name)


def names(gpus):
    return [gpu.name for gpu in gpus.known]


def test_all_cards_are_visible(monkeypatch):
    nvml.install(monkeypatch, A, B)
    gpus = find_gpus()
    assert names(gpus) == ["NVIDIA A100", "NVIDIA T4"]
    assert (gpus.handle(0), gpus.handle(1), gpus.handle(2)) == (A, B, None)
    assert gpus.unavailable_reason(1) is None
    assert gpus.unavailable_reason(2) == "there is no gpu:2: the last visible one is gpu:1"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["NVIDIA T4"]),
        (" 1 , 0 ", ["NVIDIA T4", "NVIDIA A100"]),
        ("GPU-aabb3333-44", ["NVIDIA T4"]),
        ("GPU-aab", ["NVIDIA T4"]),  # abbreviated
        ("0,7,1", ["NVIDIA A100"]),  # CUDA stops at the first that is wrong
        ("0,-1,1", ["NVIDIA A100"]),
        ("", []),
        ("7", []),
        ("GPU-aa", []),  # ambiguous
        ("none", []),
    ],
)
def test_hidden_gpus_are_not_found(monkeypatch, visible, expected):
    nvml.install(monkeypatch, A, B)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = find_gpus()
    assert names(gpus) == expected
    if not expected:
        reason = gpus.unavailable_reason(0)
        assert reason.startswith(f"CUDA_VISIBLE_DEVICES={visible!r} shows no GPU")


def test_an_index_counts_visible_gpus_and_a_worker_finds_the_same_one(monkeypatch):
    """The worker finds only its own GPU, through the environment that the parent sets."""
    nvml.install(monkeypatch, A, B)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    wanted = {"CUDA_VISIBLE_DEVICES": B.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert find_gpus().environment(0) == wanted | {"NVIDIA_TF32_OVERRIDE": "0"}
    for name, value in find_gpus().environment(1).items():
        monkeypatch.setenv(name, value)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == A.uuid
    assert (find_gpus().handle(0), find_gpus().handle(1)) == (A, None)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["MIG 1g", "MIG 2g", "NVIDIA T4"]),
        ("0", ["MIG 1g"]),  # CUDA shows the first instance
        ("1", ["NVIDIA T4"]),
        ("MIG-22", ["MIG 2g"]),
        ("MIG-", []),
        ("GPU-aaaa1111-22", []),  # the card as a whole is not available
    ],
)
def test_under_mig_only_instances_are_found(monkeypatch, visible, expected):
    instances = [None, Card("MIG-1111", "MIG 1g"), Card("MIG-2222", "MIG 2g")]
    nvml.install(monkeypatch, Card(A.uuid, A.name, instances), B)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert names(find_gpus()) == expected


def test_a_card_in_mig_mode_without_instances_is_not_found(monkeypatch):
    nvml.install(monkeypatch, Card(A.uuid, A.name, []))
    assert names(find_gpus()) == ["NVIDIA A100"]  # outside of this mode
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda card: [1, 1])
    assert find_gpus().known == []


def test_without_a_driver_no_gpu_is_found(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    nvml.install(monkeypatch, init=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    assert find_gpus() == Gpus([])
    why = "this machine has no NVIDIA GPU, or no driver for it"
    assert find_gpus().unavailable_reason(0) == why


def test_without_nvml_the_first_gpu_is_still_available(monkeypatch):
    """As in a container without the utility capability."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)  # the driver is there
    error = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    nvml.install(monkeypatch, init=error)
    gpus = find_gpus()
    assert (gpus.known, gpus.unavailable_reason(0), gpus.handle(0)) == ([], None, None)
    assert gpus.environment(0)["CUDA_VISIBLE_DEVICES"] == "0"
    assert f"NVML cannot list the GPUs ({pynvml.NVMLError(error)}): " in gpus.problem
    assert "\n" not in gpus.problem
    assert gpus.problem in doctor.report()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-ab")
    assert find_gpus().environment(1)["CUDA_VISIBLE_DEVICES"] == "GPU-ab"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "shows no GPU" in find_gpus().unavailable_reason(0)


LOST = pynvml.NVML_ERROR_GPU_IS_LOST


@pytest.mark.parametrize(("cards", "count"), [([], LOST), ([Card("GPU-1", fails=LOST)], None)])
def test_an_nvml_error_after_nvml_init_gets_one_line(monkeypatch, cards, count):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)  # the driver is there
    nvml.install(monkeypatch, *cards, count=count)
    assert "(GPU is lost)" in find_gpus().problem
