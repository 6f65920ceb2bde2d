# The model with its optimizer and data, and its training: an epoch is one call from Python.

mutable struct Workload
    model::Chain
    names::Dict{String,Int}
    loss::Function
    rule::Any
    device::Any
    state::Any
    batches::Any
    figures::Dict{String,Float64}
end

"""
    Workload(json, device, precision)

Build the described model. `device` is "cpu" or "gpu", `precision` "float32" or "float64".
"""
function Workload(json::AbstractString, device::AbstractString, precision::AbstractString)
    description = JSON.parse(json)
    model, names = chain(description)
    model = precision == "float64" ? f64(model) : f32(model)
    to = mover(device)
    return Workload(to(model), names, loss_function(description), rule(description), to,
        nothing, nothing, Dict{String,Float64}())
end

const NUMBER = Dict("float32" => Float32, "float64" => Float64, "int64" => Int64)

"""A Julia array on memory that somebody else keeps alive, for the time of the call."""
wrap(type::AbstractString, address::Integer, size::Tuple) =
    unsafe_wrap(Array, Ptr{NUMBER[type]}(UInt(address)), Int.(size))

load_weight!(workload, name, values) = load!(workload.model, workload.names, name, values)

"""The optimizer's state anew, after the weights were loaded; and no garbage left from before."""
function reset!(workload)
    workload.state = Flux.setup(workload.rule, workload.model)
    GC.gc()
    return nothing
end

"""Labels count from 0. `inputs` is (W, H, C, batch, steps), `labels` (batch, steps)."""
function place!(workload, inputs, labels)
    steps = eachslice(inputs; dims = ndims(inputs))
    classes = 0:(outputs(workload.model) - 1)
    workload.batches = [
        workload.device((copy(x), Flux.onehotbatch(y, classes))) for
        (x, y) in zip(steps, eachcol(labels))
    ]
    return nothing
end

outputs(model) = length(model.layers[end].bias)

"""Train on every batch once, in order: the losses. Returns when the device is idle."""
function train_epoch!(workload)
    before = counters()
    losses = train!(workload.model, workload.state, workload.loss, workload.batches)
    synchronize(workload.device)
    workload.figures = Dict(
        name => Float64(value - before[name]) * unit(name) for (name, value) in counters()
    )
    return losses
end

# A function of its own, so that Julia compiles it for the very types of the model. Layers that
# train otherwise than they predict (dropout) need no switch: inside withgradient they train.
function train!(model, state, loss, batches)
    losses = Float64[]
    for (x, y) in batches
        value, gradients = Flux.withgradient(m -> loss(m(x), y), model)
        Flux.update!(state, model, gradients[1])
        push!(losses, value)
    end
    return losses
end

# What Julia alone can tell of an epoch, from counters that run all the time.
function counters()
    gc = Base.gc_num()
    return Dict(
        "allocated MiB" => Base.gc_total_bytes(gc),
        "GC s" => gc.total_time,
        "compile s" => first(Base.cumulative_compile_time_ns()),
    )
end
unit(name) = endswith(name, "MiB") ? 2.0^-20 : 1e-9

"""Run with `n` Julia threads' worth of work at most: NNlib spreads a batch over tasks, so BLAS
gets one thread unless Julia has but one."""
function start(n::Integer)
    BLAS.set_num_threads(Threads.nthreads() > 1 ? 1 : n)
    Base.cumulative_compile_timing(true)
    return nothing
end

"""Versions, BLAS and threads, for the reader of the figures."""
details() = Dict(
    "Julia" => string(VERSION),
    "Flux" => string(pkgversion(Flux)),
    "NNlib" => string(pkgversion(Flux.NNlib)),
    "Zygote" => string(pkgversion(Flux.Zygote)),
    "Optimisers" => string(pkgversion(Flux.Optimisers)),
    "BLAS" => join((basename(l.libname) for l in BLAS.get_config().loaded_libs), ", "),
    "BLAS threads" => string(BLAS.get_num_threads()),
    "Julia threads" => string(Threads.nthreads()),
)
