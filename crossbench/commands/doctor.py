"""Implements `doctor`: what is installed, which devices are available and where the data is.

Its check proves small models in each framework.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tabulate import tabulate

from .. import adapters, data
from ..arguments import ARGUMENTS
from ..data.download import DataUnavailable, OfficialFiles
from ..engine.checkup import Verdict, check_cells, missing_packages
from ..engine.environment import user_settings
from ..engine.process import TIMED_OUT, WorkerFailure
from ..host import machine, signals
from ..host.gpus import driver_versions, find_gpus
from ..host.run_directory import run_directory
from ..inputs.anonymous import anonymous
from ..inputs.errors import SpecError
from ..inputs.names import DEVICES, IDIOMATIC, full_name
from ..inputs.printable import printable
from ..plan import make_plan, unavailable_reason
from ..results.machine import Machine
from ..spec import ALL, make_spec
from ..terminal.output import write_stdout
from ..terminal.progress import Display
from ..version import __version__
from ..workload import DISTRIBUTION, versions
from .parsing import Parser, add_argument

TIMEOUT = 300.0
"""Seconds that a worker process may take for one answer: on a GPU a first one takes minutes."""
ADVICE = {
    "does not agree": "; do not compare its times, and attach the output of `doctor --check "
    "--format json` to an issue",
    "failed": "; `doctor --check --format json` has the whole error, to attach to an issue",
    "cannot run": "",
}
"""What to do beside what the reason says, by a verdict's status."""


def main(arguments: list[str]) -> int:
    """Print which frameworks, devices and data are ready to use; with --check prove small models,
    and return 1 where one does not agree.
    """
    options = _parser().parse_args(arguments)
    chosen = (options.frameworks, options.devices, options.timeout)
    if not options.check:
        if any(argument is not None for argument in chosen):
            raise SpecError("--frameworks, --devices and --timeout are for a check: add --check")
        write_stdout(as_json() if options.format == "json" else report())
        return 0
    with signals.raise_on_signal(), Display() as display:
        verdicts = check(*chosen, progress=display.begin)
    wants_json = options.format == "json"
    write_stdout(as_json(verdicts) if wants_json else verdict_lines(verdicts))
    can_run = any(verdict.status in ("agrees", "does not support") for verdict in verdicts)
    return int(not can_run or any(verdict.is_wrong for verdict in verdicts))


def _parser() -> Parser:
    parser = Parser(
        "crossbench doctor",
        description="Show which frameworks, devices and data are ready to use.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--check",
        action="store_true",
        help="prove two small models in each framework and variant on each device, which takes a "
        "minute, and exit with status 1 if one does not agree",
    )
    for name in ("frameworks", "devices"):
        argument = ARGUMENTS[name]
        add_argument(parser, name, replace(argument, meaning=f"of the check: {argument.meaning}"))
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="limit for each answer of a worker process of the check (default: 300)",
    )
    add(
        "--format",
        choices=("text", "json"),
        default="text",
        metavar="text|json",
        help="json is for an issue: it has no paths and no names of users (default: text)",
    )
    return parser


