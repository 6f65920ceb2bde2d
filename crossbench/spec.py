"""Checks the arguments of a run once and holds them, frozen; imports no framework."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar, Unpack

from . import adapters, models
from .adapters import reference
from .arguments import ARGUMENTS, AUTO, Names, Numbers, Options, fill_in
from .data.sources import SOURCES
from .host.machine import cpu_count, usable_cpus
from .host.memory import check_memory
from .inputs import prices
from .inputs.checks import SIZE, shown
from .inputs.errors import SpecError
from .inputs.names import COMPUTES, DEVICES, IDIOMATIC, Compute, full_name
from .models import BatchNorm, Model
from .results.epochs import TASKS, TRAIN, Task
from .results.settings import Settings

Choice = TypeVar("Choice", bound=str)
DATA_CHOICES = "auto, synthetic, or a directory or file"
ALL = "all"
"""The word for all variants."""


AS_GIVEN = tuple(
    name for name in Settings.__annotations__ if name in ARGUMENTS and ARGUMENTS[name].rule
)
"""The settings that an argument's rule alone makes."""


@dataclass(frozen=True)
class Spec:
    """Holds the checked arguments of one comparison.

    frameworks: names such as "torch" or "torch:tuned"; None for all that are installed.
    variants: of the frameworks that are named without one. devices: None for all that there are.
    batches, examples: limits on an epoch; None for all of the data. machine: the name that the user
    gave it.
    """

    frameworks: tuple[str, ...] | None
    variants: tuple[str, ...]
    devices: tuple[str, ...] | None
    threads: tuple[int, ...]
    tasks: tuple[Task, ...]
    computes: tuple[Compute, ...]
    model: Model
    batch_sizes: tuple[int, ...]
    batches: int | None
    examples: int | None
    settings: Settings
    machine: str | None


def make_spec(frameworks: Names = None, devices: Names = None, **options: Unpack[Options]) -> Spec:
    """Check every argument and fill in the defaults; raise SpecError for the first wrong one."""
    asked = fill_in({"frameworks": frameworks, "devices": devices, **options})
    model = find_model(asked["model"])
    chosen = _check_frameworks(frameworks)
    variants = _check_variants(asked["variants"], chosen)
    named = _check_devices(devices)
    sizes = _check_batch_sizes(asked["batch_size"], model)
    check_memory(model, max(sizes) if named is None or "cpu" in named else 1)
    tasks = _check_choices("task", asked["task"], TASKS)
    if TRAIN in tasks:
        _check_normalized(model, sizes)
    _check_targets(model, tasks, asked)
    for name, what in (("layers", "are parts of"), ("trace_memory", "is about")):
        if asked[name] and TRAIN not in tasks:
            raise SpecError(f"{name} {what} a training step: add {TRAIN} to task")
    _check_auto_rounds(asked)
    return Spec(
        frameworks=chosen,
        variants=variants,
        devices=named,
        threads=_check_threads(asked["threads"]),
        tasks=tasks,
        computes=_check_choices("compute", asked["compute"], COMPUTES),
        model=model,
        batch_sizes=sizes,
        **_check_limits(model, sizes, asked["batches"], asked["examples"]),
        settings=Settings(
            model=asked["model"] if isinstance(asked["model"], str) else model.name,
            data=_check_data(asked["data"]),
            baseline=_check_baseline(asked["baseline"], chosen, variants),
            prices=prices.parse(asked["price"]),
            **{name: asked[name] for name in AS_GIVEN},
        ),
        machine=asked["machine"],
    )


def find_model(model: Any) -> Model:
    """Return the Model of a name, of "FILE.py:NAME" or of a Model; SpecError if it is unusable."""
    found = models.get(model) if isinstance(model, str) else model
    if type(found) is not Model:
        raise SpecError(
            "model must be a name that `python -m crossbench models` lists, FILE.py:NAME, or a "
            f"Model, not {shown(model)}"
        )
    part = reference.unsupported_part(found)
    if type(found.data) not in SOURCES:
        part = type(found.data).__name__
    if part:
        raise SpecError(
            f"the model has an unsupported layer, loss, optimizer or data source: {part}"
        )
    return found


