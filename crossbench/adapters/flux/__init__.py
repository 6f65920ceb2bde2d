"""Adapt Flux.jl: what is installed, the variants, and what builds a workload."""

from __future__ import annotations

from ...in_julia.adapter import JuliaAdapter
from ...in_julia.program import JuliaPrograms
from ...inputs.names import IDIOMATIC, MALLOC
from ...workload import (
    KEEP_FREED_MEMORY,
    MALLOC_VARIANT,
    Variant,
    VariantModules,
)
from .program import FluxTraining
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


class FluxVariants(VariantModules, FluxAdapter):
    variants = VARIANTS
    programs = JuliaPrograms(FluxTraining)


ADAPTER = FluxVariants()
