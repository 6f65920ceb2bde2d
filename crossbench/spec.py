"""Checks the arguments of a run once and holds them, frozen; imports no framework."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from .inputs.checks import SHAPE, SIZE, short_error, shown
from .inputs.errors import SpecError
from .inputs.names import COMPUTES, IDIOMATIC, Compute, full_name
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
    given = _check_input(asked["input"])
    model = find_model(asked["model"], given)
    if given not in (None, model.input_shape):
        raise SpecError(f"input is {given}, but the model {model.name} takes {model.input_shape}")
    chosen = _check_frameworks(frameworks)
    variants = _check_variants(asked["variants"], chosen)
    named = _check_devices(devices)
    sizes = _check_sizes("batch_size", asked["batch_size"], "batch size") or (model.batch_size,)
    check_memory(model, max(sizes) if named is None or "cpu" in named else 1)
    tasks = _check_choices("task", asked["task"], TASKS)
    _check_training(model, sizes, tasks, asked)
    _check_rounds(asked)
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


def find_model(model: Any, input_shape: tuple[int, ...] | None = None) -> Model:
    """Return the Model of a name, of "FILE.py:NAME", of a Model or of a framework's own model;
    SpecError if it is unusable.

    input_shape: of one example, for a framework's own model.
    """

    def described(found: Any) -> Any:
        if isinstance(found, Model):
            return found
        is_made = isinstance(found, type) or (callable(found) and not hasattr(found, "forward"))
        try:
            made = found() if is_made else found  # a class or a function that gives one
        except (Exception, SystemExit) as error:
            raise SpecError(f"{model} fails: {short_error(error)}") from error
        name = model if isinstance(model, str) else type(made).__name__
        return adapters.describe(made, input_shape, name) or found

    is_name = isinstance(model, str)
    own = None if is_name else adapters.describe(model, input_shape, type(model).__name__)
    found = models.get(model, described) if is_name else own or model
    if type(found) is not Model:
        raise SpecError(
            "model must be a name that `python -m crossbench models` lists, FILE.py:NAME, a Model "
            f"or a framework's own model, not {shown(model)}"
        )
    part = reference.unsupported_part(found)
    if type(found.data) not in SOURCES:
        part = type(found.data).__name__
    if part:
        raise SpecError(
            f"the model has an unsupported layer, loss, optimizer or data source: {part}"
        )
    return found


def _check_input(given: Numbers) -> tuple[int, ...] | None:
    """Return the shape of an example, None if it is not given; SpecError for a wrong one."""
    return None if given is None else SHAPE.check("input", _as_list(given))


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


def _check_training(
    model: Model, sizes: tuple[int, ...], tasks: tuple[Task, ...], asked: dict[str, Any]
) -> None:
    """Raise SpecError for what no training of the model can do, or what needs one if none runs."""
    accuracy, loss = asked["target_accuracy"], asked["target_loss"]
    if accuracy is not None and not model.has_accuracy:
        what = "numbers" if model.classes is None else "a class at each place of a sequence"
        raise SpecError(
            f"target_accuracy does not apply to the model {model.name}: it predicts {what}; "
            "target_loss does"
        )
    if accuracy is not None and loss is not None:
        raise SpecError("target_accuracy and target_loss are two targets: give one")
    if TRAIN in tasks:
        _check_normalized(model, sizes)
        return
    for name, what in (
        ("target_accuracy", "is reached by training"),
        ("target_loss", "is reached by training"),
        ("layers", "are parts of a training step"),
        ("trace_memory", "is about a training step"),
    ):
        if asked[name]:
            raise SpecError(f"{name} {what}: add {TRAIN} to task")


def _check_normalized(model: Model, sizes: tuple[int, ...]) -> None:
    """Raise SpecError where a batch normalization would see a single value of a feature."""
    for named in model.all_layers():
        if isinstance(named.layer, BatchNorm) and min(sizes) * prod(named.input_shape[1:]) == 1:
            raise SpecError(
                f"batch_size is 1, but {named.name} of {model.name} divides by the variance of a "
                "feature over the batch: train with batches of 2 or more"
            )


def _check_rounds(asked: dict[str, Any]) -> None:
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
    """Return the numbers of threads; for None, that of the CPUs, or of a container's quota."""
    cpus = len(usable_cpus())
    wanted = _check_sizes("threads", threads, "number of threads")
    if wanted and max(wanted) > cpus:
        raise SpecError(f"threads is {max(wanted)}, but this process may use only {cpus} CPUs")
    return wanted or (cpu_count(),)


