"""In one screen: what is installed, which devices there are, and where the data is."""

from __future__ import annotations

from tabulate import tabulate

from . import __version__, adapters, data, machine
from .data.download import Official, Unreachable
from .errors import SpecError
from .gpus import find_gpus
from .results.records import Machine
from .workload import DEVICES, DISTRIBUTION, versions


def report() -> str:
    here = machine.describe()
    rows = [
        ("crossbench", f"{__version__}, Python {here.python}, {here.system}"),
        ("CPU", f"{here.cpu}, {here.cpus} usable, {here.memory_bytes / 2**30:.0f} GiB"),
        ("GPU", _gpus(here)),
        *((official.title, _data(official)) for official in data.OFFICIAL),
        *_other_project(),
    ]
    no_gpu = find_gpus().why_not(0)
    frameworks = [_framework(name, no_gpu is None) for name in adapters.names()]
    return "\n".join(
        [
            tabulate(rows, tablefmt="plain"),
            "",
            tabulate(frameworks, headers=["framework", *DEVICES, "installed"], maxcolwidths=50),
        ]
    )


def _other_project() -> list[tuple[str, str]]:
    """Return a row about the project that is called crossbench on PyPI, where it is installed."""
    return [
        (
            "warning",
            f"the distribution crossbench {version}, a benchmark runner for browsers, is installed "
            f"too, with a package of the same name: pip uninstall crossbench, then install "
            f"{DISTRIBUTION} anew",
        )
        for version in versions("crossbench").values()
    ]


def _gpus(here: Machine) -> str:
    names = here.gpus if len(here.gpus) == 1 else (f"gpu:{i} {n}" for i, n in enumerate(here.gpus))
    return ", ".join(names) or here.gpu_problem or "none"


def _framework(name: str, gpu: bool) -> list[str]:
    try:
        adapter = adapters.get(name)
    except SpecError as error:
        return [name, str(error), "", ""]
    ready = [adapter.available("cpu"), adapter.available("gpu") if gpu else "no GPU"]
    installed = "\n".join(f"{what} {version}" for what, version in adapter.installed().items())
    return [name, *(reason or "ready" for reason in ready), installed]


def _data(official: Official) -> str:
    try:
        place = official.directory()
    except Unreachable as reason:
        return f"not available: {reason}"
    if official.is_cached():
        return f"in {place}"
    return f"not yet here; --data auto downloads {official.megabytes:g} MB once, to {place}"
