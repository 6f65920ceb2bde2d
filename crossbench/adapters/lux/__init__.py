"""Adapt Lux.jl: what is installed, the variants, and what builds a workload."""

from __future__ import annotations

from ...in_julia.adapter import JuliaAdapter
from ...in_julia.program import JuliaPrograms
from ...inputs.names import IDIOMATIC, MALLOC
from ...workload import MALLOC_VARIANT, Variant
from .program import LuxTraining
from .workload import LuxWorkload

VARIANTS = {
    IDIOMATIC: Variant("a Lux Chain, TrainState and single_train_step! with AutoZygote"),
    MALLOC: MALLOC_VARIANT,
}


class LuxAdapter(JuliaAdapter):
    """Build models in Lux.jl as its documentation does."""

    title = "Lux.jl"
    name = "lux"
    workload = LuxWorkload
    variants = VARIANTS
    programs = JuliaPrograms(LuxTraining)


ADAPTER = LuxAdapter()
