# From the description to Flux's own layers. Axes are reversed: (H, W) there is (W, H) here, and a
# sequence (L, F) is (F, L).

"""
    chain(layers, T) -> Chain

The described layers, one after the other, with numbers of the type `T`.
"""
function chain(layers, T)
    translated = Any[
        translate(Val(Symbol(layer["type"])), layer, T, activation...) for
        (layer, activation) in joined(layers)]
    return length(translated) > LONGEST ? Chain(translated) : Chain(translated...)
end

# Of a tuple of layers all is compiled as one, which takes minutes for a long one; of a vector, each
# kind of layer on its own, for a dynamic call in each step.
const LONGEST = 24

"""The layers, each with its activation, if any: a ReLU joins the layer before, as Flux users write."""
function joined(layers)
    pairs = Tuple{Any,Tuple}[]
    for layer in layers
        if layer["type"] == "ReLU" && !isempty(pairs) && takes_activation(pairs[end]...)
            pairs[end] = (pairs[end][1], (relu,))
        else
            push!(pairs, (layer, ()))
        end
    end
    return pairs
end
takes_activation(layer, activation) =
    isempty(activation) && layer["type"] in ("Conv", "Dense", "BatchNorm")

translate(::Val{type}, layer, T) where {type} = error("no translation to Flux of the layer $type")

# Flux's own initial values would be drawn here in vain: load_weight! replaces them all.
blank(size...) = zeros(Float32, size...)

function translate(::Val{:Conv}, layer, T, activation...)
    channels = layer["input_shape"][1] => layer["features"]
    return Conv(sizes(layer["kernel"]), channels, activation...;
        stride = sizes(layer["stride"]), pad = sizes(layer["padding"]), init = blank)
end

translate(::Val{:MaxPool}, layer, T) =
    MaxPool(sizes(layer["window"]); stride = sizes(layer["stride"]))

sizes(pair) = (Int(pair[2]), Int(pair[1]))

translate(::Val{:ReLU}, layer, T) = x -> relu.(x)

# (W, H, C, N) flattens column by column, which is the canonical C, H, W row by row
translate(::Val{:Flatten}, layer, T) = Flux.flatten

translate(::Val{:Dense}, layer, T, activation...) =
    Dense(layer["input_shape"][1] => layer["features"], activation...; init = blank)

# Flux's momentum is the batch's share, the description's the running value's
translate(::Val{:BatchNorm}, layer, T, activation...) = BatchNorm(layer["input_shape"][1], activation...;
    eps = T(layer["epsilon"]), momentum = T(1 - layer["momentum"]))

translate(::Val{:Dropout}, layer, T) = Dropout(layer["rate"])

translate(::Val{:GlobalAveragePool}, layer, T) =
    length(layer["input_shape"]) == 2 ? mean_along : Chain(GlobalMeanPool(), Flux.flatten)

mean_along(x) = dropdims(mean(x; dims = 2); dims = 2)

translate(::Val{:Embedding}, layer, T) =
    Flux.Embedding(layer["vocabulary"] => layer["features"]; init = blank)

translate(::Val{:OneHot}, layer, T) = OneHot{T}(1:layer["vocabulary"])

# onehotbatch as numbers of the model's type, for BLAS: of Bool the product would be Julia's generic one
struct OneHot{T}
    vocabulary::UnitRange{Int}
end
Flux.Functors.@leaf OneHot
(hot::OneHot{T})(x) where {T} = ignore_derivatives(() -> T.(Flux.onehotbatch(x, hot.vocabulary)))

translate(::Val{:LSTM}, layer, T) = recurrent(layer, LSTM)
translate(::Val{:GRU}, layer, T) = recurrent(layer, GRU)

function recurrent(layer, kind)
    cells() = kind(layer["input_shape"][2] => layer["features"];
        init_kernel = blank, init_recurrent_kernel = blank)
    forward = Chain(cells(), last_output)
    return layer["bidirectional"] ?
        Parallel(vcat, forward, Chain(reversed, cells(), last_output)) : forward
end

last_output(x) = x[:, end, :]
reversed(x) = reverse(x; dims = 2)

