"""
Build a model from a description without a framework, as an ordinary Flux `Chain`, and train
it with an ordinary Flux loop. What is not Flux's own is in CrossBenchJulia.
"""
module CrossBenchFlux

using Base.Cartesian: @nexprs, @ntuple
using CrossBenchJulia
using CrossBenchJulia:
    Batch,
    CATALOGUE,
    OneHot,
    Workload,
    add_batch!,
    address,
    allow_tensorfloat32,
    apply_mask,
    begin_epoch!,
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
    sequence_mean,
    targets_function,
    to_array,
    to_sequence,
    train_catalogue,
    train_epoch!,
    unembed,
    weights,
    width_height,
    wrap
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
    clear_batches!,
    differentiate,
    dropout_rngs,
    gradient_arrays,
    is_trained,
    isolated,
    package_versions,
    parameter,
    predictor,
    reset_optimizer!,
    reset_state!,
    step!,
    train!

include("model.jl")
include("training.jl")
include("tuned.jl")
include("tuned_layers.jl")
include("precompile.jl")

end
