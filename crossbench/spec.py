"""What is asked for: validated once, frozen, free of any framework."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import adapters, models, prices
from .adapters import reference
from .errors import SpecError
from .machine import usable_cpus
from .models import Model
from .results.records import Settings
from .workload import DEVICES

DATA_WORDS = ("auto", "synthetic")
AUTO = "auto"
MODEL = "lenet"
ROUNDS = 6
EPOCHS = 1
PRECISION = 0.05
MAX_SECONDS = 600.0
SEED = 0
TIMEOUT = 600.0


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
    described = models.get(model) if isinstance(model, str) else model
    if part := reference.unknown(described):
        raise SpecError(f"the model has a part that nothing is known of: {part}")
    if str(data) not in DATA_WORDS and not Path(data).exists():
        raise SpecError(
            f"data is {data!s}: it must be auto, synthetic, or a directory or file that is there"
        )
    chosen = _chosen("framework", frameworks, adapters.names())
    if baseline is not None:
        (baseline,) = _chosen("framework", [baseline], chosen or adapters.names()) or (None,)
    return Spec(
        frameworks=chosen,
        devices=_devices(devices),
        threads=_threads(threads),
        model=described,
        batch_size=described.batch_size
        if batch_size is None
        else _at_least("batch_size", batch_size, 1),
        batches=described.batches if batches is None else _at_least("batches", batches, 1),
        settings=Settings(
            model=model if isinstance(model, str) else model.name,
            rounds=_rounds(rounds),
            precision=_over_0("precision", precision),
            max_seconds=_over_0("max_seconds", max_seconds),
            epochs=_at_least("epochs", epochs, 1),
            seed=_at_least("seed", seed, 0),
            timeout=_over_0("timeout", timeout),
            data=str(data) if str(data) in DATA_WORDS else str(Path(data).resolve()),
            baseline=baseline,
            prices=prices.parse(price),
            target_accuracy=_accuracy(target_accuracy),
            trace_memory=trace_memory,
        ),
    )


def _rounds(rounds: int | str) -> int | None:
    """None for auto."""
    if rounds == AUTO:
        return None
    if isinstance(rounds, str):
        raise SpecError(f"rounds must be a whole number or {AUTO}, not {rounds!r}")
    return _at_least("rounds", rounds, 1)


def _threads(threads: int | Iterable[int] | None) -> tuple[int, ...]:
    cpus = len(usable_cpus())
    if threads is None:
        return (cpus,)
    wanted = tuple(dict.fromkeys([threads] if isinstance(threads, int) else threads))
    if not wanted:
        raise SpecError("name at least one number of threads")
    for number in wanted:
        if _at_least("threads", number, 1) > cpus:
            raise SpecError(f"threads is {number}, but this process may use only {cpus} CPUs")
    return wanted


def _devices(devices: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the devices, a GPU named twice once: gpu is gpu:0."""
    if devices is None:
        return None
    names = [device.strip() for device in _words(devices)]
    for name in names:
        if name not in DEVICES and not re.fullmatch(r"gpu:\d+", name):
            raise SpecError(f"there is no device {name!r}: choose from cpu, gpu, gpu:1 and so on")
    if not names:
        raise SpecError("name at least one device: cpu, gpu, gpu:1 and so on")
    return tuple({re.sub("^gpu$", "gpu:0", name): name for name in names}.values())


def _accuracy(target: float | None) -> float | None:
    if target is not None and not 0 < target <= 1:
        raise SpecError(f"target_accuracy must be over 0 and at most 1, not {target}")
    return target


def _at_least(name: str, value: int, least: int) -> int:
    if value < least:
        raise SpecError(f"{name} must be at least {least}, not {value}")
    return value


def _over_0(name: str, value: float) -> float:
    if not math.isfinite(value) or value <= 0:
        raise SpecError(f"{name} must be a number over 0, not {value}")
    return float(value)


def _chosen(
    what: str, chosen: Iterable[str] | None, known: Iterable[str]
) -> tuple[str, ...] | None:
    if chosen is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in _words(chosen)))
    for name in names:
        if name not in known:
            raise SpecError(f"there is no {what} {name!r}: choose from {', '.join(known)}")
    if not names:
        raise SpecError(f"name at least one {what} of {', '.join(known)}")
    return names


def _words(words: Iterable[str]) -> Iterable[str]:
    """Return the words of "cpu,gpu", or of a list of them."""
    return words.split(",") if isinstance(words, str) else words
