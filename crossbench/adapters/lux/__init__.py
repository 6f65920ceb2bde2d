"""Adapt Lux.jl: what is installed, the variants, and what builds a workload."""

from __future__ import annotations

from ...in_julia.adapter import JuliaAdapter
from ...inputs.names import BFLOAT16, IDIOMATIC, MALLOC
from ...workload import MALLOC_VARIANT, Job, ProgramModules, Variant
from .workload import PACKAGES, LuxWorkload

VARIANTS = {
    IDIOMATIC: Variant("a Lux Chain, TrainState and single_train_step! with AutoZygote"),
    MALLOC: MALLOC_VARIANT,
}


class LuxAdapter(ProgramModules, JuliaAdapter):
    """Build models in Lux.jl as its documentation does."""

    title = "Lux.jl"
    name = "lux"
    packages = PACKAGES
    variants = VARIANTS
    program_suffix = ".jl"
    arrays_suffix = ".bin"

    def lacks(self, compute: str, device: str) -> str | None:
        if compute == BFLOAT16:
            return "Lux.jl has no mixed precision: its bf16 makes the weights themselves BFloat16"
        return None

    def build(self, job: Job) -> LuxWorkload:
        return LuxWorkload(job)


ADAPTER = LuxAdapter()
