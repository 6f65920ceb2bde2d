"""Train a model in Lux.jl; the Julia side is CrossBenchLux, under julia/."""

from __future__ import annotations

from ...in_julia.julia import Package, Packages
from ...in_julia.workload import JuliaWorkload
from .program import LuxTraining

PACKAGES = Packages(
    title="Lux.jl",
    own="CrossBenchLux",
    uuid="7e8bdb27-4264-4538-91c4-5b30d2b553d2",
    registered={
        "Lux": Package("b2108857-7c20-44ae-9111-449ecde12c47", "1.31", "1.31.4"),
        # its programs need these three beside the row's
        "MLUtils": Package("f1d291b0-491e-4a28-83b9-f70985020b54"),
        "NNlib": Package("872c559c-99b0-510c-b3b7-b6c96a88d5cd"),
        "OneHotArrays": Package("0b1bfda6-eb8a-41d2-88d8-f5af5cad476f"),
        "Optimisers": Package("3bd65402-5787-11e9-1adc-39752487f4e2"),
        "Zygote": Package("e88e6eb3-aa80-5325-afca-941959d7151f"),
    },
    on_gpu={"LuxCUDA": Package("d0bbae9a-e099-4d5b-a835-1c6931763bda")},
)


class LuxWorkload(JuliaWorkload):
    packages = PACKAGES
    dialect = LuxTraining
