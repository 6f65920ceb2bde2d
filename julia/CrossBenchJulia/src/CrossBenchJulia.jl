"""
Hold what the frameworks in Julia share: canonical weights, batches, epochs, devices and the
peak. Each framework is a package of its own, which builds its model and takes
its steps. Python calls that package through juliacall; nothing here knows Python.

Arrays are shared with Python, not copied: what is C-ordered (N, C, H, W) there is
(W, H, C, N) here.
"""
module CrossBenchJulia

using ChainRulesCore: ChainRulesCore, NoTangent, ignore_derivatives
using Functors: children
using JSON: JSON
using LinearAlgebra: BLAS, mul!
using MLDataDevices: CPUDevice, cpu_device
using NNlib: NNlib, upsample_bilinear
using Optimisers: Optimisers
using Random: AbstractRNG, seed!
using SpecialFunctions: SpecialFunctions  # loads NNlib's gelu_erf

# What Python calls in the package of each framework.
export add_batch!,
    address,
    allow_tensorfloat32,
    backward!,
    backward_epoch!,
    begin_epoch!,
    clear_batches!,
    configure_runtime,
    copy_on!,
    details,
    every,
    finish_epoch!,
    free_memory,
    gradient_arrays,
    load_weight!,
    loss_and_gradients,
    multiply!,
    peak_memory,
    predict,
    predict_batch,
    predict_epoch!,
    predictor,
    put,
    reset_state!,
    step!,
    train_epoch!,
    weights,
    wrap

# What the packages build their models and their workloads with.
export Batch,
    LionSign,
    RootOfSum,
    Velocity,
    Workload,
    apply_mask,
    array_places,
    given_gradient,
    lookup,
    to_array,
    train_catalogue

# What the statements of a model name.
export add,
    along_channels,
    attention_mask,
    bilinear,
    cat_channels,
    elementwise,
    first_of_sequence,
    multiply,
    padded,
    place_angles,
    repeat_heads,
    rotate_neighbours,
    sequence_max,
    sinusoids,
    swap_features,
    to_sequence

include("device.jl")
include("optimizers.jl")
include("rules.jl")
include("layers.jl")
include("workload.jl")
include("weights.jl")
include("training.jl")
include("parity.jl")
include("peak.jl")
include("catalogue.jl")

end