def _check_data(data: Any) -> str:
    """Return "auto" or "synthetic", or the absolute path of an existing directory or file."""
    if not isinstance(data, str | Path) or not str(data):
        raise SpecError(f"data must be {DATA_CHOICES}, not {shown(data)}")
    if str(data) in (AUTO, "synthetic"):
        return str(data)
    try:
        path = str(Path(data).resolve(strict=True))
        path.encode()  # raises if the results file, in UTF-8, could not hold the path
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        reason = getattr(error, "strerror", None) or error
        raise SpecError(f"data must be {DATA_CHOICES}, not {shown(str(data))}: {reason}") from None
    return path


def _check_targets(model: Model, tasks: tuple[Task, ...], asked: dict[str, Any]) -> None:
    """Raise SpecError unless there is no target, or one that training can reach."""
    accuracy, loss = asked["target_accuracy"], asked["target_loss"]
    if accuracy is not None and not model.has_accuracy:
        what = "numbers" if model.classes is None else "a class at each place of a sequence"
        raise SpecError(
            f"target_accuracy does not apply to the model {model.name}: it predicts {what}; "
            "target_loss does"
        )
    if accuracy is not None and loss is not None:
        raise SpecError("target_accuracy and target_loss are two targets: give one")
    for name in ("target_accuracy", "target_loss"):
        if asked[name] is not None and TRAIN not in tasks:
            raise SpecError(f"{name} is reached by training: add {TRAIN} to task")


def _check_auto_rounds(asked: dict[str, Any]) -> None:
    """Raise SpecError where an argument of rounds auto stands beside a number of rounds."""
    if asked["rounds"] is None:
        return
    if asked["precision"] is not None:
        raise SpecError("precision is for rounds auto: leave one of precision and rounds out")
    has_target = asked["target_accuracy"] is not None or asked["target_loss"] is not None
    if asked["max_seconds"] is not None and not has_target:
        raise SpecError(
            "max_seconds limits rounds auto, and a training to a target: leave one of max_seconds "
            "and rounds out"
        )


def _check_threads(threads: Numbers) -> tuple[int, ...]:
    """Return the numbers of threads without repetitions; for None, that of CPUs without a quota."""
    cpus = len(usable_cpus())
    if threads is None:
        return (cpu_count(),)
    wanted = _check_sizes("threads", threads, "number of threads")
    if max(wanted) > cpus:
        raise SpecError(f"threads is {max(wanted)}, but this process may use only {cpus} CPUs")
    return wanted


def _check_sizes(argument: str, values: int | Iterable[int], one: str) -> tuple[int, ...]:
    """Return whole numbers from 1 without repetitions; SpecError where there is none.

    one: what one of them is, for the message.
    """
    wanted = dict.fromkeys(SIZE.check(argument, value) for value in _as_list(values))
    if not wanted:
        raise SpecError(f"name at least one {one}")
    return tuple(wanted)


def _check_batch_sizes(batch_size: Numbers, model: Model) -> tuple[int, ...]:
    """Return the batch sizes, for None the model's; SpecError where one is named twice."""
    if batch_size is None:
        return (model.batch_size,)
    named = _as_list(batch_size)
    sizes = _check_sizes("batch_size", named, "batch size")
    if len(sizes) < len(named):
        twice = next(size for size in sizes if list(map(int, named)).count(size) > 1)
        raise SpecError(f"batch_size has {twice} more than once: name each batch size once")
    return sizes


def _check_normalized(model: Model, sizes: tuple[int, ...]) -> None:
    """Raise SpecError where a batch normalization would see a single value of a feature."""
    for named in model.all_layers():
        if isinstance(named.layer, BatchNorm) and min(sizes) * prod(named.input_shape[1:]) == 1:
            raise SpecError(
                f"batch_size is 1, but {named.name} of {model.name} divides by the variance of a "
                "feature over the batch: train with batches of 2 or more"
            )


