# From the description to Lux's own layers. The axes are reversed: (H, W) in the description is
# (W, H) here, and a sequence (L, F) is (F, L).

"""
    build_model(layers) -> layer of Lux

Build the described layers, in order.
"""
function build_model(layers)
    layers[end]["type"] == "Unembedding" || return build_chain(layers)
    return TiedModel(only(translated(layers[1:1])), build_chain(layers[2:(end-1)]))
end

function build_chain(layers)
    made = translated(layers)
    is_flat(length(made)) && return Chain(made...)
    return Chain((Chain(part...) for part in Iterators.partition(made, PART_LAYERS))...)
end

"""
How many layers a `Chain` holds at most; a longer one is a `Chain` of parts. Julia compiles a
`Chain` as a whole, in a time that grows much faster than its length, and equal parts once: the
first step of resnet63 took 79 s in parts of 4, 130 s in parts of 8, and more than 270 s flat.
"""
const MAX_FLAT_LAYERS = 12
const PART_LAYERS = 4

is_flat(count) = count <= MAX_FLAT_LAYERS

"""Return the path of a layer from a `Chain` of so many layers on."""
function place(index, count)
    is_flat(count) && return (Symbol("layer_$index"),)
    part, inner = fldmod1(index, PART_LAYERS)
    return (Symbol("layer_$part"), Symbol("layer_$inner"))
end

translated(layers) = [
    translate(layer_type(layer), layer, activation...) for
    (layer, activation) in fuse_activations(layers)
]

"""
    translate(Val(type), layer, activation...) -> layer of Lux

Build one described layer.
"""
translate(::Val{type}, layer) where {type} =
    error("the Lux adapter does not support the layer $type")

translate(::Val{:Conv}, layer, activation...) = Conv(
    width_height(layer["kernel"]),
    layer["input_shape"][1] => layer["features"],
    activation...;
    stride = width_height(layer["stride"]),
    pad = width_height(layer["padding"]),
    use_bias = layer["bias"],
    INITIAL...,
)

# load_weight! replaces all initial values: drawing Lux's own would be wasted work.
const INITIAL = (init_weight = zeros32, init_bias = zeros32)

translate(::Val{:MaxPool}, layer) =
    MaxPool(width_height(layer["window"]); stride = width_height(layer["stride"]))

function translate(type::Union{Val{:ReLU},Val{:GELU}}, layer)
    activation = activation_of(type, layer)
    return WrappedFunction(x -> activation.(x))
end

# (W, H, C, N) flattens column by column, which is the canonical C, H, W row by row.
translate(::Val{:Flatten}, layer) = FlattenLayer()

translate(::Val{:ToSequence}, layer) = WrappedFunction(to_sequence)

translate(::Val{:Dense}, layer, activation...) = Dense(
    layer["input_shape"][end] => layer["features"],
    activation...;
    use_bias = layer["bias"],
    INITIAL...,
)

# Lux's momentum is the weight of the new value, the description's of the running value.
translate(::Val{:BatchNorm}, layer, activation...) = BatchNorm(
    layer["input_shape"][1],
    activation...;
    epsilon = layer["epsilon"],
    momentum = 1 - layer["momentum"],
)

function translate(::Val{:LayerNorm}, layer)
    features, epsilon = layer["input_shape"][end], layer["epsilon"]
    layer["bias"] && return LayerNorm((features, 1); dims = 1, epsilon)
    # LayerNorm has both of them or none
    return Chain(
        LayerNorm((features, 1); dims = 1, epsilon, affine = false),
        Scale(features; use_bias = false, init_weight = ones32),
    )
end

translate(::Val{:RMSNorm}, layer) =
    RMSNorm(layer["input_shape"][end]; epsilon = layer["epsilon"])

translate(::Val{:Dropout}, layer) = Dropout(layer["rate"])

function translate(::Val{:GlobalAveragePool}, layer)
    length(layer["input_shape"]) == 2 && return WrappedFunction(sequence_mean)
    return Chain(GlobalMeanPool(), FlattenLayer())
end

translate(::Val{:Embedding}, layer) =
    Embedding(layer["vocabulary"] => layer["features"]; init_weight = zeros32)

"""
Begin with an embedding, and end with a multiplication by its weight.

  - `embedding`: an `Embedding`
  - `body`: what is between the two
"""
struct TiedModel{E,B} <: AbstractLuxContainerLayer{(:embedding, :body)}
    embedding::E
    body::B
end
function (model::TiedModel)(x, ps, st)
    embedded, st_embedding = model.embedding(x, ps.embedding, st.embedding)
    y, st_body = model.body(embedded, ps.body, st.body)
    return unembed(ps.embedding.weight, y), (embedding = st_embedding, body = st_body)
end

translate(::Val{:PositionEmbedding}, layer) =
    @compact(; weight = zeros32(reverse(layer["input_shape"])...)) do x
        @return x .+ weight
    end

translate(::Val{:ClassToken}, layer) =
    @compact(; weight = zeros32(layer["input_shape"][end])) do x
        @return hcat(repeat(weight, 1, 1, size(x, 3)), x)
    end

translate(::Val{:FirstOfSequence}, layer) = WrappedFunction(first_of_sequence)

# The second output of the layer, which nobody needs, are the scores.
translate(::Val{:MultiHeadAttention}, layer) = Chain(
    MultiHeadAttention(
        layer["input_shape"][end];
        nheads = layer["heads"],
        dense_kwargs = (; use_bias = layer["bias"], INITIAL...),
        is_causal = layer["causal"],
    ),
    WrappedFunction(first),
)

