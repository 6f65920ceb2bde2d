# A model with its optimizer and data, and its training. An epoch is one call from Python,
# or, where each batch is made only when its turn comes, one call per batch.

"""
Hold a model on a device, with its loss, its optimizer and the batches of its epoch.

  - `parameters`: the path of each parameter in the model, by name ("conv1.weight")
  - `tied`: the paths of its other places, for a parameter that has several
  - `not_decaying`: the parameters without weight decay, where others have one
  - `clip_norm`: the largest norm of all gradients together, or `nothing`
  - `dropouts`: the path of each dropout in the model, by name ("dropout1")
  - `loss`: a function of (outputs, targets)
  - `targets`: the function that turns labels into targets
  - `rule`: the optimizer, as a rule of Optimisers.jl
  - `schedule`: the learning rate as a function of the step (from 0), or `nothing`
  - `state`: the optimizer's state, as `Flux.setup` returns it
  - `steps`: how many steps were taken since the weights were loaded
  - `batches`: each a `Batch` on the device
  - `counters_before`: what `counters` returned before the epoch
  - `figures`: what the epoch added to these counters, in the unit of their name
"""
Base.@kwdef mutable struct Workload
    model::Chain
    parameters::Dict{String,Tuple}
    tied::Dict{String,Any}
    not_decaying::Vector{String}
    clip_norm::Any
    dropouts::Dict{String,Tuple}
    loss::Function
    targets::Function
    rule::Any
    schedule::Any
    device::Any
    state::Any = nothing
    steps::Int = 0
    batches::Vector{Any} = []
    counters_before::Dict{String,Int} = Dict()
    figures::Dict{String,Float64} = Dict()
end

"""
    Workload(json, device_name, precision)

Build the model that `json` describes. `device_name` is "cpu" or "gpu", `precision`
"float32" or "float64".
"""
function Workload(
    json::AbstractString,
    device_name::AbstractString,
    precision::AbstractString,
)
    description, T = JSON.parse(json), ELTYPES[precision]
    layers, optimizer = description["layers"], description["optimizer"]
    device, model = select_device(device_name), build_chain(layers, T)
    model = with_dropout_rngs(device, device(T == Float64 ? f64(model) : f32(model)))
    parameters = parameter_paths(layers)
    for (name, path) in parameters
        found = eltype(lookup(model, path))
        found == T || error("$name is $found on $device, not $T")
    end
    outputs = description["output_shape"][end]
    return Workload(;
        model,
        parameters,
        tied = tied_paths(layers),
        not_decaying = [n for (n, p) in parameters if decays_not(optimizer, lookup(model, p))],
        clip_norm = optimizer["clip_norm"],
        dropouts = dropout_paths(layers),
        loss = loss_function(description["loss"]),
        targets = targets_function(description["loss"], outputs, T),
        rule = rule(optimizer),
        schedule = schedule(optimizer),
        device,
    )
end

"""The element types of the arrays that Python hands over, by NumPy's name."""
const ELTYPES = Dict(
    "float32" => Float32,
    "float64" => Float64,
    "int32" => Int32,
    "int64" => Int64,
    "bool" => Bool,
)

"""
    wrap(type, address, size) -> Array

Return a Julia array on memory that the caller keeps alive for as long as the array is used.
`type` is NumPy's name of the element type ("float32").
"""
wrap(type::AbstractString, address::Integer, size::Tuple) =
    unsafe_wrap(Array, Ptr{ELTYPES[type]}(UInt(address)), Int.(size))

"""
Reset the optimizer's state and the seeds of the dropout masks after the weights were
loaded, and collect the garbage from before.
"""
function reset_state!(workload)
    workload.state = Flux.setup(workload.rule, workload.model)
    for name in workload.not_decaying
        Flux.adjust!(lookup(workload.state, workload.parameters[name]); lambda = 0.0)
    end
    workload.steps = 0
    names = sort!(collect(keys(workload.dropouts)))
    rngs = [lookup(workload.model, workload.dropouts[name]).rng for name in names]
    for (seed, rng) in enumerate(unique(objectid, rngs))  # all dropouts on a GPU share one
        seed!(rng, seed)
    end
    collect_garbage(workload.device)
    return nothing
