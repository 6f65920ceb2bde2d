# What Lux does of a training: its methods of the functions that CrossBenchJulia asks for. The
# `state` of a workload is Lux's `TrainState`, which holds parameters and states.

"""Mark a `Workload` as one of Lux."""
struct Framework end

const LuxWorkload = Workload{Framework}

"""Build the described model in Lux; see `Workload` in CrossBenchJulia."""
build_workload(json, device_name, precision) =
    Workload(Framework(), json, device_name, precision)

function build(::Framework, model, T, device)
    ps, st = Lux.setup(Xoshiro(0), model)
    ps, st = device(T == Float64 ? f64((ps, st)) : (ps, st))
    st = with_device_rngs(device, st)
    dropouts = Tuple[]
    with_dropouts((dropout, path) -> (push!(dropouts, path); dropout), model, ())
    arrays = [array_places(ps); array_places(st)]
    return (; model, trained = (model, ps, st), arrays, dropouts)
end

"""
Return the states with random number generators of the device, where it is a GPU: the CPU's stay
what they are when states are moved. Each is a copy, as `Lux.setup` makes them.
"""
with_device_rngs(::CPUDevice, st) = st
function with_device_rngs(device, st)
    is_rng(node) = node isa AbstractRNG
    return fmap(st; exclude = node -> is_rng(node) || isleaf(node), cache = nothing) do leaf
        is_rng(leaf) ? LuxCore.replicate(default_device_rng(device)) : leaf
    end
end

function parameter(workload::LuxWorkload, name)
    (; parameters, states) = workload.state
    place = workload.places[name]
    return lookup(place.is_trained ? parameters : states, only(place.paths))
end

optimizer_state(workload::LuxWorkload) = workload.state.optimizer_state

# Lux makes no dropout, and no state, where nothing is dropped.
dropout_rng(workload::LuxWorkload, path) =
    get(lookup(workload.state.states, path), :rng, nothing)

function adjust_rate!(workload::LuxWorkload, rate)
    workload.state = Optimisers.adjust!(workload.state, rate)
    return nothing
end

function train!(workload::LuxWorkload, batch)
    if isnothing(workload.clip)
        objective, data = with_masks(workload, batch.masks), (batch.inputs, batch.targets)
        _, loss, _, workload.state =
            Training.single_train_step!(AutoZygote(), objective, data, workload.state)
        return loss
    end
    loss, gradient = differentiate(workload, batch)
    workload.state = Training.apply_gradients!(workload.state, workload.clip(gradient))
    return loss
end

function differentiate(workload::LuxWorkload, batch)
    objective, data = with_masks(workload, batch.masks), (batch.inputs, batch.targets)
    gradient, loss, _, workload.state =
        Training.compute_gradients(AutoZygote(), objective, data, workload.state)
    return loss, gradient
end

function given_gradient_objective(model, ps, st, (x, y))
    outputs, st = model(x, ps, st)
    return given_gradient(outputs, y), st, (;)
end

# A step returns new states, and leaves those that it was given.
isolated(workload::LuxWorkload) = copy(workload)

function predictor(workload::LuxWorkload)
    (; model, state) = workload
    ps, st = state.parameters, Lux.testmode(state.states)
    return x -> first(model(x, ps, st))
end

package_versions(::LuxWorkload) = Dict(
    "Lux" => string(pkgversion(Lux)),
    "LuxLib" => string(pkgversion(Lux.LuxLib)),
    "Zygote" => string(pkgversion(Zygote)),
)

"""
Drop the values that `mask` does not keep, and scale the others as a dropout of `rate` does.
"""
struct FixedMask{M} <: AbstractLuxLayer
    mask::M
    rate::Float64
end
(fixed::FixedMask)(x, ps, st) = apply_mask(x, fixed.mask, fixed.rate), st

"""
    with_masks(workload, masks) -> objective

Return the workload's loss as an objective of a model with a `FixedMask` in place of each
dropout, or as it is if `masks` is `nothing`.
"""
with_masks(workload, ::Nothing) = workload.loss
function with_masks(workload, masks)
    (; model, loss) = workload
    names = Dict(path => name for (name, path) in workload.dropouts)
    fixed(dropout, path) = FixedMask(masks[names[path]], dropout.p)
    masked = with_dropouts(fixed, model, ())
    return (_, ps, st, data) -> loss(masked, ps, st, data)
end

"""
    with_dropouts(f, layer, path) -> layer

Return a layer with `f(dropout, path)` in place of each dropout in it. `path` is the layer's own.
"""
with_dropouts(f, layer, path) = layer
with_dropouts(f, dropout::Dropout, path) = f(dropout, path)
with_dropouts(f, chain::Chain, path) = Chain(each_with_dropouts(f, chain.layers, path))
with_dropouts(f, skip::SkipConnection, path) =
    SkipConnection(with_dropouts(f, skip.layers, path), skip.connection)
with_dropouts(f, parallel::Parallel, path) =
    Parallel(parallel.connection; each_with_dropouts(f, parallel.layers, path)...)
with_dropouts(f, tied::TiedModel, path) =
    TiedModel(tied.embedding, with_dropouts(f, tied.body, (path..., :body)))

each_with_dropouts(f, layers, path) = NamedTuple(
    name => with_dropouts(f, layer, (path..., name)) for (name, layer) in pairs(layers)
)
