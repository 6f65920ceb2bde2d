# Canonical weights are torch's, seen here with their axes reversed: a kernel (O, I, H, W) arrives
# as (W, H, I, O), a dense weight (out, in) as (in, out).

# Flux convolves, the others cross-correlate: the kernel is flipped along both its axes.
native(::Conv, weight::AbstractArray{<:Any,4}) = reverse(weight; dims = (1, 2))
native(::Union{Dense,Flux.LSTMCell,Flux.GRUCell}, weight::AbstractMatrix) = permutedims(weight)
native(_, same) = same

# Each of these is its own inverse.
canonical(layer, array) = native(layer, array)

"""What is at the end of the way in a model; in its gradient, `nothing` where there is none."""
follow(tree, way) = foldl(part, way; init = tree)

part(tree, field::Symbol) = getproperty(tree, field)
part(tree, index::Int) = tree[index]
part(::Nothing, ::Symbol) = nothing
part(::Nothing, ::Int) = nothing

# The layer, or cell, that a parameter is a field of.
owner(model, way) = follow(model, Base.front(way))

"""The parameters by name ("conv1.weight"), in their canonical order of values, on the CPU."""
weights(workload) = Dict{String,Array}(
    name => Array(canonical(owner(workload.model, way), cpu(follow(workload.model, way)))) for
    (name, way) in workload.parameters)

"""The same of a gradient, for what is trained."""
gradient_arrays(workload, gradient) = Dict{String,Array}(
    name => gradient_array(workload.model, gradient, way) for
    (name, way) in workload.parameters if trained(workload.model, way))

trained(model, way) = haskey(Flux.trainable(owner(model, way)), last(way))

function gradient_array(model, gradient, way)
    array = @something follow(gradient, way) zero(follow(model, way))
    return Array(canonical(owner(model, way), cpu(array)))
end

"""Copy canonical `values` into the model's parameter of that name ("conv1.weight")."""
function load_weight!(workload, name, values)
    way = workload.parameters[name]
    layer, parameter = owner(workload.model, way), follow(workload.model, way)
    fitting = native(layer, values)
    size(fitting) == size(parameter) ||
        error("$name has the size $(size(fitting)), not $(size(parameter))")
    copyto!(parameter, fitting)
    return nothing
end