end

"""
Hold the examples of one step on the device.

  - `inputs`: (..., batch), in the form that the model takes
  - `targets`: what the loss compares the model's outputs with
  - `masks`: the dropout masks by name, or `nothing` if the dropouts draw their own
"""
struct Batch{X,Y,M}
    inputs::X
    targets::Y
    masks::M
end

"""
    make_batch(workload, inputs, labels, masks) -> Batch

Move the examples of one step to the device. `inputs` is (..., batch). `labels` are classes
from 0, (batch), or numbers, (outputs, batch).
"""
function make_batch(workload, inputs, labels, masks)
    device = workload.device
    moved_masks =
        isnothing(masks) ? nothing :
        Dict{String,Any}(name => to_device(device, mask) for (name, mask) in masks)
    targets = to_device(device, workload.targets(labels))
    return Batch(to_device(device, flux_inputs(inputs)), targets, moved_masks)
end

# Numbers of a vocabulary count from 0 in Python, from 1 in Flux.
flux_inputs(x) = x
flux_inputs(numbers::AbstractArray{<:Integer}) = numbers .+ one(eltype(numbers))

"""
    add_batch!(workload, inputs, labels, masks = nothing)

Copy a batch to the device, as the last one of the epoch. `inputs` and `labels` are those of
`make_batch`, `masks` are dropout masks by name. The caller may free the arrays afterwards.
"""
function add_batch!(workload, inputs, labels, masks = nothing)
    batch = make_batch(workload, inputs, labels, masks)
    push!(workload.batches, copy_if_shared(workload.device, batch))
    return nothing
end

"""Remove all batches from the epoch."""
clear_batches!(workload) = (empty!(workload.batches); nothing)

"""
    train_epoch!(workload) -> losses

Train on every batch once, in order, wait for the device, and return the loss of each step.
"""
function train_epoch!(workload)
    begin_epoch!(workload)
    losses = Float64[step!(workload, batch) for batch in workload.batches]
    finish_epoch!(workload)
    return losses
end

"""
    backward_epoch!(workload) -> gradient

Return the gradient of the last batch, after those of every batch, in order; wait for the device.
"""
function backward_epoch!(workload)
    local gradient
    for batch in workload.batches
        gradient = backward!(workload, batch)
    end
    synchronize(workload.device)
    return gradient
end

"""
    backward!(workload, batch::Batch) -> gradient
    backward!(workload, inputs, labels, masks = nothing) -> gradient

Return the gradient of one batch in training, as `Flux.update!` takes it.
"""
backward!(workload, inputs, labels, masks = nothing) =
    backward!(workload, make_batch(workload, inputs, labels, masks))

function backward!(workload, batch::Batch)
    model = with_masks(workload.model, workload.dropouts, batch.masks)
    return last(differentiate(model, workload.loss, batch.inputs, batch.targets))
end

"""
    predict_epoch!(workload) -> Array

Return the outputs (outputs..., batch, steps) for every batch, in order, and set
`workload.figures`. Outside a gradient Flux's layers predict.
"""
function predict_epoch!(workload)
    begin_epoch!(workload)
    outputs = [infer(workload.model, batch.inputs) for batch in workload.batches]
    stacked = Array(cpu(stack(outputs)))
    finish_epoch!(workload)
    return stacked
end

"""
    predict_batch(workload, step) -> Array

Return the outputs (outputs..., batch) for one batch of the epoch, counted from 1.
"""
predict_batch(workload, step) =
    Array(cpu(infer(workload.model, workload.batches[step].inputs)))

# A function of its own, so that Julia compiles it for the model's exact type.
infer(model, x) = model(x)

"""Read the counters before the first step of an epoch."""
begin_epoch!(workload) = (workload.counters_before = counters(); nothing)

