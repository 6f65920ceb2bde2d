"""From a spec to the cells: framework x device x threads, each available or with its reason."""

from __future__ import annotations

from dataclasses import replace

from . import adapters
from .errors import SpecError
from .gpus import Gpus, find_gpus
from .results.records import Cell
from .spec import Spec
from .words import clean
from .workload import DEVICES


def make_plan(spec: Spec) -> list[Cell]:
    """The cells in the order of the table. What was not named and is not installed is left out."""
    gpus = find_gpus()
    frameworks = spec.frameworks or _installed()
    devices = spec.devices or (DEVICES if gpus.known else ("cpu",))
    cells = [
        Cell(
            name=_name(framework, device, threads, spec),
            framework=framework,
            title=adapters.get(framework).title,
            device=device,
            threads=threads,
            named=bool(spec.devices or (spec.frameworks and device == "cpu")),
        )
        for framework in frameworks
        for device in devices
        for threads in (spec.threads if device == "cpu" else (max(spec.threads),))
    ]
    return [replace(cell, unavailable=_unavailable(cell, gpus)) for cell in cells]


def _name(framework: str, device: str, threads: int, spec: Spec) -> str:
    """With the threads where they tell cells apart."""
    name = f"{framework} {device}"
    if device != "cpu" or len(spec.threads) == 1:
        return name
    return f"{name}, 1 thread" if threads == 1 else f"{name}, {threads} threads"


def reasons() -> list[str]:
    """Return why each framework that is not installed cannot run, and what to do."""
    return [reason for name in _frameworks() if (reason := _why_not(name))]


def _installed() -> list[str]:
    return [name for name in _frameworks() if _why_not(name) is None]


def _frameworks() -> list[str]:
    return [name for name in adapters.names() if name != adapters.REFERENCE]


def _why_not(name: str) -> str | None:
    try:
        return adapters.get(name).available("cpu")
    except SpecError as error:  # a third party's that is broken
        return str(error)


def _unavailable(cell: Cell, gpus: Gpus) -> str | None:
    if cell.on_gpu and (reason := gpus.why_not(cell.gpu_index)):
        return reason
    try:
        reason = adapters.get(cell.framework).available(cell.device_type)
    except Exception as error:  # a third party's
        reason = f"available() of the adapter raised {type(error).__name__}: {error}"
    return None if reason is None else clean(str(reason))
