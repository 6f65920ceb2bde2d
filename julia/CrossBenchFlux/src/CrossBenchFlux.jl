"""
Train an ordinary Flux `Chain`, which the statements of a program make, with an ordinary Flux loop.
What is not Flux's own is in CrossBenchJulia.
"""
module CrossBenchFlux

using CrossBenchJulia
using Flux
using Flux: Optimisers, Zygote, fmap
using LinearAlgebra: BLAS, dot, mul!
using MLDataDevices: CPUDevice
using NNlib: NNlib, gelu_erf, gelu_tanh, leakyrelu, make_causal_mask, sigmoid_fast, tanh_fast
using PrecompileTools: @compile_workload, @setup_workload
using Random: Xoshiro, seed!
using Statistics: mean

# What Flux, or its tuned variant, defines for its own workloads.
import CrossBenchJulia:
    adjust_rate!,
    backward!,
    build,
    differentiate,
    dropout_rng,
    gradient_arrays,
    isolated,
    optimizer_state,
    package_versions,
    parameter,
    predictor,
    reset_state!,
    step!,
    train!

include("layers.jl")
include("training.jl")
include("tuned.jl")
include("precompile.jl")

end
