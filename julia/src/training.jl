# The model with its optimizer and data, and its training: an epoch is one call from Python, or,
# where each batch is made when its turn comes, one for each.

Base.@kwdef mutable struct Workload
    model::Chain
    parameters::Dict{String,Tuple}  # the way to each, by name
    dropouts::Dict{String,Tuple}
    loss::Function
    targets::Function
    rule::Any
    schedule::Any
    device::Any
    state::Any = nothing
    steps::Int = 0  # since the weights were loaded
    batches::Vector{Any} = []
    before::Dict{String,Int} = Dict()
    figures::Dict{String,Float64} = Dict()
end

"""
    Workload(json, device, precision)

Build the described model. `device` is "cpu" or "gpu", `precision` "float32" or "float64".
"""
function Workload(json::AbstractString, device::AbstractString, precision::AbstractString)
    description, T = JSON.parse(json), NUMBER[precision]
    layers, optimizer = description["layers"], description["optimizer"]
    to, model = mover(device), chain(layers, T)
    model = with_generators(to, to(T == Float64 ? f64(model) : f32(model)))
    parameters = parameter_ways(layers)
    for (name, way) in parameters
        found = eltype(follow(model, way))
        found == T || error("$name is of $found on $to, not of $T")
    end
    return Workload(;
        model,
        parameters,
        dropouts = dropout_ways(layers),
        loss = loss_function(description["loss"]),
        targets = targets_function(description["loss"], prod(description["output_shape"]), T),
        rule = rule(optimizer),
        schedule = schedule(optimizer),
        device = to,
    )
end

const NUMBER = Dict(
    "float32" => Float32, "float64" => Float64, "int32" => Int32, "int64" => Int64, "bool" => Bool)

"""A Julia array on memory that somebody else keeps alive, for the time of the call."""
wrap(type::AbstractString, address::Integer, size::Tuple) =
    unsafe_wrap(Array, Ptr{NUMBER[type]}(UInt(address)), Int.(size))

"""After the weights were loaded: the optimizer's state and the dropouts' random numbers anew, and no
garbage left from before."""
function reset!(workload)
    workload.state = Flux.setup(workload.rule, workload.model)
    workload.steps = 0
    names = sort!(collect(keys(workload.dropouts)))
    rngs = [follow(workload.model, workload.dropouts[name]).rng for name in names]
    for (seed, rng) in enumerate(unique(objectid, rngs))  # on a GPU all have one
        seed!(rng, seed)
    end
    collect_garbage(workload.device)
    return nothing
end

# The examples of a step on the device; kept: which values the dropouts keep, by name, or nothing.
struct Batch{X,Y,K}
    inputs::X
    targets::Y
    kept::K
end

# `inputs` is (..., batch), the labels count from 0.
function batch(workload, inputs, labels, kept)
    masks = isnothing(kept) ? nothing :
        Dict{String,Any}(name => moved(workload.device, mask) for (name, mask) in kept)
    targets = moved(workload.device, workload.targets(labels))
    return Batch(moved(workload.device, native_inputs(inputs)), targets, masks)
end

native_inputs(x) = x
native_inputs(numbers::AbstractArray{<:Integer}) = numbers .+ one(eltype(numbers))  # from 1 here

"""Add a batch to the epoch; the arrays may be let go of afterwards."""
function place!(workload, inputs, labels, kept = nothing)
    push!(workload.batches, owned(workload.device, batch(workload, inputs, labels, kept)))
    return nothing
end

"""Take all batches out of the epoch."""
clear!(workload) = (empty!(workload.batches); nothing)

"""Train on every batch once, in order: the losses. Returns when the device is idle."""
function train_epoch!(workload)
    begin!(workload)
    losses = Float64[step!(workload, batch) for batch in workload.batches]
    finish!(workload)
    return losses
end

"""Before the steps of an epoch, and after them: what happens between makes the figures."""
begin!(workload) = (workload.before = counters(); nothing)

function finish!(workload)
    synchronize(workload.device)
    workload.figures = Dict(
        name => Float64(value - workload.before[name]) * unit(name) for (name, value) in counters()
    )
    return nothing
end

"""One step on a batch that is placed, or brought for this step alone: its loss."""
step!(workload, inputs, labels, kept = nothing) =
    step!(workload, batch(workload, inputs, labels, kept))

function step!(workload, batch::Batch)
    isnothing(workload.schedule) ||
        Flux.adjust!(workload.state, workload.schedule(workload.steps))
    workload.steps += 1
    masked = with_masks(workload.model, workload.dropouts, batch.kept)
    value, gradient = differentiate(masked, workload.loss, batch.inputs, batch.targets)
    Flux.update!(workload.state, workload.model, gradient)
    return Float64(value)
end

# A function of its own, so that Julia compiles it for the very types of the model. Layers that
# train otherwise than they predict need no switch: inside withgradient they train.
function differentiate(model, loss, x, y)
    value, gradients = Flux.withgradient(m -> loss(m(x), y), model)
    return value, gradients[1]
end

# What Julia alone can tell of an epoch, from counters that run all the time.
function counters()
    gc = Base.gc_num()
    return Dict{String,Int}(
        "allocated MiB" => Base.gc_total_bytes(gc),
        "GC s" => gc.total_time,
        "compile s" => first(Base.cumulative_compile_time_ns()),
    )
end
unit(name) = endswith(name, "MiB") ? 2.0^-20 : 1e-9

"""Before the first epoch: run on `n` threads at most. NNlib spreads a convolution's batch over Julia's
threads, where BLAS would get in the way with more than one; all else that is spread is BLAS'."""
function start!(workload, n::Integer)
    convolves = any(layer -> layer isa Conv, Flux.modules(workload.model))
    BLAS.set_num_threads(convolves && Threads.nthreads() > 1 ? 1 : n)
    Base.cumulative_compile_timing(true)
    return nothing
end

"""Versions, BLAS, threads and the device, for the reader of the figures."""
details(device) = merge(device_details(device), Dict(
    "Julia" => string(VERSION),
    "Flux" => string(pkgversion(Flux)),
    "NNlib" => string(pkgversion(Flux.NNlib)),
    "Zygote" => string(pkgversion(Flux.Zygote)),
    "Optimisers" => string(pkgversion(Flux.Optimisers)),
    "BLAS" => join((basename(l.libname) for l in BLAS.get_config().loaded_libs), ", "),
    "BLAS threads" => string(BLAS.get_num_threads()),
    "Julia threads" => string(Threads.nthreads()),
))
