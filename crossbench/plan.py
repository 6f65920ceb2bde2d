"""Turns a spec into cells, each available or with a reason.

A cell is a framework's variant on a device, with a number of threads, a precision,
a task and a batch size.
"""

from __future__ import annotations

import platform
from dataclasses import replace

from . import adapters
from .host.gpus import Gpus, find_gpus
from .inputs.errors import SpecError
from .inputs.names import DEVICES, FLOAT32, MALLOC, TF32, full_name
from .inputs.printable import printable
from .results.cells import Cell, device_type
from .spec import Spec


def make_plan(spec: Spec) -> list[Cell]:
    """Return the cells in the order of the table.

    If the spec names no frameworks, those that are not installed are left out; if it names no
    devices, the GPU is left out where there is none. A variant that a device does not have is left
    out, unless both are named. Raises SpecError where no cell is left.
    """
    gpus = find_gpus()
    implementations = adapters.expand(spec.frameworks or _installed(), spec.variants)
    devices = spec.devices or (DEVICES if gpus.known else ("cpu",))
    first = [
        Cell(
            name="",
            framework=framework,
            variant=variant,
            title=adapters.get(framework, variant).title,
            device=device,
            threads=threads,
            compute=compute,
            task=spec.tasks[0],
            batch_size=spec.batch_sizes[0],
            named=bool(spec.devices or (spec.frameworks and device == "cpu")),
        )
        for framework, variant in implementations
        for device in _devices(spec, framework, variant, devices)
        for threads in (spec.threads if device == "cpu" else (max(spec.threads),))
        for compute in spec.computes
    ]
    if not first:
        raise SpecError(_nothing_to_run(spec))
    checked = [replace(cell, unavailable=_unavailable_reason(cell, gpus)) for cell in first]
    cells = [
        replace(cell, task=task, batch_size=size)
        for task in spec.tasks
        for size in spec.batch_sizes
        for cell in checked
    ]
    return [replace(cell, name=_name(cell, spec)) for cell in cells]


def _devices(spec: Spec, framework: str, variant: str, devices: tuple[str, ...]) -> tuple[str, ...]:
    """Return the devices on which the variant is to run."""
    supported = adapters.variants(framework)[variant].devices
    usable = tuple(device for device in devices if device_type(device) in supported)
    if f"{framework}:{variant}" not in (spec.frameworks or ()):
        return usable
    return devices if spec.devices else usable or supported


def _name(cell: Cell, spec: Spec) -> str:
    """Return a cell's name, with what else the cells of its framework and device differ by."""
    parts = [f"{cell.implementation} {cell.device}"]
    if cell.device == "cpu" and len(spec.threads) > 1:
        parts.append("1 thread" if cell.threads == 1 else f"{cell.threads} threads")
    if len(spec.computes) > 1:
        parts.append(cell.compute)
    if len(spec.tasks) > 1:
        parts.append(cell.task)
    if len(spec.batch_sizes) > 1:
        parts.append(f"batches of {cell.batch_size}")
    return ", ".join(parts)


def _nothing_to_run(spec: Spec) -> str:
    """Return why the plan has no cell, and what to do about it, in a line."""
    if frameworks := spec.frameworks or _installed():
        names = ", ".join(full_name(*pair) for pair in adapters.expand(frameworks, spec.variants))
        where = ", ".join(spec.devices or DEVICES)
        return f"none of {names} runs on {where}: `python -m crossbench doctor` lists the variants"
    reasons = [reason for name in _framework_names() if (reason := _not_installed_reason(name))]
    return f"no framework is installed: {'; '.join(reasons)}"


def _installed() -> list[str]:
    return [name for name in _framework_names() if _not_installed_reason(name) is None]


def _framework_names() -> list[str]:
    return [name for name in adapters.names() if name != adapters.REFERENCE]


def _not_installed_reason(name: str) -> str | None:
    try:
        adapter = adapters.get(name)
        return adapter.available("cpu") or adapter.left_out()
    except SpecError as error:  # a third party's adapter that cannot be imported
        return str(error)


def _unavailable_reason(cell: Cell, gpus: Gpus) -> str | None:
    known = adapters.variants(cell.framework)
    if cell.device_type not in known[cell.variant].devices:
        choice = [name for name, variant in known.items() if cell.device_type in variant.devices]
        return (
            f"{cell.framework} has no variant {cell.variant} on {cell.device}: choose from "
            f"{', '.join(choice)}"
        )
    if cell.variant == MALLOC and platform.libc_ver()[0] != "glibc":
        return f"{cell.framework}:{MALLOC} needs glibc: it sets what glibc does with freed memory"
    if cell.on_gpu and (
        reason := gpus.unavailable_reason(cell.gpu_index)
        or gpus.lacks(cell.compute, cell.gpu_index)
    ):
        return reason
    if cell.compute == TF32 and not cell.on_gpu:
        return "tf32 is a precision of NVIDIA's GPUs, and this row is on the CPU"
    return unavailable_reason(cell.framework, cell.variant, cell.device_type, cell.compute)


def unavailable_reason(
    framework: str, variant: str, device: str, compute: str = FLOAT32
) -> str | None:
    """Return why the adapter says that it cannot run on "cpu" or "gpu", or compute so there, in a
    line; else None.
    """
    asked = "available"
    try:
        adapter = adapters.get(framework, variant)
        reason = adapter.available(device)
        if reason is None and compute != FLOAT32:
            asked = "lacks"
            reason = adapter.lacks(compute, device)
    except Exception as error:  # a third party's adapter may raise anything
        reason = f"{asked}() of the adapter raised {type(error).__name__}: {error}"
    return None if reason is None else printable(str(reason))
