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
    fuse_activations(layers) -> [(layer, activation), ...]

Pair each layer with `()` or, where an activation follows that it can apply itself, with that
function, such as `(relu,)`, as Flux users write it: `Conv(k, in => out, relu)`.
"""
function fuse_activations(layers)
    pairs = Tuple{Any,Tuple}[]
    for layer in layers
        activation = activation_of(Val(Symbol(layer["type"])), layer)
        if !isnothing(activation) && !isempty(pairs) && takes_activation(pairs[end]...)
            pairs[end] = (pairs[end][1], (activation,))
        else
            push!(pairs, (layer, ()))
        end
    end
    return pairs
end

"""Return Flux's function for a layer that is an activation; `nothing` for another one."""
activation_of(::Val, _) = nothing
activation_of(::Val{:ReLU}, _) = relu
activation_of(::Val{:GELU}, layer) = layer["tanh"] ? gelu_tanh : gelu_erf

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
function translate(type::Val{:GELU}, layer, T)
    activation = activation_of(type, layer)
    return x -> activation.(x)
end

# (W, H, C, N) flattens column by column, which is the canonical C, H, W row by row.
translate(::Val{:Flatten}, layer, T) = Flux.flatten

# (W, H, C, N) to (C, W * H, N): the canonical order of the places is row by row, as W, H is here.
translate(::Val{:ToSequence}, layer, T) = to_sequence
to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))

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

# Flux adds the square of its eps to the variance.
function translate(::Val{:LayerNorm}, layer, T)
    features = layer["input_shape"][end]
    scale = Flux.Scale(features; bias = layer["bias"])
    return LayerNorm(identity, scale, T(sqrt(layer["epsilon"])), (features,), true)
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

sequence_mean(x) = dropdims(mean(x; dims = 2); dims = 2)

translate(::Val{:Embedding}, layer, T) =
    Flux.Embedding(layer["vocabulary"] => layer["features"]; init = zeros_init)

"""Multiply by the weight of an embedding, which is the model's own array."""
struct Unembedding{E}
    embedding::E
end
Flux.@layer Unembedding
function (layer::Unembedding)(x)
    weight = layer.embedding.weight
    return reshape(weight' * reshape(x, size(x, 1), :), :, size(x)[2:end]...)
end
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
first_of_sequence(x) = x[:, 1, :]

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

"""Return the paths of the other places of a parameter in the `Chain`, by its full name."""
function tied_paths(layers)
    paths = [
        (path..., :embedding, :weight) for
        (layer, path) in layer_paths(layers) if layer["type"] == "Unembedding"
    ]
    return isempty(paths) ? Dict{String,Any}() : Dict{String,Any}("embedding1.weight" => paths)
end

"""
    inner_paths(Val(type), layer) -> (name => path, ...)

Return the path of each parameter from its layer on, by its name in the description.
"""
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

"""Return 0, whose gradient of the outputs is the targets."""
given_gradient(outputs, targets) = zero(eltype(outputs))
Zygote.@adjoint given_gradient(outputs, targets) =
    zero(eltype(outputs)), _ -> (targets, nothing)

"""
    targets_function(loss, outputs, T) -> function

Return the function that turns labels (classes from 0, or numbers) into the targets of the
loss, for a model with this number of outputs.
"""
function targets_function(loss, outputs, T)
    loss["type"] in ("MeanSquaredError", "GivenGradient") && return identity
    loss["type"] == "BinaryCrossEntropy" && return labels -> reshape(T.(labels), 1, :)
    smoothing, one_hot = T(loss["label_smoothing"]), Base.Fix2(Flux.onehotbatch, 0:(outputs-1))
    return smoothing == 0 ? one_hot :
           labels -> Flux.label_smoothing(T.(one_hot(labels)), smoothing)
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
rule(::Val{:AdamW}, o) =
    AdamW(o["learning_rate"], (o["beta1"], o["beta2"]), o["weight_decay"], o["epsilon"])
rule(::Val{:RMSprop}, o) = RMSProp(o["learning_rate"], o["rho"], o["epsilon"])
# AdaDelta has no learning rate of its own.
rule(::Val{:Adadelta}, o) =
    OptimiserChain(AdaDelta(o["rho"], o["epsilon"]), Descent(o["learning_rate"]))

"""Return the learning rate as a function of the step (from 0), or `nothing` if constant."""
function schedule(optimizer)
    described = optimizer["schedule"]
    isnothing(described) && return nothing
    factor = schedule_factor(Val(Symbol(described["type"])), described)
    return t -> optimizer["learning_rate"] * factor(t)
end

schedule_factor(::Val{type}, _) where {type} =
    error("the Flux adapter does not support the schedule $type")
schedule_factor(::Val{:InverseTimeDecay}, s) = t -> 1 / (1 + s["decay"] * t)
function schedule_factor(::Val{:WarmupCosine}, s)
    warmup, steps, minimum = s["warmup"], s["steps"], s["minimum"]
    return function (t)
        t < warmup && return (t + 1) / (warmup + 1)
        part = min(1, (t - warmup) / (steps - warmup))
        return minimum + (1 - minimum) * (1 + cospi(part)) / 2
    end
end

"""Return whether an array of the model has no weight decay."""
function decays_not(optimizer, array)
    return optimizer["type"] == "AdamW" && optimizer["matrices_only"] && ndims(array) < 2
end