def report() -> str:
    """Return the report as text: this machine, the data, and a table of the frameworks."""
    rows = [
        *_machine_rows(_machine()),
        *((official.title, _data(official)) for official in data.OFFICIAL_FILES),
        *_other_project(),
    ]
    frameworks = [
        [found["name"], *found["devices"].values(), "\n".join(_words(found["installed"]))]
        for found in _frameworks()
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


def check(
    frameworks: Iterable[str] | None,
    devices: Iterable[str] | None,
    timeout: float | None,
    progress: Callable[[str], None],
) -> list[Verdict]:
    """Prove small models in all variants of the frameworks on the devices.

    frameworks, devices: as those of crossbench.run. timeout: seconds for each answer of a worker
    process; None for TIMEOUT. progress: called with what begins or is done, in a few words.
    Raises SpecError for wrong arguments, or where there is nothing to prove.
    """
    timeout = TIMEOUT if timeout is None else timeout
    cells = make_plan(make_spec(frameworks, devices, variants=ALL, timeout=timeout))
    with run_directory() as directory:
        return check_cells(cells, directory, timeout, progress)


def verdict_lines(verdicts: list[Verdict]) -> str:
    """Return this machine in a few lines, and a line for each verdict."""
    here = _machine_rows(_machine()) + _other_project()
    lines = [(verdict.cell.name, _line(verdict)) for verdict in verdicts]
    return f"{tabulate(here, tablefmt='plain')}\n\n{tabulate(lines, tablefmt='plain')}"


def as_json(verdicts: list[Verdict] | None = None) -> str:
    """Return the report as JSON for an issue: no paths, and no name of the user or the host.

    verdicts: what the check found; None without a check.
    """
    here = _machine()
    content: dict[str, Any] = {
        "crossbench": __version__,
        "python": here.python,
        "system": here.system,
        "cpu": here.cpu,
        "cpus": here.cpus,
        "memory_bytes": here.memory_bytes,
        "libraries": here.libraries,
        "gpus": here.gpus,
        "gpu_problem": here.gpu_problem,
        "gpu_versions": driver_versions(),
        "environment": here.environment,
        "warnings": [text for _, text in _other_project()],
        "frameworks": _frameworks(),
    }
    if verdicts is not None:
        content["check"] = [_record(verdict) for verdict in verdicts]
    return json.dumps(anonymous(content), indent=1, ensure_ascii=False, allow_nan=False)


def _line(verdict: Verdict) -> str:
    """Return how a cell did, and what to do where it did not agree."""
    if verdict.status == "agrees":
        return f"agrees; {_deviation(verdict)}"
    if verdict.status == "does not support":
        proved = " and ".join(verdict.parities)
        agrees = f"; agrees in the model {proved}, {_deviation(verdict)}" if proved else ""
        return f"does not support {verdict.problem}{agrees}"
    late = verdict.failure is not None and str(verdict.failure).endswith(TIMED_OUT)
    advice = "; --timeout gives it more" if late else ADVICE[verdict.status]
    return f"{verdict.status}: {verdict.problem}{advice}"


def _deviation(verdict: Verdict) -> str:
    return (
        f"the largest deviation is {verdict.deviation('float64'):.0e} in float64, "
        f"{verdict.deviation('float32'):.0e} in float32"
    )


def _record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain values."""
    failure = verdict.failure
    return {
        "name": verdict.cell.name,
        "framework": verdict.cell.framework,
        "variant": verdict.cell.variant,
        "device": verdict.cell.device,
        "threads": verdict.cell.threads,
        "status": verdict.status,
        "problem": verdict.problem,
        "traceback": failure.traceback if failure else None,
        "unsupported": verdict.unsupported,
        "deviations": {model: asdict(proved) for model, proved in verdict.parities.items()},
    }


def _machine_rows(here: Machine) -> list[tuple[str, str]]:
    return [
        ("crossbench", f"{__version__}, Python {here.python}, {here.system}"),
        ("CPU", f"{here.cpu}, {here.cpus} usable, {here.memory_bytes / 2**30:.0f} GiB"),
        ("GPU", ", ".join([_gpus(here), *_words(driver_versions())])),
        ("environment", _environment(here)),
    ]


def _words(values: Mapping[str, str]) -> list[str]:
    return [f"{name} {value}" for name, value in values.items()]


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


def _machine() -> Machine:
    """Return this machine, with the user's settings of all frameworks."""
    named = [(name, variant) for name in adapters.loadable() for variant in adapters.variants(name)]
    return machine.describe(environment=user_settings(named))


def _environment(here: Machine) -> str:
    settings = [f"{name}={value}" for name, value in here.environment.items()]
    return ", ".join(settings) or "sets nothing that changes the speed"


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


def _frameworks() -> list[dict[str, Any]]:
    """Return each variant with an adapter of its own: its name, whether it is ready on each device,
    or why not, and what is installed.
    """
    no_gpu = find_gpus().unavailable_reason(0)
    with run_directory() as directory:
        return [
            _framework(name, variant, no_gpu is None, directory)
            for name in adapters.names()
            for variant in _own_adapters(name)
        ]


def _framework(name: str, variant: str, gpu: bool, directory: Path) -> dict[str, Any]:
    try:
        adapter = adapters.get(name, variant)
    except SpecError as error:
        return {"name": name, "devices": {"cpu": str(error), "gpu": ""}, "installed": {}}
    ready = {
        device: _ready(name, variant, device, directory) if gpu or device == "cpu" else "no GPU"
        for device in DEVICES
    }
    try:
        installed = adapter.installed()
    except Exception as error:  # a third party's adapter may raise anything
        installed = {"error": printable(f"{type(error).__name__}: {error}")}
    return {"name": full_name(name, variant), "devices": ready, "installed": installed}


def _ready(name: str, variant: str, device: str, directory: Path) -> str:
    """Return "ready", why the variant is not, or what its first run would install."""
    if reason := unavailable_reason(name, variant, device):
        return reason
    try:
        missing = missing_packages(name, variant, device, directory, TIMEOUT)
    except WorkerFailure as failure:
        return str(failure)
    return f"on the first run: {missing}" if missing else "ready"


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
