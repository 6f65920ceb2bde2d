# From the description to Flux's own layers. The axes are reversed: (H, W) in the
# description is (W, H) here, and a sequence (L, F) is (F, L).

"""
    build_chain(layers, T) -> Chain

Build the described layers, in order, with numbers of the type `T`.
"""
function build_chain(layers, T)
    translated = Any[
        translate(Val(Symbol(layer["type"])), layer, T, activation...) for
        (layer, activation) in fuse_activations(layers)
    ]
    return length(translated) > MAX_TUPLE_LAYERS ? Chain(translated) : Chain(translated...)
end

"""
How many layers a `Chain` holds in a tuple at most. Julia compiles a tuple of layers as a
whole, which takes minutes for a long one. It compiles a vector of layers one kind of layer
at a time, at the price of a dynamic call in each step.
"""
const MAX_TUPLE_LAYERS = 24

"""
    fuse_activations(layers) -> [(layer, activation), ...]

Pair each layer with `()` or, where an activation follows that it can apply itself, with that
function, such as `(relu,)`, as Flux users write it: `Conv(k, in => out, relu)`.
"""
function fuse_activations(layers)
    pairs = Tuple{Any,Tuple}[]
    for layer in layers
        activation = get(ACTIVATIONS, layer["type"], nothing)
        if !isnothing(activation) && !isempty(pairs) && takes_activation(pairs[end]...)
            pairs[end] = (pairs[end][1], (activation,))
        else
            push!(pairs, (layer, ()))
        end
    end
    return pairs
end

"""Flux's functions for the layers that are an activation, by type; `gelu` approximates."""
const ACTIVATIONS = Dict("ReLU" => relu, "GELU" => gelu_erf)

takes_activation(layer, activation) =
    isempty(activation) && layer["type"] in ("Conv", "Dense", "BatchNorm")

"""
    translate(Val(type), layer, T, activation...) -> layer of Flux

Build one described layer.
"""
translate(::Val{type}, layer, T) where {type} =
    error("the Flux adapter does not support the layer $type")

# load_weight! replaces all initial values: drawing Flux's own would be wasted work.
zeros_init(size...) = zeros(Float32, size...)

function translate(::Val{:Conv}, layer, T, activation...)
    return Conv(
        width_height(layer["kernel"]),
        layer["input_shape"][1] => layer["features"],
        activation...;
        stride = width_height(layer["stride"]),
        pad = width_height(layer["padding"]),
        bias = layer["bias"],
        init = zeros_init,
    )
end

translate(::Val{:MaxPool}, layer, T) =
    MaxPool(width_height(layer["window"]); stride = width_height(layer["stride"]))

# The description has (height, width).
width_height(pair) = (Int(pair[2]), Int(pair[1]))

translate(::Val{:ReLU}, layer, T) = x -> relu.(x)
translate(::Val{:GELU}, layer, T) = x -> gelu_erf.(x)

# (W, H, C, N) flattens column by column, which is the canonical C, H, W row by row.
translate(::Val{:Flatten}, layer, T) = Flux.flatten

translate(::Val{:Dense}, layer, T, activation...) =
    Dense(layer["input_shape"][1] => layer["features"], activation...; init = zeros_init)

# Flux's momentum is the weight of the new value, the description's of the running value.
function translate(::Val{:BatchNorm}, layer, T, activation...)
    return BatchNorm(
        layer["input_shape"][1],
        activation...;
        eps = T(layer["epsilon"]),
        momentum = T(1 - layer["momentum"]),
    )
end

translate(::Val{:Dropout}, layer, T) = Dropout(layer["rate"])

function translate(::Val{:GlobalAveragePool}, layer, T)
    length(layer["input_shape"]) == 2 && return sequence_mean
    return Chain(GlobalMeanPool(), Flux.flatten)
end

sequence_mean(x) = dropdims(mean(x; dims = 2); dims = 2)

translate(::Val{:Embedding}, layer, T) =
    Flux.Embedding(layer["vocabulary"] => layer["features"]; init = zeros_init)

translate(::Val{:OneHot}, layer, T) = OneHot{T}(1:layer["vocabulary"])

"""
Encode numbers from 1 as one-hot vectors of the type `T`, not of Bool: BLAS multiplies
these, while Bool would take Julia's generic matrix multiplication.
"""
struct OneHot{T}
    vocabulary::UnitRange{Int}
end
Flux.Functors.@leaf OneHot
(onehot::OneHot{T})(x) where {T} =
    ignore_derivatives(() -> T.(Flux.onehotbatch(x, onehot.vocabulary)))

translate(::Val{:LSTM}, layer, T) = recurrent(layer, LSTM)
translate(::Val{:GRU}, layer, T) = recurrent(layer, GRU)

"""
    recurrent(layer, kind) -> Chain or Parallel

Build an `LSTM` or a `GRU` (`kind`) that returns the last output of each direction.
"""
function recurrent(layer, kind)
    build() = kind(
        layer["input_shape"][2] => layer["features"];
        init_kernel = zeros_init,
        init_recurrent_kernel = zeros_init,
    )
    forward = Chain(build(), last_output)
    layer["bidirectional"] || return forward
    return Parallel(vcat, forward, Chain(reverse_sequence, build(), last_output))
