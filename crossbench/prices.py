"""What an hour of a device costs: as words of the command line, or from a file of machines."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from .checks import shown
from .errors import SpecError
from .workload import DEVICES

HOW = "write 0.745/h, cpu=0.17/h,gpu=0.745/h, or FILE.toml:MACHINE"


def parse(price: float | str | Mapping[str, float] | None) -> dict[str, float]:
    """The price of an hour by device, in whatever currency; SpecError where it is none.

    A number is every device's. A file of machines holds a table for each: [n1-standard-8], with
    cpu = 0.38 and gpu = 0.83 in it.
    """
    if price is None:
        return {}
    if isinstance(price, str):
        path, colon, machine = price.rpartition(":")
        price = _of_machine(Path(path), machine) if colon else _of_words(price)
    if isinstance(price, Real):
        price = dict.fromkeys(DEVICES, _number(price))
    if not isinstance(price, Mapping):
        raise SpecError(
            f"price must be a number, words or a mapping of devices, not {shown(price)}: {HOW}"
        )
    return {_device(device): _number(value) for device, value in price.items()}


def _of_words(words: str) -> dict[str, float]:
    prices = {}
    for word in words.split(","):
        device, equals, value = word.rpartition("=")
        for name in [device.strip()] if equals else DEVICES:
            prices[name] = _number(value.strip().removesuffix("/h"))
    return prices


def _of_machine(file: Path, machine: str) -> Mapping[str, float]:
    try:
        machines = tomllib.loads(_text(file))
    except RecursionError:
        raise SpecError(f"the prices in {file} cannot be read: nested too deeply") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(f"the prices in {shown(str(file))} cannot be read: {reason}") from None
    found = machines.get(machine)
    if not isinstance(found, Mapping) or not found:
        raise SpecError(f"{file} has no machine {machine!r}: it has {', '.join(machines)}")
    return found


def _text(file: Path) -> str:
    if file.exists() and not file.is_file():
        raise ValueError("it is not a regular file")
    return file.read_text(encoding="utf-8")


def _device(name: str) -> str:
    if name not in DEVICES:
        raise SpecError(f"there is no device {shown(name)} to pay for: {HOW}")
    return name


def _number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise SpecError(f"{shown(value)} is no price of an hour: {HOW}")
    return number
