"""
Build a model from a description without a framework, as an ordinary Lux `Chain`, and train it
by `Lux.Training`. What is not Lux's own is in CrossBenchJulia.
"""
module CrossBenchLux

using CrossBenchJulia
using Functors: fmap, isleaf
using Lux
using MLDataDevices: CPUDevice, default_device_rng
using NNlib: NNlib, relu
using Optimisers: Optimisers
using PrecompileTools: @compile_workload, @setup_workload
using Random: AbstractRNG, Xoshiro
using Zygote: Zygote

# What Lux defines for its own workloads.
import CrossBenchJulia:
    adjust_rate!,
    build,
    differentiate,
    dropout_rng,
    is_trained,
    isolated,
    optimizer_state,
    package_versions,
    parameter,
    predictor,
    set_up_optimizer!,
    to_canonical,
    train!

include("model.jl")
include("training.jl")
include("precompile.jl")

end
