# What Flux does of a training: its methods of the functions that CrossBenchJulia asks for.

"""Mark a `Workload` as one of Flux, by a subtype for each way to take its steps."""
abstract type Framework end
"""The way that Flux' documentation teaches."""
struct Idiomatic <: Framework end

const FluxWorkload = Workload{<:Framework}

"""Build the described model in Flux; see `Workload` in CrossBenchJulia."""
build_workload(json, device_name, precision) =
    Workload(Idiomatic(), json, device_name, precision)

function build(::Framework, model, T, device)
    model = device(T == Float64 ? exact(f64(model)) : f32(model))
    return (; model, trained = (model,), arrays = array_places(model), dropouts = dropout_paths(model))
end

"""Return a model of Float64, whose numbers of Float32, such as a default of 0.1f0, are exact."""
exact(model) = fmap(x -> x isa Float32 ? parse(Float64, string(x)) : x, model)

"""
    dropout_paths(model) -> [path, ...]

Return the paths of the dropouts, without those in an attention, which drop nothing.
"""
dropout_paths(node, path = ()) = reduce(
    vcat,
    (dropout_paths(child, (path..., key)) for (key, child) in pairs(Flux.Functors.children(node)));
    init = Tuple[],
)
dropout_paths(::Dropout, path) = Tuple[path]
dropout_paths(::Union{MultiHeadAttention,AbstractArray{<:Number}}, path) = Tuple[]

parameter(workload::FluxWorkload, name) =
    lookup(workload.model, first(workload.places[name].paths))

optimizer_state(workload::FluxWorkload) = workload.state

dropout_rng(workload::FluxWorkload, path) = lookup(workload.model, path).rng

adjust_rate!(workload::FluxWorkload, rate) = (Flux.adjust!(workload.state, rate); nothing)

function train!(workload::FluxWorkload, batch)
    value, gradient = differentiate(workload, batch)
    isnothing(workload.clip) || (gradient = workload.clip(gradient))
    Flux.update!(workload.state, workload.model, gradient)
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
