"""
Build a model from a description without a framework, as an ordinary Flux `Chain`, and train
it with an ordinary Flux loop. What is not Flux's own is in CrossBenchJulia.
"""
module CrossBenchFlux

using Base.Cartesian: @nexprs, @ntuple
using CrossBenchJulia
using Flux
using Flux: Optimisers, Zygote, fmap, ignore_derivatives
using LinearAlgebra: BLAS, mul!
using MLDataDevices: CPUDevice
using NNlib: NNlib, gelu_erf, gelu_tanh, make_causal_mask, sigmoid_fast, tanh_fast
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
    is_trained,
    isolated,
    optimizer_state,
    package_versions,
    parameter,
    predictor,
    reset_state!,
    set_up_optimizer!,
    step!,
    train!

include("model.jl")
include("training.jl")
include("tuned.jl")
include("tuned_layers.jl")
include("precompile.jl")

end