"""Wait for the device after the last step of an epoch, and set `workload.figures`."""
function finish_epoch!(workload)
    synchronize(workload.device)
    before = workload.counters_before
    workload.figures = Dict(
        name => Float64(value - before[name]) * unit(name) for (name, value) in counters()
    )
    return nothing
end

"""
    step!(workload, batch::Batch) -> loss
    step!(workload, inputs, labels, masks = nothing) -> loss

Train on one batch, which is on the device, or is moved there for this step alone.
"""
step!(workload, inputs, labels, masks = nothing) =
    step!(workload, make_batch(workload, inputs, labels, masks))

function step!(workload, batch::Batch)
    isnothing(workload.schedule) ||
        Flux.adjust!(workload.state, workload.schedule(workload.steps))
    workload.steps += 1
    model = with_masks(workload.model, workload.dropouts, batch.masks)
    value, gradient = differentiate(model, workload.loss, batch.inputs, batch.targets)
    Flux.update!(workload.state, workload.model, clip(workload, gradient))
    return Float64(value)
end

"""
    clip(workload, gradient) -> gradient

Scale the gradient down where the norm of all its arrays is over `workload.clip_norm`. The rule
`ClipNorm` of Optimisers.jl has a norm for each array. The gradient of a parameter with several
places is the sum of its parts.
"""
function clip(workload, gradient)
    isnothing(workload.clip_norm) && return gradient
    arrays = [
        gradient_array(workload, gradient, name) for
        (name, path) in workload.parameters if is_trained(workload.model, path)
    ]
    norm = sqrt(sum(array -> sum(abs2, array), arrays))
    norm <= workload.clip_norm && return gradient
    factor = workload.clip_norm / norm
    scaled(part) = part isa AbstractArray ? eltype(part)(factor) .* part : part
    return fmap(scaled, gradient; cache = nothing)
end

"""
    differentiate(model, loss, x, y) -> (value, gradient)

Return the loss in training and its gradient. Layers that behave differently in training
need no switch: inside `withgradient` they train. This is a function of its own so that
Julia compiles it for the model's exact type.
"""
function differentiate(model, loss, x, y)
    value, gradients = Flux.withgradient(m -> loss(m(x), y), model)
    return value, gradients[1]
end

"""
Return Julia's own counters, in bytes and in ns; they run all the time.
"""
function counters()
    gc = Base.gc_num()
    return Dict{String,Int}(
        "allocated MiB" => Base.gc_total_bytes(gc),
        "GC s" => gc.total_time,
        "compile s" => first(Base.cumulative_compile_time_ns()),
    )
end

# From a counter's bytes or ns to the unit in its name.
unit(name) = endswith(name, "MiB") ? 2.0^-20 : 1e-9

"""
    configure_runtime(threads; convolves)

Limit the training to so many threads, and have Julia count its compile time, before the
first epoch. NNlib spreads a convolution's batch over Julia's threads, where more than one
BLAS thread would get in the way; BLAS alone spreads everything else. convolves: whether
convolutions do most of the model's work.
"""
function configure_runtime(threads::Integer; convolves::Bool)
    BLAS.set_num_threads(convolves && Threads.nthreads() > 1 ? 1 : threads)
    Base.cumulative_compile_timing(true)
    return nothing
end

"""Return versions, BLAS, threads and the device, by name, for whoever reads the figures."""
function details(device)
    runtime = Dict(
        "Julia" => string(VERSION),
        "Flux" => string(pkgversion(Flux)),
        "NNlib" => string(pkgversion(Flux.NNlib)),
        "Zygote" => string(pkgversion(Flux.Zygote)),
        "Optimisers" => string(pkgversion(Flux.Optimisers)),
        "BLAS" =>
            join((basename(l.libname) for l in BLAS.get_config().loaded_libs), ", "),
        "BLAS threads" => string(BLAS.get_num_threads()),
        "Julia threads" => string(Threads.nthreads()),
    )
    return merge(device_details(device), runtime)
end