def _check_limits(
    model: Model, sizes: tuple[int, ...], batches: int | None, examples: int | None
) -> dict[str, int | None]:
    """Return the limits on an epoch: the model's own where none is given."""
    if examples is None:
        given = model.batches if batches is None else SIZE.check("batches", batches)
        return {"batches": given, "examples": None}
    if batches is not None:
        raise SpecError(
            "batches gives every batch size as many steps, examples as many examples: name one"
        )
    if SIZE.check("examples", examples) < max(sizes):
        raise SpecError(f"examples is {examples}, but batch_size is {max(sizes)}")
    return {"batches": None, "examples": examples}


def _check_choices(argument: str, wanted: Any, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Return the wanted words of the known ones without repetitions, in the order of these."""
    names = _split_names(argument, wanted, known[0])
    for name in names:
        if name not in known:
            raise SpecError(f"there is no {argument} {shown(name)}: choose from {', '.join(known)}")
    if not names:
        raise SpecError(f"name at least one {argument} of {', '.join(known)}")
    return tuple(word for word in known if word in names)


def _check_devices(devices: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the devices without repetitions: "gpu" and "gpu:0" are the same one."""
    if devices is None:
        return None
    names = _split_names("devices", devices, "cpu")
    for name in names:
        if name not in DEVICES and not re.fullmatch(r"gpu:\d+", name):
            raise SpecError(
                f"there is no device {shown(name)}: choose from cpu, gpu, gpu:1 and so on"
            )
    if not names:
        raise SpecError("name at least one device: cpu, gpu, gpu:1 and so on")
    return tuple({re.sub("^gpu$", "gpu:0", name): name for name in names}.values())


def _check_frameworks(chosen: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the chosen names without repetitions; SpecError for one that is not known.

    "torch:idiomatic" means the same as "torch", but --variants does not apply to it.
    """
    if chosen is None:
        return None
    names = tuple(dict.fromkeys(_split_names("frameworks", chosen, adapters.REFERENCE)))
    for name in names:
        adapters.split(name)
    if not names:
        raise SpecError(f"name at least one framework of {', '.join(adapters.names())}")
    return names


def _check_variants(
    wanted: Iterable[str] | None, frameworks: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the wanted variants without repetitions; SpecError for one that no framework has."""
    if wanted is None:
        return (IDIOMATIC,)
    names = dict.fromkeys(_split_names("variants", wanted, IDIOMATIC))
    chosen = [adapters.split(name)[0] for name in frameworks or adapters.loadable()]
    known = list(dict.fromkeys(v for framework in chosen for v in adapters.variants(framework)))
    if ALL in names:
        return tuple(known)
    for name in names:
        if name not in known:
            raise SpecError(
                f"there is no variant {shown(name)}: choose from {', '.join([ALL, *known])}"
            )
    if not names:
        raise SpecError(f"name at least one variant of {', '.join([ALL, *known])}")
    return tuple(names)


def _check_baseline(
    baseline: Any, frameworks: tuple[str, ...] | None, variants: tuple[str, ...]
) -> str | None:
    """Return the full name of the framework to compare with; SpecError for one that is not run."""
    if baseline is None:
        return None
    if not isinstance(baseline, str):
        raise SpecError(f"baseline must be the name of a framework, not {shown(baseline)}")
    framework, variant = adapters.split(baseline.strip())
    name = full_name(framework, variant or IDIOMATIC)
    runs = adapters.expand(frameworks or adapters.names(), variants)
    known = [full_name(*pair) for pair in runs]
    if name not in known:
        raise SpecError(f"the baseline {shown(name)} is not run: choose from {', '.join(known)}")
    return name


def _split_names(argument: str, names: Any, example: str) -> list[str]:
    """Return the names in a string such as "cpu,gpu" or in a list.

    argument: its name, and example: a valid name; both for the message.
    """
    found = names.split(",") if isinstance(names, str) else _as_list(names)
    if not all(isinstance(name, str) for name in found):
        raise SpecError(f"{argument} must be names such as {example!r}, not {shown(names)}")
    return [name.strip() for name in found]


def _as_list(values: Any) -> list[Any]:
    """Return an iterable as a list; a string, or a value that is not iterable, in a list alone."""
    try:
        return [values] if isinstance(values, str) else list(values)
    except TypeError:
        return [values]
