# Batches and epochs. An epoch is one call from Python, or, where each batch is made only when
# its turn comes, one call per batch.

"""
Reset the optimizer's state and the seeds of the dropout masks after the weights were
loaded, and, on a GPU, collect the garbage from before.
"""
function reset_state!(workload)
    restart!(optimizer_state(workload))
    workload.steps = 0
    for (seed, rng) in enumerate(unique(objectid, dropout_rngs(workload)))
        seed!(rng, seed)  # all dropouts on a GPU share one
    end
    collect_garbage(workload.device)
    return nothing
end

"""Return the random number generators of the dropouts that have one, in the order of their names."""
function dropout_rngs(workload)
    names = sort!(collect(keys(workload.dropouts)))
    rngs = [dropout_rng(workload, workload.dropouts[name]) for name in names]
    return filter(!isnothing, rngs)
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
    return Batch(to_device(device, from_one(inputs)), targets, moved_masks)
end

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

# Token ids count from 0 in Python, from 1 in Julia.
from_one(x) = x
from_one(ids::AbstractArray{<:Integer}) = ids .+ one(eltype(ids))

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
    step!(workload, batch::Batch) -> loss
    step!(workload, inputs, labels, masks = nothing) -> loss

Train on one batch, which is on the device, or is moved there for this step alone.
"""
step!(workload, inputs, labels, masks = nothing) =
    step!(workload, make_batch(workload, inputs, labels, masks))

function step!(workload, batch::Batch)
    isnothing(workload.rate) || adjust_rate!(workload, workload.rate(workload.steps))
    workload.steps += 1
    return Float64(train!(workload, batch))
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

Return the gradient of one batch in training, as the framework has it.
"""
backward!(workload, inputs, labels, masks = nothing) =
    backward!(workload, make_batch(workload, inputs, labels, masks))
backward!(workload, batch::Batch) = last(differentiate(workload, batch))

"""
    predict_epoch!(workload) -> Array

Return the outputs (outputs..., batch, steps) for every batch, in order, and set
`workload.figures`.
"""
function predict_epoch!(workload)
    begin_epoch!(workload)
    outputs = predict_batches(predictor(workload), workload.batches)
    stacked = Array(cpu_device()(stack(outputs)))
    finish_epoch!(workload)
    return stacked
end

# A function of its own, so that Julia compiles it for the model's exact type.
predict_batches(predict, batches) = [predict(batch.inputs) for batch in batches]

"""
    predict_batch(workload, predict, step) -> Array

Return the outputs (outputs..., batch) for one batch of the epoch, counted from 1. `predict` is
the workload's `predictor`, made once for many batches.
"""
predict_batch(workload, predict, step) =
    Array(cpu_device()(predict(workload.batches[step].inputs)))

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
function details(workload)
    runtime = Dict(
        "Julia" => string(VERSION),
        "NNlib" => string(pkgversion(NNlib)),
        "Optimisers" => string(pkgversion(Optimisers)),
        "BLAS" =>
            join((basename(l.libname) for l in BLAS.get_config().loaded_libs), ", "),
        "BLAS threads" => string(BLAS.get_num_threads()),
        "Julia threads" => string(Threads.nthreads()),
    )
    return merge(device_details(workload.device), runtime, package_versions(workload))
end
