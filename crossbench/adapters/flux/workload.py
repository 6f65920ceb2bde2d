"""Train a model in Flux.jl; the Julia side is CrossBenchFlux, under julia/."""

from __future__ import annotations

from ...in_julia.julia import Package, Packages
from ...in_julia.workload import JuliaWorkload
from .program import FluxTraining

PACKAGES = Packages(
    title="Flux.jl",
    own="CrossBenchFlux",
    uuid="7f360163-1a0c-4bf2-b053-227e0fb651c1",
    registered={"Flux": Package("587475ba-b771-5e3f-ad9e-33799f191a9c", "0.16", "0.16.10")},
    on_gpu={
        "CUDA": Package("052768ef-5323-5732-b1bb-66c8b64840ba"),
        "cuDNN": Package("02a925ec-e4fe-4b08-9a7e-0d78e3d38ccd"),
    },
)


class FluxWorkload(JuliaWorkload):
    packages = PACKAGES
    dialect = FluxTraining
