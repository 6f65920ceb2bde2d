"""Adapt Lux.jl: what is installed, the variants, and what builds a workload."""

from __future__ import annotations

from ...in_julia.adapter import JuliaAdapter
from ...inputs.names import IDIOMATIC, MALLOC
from ...workload import MALLOC_VARIANT, ProgramModules, Variant
from .workload import LuxWorkload

VARIANTS = {
    IDIOMATIC: Variant("a Lux Chain, TrainState and single_train_step! with AutoZygote"),
    MALLOC: MALLOC_VARIANT,
}


class LuxAdapter(ProgramModules, JuliaAdapter):
    """Build models in Lux.jl as its documentation does."""

    title = "Lux.jl"
    name = "lux"
    workload = LuxWorkload
    variants = VARIANTS
    program_suffix = ".jl"
    arrays_suffix = ".bin"


ADAPTER = LuxAdapter()
