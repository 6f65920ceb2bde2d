"""Reads the price of an hour of a device, from an argument or from a file of machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from . import toml_file
from .checks import shown
from .errors import SpecError
from .names import DEVICES

PRICE_FORMATS = "write 0.745/h, cpu=0.17/h,gpu=0.745/h, or FILE.toml:MACHINE"


def parse(price: float | str | Mapping[str, float] | None) -> dict[str, float]:
    """Return the price of an hour by device ("cpu", "gpu"), in any currency; {} for None.

    price: a number, for every device; text: "0.745/h", "cpu=0.17/h,gpu=0.745/h" or
        "FILE.toml:MACHINE"; or a mapping by device. FILE.toml has a table for each machine: in
        [n1-standard-8], for example, cpu = 0.38 and gpu = 0.83. SpecError for anything else.
    """
    if price is None:
        return {}
    if isinstance(price, str):
        path, colon, machine = price.rpartition(":")
        price = _read_machine(Path(path), machine) if colon else _parse_text(price)
    if isinstance(price, Real):
        price = dict.fromkeys(DEVICES, _check_price(price))
    if not isinstance(price, Mapping):
        raise SpecError(
            f"price must be a number, text or a mapping by device, not {shown(price)}: "
            f"{PRICE_FORMATS}"
        )
    return {_check_device(device): _check_price(value) for device, value in price.items()}


def _parse_text(text: str) -> dict[str, float]:
    """Return the prices of "0.745/h" or "cpu=0.17/h,gpu=0.745/h" by device."""
    prices = {}
    for part in text.split(","):
        device, equals, value = part.rpartition("=")
        for name in [device.strip()] if equals else DEVICES:
            prices[name] = _check_price(value.strip().removesuffix("/h"))
    return prices


def _read_machine(file: Path, machine: str) -> Mapping[str, float]:
    """Return the prices of one machine, by device, from a TOML file."""
    try:
        machines, _ = toml_file.read(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(f"cannot read the prices in {shown(str(file))}: {reason}") from None
    found = machines.get(machine)
    if not isinstance(found, Mapping) or not found:
        raise SpecError(f"{file} has no machine {machine!r}: choose from {', '.join(machines)}")
    return found


def _check_device(name: str) -> str:
    if name not in DEVICES:
        raise SpecError(f"there is no device {shown(name)} to give a price for: {PRICE_FORMATS}")
    return name


def _check_price(value: Any) -> float:
    try:
        price = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        price = math.nan
    if not 0 < price < math.inf:
        raise SpecError(f"{shown(value)} is not a price of an hour: {PRICE_FORMATS}")
    return price
