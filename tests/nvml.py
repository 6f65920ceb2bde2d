"""A stand-in for NVML: made-up cards behind pynvml's own functions, where this machine has none."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml


@dataclass
class Card:
    """A handle of the stand-in. fails: the error that every question about it raises."""

    uuid: str
    name: str = "NVIDIA H100"
    instances: list[Card | None] | None = None
    """By MIG; None where it is not divided, or where there is no instance at that place."""
    busy: int = 80
    watts: int = 300
    megahertz: list[int] = field(default_factory=lambda: [1500])
    """One after the other; the last one stays."""
    reasons: int = 0
    joules: float = 0.0
    processes: dict[int, int] = field(default_factory=dict)
    """Bytes by the process' number."""
    fails: int | None = None


def install(monkeypatch, *cards, init=None, count=None):
    """Put the cards behind pynvml. init, count: the error that the start, or the count, raises."""

    def init_nvml():
        if init is not None:
            raise pynvml.NVMLError(init)

    def count_cards():
        if count is not None:
            raise pynvml.NVMLError(count)
        return len(cards)

    def asked(answer):
        def ask(card, *arguments):
            if card.fails is not None:
                raise pynvml.NVMLError(card.fails)
            return answer(card, *arguments)

        return ask

    def mig_mode(card):
        if card.instances is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(bool(card.instances)), 1]

    def mig_instance(card, index):
        if card.instances[index] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return card.instances[index]

    def megahertz(card, clock):
        assert clock == pynvml.NVML_CLOCK_SM
        return card.megahertz.pop(0) if len(card.megahertz) > 1 else card.megahertz[0]

    def running(card):
        return [SimpleNamespace(pid=p, usedGpuMemory=b) for p, b in card.processes.items()]

    answers = {
        "nvmlDeviceGetName": lambda card: card.name,
        "nvmlDeviceGetUUID": lambda card: card.uuid,
        "nvmlDeviceGetMigMode": mig_mode,
        "nvmlDeviceGetMaxMigDeviceCount": lambda card: len(card.instances),
        "nvmlDeviceGetMigDeviceHandleByIndex": mig_instance,
        "nvmlDeviceGetUtilizationRates": lambda card: SimpleNamespace(gpu=card.busy),
        "nvmlDeviceGetPowerUsage": lambda card: 1000 * card.watts,
        "nvmlDeviceGetClockInfo": megahertz,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda card: card.reasons,
        "nvmlDeviceGetTotalEnergyConsumption": lambda card: 1000 * card.joules,
        "nvmlDeviceGetComputeRunningProcesses": running,
    }
    monkeypatch.setattr(pynvml, "nvmlInit", init_nvml)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", count_cards)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: cards[index])
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, asked(answer))