def _check_sizes(argument: str, values: Numbers, one: str) -> tuple[int, ...]:
    """Return whole numbers from 1 without repetitions, none for None; SpecError for a wrong one.

    one: what one of them is, for the message.
    """
    if values is None:
        return ()
    wanted = dict.fromkeys(SIZE.check(argument, value) for value in _as_list(values))
    if not wanted:
        raise SpecError(f"name at least one {one}")
    return tuple(wanted)


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
    """Return the wanted words of the known ones, in the order of these."""
    names = _check_names(argument, wanted, argument, known)
    return tuple(word for word in known if word in names)


def _check_devices(devices: Names) -> tuple[str, ...] | None:
    """Return the devices without repetitions: "gpu" and "gpu:0" are the same one."""
    if devices is None:
        return None
    known = ("cpu", "gpu", "gpu:1 and so on")
    names = _check_names("devices", devices, "device", known, r"cpu|gpu(:\d+)?")
    return tuple({re.sub("^gpu$", "gpu:0", name): name for name in names}.values())


def _check_frameworks(chosen: Names) -> tuple[str, ...] | None:
    """Return the chosen names without repetitions; SpecError for one that is not known.

    "torch:idiomatic" means the same as "torch", but --variants does not apply to it.
    """
    if chosen is None:
        return None
    names = _split_names("frameworks", chosen, adapters.REFERENCE)
    for name in names:
        adapters.split(name)
    if not names:
        raise SpecError(f"name at least one framework of {', '.join(adapters.names())}")
    return names


def _check_variants(wanted: Names, frameworks: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the wanted variants without repetitions; SpecError for one that no framework has."""
    if wanted is None:
        return (IDIOMATIC,)
    chosen = [adapters.split(name)[0] for name in frameworks or adapters.loadable()]
    known = list(dict.fromkeys(v for framework in chosen for v in adapters.variants(framework)))
    names = _check_names("variants", wanted, "variant", (ALL, *known))
    return tuple(known) if ALL in names else names


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


def _check_names(
    argument: str, wanted: Any, one: str, known: Sequence[str], pattern: str | None = None
) -> tuple[str, ...]:
    """Return the wanted names without repetitions; SpecError for one that is not known, or none.

    one: what one of them is, for the message. pattern: what each must match; None where it must be
    one of `known`, as the message says.
    """
    names = _split_names(argument, wanted, known[0])
    for name in names:
        if not (re.fullmatch(pattern, name) if pattern else name in known):
            raise SpecError(f"there is no {one} {shown(name)}: choose from {', '.join(known)}")
    if not names:
        raise SpecError(f"name at least one {one} of {', '.join(known)}")
    return names


def _split_names(argument: str, names: Any, example: str) -> tuple[str, ...]:
    """Return the names in a string such as "cpu,gpu" or in a list, without repetitions.

    argument: its name, and example: a valid name; both for the message.
    """
    found = names.split(",") if isinstance(names, str) else _as_list(names)
    if not all(isinstance(name, str) for name in found):
        raise SpecError(f"{argument} must be names such as {example!r}, not {shown(names)}")
    return tuple(dict.fromkeys(name.strip() for name in found))


def _as_list(values: Any) -> list[Any]:
    """Return an iterable as a list; a string, or a value that is not iterable, in a list alone."""
    try:
        return [values] if isinstance(values, str) else list(values)
    except TypeError:
        return [values]