translate(::Val{:OneHot}, layer) = Encoder(layer["vocabulary"])

"""Encode numbers from 1 as one-hot vectors, of the type of the model's numbers."""
struct Encoder <: AbstractLuxLayer
    vocabulary::Int
end
Lux.initialstates(::AbstractRNG, ::Encoder) = (zero = zeros32(1),)
(encoder::Encoder)(x, ps, st) =
    OneHot{eltype(st.zero)}(1:encoder.vocabulary)(x), st

translate(::Val{:LSTM}, layer) = recurrent(layer, LSTMCell)
translate(::Val{:GRU}, layer) = recurrent(layer, GRUCell)

"""
    recurrent(layer, cell) -> Recurrence or Parallel

Build an `LSTMCell` or a `GRUCell` (`cell`) that returns the last output of each direction.
"""
function recurrent(layer, cell)
    build() = Recurrence(
        cell(
            layer["input_shape"][2] => layer["features"];
            init_weight = zeros32,
            init_bias = zeros32,
        ),
    )
    layer["bidirectional"] || return build()
    return Parallel(vcat, build(), Chain(ReverseSequence(2), build()))
end

function translate(::Val{:Residual}, layer)
    body = branch(layer["body"])
    isempty(layer["shortcut"]) && return SkipConnection(body, +)
    return Parallel(+, body, branch(layer["shortcut"]))
end

branch(layers) = isempty(layers) ? NoOpLayer() : build_chain(layers)

"""
    layer_paths(layers) -> [(layer, path), ...]

Return every described layer that has a place of its own in the model, nested ones too, and
its path in the model's parameters and states, such as `(:layer_3,)`.
"""
function layer_paths(layers)
    layers[end]["type"] == "Unembedding" || return chain_paths(layers)
    return [(layers[1], (:embedding,)); chain_paths(layers[2:(end-1)], (:body,))]
end

function chain_paths(layers, root = ())
    found = Tuple{Any,Tuple}[]
    fused = fuse_activations(layers)
    for (index, (layer, _)) in enumerate(fused)
        path = (root..., place(index, length(fused))...)
        push!(found, (layer, path))
        layer["type"] == "Residual" || continue
        if isempty(layer["shortcut"])
            append!(found, chain_paths(layer["body"], path))
        else
            append!(found, chain_paths(layer["body"], (path..., :layer_1)))
            append!(found, chain_paths(layer["shortcut"], (path..., :layer_2)))
        end
    end
    return found
end

"""
    inner_paths(layer) -> (name => path, ...)

Return the path of each parameter, and of each running statistic, from its layer on, by its
name in the description.
"""
inner_paths(layer) = inner_paths(layer_type(layer), layer)
inner_paths(::Val, layer) = ()
inner_paths(::Union{Val{:Conv},Val{:Dense}}, layer) =
    layer["bias"] ? ("weight" => (:weight,), "bias" => (:bias,)) : ("weight" => (:weight,),)
inner_paths(::Val{:LayerNorm}, layer) =
    layer["bias"] ? ("weight" => (:scale,), "bias" => (:bias,)) :
    ("weight" => (:layer_2, :weight),)
inner_paths(::Val{:RMSNorm}, layer) = ("weight" => (:scale,),)
inner_paths(::Union{Val{:PositionEmbedding},Val{:ClassToken},Val{:Embedding}}, layer) =
    ("weight" => (:weight,),)
function inner_paths(::Val{:MultiHeadAttention}, layer)
    projections =
        ("query" => :q_proj, "key" => :k_proj, "value" => :v_proj, "output" => :out_proj)
    paths(parameter) =
        ("$(name)_$parameter" => (:layer_1, p, Symbol(parameter)) for (name, p) in projections)
    return layer["bias"] ? (paths("weight")..., paths("bias")...) : (paths("weight")...,)
end
inner_paths(::Val{:BatchNorm}, layer) = (
    "weight" => (:scale,),
    "bias" => (:bias,),
    "running_mean" => (:running_mean,),
    "running_var" => (:running_var,),
)
function inner_paths(::Union{Val{:LSTM},Val{:GRU}}, layer)
    direction(suffix, path...) = (
        "weight_ih$suffix" => (path..., :weight_ih),
        "weight_hh$suffix" => (path..., :weight_hh),
        "bias$suffix" => (path..., :bias_ih),
    )
    layer["bidirectional"] || return direction("")
    return (direction("", :layer_1)..., direction("_reverse", :layer_2, :layer_2)...)
end

"""
Return Lux's objective for the described loss, of (model, parameters, states, (inputs,
targets)).
"""
function objective(loss)
    type = loss["type"]
    type == "SoftmaxCrossEntropy" && return CrossEntropyLoss(;
        logits = Val(true),
        label_smoothing = loss["label_smoothing"] == 0 ? nothing : loss["label_smoothing"],
    )
    type == "BinaryCrossEntropy" && return BinaryCrossEntropyLoss(; logits = Val(true))
    type == "MeanSquaredError" && return MSELoss()
    type == "GivenGradient" && return given_gradient_objective
    return error("the Lux adapter does not support the loss $type")
end

function given_gradient_objective(model, ps, st, (x, y))
    outputs, st = model(x, ps, st)
    return given_gradient(outputs, y), st, (;)
end
