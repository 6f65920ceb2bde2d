# What Flux does of a training: its methods of the functions that CrossBenchJulia asks for.

"""Mark a `Workload` as one of Flux."""
struct Framework end

const FluxWorkload = Workload{Framework}

"""Build the described model in Flux; see `Workload` in CrossBenchJulia."""
build_workload(json, device_name, precision) =
    Workload(Framework(), json, device_name, precision)

function build(::Framework, description, T, device)
    layers = description["layers"]
    model = build_chain(layers, T)
    model = with_dropout_rngs(device, device(T == Float64 ? f64(model) : f32(model)))
    placed = layer_paths(layers)
    parameters, types = parameter_paths(placed, inner_paths)
    return (;
        model,
        parameters,
        types,
        tied = tied_paths(layers),
        dropouts = dropout_paths(placed),
        loss = loss_function(description["loss"]),
        targets = smoothed_targets(
            description["loss"],
            description["output_shape"][end],
            T,
        ),
    )
end

function smoothed_targets(loss, outputs, T)
    targets = targets_function(loss, outputs, T)
    smoothing = T(get(loss, "label_smoothing", 0))
    smoothing == 0 && return targets
    return labels -> Flux.label_smoothing(T.(targets(labels)), smoothing)
end

"""
    with_dropout_rngs(device, model) -> model

Return the moved model with a random number generator in each dropout that can draw on the
device. On a GPU that is the device's default one, which Flux's own default became when the
model was moved; on the CPU each dropout gets its own, which a copy of the model does not
share.
"""
with_dropout_rngs(device, model) = model
function with_dropout_rngs(::CPUDevice, model)
    return fmap(model; exclude = node -> node isa Dropout) do node
        node isa Dropout ? Dropout(node.p, node.dims, node.active, Xoshiro(0)) : node
    end
end

parameter(workload::FluxWorkload, name) =
    lookup(workload.model, workload.parameters[name])

function is_trained(workload::FluxWorkload, name)
    path = workload.parameters[name]
    return haskey(Flux.trainable(owner(workload.model, path)), last(path))
end

"""Return the layer, or the recurrent cell, that a parameter is a field of."""
owner(model, path) = lookup(model, Base.front(path))

function set_up_optimizer!(workload::FluxWorkload)
    workload.state = Flux.setup(workload.rule, workload.model)
    for name in workload.not_decaying
        Flux.adjust!(lookup(workload.state, workload.parameters[name]); lambda = 0.0)
    end
    return nothing
end

optimizer_state(workload::FluxWorkload) = workload.state

dropout_rng(workload::FluxWorkload, path) = lookup(workload.model, path).rng

adjust_rate!(workload::FluxWorkload, rate) = (Flux.adjust!(workload.state, rate); nothing)

function train!(workload::FluxWorkload, batch)
    value, gradient = differentiate(workload, batch)
    Flux.update!(workload.state, workload.model, clip(workload, gradient))
    return value
end

function differentiate(workload::FluxWorkload, batch)
    model = with_masks(workload.model, workload.dropouts, batch.masks)
    return value_and_gradient(model, workload.loss, batch.inputs, batch.targets)
end

"""
    value_and_gradient(model, loss, x, y) -> (value, gradient)

Return the loss in training and its gradient. Layers that behave differently in training
need no switch: inside `withgradient` they train. This is a function of its own so that
Julia compiles it for the model's exact type.
"""
function value_and_gradient(model, loss, x, y)
    value, gradients = Flux.withgradient(m -> loss(m(x), y), model)
    return value, gradients[1]
end

function isolated(workload::FluxWorkload)
    copied = copy(workload)
    copied.model = deepcopy(workload.model)
    return copied
end

# Outside a gradient Flux's layers predict.
predictor(workload::FluxWorkload) = workload.model

package_versions(::FluxWorkload) = Dict(
    "Flux" => string(pkgversion(Flux)),
    "Zygote" => string(pkgversion(Zygote)),
)

"""
Drop the values that `mask` does not keep, and scale the others as a dropout of `rate` does.
"""
struct FixedMask{M}
    mask::M
    rate::Float64
end
(fixed::FixedMask)(x) = apply_mask(x, fixed.mask, fixed.rate)

"""
    with_masks(model, dropouts, masks) -> model

Return the model with a `FixedMask` in place of each dropout, or as it is if `masks` is
`nothing`. It shares all its arrays.
"""
with_masks(model, dropouts, ::Nothing) = model
function with_masks(model, dropouts, masks)
    replacements = IdDict{Any,Any}()
    for (name, mask) in masks
        dropout = lookup(model, dropouts[name])
        replacements[dropout] = FixedMask(mask, dropout.p)
    end
    return fmap(
        node -> get(replacements, node, node),
        model;
        exclude = node -> node isa Dropout,
    )
end
