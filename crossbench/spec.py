"""What is asked for: validated once, frozen, free of any framework."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import adapters, models, prices
from .adapters import reference
from .checks import OVER_0, SIZE, TRUE_OR_FALSE, Rule, number, optional, shown, whole
from .data.sources import SOURCES
from .errors import SpecError
from .machine import usable_cpus
from .memory import check_memory
from .models import Model
from .results.records import Settings
from .workload import DEVICES

DATA_WORDS = ("auto", "synthetic")
DATA_HOW = "auto, synthetic, or a directory or file"
AUTO = "auto"
MODEL = "lenet"
ROUNDS = 6
EPOCHS = 1
PRECISION = 0.05
MAX_SECONDS = 600.0
SEED = 0
TIMEOUT = 600.0

ROUNDS_RULE = Rule(f"{SIZE.words}, or {AUTO}", SIZE.accept)
SEED_RULE = whole(0, 2**63 - 1)
SECONDS = number(
    f"a number over 0 and at most {threading.TIMEOUT_MAX:,.0f}",  # what can be waited for
    lambda value: 0 < value <= threading.TIMEOUT_MAX,
)
ACCURACY = optional(number("a number over 0 and at most 1", lambda value: 0 < value <= 1))


@dataclass(frozen=True)
class Spec:
    """One comparison. frameworks and devices are None where all that is there is meant, batches
    where all that the data has are.
    """

    frameworks: tuple[str, ...] | None
    devices: tuple[str, ...] | None
    threads: tuple[int, ...]
    model: Model
    batch_size: int
    batches: int | None
    settings: Settings


def make_spec(
    frameworks: Iterable[str] | None = None,
    devices: Iterable[str] | None = None,
    *,
    model: str | Model = MODEL,
    data: str | Path = AUTO,
    rounds: int | str = ROUNDS,
    precision: float = PRECISION,
    max_seconds: float = MAX_SECONDS,
    epochs: int = EPOCHS,
    batch_size: int | None = None,
    batches: int | None = None,
    seed: int = SEED,
    threads: int | Iterable[int] | None = None,
    baseline: str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    target_accuracy: float | None = None,
    trace_memory: bool = False,
    timeout: float = TIMEOUT,
) -> Spec:
    """Check every value and fill in the defaults; SpecError names the first that is wrong."""
    described = model_of(model)
    chosen = _chosen("framework", frameworks, adapters.names())
    if baseline is not None:
        if not isinstance(baseline, str):
            raise SpecError(f"baseline must be the name of a framework, not {shown(baseline)}")
        (baseline,) = _chosen("framework", [baseline], chosen or adapters.names()) or (None,)
    named = _devices(devices)
    size = described.batch_size if batch_size is None else SIZE.check("batch_size", batch_size)
    check_memory(described, size if named is None or "cpu" in named else 1)
    return Spec(
        frameworks=chosen,
        devices=named,
        threads=_threads(threads),
        model=described,
        batch_size=size,
        batches=described.batches if batches is None else SIZE.check("batches", batches),
        settings=Settings(
            model=model if isinstance(model, str) else model.name,
            rounds=_rounds(rounds),
            precision=OVER_0.check("precision", precision),
            max_seconds=SECONDS.check("max_seconds", max_seconds),
            epochs=SIZE.check("epochs", epochs),
            seed=SEED_RULE.check("seed", seed),
            timeout=SECONDS.check("timeout", timeout),
            data=_data(data),
            baseline=baseline,
            prices=prices.parse(price),
            target_accuracy=ACCURACY.check("target_accuracy", target_accuracy),
            trace_memory=TRUE_OR_FALSE.check("trace_memory", trace_memory),
        ),
    )


def model_of(model: Any) -> Model:
    """Return the model that a user gave, by name or itself; SpecError where it is none."""
    described = models.get(model) if isinstance(model, str) else model
    if type(described) is not Model:
        raise SpecError(
            f"model must be a name of the catalogue, FILE.py:NAME, or a Model, not {shown(model)}"
        )
    part = reference.unknown(described)
    if type(described.data) not in SOURCES:
        part = type(described.data).__name__
    if part:
        raise SpecError(f"the model has a part that nothing is known of: {part}")
    return described


def _data(data: Any) -> str:
    """Return the word, or the whole path of a directory or file that is there."""
    if not isinstance(data, str | Path) or not str(data):
        raise SpecError(f"data must be {DATA_HOW}, not {shown(data)}")
    if str(data) in DATA_WORDS:
        return str(data)
    try:
        path = str(Path(data).resolve(strict=True))
        path.encode()  # it is kept in the results file
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        reason = getattr(error, "strerror", None) or error
        raise SpecError(f"data must be {DATA_HOW}, not {shown(str(data))}: {reason}") from None
    return path


def _rounds(rounds: int | str) -> int | None:
    """None for auto."""
    if isinstance(rounds, str) and rounds == AUTO:
        return None
    number: int = ROUNDS_RULE.check("rounds", rounds)
    return number


def _threads(threads: int | Iterable[int] | None) -> tuple[int, ...]:
    cpus = len(usable_cpus())
    if threads is None:
        return (cpus,)
    wanted = dict.fromkeys(SIZE.check("threads", number) for number in _listed(threads))
    if not wanted:
        raise SpecError("name at least one number of threads")
    if max(wanted) > cpus:
        raise SpecError(f"threads is {max(wanted)}, but this process may use only {cpus} CPUs")
    return tuple(wanted)


def _devices(devices: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the devices, a GPU named twice once: gpu is gpu:0."""
    if devices is None:
        return None
    names = _words("devices", devices, "cpu")
    for name in names:
        if name not in DEVICES and not re.fullmatch(r"gpu:\d+", name):
            raise SpecError(
                f"there is no device {shown(name)}: choose from cpu, gpu, gpu:1 and so on"
            )
    if not names:
        raise SpecError("name at least one device: cpu, gpu, gpu:1 and so on")
    return tuple({re.sub("^gpu$", "gpu:0", name): name for name in names}.values())


def _chosen(
    what: str, chosen: Iterable[str] | None, known: Iterable[str]
) -> tuple[str, ...] | None:
    if chosen is None:
        return None
    names = tuple(dict.fromkeys(_words(f"{what}s", chosen, adapters.REFERENCE)))
    for name in names:
        if name not in known:
            raise SpecError(f"there is no {what} {shown(name)}: choose from {', '.join(known)}")
    if not names:
        raise SpecError(f"name at least one {what} of {', '.join(known)}")
    return names


def _words(name: str, words: Any, example: str) -> list[str]:
    """Return the words of "cpu,gpu", or of a list of them."""
    found = words.split(",") if isinstance(words, str) else _listed(words)
    if not all(isinstance(word, str) for word in found):
        raise SpecError(f"{name} must be names such as {example!r}, not {shown(words)}")
    return [word.strip() for word in found]


def _listed(values: Any) -> list[Any]:
    """Return the values of a list or the like; of anything else, words too, a list of it alone."""
    try:
        return [values] if isinstance(values, str) else list(values)
    except TypeError:
        return [values]
