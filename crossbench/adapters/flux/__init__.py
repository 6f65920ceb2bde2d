"""Adapt Flux.jl: what is installed, the variants, and what builds a workload."""

from __future__ import annotations

from ...inputs.names import BFLOAT16, IDIOMATIC, MALLOC
from ...workload import (
    KEEP_FREED_MEMORY,
    MALLOC_VARIANT,
    Adapter,
    Job,
    ProgramModules,
    Unavailable,
    Variant,
    VariantModules,
    missing,
    versions,
)
from . import julia
from .workload import FluxWorkload


class FluxAdapter(Adapter):
    """Build models in Flux.jl as its tutorials do; a base for adapters of a loop of one's own."""

    title = "Flux.jl"

    def available(self, device: str) -> str | None:
        return missing("flux", "juliacall")

    def lacks(self, compute: str, device: str) -> str | None:
        if compute == BFLOAT16:
            return "Flux.jl has no mixed precision: its bf16 makes the weights themselves BFloat16"
        return None

    def installed(self) -> dict[str, str]:
        found = versions("juliacall")
        try:
            executable = julia.find()
            found["Julia"] = (
                f"{executable[1]} ({executable[0]})" if executable else "downloaded on first use"
            )
        except Unavailable as reason:
            found["Julia"] = str(reason)
        return found

    def environment(self, device: str, threads: int) -> dict[str, str]:
        return {
            "PYTHON_JULIACALL_THREADS": str(threads),
            # with more than one thread Julia crashes without its own signal handlers
            "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
            "PYTHON_JULIACALL_STARTUP_FILE": "no",
        }

    def to_install(self, device: str) -> str | None:
        return julia.to_install(device)

    def install(self, device: str) -> None:
        julia.install(device)

    def build(self, job: Job) -> FluxWorkload:
        return FluxWorkload(job)


VARIANTS = {
    IDIOMATIC: Variant("a Flux Chain, withgradient and update!"),
    MALLOC: MALLOC_VARIANT,
    "tuned": Variant(
        "as fast as Flux can be made; julia/src/tuned.jl says how",
        environment=KEEP_FREED_MEMORY,
    ),
}


class FluxVariants(VariantModules, ProgramModules, FluxAdapter):
    variants = VARIANTS
    program_suffix = ".jl"
    arrays_suffix = ".bin"


ADAPTER = FluxVariants()
