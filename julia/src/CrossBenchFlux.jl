"""
One model, described without a framework, as an ordinary Flux `Chain`, trained by an ordinary
Flux loop. Called from Python through juliacall; nothing here knows Python.

An array crosses as the same memory: what is C-ordered (N, C, H, W) there is (W, H, C, N) here.
"""
module CrossBenchFlux

using Flux
using Flux: fmap, ignore_derivatives
using JSON
using LinearAlgebra: BLAS, mul!
using MLDataDevices: CPUDevice, cpu_device
using PrecompileTools: @compile_workload, @setup_workload
using Random: Xoshiro, seed!
using Statistics: mean

include("device.jl")
include("model.jl")
include("weights.jl")
include("training.jl")
include("parity.jl")
include("peak.jl")
include("precompile.jl")

end