end

last_output(x) = x[:, end, :]
reverse_sequence(x) = reverse(x; dims = 2)

function translate(::Val{:Residual}, layer, T)
    body = build_chain(layer["body"], T)
    isempty(layer["shortcut"]) && return SkipConnection(body, +)
    return Parallel(+, body, build_chain(layer["shortcut"], T))
end

"""
    layer_paths(layers) -> [(layer, path), ...]

Return every described layer that has a place of its own in the `Chain`, nested ones too,
and its path there: field names and indices, such as `(:layers, 3)`.
"""
function layer_paths(layers, root = ())
    found = Tuple{Any,Tuple}[]
    for (index, (layer, _)) in enumerate(fuse_activations(layers))
        path = (root..., :layers, index)
        push!(found, (layer, path))
        layer["type"] == "Residual" || continue
        if isempty(layer["shortcut"])
            append!(found, layer_paths(layer["body"], (path..., :layers)))
        else
            append!(found, layer_paths(layer["body"], (path..., :layers, 1)))
            append!(found, layer_paths(layer["shortcut"], (path..., :layers, 2)))
        end
    end
    return found
end

"""Return the path of every parameter in the `Chain`, by its full name ("conv1.weight")."""
function parameter_paths(layers)
    return Dict{String,Tuple}(
        "$(layer["name"]).$name" => (path..., inner...) for
        (layer, path) in layer_paths(layers) for
        (name, inner) in inner_paths(Val(Symbol(layer["type"])), layer)
    )
end

"""Return the path of every dropout in the `Chain`, by its name ("dropout1")."""
function dropout_paths(layers)
    return Dict{String,Tuple}(
        layer["name"] => path for
        (layer, path) in layer_paths(layers) if layer["type"] == "Dropout"
    )
end

"""
    inner_paths(Val(type), layer) -> (name => path, ...)

Return the path of each parameter from its layer on, by its name in the description.
"""
inner_paths(::Val, layer) = ()
inner_paths(::Val{:Conv}, layer) =
    layer["bias"] ? ("weight" => (:weight,), "bias" => (:bias,)) : ("weight" => (:weight,),)
inner_paths(::Val{:Dense}, layer) = ("weight" => (:weight,), "bias" => (:bias,))
inner_paths(::Val{:Embedding}, layer) = ("weight" => (:weight,),)
inner_paths(::Val{:BatchNorm}, layer) =
    ("weight" => (:γ,), "bias" => (:β,), "running_mean" => (:μ,), "running_var" => (:σ²,))
inner_paths(::Val{:LSTM}, layer) = recurrent_paths(layer, :bias)
inner_paths(::Val{:GRU}, layer) = recurrent_paths(layer, :b)

function recurrent_paths(layer, bias)
    direction(suffix, path...) = (
        "weight_ih$suffix" => (path..., :cell, :Wi),
        "weight_hh$suffix" => (path..., :cell, :Wh),
        "bias$suffix" => (path..., :cell, bias),
    )
    layer["bidirectional"] || return direction("", :layers, 1)
    forward = direction("", :layers, 1, :layers, 1)
    backward = direction("_reverse", :layers, 2, :layers, 2)
    return (forward..., backward...)
end

"""Return Flux's function for the described loss, of (outputs, targets)."""
function loss_function(loss)
    type = loss["type"]
    type == "SoftmaxCrossEntropy" && return Flux.logitcrossentropy
    type == "BinaryCrossEntropy" && return Flux.logitbinarycrossentropy
    type == "MeanSquaredError" && return Flux.mse
    return error("the Flux adapter does not support the loss $type")
end

"""
    targets_function(loss, outputs, T) -> function

Return the function that turns labels (classes from 0, or numbers) into the targets of the
loss, for a model with this number of outputs.
"""
function targets_function(loss, outputs, T)
    loss["type"] == "MeanSquaredError" && return identity
    loss["type"] == "BinaryCrossEntropy" && return labels -> reshape(T.(labels), 1, :)
    return labels -> Flux.onehotbatch(labels, 0:(outputs-1))
end

"""Return the rule of Optimisers.jl for the described optimizer."""
rule(optimizer) = rule(Val(Symbol(optimizer["type"])), optimizer)
rule(::Val{type}, _) where {type} =
    error("the Flux adapter does not support the optimizer $type")
function rule(::Val{:SGD}, o)
    o["momentum"] == 0 && return Descent(o["learning_rate"])
    return Momentum(o["learning_rate"], o["momentum"])
end
rule(::Val{:Adam}, o) = Adam(o["learning_rate"], (o["beta1"], o["beta2"]), o["epsilon"])
rule(::Val{:RMSprop}, o) = RMSProp(o["learning_rate"], o["rho"], o["epsilon"])
# AdaDelta has no learning rate of its own.
rule(::Val{:Adadelta}, o) =
    OptimiserChain(AdaDelta(o["rho"], o["epsilon"]), Descent(o["learning_rate"]))

"""Return the learning rate as a function of the step (from 0), or `nothing` if constant."""
function schedule(optimizer)
    decay = get(optimizer, "decay", 0)
    return decay == 0 ? nothing : t -> optimizer["learning_rate"] / (1 + decay * t)
end
