"""Replace NVML by a stand-in: made-up GPUs behind pynvml's own functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml


@dataclass
class Card:
    """Stands for a GPU and its NVML handle. fails: the error code that every query of it raises."""

    uuid: str
    name: str = "NVIDIA H100"
    instances: list[Card | None] | None = None
    """MIG instances, None for an index without one; None for a GPU that MIG does not divide."""
    busy: int = 80
    watts: int = 300
    megahertz: list[int] = field(default_factory=lambda: [1500])
    """Clocks that successive queries return; the last one is then repeated."""
    reasons: int = 0
    joules: float = 0.0
    processes: dict[int, int] = field(default_factory=dict)
    """Bytes in use on the GPU by process id."""
    fails: int | None = None
    capability: tuple[int, int] = (9, 0)


def install(monkeypatch, *cards, init=None, count=None):
    """Make pynvml report the cards. init, count: error codes that nvmlInit or the count raises."""

    def init_nvml():
        if init is not None:
            raise pynvml.NVMLError(init)

    def count_cards():
        if count is not None:
            raise pynvml.NVMLError(count)
        return len(cards)

    def or_error(answer):
        def query(card, *arguments):
            if card.fails is not None:
                raise pynvml.NVMLError(card.fails)
            return answer(card, *arguments)

        return query

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
        "nvmlDeviceGetCudaComputeCapability": lambda card: card.capability,
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
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "570.86")
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: 12080)
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, or_error(answer))
