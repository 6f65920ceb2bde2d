"""Adapt Flux.jl: what is installed, the variants, and what builds a workload."""

from __future__ import annotations

from ...in_julia.adapter import JuliaAdapter
from ...inputs.names import IDIOMATIC, MALLOC
from ...workload import (
    KEEP_FREED_MEMORY,
    MALLOC_VARIANT,
    ProgramModules,
    Variant,
    VariantModules,
)
from .workload import FluxWorkload


class FluxAdapter(JuliaAdapter):
    """Build models in Flux.jl as its tutorials do; a base for adapters of a loop of one's own."""

    title = "Flux.jl"
    name = "flux"
    workload = FluxWorkload


VARIANTS = {
    IDIOMATIC: Variant("a Flux Chain, withgradient and update!"),
    MALLOC: MALLOC_VARIANT,
    "tuned": Variant(
        "as fast as Flux can be made; CrossBenchFlux/src/tuned.jl says how",
        environment=KEEP_FREED_MEMORY,
    ),
}


class FluxVariants(VariantModules, ProgramModules, FluxAdapter):
    variants = VARIANTS
    program_suffix = ".jl"
    arrays_suffix = ".bin"


ADAPTER = FluxVariants()
