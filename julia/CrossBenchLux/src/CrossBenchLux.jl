"""
Train an ordinary Lux `Chain`, which the statements of a program make, by `Lux.Training`. What is
not Lux's own is in CrossBenchJulia.
"""
module CrossBenchLux

using CrossBenchJulia
using Functors: fmap, isleaf
using Lux
using MLDataDevices: CPUDevice, default_device_rng
using NNlib: gelu_erf, gelu_tanh, leakyrelu
using OneHotArrays: onehotbatch
using Optimisers
using PrecompileTools: @compile_workload, @setup_workload
using Random: AbstractRNG, Xoshiro
using Statistics: mean
using Zygote: Zygote

# What Lux defines for its own workloads.
import CrossBenchJulia:
    adjust_rate!,
    build,
    differentiate,
    dropout_rng,
    isolated,
    optimizer_state,
    package_versions,
    parameter,
    predictor,
    train!

include("layers.jl")
include("training.jl")
include("precompile.jl")

end
