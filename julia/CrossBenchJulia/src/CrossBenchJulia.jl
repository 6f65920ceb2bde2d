"""
Hold what the frameworks in Julia share: descriptions, canonical weights, batches, epochs,
devices and the peak. Each framework is a package of its own, which builds its model and takes
its steps. Python calls that package through juliacall; nothing here knows Python.

Arrays are shared with Python, not copied: what is C-ordered (N, C, H, W) there is
(W, H, C, N) here.
"""
module CrossBenchJulia

using ChainRulesCore: ChainRulesCore, NoTangent, ignore_derivatives
using Functors: fmap
using JSON: JSON
using LinearAlgebra: BLAS, mul!
using MLDataDevices: CPUDevice, cpu_device
using NNlib: NNlib, gelu_erf, gelu_tanh, relu
using OneHotArrays: onehotbatch
using Optimisers: AdaDelta, Adam, AdamW, Descent, Momentum, OptimiserChain, Optimisers, RMSProp
using Random: seed!
using SpecialFunctions: SpecialFunctions  # loads NNlib's gelu_erf
using Statistics: mean

include("device.jl")
include("description.jl")
include("optimizers.jl")
include("workload.jl")
include("weights.jl")
include("training.jl")
include("parity.jl")
include("peak.jl")
include("catalogue.jl")

end
