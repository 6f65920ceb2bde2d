"""What is asked for: validated once, frozen, free of any framework."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import adapters, models
from .errors import SpecError
from .machine import usable_cpus
from .models import Model
from .workload import DEVICES

DATA_WORDS = ("auto", "synthetic")


@dataclass(frozen=True)
class Spec:
    """One comparison. frameworks and devices are None where all that is there is meant."""

    frameworks: tuple[str, ...] | None
    devices: tuple[str, ...] | None
    model: Model
    data: str
    rounds: int
    epochs: int
    batch_size: int
    seed: int
    threads: int
    timeout: float


def make_spec(
    frameworks: Iterable[str] | None = None,
    devices: Iterable[str] | None = None,
    model: str | Model = "lenet",
    data: str | Path = "auto",
    rounds: int = 3,
    epochs: int = 1,
    batch_size: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    timeout: float = 600,
) -> Spec:
    """Check every value and fill in the defaults; SpecError names the first that is wrong."""
    described = models.get(model) if isinstance(model, str) else model
    cpus = len(usable_cpus())
    threads = cpus if threads is None else _at_least("threads", threads, 1)
    if threads > cpus:
        raise SpecError(f"threads is {threads}, but this process may use only {cpus} CPUs")
    if not math.isfinite(timeout) or timeout <= 0:
        raise SpecError(f"timeout must be a number of seconds over 0, not {timeout}")
    if str(data) not in DATA_WORDS and not Path(data).is_dir():
        raise SpecError(
            f"data is {data!s}: it must be auto, synthetic or a directory that is there"
        )
    return Spec(
        frameworks=_chosen("framework", frameworks, adapters.names()),
        devices=_chosen("device", devices, DEVICES),
        model=described,
        data=str(data),
        rounds=_at_least("rounds", rounds, 1),
        epochs=_at_least("epochs", epochs, 1),
        batch_size=described.batch_size
        if batch_size is None
        else _at_least("batch_size", batch_size, 1),
        seed=_at_least("seed", seed, 0),
        threads=threads,
        timeout=float(timeout),
    )


def _at_least(name: str, value: int, least: int) -> int:
    if value < least:
        raise SpecError(f"{name} must be at least {least}, not {value}")
    return value


def _chosen(
    what: str, chosen: Iterable[str] | None, known: Iterable[str]
) -> tuple[str, ...] | None:
    if chosen is None:
        return None
    if isinstance(chosen, str):
        chosen = chosen.split(",")
    names = tuple(dict.fromkeys(name.strip() for name in chosen))
    for name in names:
        if name not in known:
            raise SpecError(f"there is no {what} {name!r}: choose from {', '.join(known)}")
    if not names:
        raise SpecError(f"name at least one {what} of {', '.join(known)}")
    return names
