"""
Build a model from a description without a framework, as an ordinary Lux `Chain`, and train it
by `Lux.Training`. What is not Lux's own is in CrossBenchJulia.
"""
module CrossBenchLux

using CrossBenchJulia
using CrossBenchJulia:
    CATALOGUE,
    OneHot,
    Workload,
    add_batch!,
    address,
    allow_tensorfloat32,
    apply_mask,
    backward!,
    backward_epoch!,
    begin_epoch!,
    clear_batches!,
    clip,
    configure_runtime,
    copy_on!,
    details,
    dropout_paths,
    every,
    finish_epoch!,
    first_of_sequence,
    free_memory,
    fuse_activations,
    given_gradient,
    gradient_arrays,
    layer_type,
    load_weight!,
    lookup,
    loss_and_gradients,
    multiply!,
    parameter_paths,
    peak_memory,
    predict,
    predict_batch,
    predict_epoch!,
    put,
    reset_state!,
    sequence_mean,
    step!,
    swap_axes,
    targets_function,
    to_sequence,
    train_catalogue,
    train_epoch!,
    unembed,
    weights,
    width_height,
    wrap
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
    dropout_rngs,
    is_trained,
    isolated,
    package_versions,
    parameter,
    predictor,
    reset_optimizer!,
    to_canonical,
    train!

include("model.jl")
include("training.jl")
include("precompile.jl")

end
