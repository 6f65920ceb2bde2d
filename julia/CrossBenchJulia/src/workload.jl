# A model with its optimizer and data, and what a framework must define for it.

"""
Hold a model on a device, with its loss, its optimizer and the batches of its epoch.

  - `framework`: what the methods of a framework dispatch on
  - `model`: the framework's model
  - `parameters`: the path of each parameter, by name ("conv1.weight")
  - `sizes`: the size of its canonical array, by the same name
  - `types`: the `layer_type` of the layer that has it, by the same name
  - `tied`: the paths of its other places, for a parameter that has several
  - `not_decaying`: the parameters without weight decay, where others have one
  - `clip_norm`: the largest norm of all gradients together, or `nothing`
  - `dropouts`: the path of each dropout, by name ("dropout1")
  - `loss`: the framework's loss
  - `targets`: the function that turns labels into targets
  - `rule`: the optimizer, as a rule of Optimisers.jl
  - `schedule`: the learning rate as a function of the step (from 0), or `nothing`
  - `state`: what the framework trains: the optimizer's state, or the model's too
  - `steps`: how many steps were taken since the weights were loaded
  - `batches`: each a `Batch` on the device
  - `counters_before`: what `counters` returned before the epoch
  - `figures`: what the epoch added to these counters, in the unit of their name
"""
Base.@kwdef mutable struct Workload{F}
    framework::F
    model::Any
    parameters::Dict{String,Tuple}
    sizes::Dict{String,Tuple} = Dict{String,Tuple}()
    types::Dict{String,Val}
    tied::Dict{String,Any} = Dict{String,Any}()
    not_decaying::Vector{String} = String[]
    clip_norm::Any
    dropouts::Dict{String,Tuple}
    loss::Any
    targets::Function
    rule::Any
    schedule::Any
    device::Any
    state::Any = nothing
    steps::Int = 0
    batches::Vector{Any} = Any[]
    counters_before::Dict{String,Int} = Dict{String,Int}()
    figures::Dict{String,Float64} = Dict{String,Float64}()
end

Base.copy(workload::Workload) =
    Workload(; (name => getfield(workload, name) for name in fieldnames(Workload))...)

"""
    Workload(framework, json, device_name, precision)

Build the model that `json` describes. `device_name` is "cpu" or "gpu", `precision`
"float32" or "float64".
"""
function Workload(
    framework,
    json::AbstractString,
    device_name::AbstractString,
    precision::AbstractString,
)
    description, T = JSON.parse(json), ELTYPES[precision]
    optimizer, device = description["optimizer"], select_device(device_name)
    workload = Workload(;
        framework,
        device,
        clip_norm = optimizer["clip_norm"],
        rule = rule(optimizer),
        schedule = schedule(optimizer),
        build(framework, description, T, device)...,
    )
    for name in keys(workload.parameters)
        array = parameter(workload, name)
        eltype(array) == T || error("$name is $(eltype(array)) on $device, not $T")
        canonical = to_canonical(workload, name, array)
        workload.sizes[name] = size(canonical)
        decays_not(optimizer, canonical) && push!(workload.not_decaying, name)
    end
    set_up_optimizer!(workload)
    return workload
end

"""
    build(framework, description, T, device) -> NamedTuple

Return the fields of a `Workload` that a framework decides over: `model`, `state`,
`parameters`, `types`, `tied`, `dropouts`, `loss` and `targets`, on the device, with numbers of
the type `T`.
"""
function build end

"""
    parameter(workload, name) -> array

Return a parameter or a running statistic in the framework's own form: the array that the
model computes with.
"""
function parameter end

"""Return whether a parameter is trained; running statistics are not."""
function is_trained end

"""Make the optimizer's state, for the parameters of the model."""
function set_up_optimizer! end

"""Return the tree that `Optimisers.setup` made."""
function optimizer_state end

"""Return the random number generator of the dropout at a path in the model, or `nothing`."""
function dropout_rng end

"""Set the learning rate of the steps that follow."""
function adjust_rate! end

"""
    differentiate(workload, batch) -> (loss, gradient)

Return the loss of one batch in training, and its gradient as the framework has it.
"""
function differentiate end

"""Train on one batch, and return its loss."""
function train! end

"""
Return a workload of the same model and weights, whose running statistics and random number
generators may change without those of this one.
"""
function isolated end

"""
    predictor(workload) -> function

Return the function that predicts the outputs of inputs on the device.
"""
function predictor end

"""Return the versions of the framework's packages, by name."""
function package_versions end
