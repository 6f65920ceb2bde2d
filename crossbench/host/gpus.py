"""Finds the NVIDIA GPUs that this process may use, from NVML and CUDA_VISIBLE_DEVICES.

It does not initialise CUDA: only the worker processes do, each of which sees one GPU.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from ..inputs.names import FLOAT32, Compute

VISIBLE = "CUDA_VISIBLE_DEVICES"
HIDDEN = {VISIBLE: ""}
"""Environment of a worker on the CPU: a framework that sees a GPU may compile for it."""
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
AMPERE = (8, 0)
"""The first compute capability that multiplies in TensorFloat-32 and in bfloat16."""


@dataclass(frozen=True)
class Gpu:
    """Describes a GPU, or a MIG instance (a part of a divided GPU).

    uuid: its name in CUDA_VISIBLE_DEVICES. capability: its compute capability, such as (9, 0), None
        if NVML does not know it. handle: NVML's handle.
    """

    name: str
    uuid: str
    capability: tuple[int, int] | None
    handle: Any = field(compare=False, repr=False)


@dataclass(frozen=True)
class Gpus:
    """Lists the visible GPUs that NVML knows, in CUDA's order.

    driver: whether CUDA may find GPUs that NVML cannot list.
    problem: one line on why the list is empty or NVML's figures are missing; None if there is no
        problem, or no driver.
    """

    known: list[Gpu]
    driver: bool = False
    problem: str | None = None

    def unavailable_reason(self, index: int) -> str | None:
        """Return one line on why there is no GPU of that index; None if there is one."""
        if index < len(self.known) or (self.driver and not self.known):
            return None
        if self.known:
            last = len(self.known) - 1
            return f"there is no gpu:{index}: the last visible one is gpu:{last}"
        return self.problem or "this machine has no NVIDIA GPU, or no driver for it"

    def lacks(self, compute: Compute, index: int) -> str | None:
        """Return one line on why a GPU does not multiply in a precision; else None."""
        if compute == FLOAT32 or index >= len(self.known):
            return None
        capability = self.known[index].capability
        if capability is None or capability >= AMPERE:
            return None
        found, needed = (".".join(map(str, pair)) for pair in (capability, AMPERE))
        return f"{compute} needs a GPU of compute capability {needed}, and this one has {found}"

    def handle(self, index: int) -> Any:
        """Return NVML's handle of a GPU; None if NVML cannot list it."""
        return self.known[index].handle if index < len(self.known) else None

    def environment(self, index: int) -> dict[str, str]:
        """Return environment variables that show a worker only this GPU, and disable TF32."""
        if index < len(self.known):
            gpu = self.known[index].uuid
        else:
            visible = _visible_ids() or []
            gpu = visible[index] if index < len(visible) else str(index)
        return {
            VISIBLE: gpu,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # indices then mean the same GPUs as NVML's
            # cuBLAS and cuDNN then never round to TensorFloat-32, whatever a framework asks for
            TF32_OVERRIDE: "0",
        }


def find_gpus() -> Gpus:
    """Return the visible GPUs; if NVML fails, none and the reason."""
    visible = _visible_ids()
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        cards = [_instances(_gpu(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(count)]
    except pynvml.NVMLError as error:
        if not _has_driver():
            return Gpus([])
        if visible == []:
            return Gpus([], problem=_all_hidden())
        problem = f"NVML cannot list the GPUs ({error}): no GPU memory, power or clock figures"
        return Gpus([], driver=True, problem=problem)
    if not any(cards):
        return Gpus([])
    if visible is None:
        return Gpus([gpu for card in cards for gpu in card])
    found: list[Gpu] = []
    for identifier in visible:
        gpu = _find_gpu(identifier, cards)
        if gpu is None:  # CUDA ignores all entries after an invalid one
            break
        found.append(gpu)
    return Gpus(found, problem=None if found else _all_hidden())


def driver_versions() -> dict[str, str]:
    """Return the versions of NVIDIA's driver and of the newest CUDA that it runs; empty if NVML
    does not know them.
    """
    try:
        pynvml.nvmlInit()
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()  # 12040 for 12.4
        return {
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "CUDA": f"{cuda // 1000}.{cuda % 1000 // 10}",
        }
    except pynvml.NVMLError:
        return {}


def _gpu(handle: Any) -> Gpu:
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    capability = None
    with suppress(pynvml.NVMLError):  # a MIG instance may not tell
        capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    return Gpu(str(name), str(uuid), capability, handle)


def _instances(card: Gpu) -> list[Gpu]:
    """Return the card, or, if MIG divides it, its instances: CUDA does not show both."""
    try:
        divided, _ = pynvml.nvmlDeviceGetMigMode(card.handle)
    except pynvml.NVMLError:  # the card does not support MIG
        return [card]
    if divided != pynvml.NVML_DEVICE_MIG_ENABLE:
        return [card]
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card.handle)):
        with suppress(pynvml.NVMLError):  # there is no instance of that index
            found.append(_gpu(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, index)))
    return found


def _visible_ids() -> list[str] | None:
    """Return the entries of CUDA_VISIBLE_DEVICES; None if it is unset.

    An empty or negative entry ends the list: CUDA hides all GPUs from there on.
    """
    value = os.environ.get(VISIBLE)
    if value is None:
        return None
    entries = [entry.strip() for entry in value.split(",")]
    hiding = (n for n, entry in enumerate(entries) if not entry or entry.startswith("-"))
    return entries[: next(hiding, len(entries))]


def _find_gpu(identifier: str, cards: list[list[Gpu]]) -> Gpu | None:
    """Return the GPU with that index or UUID (or start of one); None unless exactly one fits."""
    if identifier.isdigit():
        card = cards[int(identifier)] if int(identifier) < len(cards) else []
        return card[0] if card else None  # CUDA shows the first instance of a divided card
    if not identifier.startswith(("GPU-", "MIG-")):
        return None
    found = [gpu for card in cards for gpu in card if gpu.uuid.startswith(identifier)]
    return found[0] if len(found) == 1 else None


def _all_hidden() -> str:
    return f"{VISIBLE}={os.environ.get(VISIBLE)!r} shows no GPU: unset it, or list one"


def _has_driver() -> bool:
    """Return whether CUDA's driver is installed: a container may have it without NVML."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return False
