# From the description to Flux's own layers. Axes are reversed: (H, W) there is (W, H) here.

"""
    chain(description) -> (model, names)

The `Chain` of a parsed model description, and the place in it of each layer with parameters,
by the layer's canonical name ("conv1"). An activation is joined to the layer before it, as
Flux users write it.
"""
function chain(description)
    layers, names = Any[], Dict{String,Int}()
    for layer in description["layers"]
        if layer["type"] == "ReLU" && !isempty(layers) && takes_activation(layers[end])
            layers[end] = with_activation(layers[end], relu)
        else
            push!(layers, translate(Val(Symbol(layer["type"])), layer))
            names[layer["name"]] = length(layers)
        end
    end
    return Chain(layers...), names
end

translate(::Val{T}, layer) where {T} = error("no translation to Flux of the layer $T")

# Flux's own initial values would be drawn here in vain: load_weights! replaces them all.
blank(size...) = zeros(Float32, size...)

function translate(::Val{:Conv}, layer)
    channels = layer["input_shape"][1] => layer["features"]
    return Conv(sizes(layer["kernel"]), channels;
        stride = sizes(layer["stride"]), pad = sizes(layer["padding"]), init = blank)
end

translate(::Val{:MaxPool}, layer) =
    MaxPool(sizes(layer["window"]); stride = sizes(layer["stride"]))

translate(::Val{:ReLU}, layer) = x -> relu.(x)

# (W, H, C, N) flattens column by column, which is the canonical C, H, W row by row
translate(::Val{:Flatten}, layer) = Flux.flatten

translate(::Val{:Dense}, layer) =
    Dense(layer["input_shape"][1] => layer["features"]; init = blank)

takes_activation(layer) = layer isa Union{Conv,Dense} && layer.σ === identity
with_activation(layer::Conv, σ) =
    Conv(layer.weight, layer.bias, σ; layer.stride, layer.pad, layer.dilation, layer.groups)
with_activation(layer::Dense, σ) = Dense(layer.weight, layer.bias, σ)

sizes(pair) = (Int(pair[2]), Int(pair[1]))

function loss_function(description)
    type = description["loss"]["type"]
    type == "SoftmaxCrossEntropy" && return Flux.logitcrossentropy
    return error("no translation to Flux of the loss $type")
end

function rule(description)
    optimizer = description["optimizer"]
    type = optimizer["type"]
    type == "SGD" && return Momentum(optimizer["learning_rate"], optimizer["momentum"])
    return error("no translation to Optimisers.jl of the optimizer $type")
end
