"""Train a model in Flux.jl as fast as it can be made: see julia/CrossBenchFlux/src/tuned.jl.

The Julia side's workload takes every call that the idiomatic one takes, so only its construction
and its details differ here.
"""

from __future__ import annotations

from ...workload import Job
from .workload import FluxWorkload


class TunedWorkload(FluxWorkload):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.workload = self.julia.tuned(self.workload)
        self.source_code = ""  # it has other layers, and takes other steps

    def details(self) -> dict[str, str]:
        """Return the versions and devices, and, once a batch was trained, how batches are split."""
        return super().details() | dict(self.julia.tuning(self.workload))

    def allocated(self) -> int | None:
        return None  # it depends on the pieces of a batch, which are chosen by time


WORKLOAD = TunedWorkload
