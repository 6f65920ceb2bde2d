"""
Build a model from a description without a framework, as an ordinary Flux `Chain`, and train
it with an ordinary Flux loop. Python calls this package through juliacall; nothing here
knows Python.

Arrays are shared with Python, not copied: what is C-ordered (N, C, H, W) there is
(W, H, C, N) here.
"""
module CrossBenchFlux

using Base.Cartesian: @nexprs, @ntuple
using Flux
using Flux: Optimisers, Zygote, fmap, ignore_derivatives
using JSON
using LinearAlgebra: BLAS, mul!
using MLDataDevices: CPUDevice, cpu_device
using NNlib: NNlib, gelu_erf, gelu_tanh, make_causal_mask, sigmoid_fast, tanh_fast
using PrecompileTools: @compile_workload, @setup_workload
using Random: Xoshiro, seed!
using SpecialFunctions: SpecialFunctions  # loads NNlib's gelu_erf
using Statistics: mean

include("device.jl")
include("model.jl")
include("weights.jl")
include("training.jl")
include("parity.jl")
include("tuned.jl")
include("tuned_layers.jl")
include("peak.jl")
include("precompile.jl")

end
