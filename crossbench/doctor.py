"""Reports in one screen what is installed, which devices are available and where the data is."""

from __future__ import annotations

from tabulate import tabulate

from . import __version__, adapters, data, machine
from .data.download import DataUnavailable, OfficialFiles
from .errors import SpecError
from .gpus import find_gpus
from .implementation import IDIOMATIC, full_name
from .results.records import Machine
from .workload import DEVICES, DISTRIBUTION, versions


def report() -> str:
    """Return the report as text: this machine, the data, and a table of the frameworks."""
    here = machine.describe()
    rows = [
        ("crossbench", f"{__version__}, Python {here.python}, {here.system}"),
        ("CPU", f"{here.cpu}, {here.cpus} usable, {here.memory_bytes / 2**30:.0f} GiB"),
        ("GPU", _gpus(here)),
        ("allocator", _allocator(here)),
        *((official.title, _data(official)) for official in data.OFFICIAL_FILES),
        *_other_project(),
    ]
    no_gpu = find_gpus().unavailable_reason(0)
    frameworks = [
        _framework(name, variant, no_gpu is None)
        for name in adapters.names()
        for variant in _own_adapters(name)
    ]
    variants = [row for name in adapters.loadable() for row in _variants(name)]
    return "\n".join(
        [
            tabulate(rows, tablefmt="plain"),
            "",
            tabulate(frameworks, headers=["framework", *DEVICES, "installed"], maxcolwidths=50),
            "",
            tabulate(variants, headers=["variant", "devices", "what it does"], maxcolwidths=70),
        ]
    )


def _other_project() -> list[tuple[str, str]]:
    """Return a warning if PyPI's `crossbench`, another project, is installed as well; else none."""
    return [
        (
            "warning",
            f"crossbench {version} from PyPI, a benchmark runner for browsers, is installed as "
            f"well and has a package of the same name: pip uninstall crossbench, then reinstall "
            f"{DISTRIBUTION}",
        )
        for version in versions("crossbench").values()
    ]


def _allocator(here: Machine) -> str:
    """Return what the environment sets of how memory is allocated."""
    settings = [f"{name}={value}" for name, value in here.allocator_settings.items()]
    return ", ".join(settings) or "the C library's own, nothing set in the environment"


def _gpus(here: Machine) -> str:
    names = here.gpus if len(here.gpus) == 1 else (f"gpu:{i} {n}" for i, n in enumerate(here.gpus))
    return ", ".join(names) or here.gpu_problem or "none"


def _own_adapters(name: str) -> list[str]:
    """Return the variants of a framework that have an adapter of their own: the idiomatic one, and
    those that need other packages.
    """
    try:
        others = [v for v in adapters.variants(name) if adapters.get(name, v) != adapters.get(name)]
    except SpecError:
        others = []
    return [IDIOMATIC, *others]


def _framework(name: str, variant: str, gpu: bool) -> list[str]:
    """Return a variant's row: on which devices it is ready, or why not, and its versions."""
    try:
        adapter = adapters.get(name, variant)
    except SpecError as error:
        return [name, str(error), "", ""]
    ready = [adapter.available("cpu"), adapter.available("gpu") if gpu else "no GPU"]
    installed = "\n".join(f"{what} {version}" for what, version in adapter.installed().items())
    return [full_name(name, variant), *(reason or "ready" for reason in ready), installed]


def _variants(name: str) -> list[list[str]]:
    """Return a row for each variant of a framework, if it has several: its full name, its devices
    and its summary.
    """
    try:
        found = adapters.variants(name)
    except SpecError as error:
        return [[name, "", str(error)]]
    if len(found) == 1:
        return []
    return [
        [full_name(name, variant), ", ".join(known.devices), known.summary]
        for variant, known in found.items()
    ]


def _data(official: OfficialFiles) -> str:
    try:
        directory = official.directory()
    except DataUnavailable as reason:
        return f"not available: {reason}"
    if official.is_cached():
        return f"in {directory}"
    return (
        f"not downloaded yet; --data auto downloads {official.megabytes:g} MB once, to {directory}"
    )
