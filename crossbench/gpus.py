"""The NVIDIA GPUs that this process may use: those that NVML and CUDA_VISIBLE_DEVICES show.

CUDA itself is not started: that is for the worker processes, each of which is shown one GPU.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gpu:
    """A GPU, or an instance of one that is divided by MIG.

    uuid: the word that names it in CUDA_VISIBLE_DEVICES. handle: NVML's.
    """

    name: str
    uuid: str
    handle: Any = field(compare=False, repr=False)


@dataclass(frozen=True)
class Gpus:
    """The visible GPUs in CUDA's order.

    driver: whether CUDA may find GPUs although NVML does not tell of them.
    problem: why the list is empty or NVML's figures are missing, in a line; None where all is
        well, or there is no driver.
    """

    known: list[Gpu]
    driver: bool = False
    problem: str | None = None

    def why_not(self, index: int) -> str | None:
        """Return why there is no GPU of that index, in a line, or None."""
        if index < len(self.known) or (self.driver and not self.known):
            return None
        if self.known:
            last = len(self.known) - 1
            return f"there is no gpu:{index}: the last visible one is gpu:{last}"
        return self.problem or "this machine has no NVIDIA GPU, or no driver for it"

    def handle(self, index: int) -> Any:
        """Return NVML's handle of a GPU; None where NVML does not know it."""
        return self.known[index].handle if index < len(self.known) else None

    def environment(self, index: int) -> dict[str, str]:
        """Return the variables that show a worker process this GPU alone, in full float32."""
        if index < len(self.known):
            word = self.known[index].uuid
        else:
            words = _visible_words() or []
            word = words[index] if index < len(words) else str(index)
        return {
            VISIBLE: word,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order
            # cuBLAS and cuDNN then never round to TensorFloat-32, whatever a framework asks for
            "NVIDIA_TF32_OVERRIDE": "0",
        }


def find_gpus() -> Gpus:
    """Return the visible GPUs; none, and the reason, where NVML fails."""
    words = _visible_words()
    try:
        pynvml.nvmlInit()
        cards = [_instances(card) for card in _cards()]
    except pynvml.NVMLError as error:
        if not _has_driver():
            return Gpus([])
        if words == []:
            return Gpus([], problem=_hidden())
        problem = f"NVML cannot list the GPUs ({error}): memory, power and clocks are left out"
        return Gpus([], driver=True, problem=problem)
    if not any(cards):
        return Gpus([])
    if words is None:
        return Gpus([gpu for card in cards for gpu in card])
    shown: list[Gpu] = []
    for word in words:
        gpu = _named(word, cards)
        if gpu is None:  # CUDA takes no notice of what comes after a wrong one
            break
        shown.append(gpu)
    return Gpus(shown, problem=None if shown else _hidden())


def _cards() -> list[Gpu]:
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    return [_gpu(handle) for handle in handles]


def _gpu(handle: Any) -> Gpu:
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    return Gpu(str(name), str(uuid), handle)


def _instances(card: Gpu) -> list[Gpu]:
    """Return the card, or the instances that MIG divides it into: CUDA does not show both."""
    try:
        divided, _ = pynvml.nvmlDeviceGetMigMode(card.handle)
    except pynvml.NVMLError:  # a card that cannot be divided
        return [card]
    if divided != pynvml.NVML_DEVICE_MIG_ENABLE:
        return [card]
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card.handle)):
        with suppress(pynvml.NVMLError):  # no instance there
            found.append(_gpu(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, index)))
    return found


def _visible_words() -> list[str] | None:
    """Return what CUDA_VISIBLE_DEVICES names, up to a word that hides the rest; None if unset."""
    value = os.environ.get(VISIBLE)
    if value is None:
        return None
    words = [word.strip() for word in value.split(",")]
    hides = (n for n, word in enumerate(words) if not word or word.startswith("-"))
    return words[: next(hides, len(words))]


def _named(word: str, cards: list[list[Gpu]]) -> Gpu | None:
    """Return the GPU of an index, or of a UUID or its beginning; None unless it is exactly one."""
    if word.isdigit():
        card = cards[int(word)] if int(word) < len(cards) else []
        return card[0] if card else None  # CUDA shows the first instance of a divided card
    if not word.startswith(("GPU-", "MIG-")):
        return None
    found = [gpu for card in cards for gpu in card if gpu.uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def _hidden() -> str:
    return f"{VISIBLE}={os.environ.get(VISIBLE)!r} shows no GPU: unset it, or name one"


def _has_driver() -> bool:
    """Return whether CUDA's driver is there: a container may lack NVML beside it."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return False
