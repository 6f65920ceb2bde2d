# Canonical weights are torch's, seen here with their axes reversed: a kernel (O, I, H, W)
# arrives as (W, H, I, O), a dense weight (out, in) as (in, out).

"""
    to_flux(layer, array) -> array

Convert a canonical parameter to the form that Flux's `layer` (or recurrent cell) has it in.
"""
to_flux(_, array) = array
# Flux convolves, the others cross-correlate: the kernel is flipped along both its axes.
to_flux(::Conv, weight::AbstractArray{<:Any,4}) = reverse(weight; dims = (1, 2))
to_flux(::Union{Dense,Flux.LSTMCell,Flux.GRUCell}, weight::AbstractMatrix) =
    permutedims(weight)

"""
Convert a parameter of Flux's `layer` to its canonical form: `to_flux` is its own inverse.
"""
to_canonical(layer, array) = to_flux(layer, array)

"""
    lookup(tree, path) -> layer or array

Return what is at the end of the path in a model, or in its gradient, where it is `nothing`
if there is no gradient.
"""
lookup(tree, path) = foldl(child, path; init = tree)

child(tree, field::Symbol) = getproperty(tree, field)
child(tree, index::Int) = tree[index]
child(::Nothing, ::Symbol) = nothing
child(::Nothing, ::Int) = nothing

"""Return the layer, or the recurrent cell, that a parameter is a field of."""
owner(model, path) = lookup(model, Base.front(path))

"""
Return the parameters by name ("conv1.weight"), as canonical arrays on the CPU. One that needs
no conversion is the model's own array: a copy of a large one would make the garbage collector
run when the weights are read after an epoch, as if the epoch were not over.
"""
function weights(workload)
    model = workload.model
    return Dict{String,Array}(
        name => to_canonical(owner(model, path), cpu(lookup(model, path))) for
        (name, path) in workload.parameters
    )
end

"""
Return the gradients of the trained parameters by name, as canonical arrays on the CPU.
"""
function gradient_arrays(workload, gradient)
    return Dict{String,Array}(
        name => to_array(workload.model, path, gradient_array(workload, gradient, name)) for
        (name, path) in workload.parameters if is_trained(workload.model, path)
    )
end

is_trained(model, path) = haskey(Flux.trainable(owner(model, path)), last(path))

to_array(model, path, array) = Array(to_canonical(owner(model, path), cpu(array)))

"""
    gradient_array(workload, gradient, name) -> array

Return the gradient of a parameter, in the model's own form: the sum over all its places.
"""
function gradient_array(workload, gradient, name)
    path = workload.parameters[name]
    paths = (path, get(workload.tied, name, ())...)
    parts = [part for part in (lookup(gradient, p) for p in paths) if !isnothing(part)]
    # Zygote's gradient of a parameter that the loss does not depend on is `nothing`, not zeros
    isempty(parts) && return zero(lookup(workload.model, path))
    return length(parts) == 1 ? only(parts) : sum(parts)
end

"""Copy canonical `values` into the model's parameter of that name ("conv1.weight")."""
function load_weight!(workload, name, values)
    path = workload.parameters[name]
    layer, parameter = owner(workload.model, path), lookup(workload.model, path)
    converted = to_flux(layer, values)
    size(converted) == size(parameter) ||
        error("$name has the size $(size(converted)), not $(size(parameter))")
    copyto!(parameter, converted)
    return nothing
end
