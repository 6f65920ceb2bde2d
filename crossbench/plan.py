"""From a spec to the cells: framework x device x threads, each available or with its reason."""

from __future__ import annotations

from . import adapters
from .errors import SpecError
from .machine import gpu_names
from .results.records import Cell
from .spec import Spec
from .workload import DEVICES


def make_plan(spec: Spec) -> list[Cell]:
    """The cells in the order of the table. What was not named and is not installed is left out."""
    gpus = gpu_names()
    frameworks = spec.frameworks or _installed()
    devices = spec.devices or (DEVICES if gpus else ("cpu",))
    return [
        Cell(
            name=_name(framework, device, threads, spec),
            framework=framework,
            title=adapters.get(framework).title,
            device=device,
            threads=threads,
            named=bool(spec.devices or (spec.frameworks and device == "cpu")),
            unavailable=_unavailable(framework, device, gpus),
        )
        for framework in frameworks
        for device in devices
        for threads in (spec.threads if device == "cpu" else (max(spec.threads),))
    ]


def _name(framework: str, device: str, threads: int, spec: Spec) -> str:
    """With the threads where they tell cells apart."""
    name = f"{framework} {device}"
    if device == "gpu" or len(spec.threads) == 1:
        return name
    return f"{name}, 1 thread" if threads == 1 else f"{name}, {threads} threads"


def _installed() -> list[str]:
    return [name for name in adapters.names() if name != adapters.REFERENCE and _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return adapters.get(name).available("cpu") is None
    except SpecError:  # a third party's that is broken: the doctor tells
        return False


def _unavailable(framework: str, device: str, gpus: list[str]) -> str | None:
    if device == "gpu" and not gpus:
        return "this machine has no GPU that NVML knows of"
    return adapters.get(framework).available(device)