function translate(::Val{:Residual}, layer, T)
    body = chain(layer["body"], T)
    isempty(layer["shortcut"]) && return SkipConnection(body, +)
    return Parallel(+, body, chain(layer["shortcut"], T))
end

"""
    ways(layers) -> [(layer, way), ...]

Every described layer with a place of its own in the `Chain`, those inside of others too, and the
way there: the names of fields and the indices, one after the other.
"""
function ways(layers, way = ())
    found = Tuple{Any,Tuple}[]
    for (index, (layer, _)) in enumerate(joined(layers))
        here = (way..., :layers, index)
        push!(found, (layer, here))
        layer["type"] == "Residual" || continue
        if isempty(layer["shortcut"])
            append!(found, ways(layer["body"], (here..., :layers)))
        else
            append!(found, ways(layer["body"], (here..., :layers, 1)))
            append!(found, ways(layer["shortcut"], (here..., :layers, 2)))
        end
    end
    return found
end

"""The way to every parameter by its full name ("conv1.weight")."""
parameter_ways(layers) = Dict{String,Tuple}(
    "$(layer["name"]).$name" => (way..., inside...) for (layer, way) in ways(layers) for
    (name, inside) in inner_ways(Val(Symbol(layer["type"])), layer))

"""The way to every dropout by its name."""
dropout_ways(layers) = Dict{String,Tuple}(
    layer["name"] => way for (layer, way) in ways(layers) if layer["type"] == "Dropout")

# From a layer on to its parameters, by the names that they have in the description.
inner_ways(::Val, layer) = ()
inner_ways(::Union{Val{:Conv},Val{:Dense}}, layer) = ("weight" => (:weight,), "bias" => (:bias,))
inner_ways(::Val{:Embedding}, layer) = ("weight" => (:weight,),)
inner_ways(::Val{:BatchNorm}, layer) =
    ("weight" => (:γ,), "bias" => (:β,), "running_mean" => (:μ,), "running_var" => (:σ²,))
inner_ways(::Val{:LSTM}, layer) = recurrent_ways(layer, :bias)
inner_ways(::Val{:GRU}, layer) = recurrent_ways(layer, :b)

function recurrent_ways(layer, bias)
    one(suffix, way...) = ("weight_ih$suffix" => (way..., :cell, :Wi),
        "weight_hh$suffix" => (way..., :cell, :Wh), "bias$suffix" => (way..., :cell, bias))
    layer["bidirectional"] || return one("", :layers, 1)
    return (one("", :layers, 1, :layers, 1)..., one("_reverse", :layers, 2, :layers, 2)...)
end

function loss_function(loss)
    type = loss["type"]
    type == "SoftmaxCrossEntropy" && return Flux.logitcrossentropy
    type == "BinaryCrossEntropy" && return Flux.logitbinarycrossentropy
    return error("no translation to Flux of the loss $type")
end

"""How labels, which count from 0, become what the loss compares the model's outputs with."""
function targets_function(loss, outputs, T)
    loss["type"] == "BinaryCrossEntropy" && return labels -> reshape(T.(labels), 1, :)
    return labels -> Flux.onehotbatch(labels, 0:(outputs - 1))
end

rule(optimizer) = rule(Val(Symbol(optimizer["type"])), optimizer)
rule(::Val{type}, _) where {type} =
    error("no translation to Optimisers.jl of the optimizer $type")
rule(::Val{:SGD}, o) =
    o["momentum"] == 0 ? Descent(o["learning_rate"]) : Momentum(o["learning_rate"], o["momentum"])
rule(::Val{:Adam}, o) = Adam(o["learning_rate"], (o["beta1"], o["beta2"]), o["epsilon"])
rule(::Val{:RMSprop}, o) = RMSProp(o["learning_rate"], o["rho"], o["epsilon"])
# AdaDelta has no learning rate
rule(::Val{:Adadelta}, o) =
    OptimiserChain(AdaDelta(o["rho"], o["epsilon"]), Descent(o["learning_rate"]))

"""The learning rate of step t, from 0, as a function; `nothing` where it stays the same."""
function schedule(optimizer)
    decay = get(optimizer, "decay", 0)
    return decay == 0 ? nothing : t -> optimizer["learning_rate"] / (1 + decay * t)
end
