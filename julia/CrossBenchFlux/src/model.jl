# From the description to Flux's own layers. The axes are reversed: (H, W) in the
# description is (W, H) here, and a sequence (L, F) is (F, L).

"""
    build_chain(layers, T) -> Chain

Build the described layers, in order, with numbers of the type `T`.
"""
function build_chain(layers, T)
    translated = Any[
        translate(layer_type(layer), layer, T, activation...) for
        (layer, activation) in fuse_activations(layers)
    ]
    translated = [tied(layer, first(translated)) for layer in translated]
    return length(translated) > MAX_TUPLE_LAYERS ? Chain(translated) : Chain(translated...)
end

"""Return the layer, or, in place of `Unembedding`, one that shares the weight of the first."""
tied(layer, _) = layer

"""
How many layers a `Chain` holds in a tuple at most. Julia compiles a tuple of layers as a
whole, which takes minutes for a long one. It compiles a vector of layers one kind of layer
at a time, at the price of a dynamic call in each step.
"""
const MAX_TUPLE_LAYERS = 24

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

translate(::Val{:ReLU}, layer, T) = x -> relu.(x)
function translate(type::Val{:GELU}, layer, T)
    activation = activation_of(type, layer)
    return x -> activation.(x)
end

# (W, H, C, N) flattens column by column, which is the canonical C, H, W row by row.
translate(::Val{:Flatten}, layer, T) = Flux.flatten

translate(::Val{:ToSequence}, layer, T) = to_sequence
translate(::Val{:Dense}, layer, T, activation...) = Dense(
    layer["input_shape"][end] => layer["features"],
    activation...;
    bias = layer["bias"],
    init = zeros_init,
)

# Flux's momentum is the weight of the new value, the description's of the running value.
function translate(::Val{:BatchNorm}, layer, T, activation...)
    return BatchNorm(
        layer["input_shape"][1],
        activation...;
        eps = T(layer["epsilon"]),
        momentum = T(1 - layer["momentum"]),
    )
end

"""Return whether Flux adds the square of eps to the variance, as before 0.16.11, and not eps itself."""
squares_eps() = Flux.normalise([-1.0, 1.0]; eps = 3.0)[2] < 0.4

function translate(::Val{:LayerNorm}, layer, T)
    features = layer["input_shape"][end]
    scale = Flux.Scale(features; bias = layer["bias"])
    eps = squares_eps() ? sqrt(layer["epsilon"]) : layer["epsilon"]
    return LayerNorm(identity, scale, T(eps), (features,), true)
end

"""Divide by the root of the mean square of the features, which Flux has no layer for."""
struct RMSNorm{W,T}
    weight::W
    epsilon::T
end
Flux.@layer RMSNorm
(norm::RMSNorm)(x) = norm.weight .* x ./ sqrt.(mean(abs2, x; dims = 1) .+ norm.epsilon)
translate(::Val{:RMSNorm}, layer, T) =
    RMSNorm(ones(Float32, layer["input_shape"][end]), T(layer["epsilon"]))

translate(::Val{:Dropout}, layer, T) = Dropout(layer["rate"])

function translate(::Val{:GlobalAveragePool}, layer, T)
    length(layer["input_shape"]) == 2 && return sequence_mean
    return Chain(GlobalMeanPool(), Flux.flatten)
end

translate(::Val{:Embedding}, layer, T) =
    Flux.Embedding(layer["vocabulary"] => layer["features"]; init = zeros_init)

"""Multiply by the weight of an embedding, which is the model's own array."""
struct Unembedding{E}
    embedding::E
end
Flux.@layer Unembedding
(layer::Unembedding)(x) = unembed(layer.embedding.weight, x)
tied(::Unembedding{Nothing}, embedding) = Unembedding(embedding)
translate(::Val{:Unembedding}, layer, T) = Unembedding(nothing)

"""Add a weight for each place of a sequence."""
struct PositionEmbedding{W}
    weight::W
end
Flux.@layer PositionEmbedding
(layer::PositionEmbedding)(x) = x .+ layer.weight
translate(::Val{:PositionEmbedding}, layer, T) =
    PositionEmbedding(zeros_init(reverse(layer["input_shape"])...))

"""Put the same weight before each sequence."""
struct ClassToken{W}
    weight::W
end
Flux.@layer ClassToken
(layer::ClassToken)(x) = hcat(repeat(layer.weight, 1, 1, size(x, 3)), x)
translate(::Val{:ClassToken}, layer, T) = ClassToken(zeros_init(layer["input_shape"][end]))

translate(::Val{:FirstOfSequence}, layer, T) = first_of_sequence
"""Attend with a causal mask, or with none, and return no scores."""
struct SelfAttention{A}
    attention::A
    causal::Bool
end
Flux.@layer SelfAttention
function (layer::SelfAttention)(x)
    mask = ignore_derivatives(() -> layer.causal ? make_causal_mask(x; dims = 2) : nothing)
    return first(layer.attention(x; mask))
end
function translate(::Val{:MultiHeadAttention}, layer, T)
    features, bias = layer["input_shape"][end], layer["bias"]
    attention = MultiHeadAttention(features; nheads = layer["heads"], bias, init = zeros_init)
    return SelfAttention(attention, layer["causal"])
end

translate(::Val{:OneHot}, layer, T) = OneHot{T}(1:layer["vocabulary"])
Flux.Functors.@leaf OneHot

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
    # the gradient of a Chain without layers is nothing
    body = isempty(layer["body"]) ? identity : build_chain(layer["body"], T)
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

"""Return the paths of the other places of a parameter in the `Chain`, by its full name."""
function tied_paths(layers)
    paths = [
        (path..., :embedding, :weight) for
        (layer, path) in layer_paths(layers) if layer["type"] == "Unembedding"
    ]
    return isempty(paths) ? Dict{String,Any}() : Dict{String,Any}("embedding1.weight" => paths)
end

"""
    inner_paths(layer) -> (name => path, ...)

Return the path of each parameter from its layer on, by its name in the description.
"""
inner_paths(layer) = inner_paths(layer_type(layer), layer)
inner_paths(::Val, layer) = ()
inner_paths(::Union{Val{:Conv},Val{:Dense}}, layer) =
    layer["bias"] ? ("weight" => (:weight,), "bias" => (:bias,)) : ("weight" => (:weight,),)
inner_paths(::Val{:LayerNorm}, layer) =
    layer["bias"] ? ("weight" => (:diag, :scale), "bias" => (:diag, :bias)) :
    ("weight" => (:diag, :scale),)
inner_paths(::Val{:RMSNorm}, layer) = ("weight" => (:weight,),)
inner_paths(::Val{:PositionEmbedding}, layer) = ("weight" => (:weight,),)
inner_paths(::Val{:ClassToken}, layer) = ("weight" => (:weight,),)
function inner_paths(::Val{:MultiHeadAttention}, layer)
    projections =
        ("query" => :q_proj, "key" => :k_proj, "value" => :v_proj, "output" => :out_proj)
    paths(parameter) =
        ("$(name)_$parameter" => (:attention, p, Symbol(parameter)) for (name, p) in projections)
    return layer["bias"] ? (paths("weight")..., paths("bias")...) : (paths("weight")...,)
end
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
    type == "GivenGradient" && return given_gradient
    return error("the Flux adapter does not support the loss $type")
end
