"""In one screen: what is installed, which devices there are, and where the data is."""

from __future__ import annotations

from tabulate import tabulate

from . import __version__, adapters, machine
from .data import cifar10
from .errors import SpecError
from .workload import DEVICES


def report() -> str:
    here = machine.describe()
    rows = [
        ("crossbench", f"{__version__}, Python {here.python}, {here.system}"),
        ("CPU", f"{here.cpu}, {here.cpus} usable, {here.memory_bytes / 2**30:.0f} GiB"),
        ("GPU", ", ".join(here.gpus) or "none that NVML knows of"),
        ("CIFAR-10", _data()),
    ]
    frameworks = [_framework(name, bool(here.gpus)) for name in adapters.names()]
    return "\n".join(
        [
            tabulate(rows, tablefmt="plain"),
            "",
            tabulate(frameworks, headers=["framework", *DEVICES, "installed"], maxcolwidths=50),
        ]
    )


def _framework(name: str, gpu: bool) -> list[str]:
    try:
        adapter = adapters.get(name)
    except SpecError as error:
        return [name, str(error), "", ""]
    ready = [adapter.available("cpu"), adapter.available("gpu") if gpu else "no GPU"]
    installed = "\n".join(f"{what} {version}" for what, version in adapter.installed().items())
    return [name, *(reason or "ready" for reason in ready), installed]


def _data() -> str:
    if cifar10.is_cached():
        return f"in {cifar10.cache()}"
    return f"not yet here; --data auto downloads 170 MB once, to {cifar10.cache()}"
