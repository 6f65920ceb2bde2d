# What a description of layers and losses says, whichever framework builds them. The axes are
# reversed: (H, W) in the description is (W, H) here, and a sequence (L, F) is (F, L).

"""The element types of the arrays that Python hands over, by NumPy's name."""
const ELTYPES = Dict(
    "float32" => Float32,
    "float64" => Float64,
    "int32" => Int32,
    "int64" => Int64,
    "bool" => Bool,
)

"""Return the type of a described layer, to dispatch on."""
layer_type(layer) = Val(Symbol(layer["type"]))

"""
    fuse_activations(layers) -> [(layer, activation), ...]

Pair each layer with `()` or, where an activation follows that it can apply itself, with that
function, such as `(relu,)`, as users write it: `Conv(k, in => out, relu)`.
"""
function fuse_activations(layers)
    pairs = Tuple{Any,Tuple}[]
    for layer in layers
        activation = activation_of(layer_type(layer), layer)
        if !isnothing(activation) && !isempty(pairs) && takes_activation(pairs[end]...)
            pairs[end] = (pairs[end][1], (activation,))
        else
            push!(pairs, (layer, ()))
        end
    end
    return pairs
end

"""Return NNlib's function for a layer that is an activation; `nothing` for another one."""
activation_of(::Val, _) = nothing
activation_of(::Val{:ReLU}, _) = relu
activation_of(::Val{:GELU}, layer) = layer["tanh"] ? gelu_tanh : gelu_erf

takes_activation(layer, activation) =
    isempty(activation) && layer["type"] in ("Conv", "Dense", "BatchNorm")

# The description has (height, width).
width_height(pair) = (Int(pair[2]), Int(pair[1]))

# (W, H, C, N) to (C, W * H, N): the canonical order of the places is row by row, as W, H is here.
to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))

sequence_mean(x) = dropdims(mean(x; dims = 2); dims = 2)
first_of_sequence(x) = x[:, 1, :]

"""Multiply by the weight of an embedding (features, vocabulary), at each place of a sequence."""
unembed(weight, x) = reshape(weight' * reshape(x, size(x, 1), :), :, size(x)[2:end]...)

"""
Encode numbers from 1 as one-hot vectors of the type `T`, not of Bool: BLAS multiplies
these, while Bool would take Julia's generic matrix multiplication.
"""
struct OneHot{T}
    vocabulary::UnitRange{Int}
end
(onehot::OneHot{T})(x) where {T} =
    ignore_derivatives(() -> T.(onehotbatch(x, onehot.vocabulary)))

"""Return 0, whose gradient of the outputs is the targets."""
given_gradient(outputs, targets) = zero(eltype(outputs))
ChainRulesCore.rrule(::typeof(given_gradient), outputs, targets) =
    zero(eltype(outputs)), _ -> (NoTangent(), targets, NoTangent())

"""
    targets_function(loss, outputs, T) -> function

Return the function that turns labels (classes from 0, or numbers) into the targets of the
loss, for a model with this number of outputs. It does not smooth labels.
"""
function targets_function(loss, outputs, T)
    loss["type"] in ("MeanSquaredError", "GivenGradient") && return identity
    loss["type"] == "BinaryCrossEntropy" && return labels -> reshape(T.(labels), 1, :)
    return Base.Fix2(onehotbatch, 0:(outputs-1))
end

# Numbers of a vocabulary count from 0 in Python, from 1 in Julia.
from_one(x) = x
from_one(numbers::AbstractArray{<:Integer}) = numbers .+ one(eltype(numbers))

"""
    parameter_paths(placed, inner_paths) -> (parameters, types)

Return two dictionaries by the full name of a parameter ("conv1.weight"): its path in the
model, and the `layer_type` of its layer. `placed` holds every layer with its path;
`inner_paths` returns the parameters of a layer, with their paths from there.
"""
function parameter_paths(placed, inner_paths)
    parameters, types = Dict{String,Tuple}(), Dict{String,Val}()
    for (layer, path) in placed, (name, inner) in inner_paths(layer)
        full_name = "$(layer["name"]).$name"
        parameters[full_name] = (path..., inner...)
        types[full_name] = layer_type(layer)
    end
    return parameters, types
end

"""Return the path of every dropout, by its name ("dropout1")."""
dropout_paths(placed) = Dict{String,Tuple}(
    layer["name"] => path for (layer, path) in placed if layer["type"] == "Dropout"
)
