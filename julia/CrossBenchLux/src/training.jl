# What Lux does of a training: its methods of the functions that CrossBenchJulia asks for. The
# `state` of a workload is Lux's `TrainState`, which holds parameters and states.

"""Mark a `Workload` as one of Lux."""
struct Framework end

const LuxWorkload = Workload{Framework}

"""Build the described model in Lux; see `Workload` in CrossBenchJulia."""
build_workload(json, device_name, precision) =
    Workload(Framework(), json, device_name, precision)

function build(::Framework, description, T, device)
    layers = description["layers"]
    model = build_model(layers)
    ps, st = Lux.setup(Xoshiro(0), model)
    ps, st = device(T == Float64 ? f64((ps, st)) : (ps, st))
    st = with_device_rngs(device, st)
    placed = layer_paths(layers)
    parameters, types = parameter_paths(placed, inner_paths)
    return (;
        model,
        # until the optimizer is known
        state = Training.TrainState(model, ps, st, Optimisers.Descent()),
        parameters,
        types,
        dropouts = dropout_paths(placed),
        loss = objective(description["loss"]),
        targets = targets_function(
            description["loss"],
            description["output_shape"][end],
            T,
        ),
    )
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
    train_state = workload.state
    tree = is_trained(workload, name) ? train_state.parameters : train_state.states
    return lookup(tree, workload.parameters[name])
end

is_trained(workload::LuxWorkload, name) =
    !(last(workload.parameters[name]) in (:running_mean, :running_var))

# (features, 1, 1) in Lux
to_canonical(workload::LuxWorkload, name, array) =
    workload.types[name] isa Val{:LayerNorm} ? vec(array) :
    swap_axes(workload.types[name], array)

function set_up_optimizer!(workload::LuxWorkload)
    old = workload.state
    state = Training.TrainState(workload.model, old.parameters, old.states, workload.rule)
    for name in workload.not_decaying
        leaf = lookup(state.optimizer_state, workload.parameters[name])
        Optimisers.adjust!(leaf; lambda = 0.0)
    end
    for path in second_biases(workload)
        Optimisers.freeze!(lookup(state.optimizer_state, path))
    end
    workload.state = state
    return nothing
end

optimizer_state(workload::LuxWorkload) = workload.state.optimizer_state

"""
Return the paths of the biases that recurrent cells have beside the described ones. They add to
the same sums; they stay zero.
"""
second_biases(workload) = [
    (Base.front(path)..., :bias_hh) for
    path in Base.values(workload.parameters) if last(path) == :bias_ih
]

# Lux makes no dropout, and no state, where nothing is dropped.
dropout_rng(workload::LuxWorkload, path) =
    get(lookup(workload.state.states, path), :rng, nothing)

function adjust_rate!(workload::LuxWorkload, rate)
    workload.state = Optimisers.adjust!(workload.state, rate)
    return nothing
end

function train!(workload::LuxWorkload, batch)
    if isnothing(workload.clip_norm)
        objective, data = with_masks(workload, batch.masks), (batch.inputs, batch.targets)
        _, loss, _, workload.state =
            Training.single_train_step!(AutoZygote(), objective, data, workload.state)
        return loss
    end
    loss, gradient = differentiate(workload, batch)
    workload.state = Training.apply_gradients!(workload.state, clip(workload, gradient))
    return loss
end

function differentiate(workload::LuxWorkload, batch)
    objective, data = with_masks(workload, batch.masks), (batch.inputs, batch.targets)
    gradient, loss, _, workload.state =
        Training.compute_gradients(AutoZygote(), objective, data, workload.state)
    return loss, gradient
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
