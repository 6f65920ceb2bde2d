# What models need and Flux has not got, beside what is in CrossBenchJulia's layers.jl. A program
# has it word for word, each block for itself: an empty line is between two of them.

"""Encode token ids as one-hot vectors of numbers of the type T."""
struct OneHot{T}
    ids::UnitRange{Int}
end
Flux.Functors.@leaf OneHot
(layer::OneHot{T})(x) where {T} =
    Flux.@ignore_derivatives(T.(Flux.onehotbatch(x, layer.ids)))

sequence_mean(x) = dropdims(mean(x; dims = 2); dims = 2)

"""Return the function that gives each example this size."""
reshaped(size...) = x -> reshape(x, size..., :)

last_output(x) = x[:, end, :]

reverse_sequence(x) = reverse(x; dims = 2)

"""
Return the eps with which a LayerNorm adds epsilon to the variance: Flux before 0.16.11
adds the square of eps.
"""
eps_for(epsilon) = Flux.normalise([-1.0, 1.0]; eps = 3.0)[2] < 0.4 ? sqrt(epsilon) : epsilon

"""Make a LayerNorm without a bias."""
layer_norm(features; eps) =
    LayerNorm(identity, Flux.Scale(features; bias = false), eps, (features,), true)

"""Normalize the channels of pictures at each place."""
struct PictureNorm{W,B,E}
    weight::W
    bias::B
    eps::E
end
PictureNorm(weight, bias; eps) = PictureNorm(weight, bias, eps)
Flux.@layer PictureNorm
(norm::PictureNorm)(x) =
    along_channels(norm.weight, x) .* Flux.normalise(x; dims = 3, norm.eps) .+
    along_channels(norm.bias, x)

"""Divide by the root of the mean square of the channels."""
struct RMSNorm{W,E}
    weight::W
    epsilon::E
end
Flux.@layer RMSNorm
function (norm::RMSNorm)(x)
    squares = mean(abs2, x; dims = ndims(x) == 4 ? 3 : 1)
    return along_channels(norm.weight, x) .* x ./ sqrt.(squares .+ norm.epsilon)
end

"""Multiply each channel by a weight."""
struct ChannelScale{W}
    weight::W
end
Flux.@layer ChannelScale
(layer::ChannelScale)(x) = along_channels(layer.weight, x) .* x

"""Multiply negative values by the slope of their channel, or by the only one."""
struct PReLU{S}
    slope::S
end
Flux.@layer PReLU
(layer::PReLU)(x) = relu.(x) .- along_channels(layer.slope, x) .* relu.(.-x)

"""Multiply by the weight of an embedding."""
struct Unembedding{W}
    weight::W
end
Flux.@layer Unembedding
(layer::Unembedding)(x) =
    reshape(layer.weight' * reshape(x, size(x, 1), :), :, size(x)[2:end]...)

"""Add a weight for each place of a sequence."""
struct PositionEmbedding{W}
    weight::W
end
Flux.@layer PositionEmbedding
(layer::PositionEmbedding)(x) = x .+ layer.weight

"""Add sines and cosines of the place, in turn (Vaswani et al., 2017)."""
struct SinusoidalPositions{A}
    table::A
end
Flux.@layer SinusoidalPositions trainable = ()
(layer::SinusoidalPositions)(x) = x .+ Flux.@ignore_derivatives layer.table

"""Put the same weight before each sequence."""
struct ClassToken{W}
    weight::W
end
Flux.@layer ClassToken
(layer::ClassToken)(x) = hcat(repeat(layer.weight, 1, 1, size(x, 3)), x)

"""Attend to the place itself and those before, and return no scores."""
struct CausalAttention{A}
    attention::A
end
Flux.@layer CausalAttention
(layer::CausalAttention)(x) =
    first(layer.attention(x; mask = make_causal_mask(x; dims = 2)))

"""Compute a GRU with cuDNN's second bias, which is inside of the reset; Flux's has one."""
struct BiasedGRUCell{I,H,V}
    Wi::I
    Wh::H
    b::V
    bh::V
end
Flux.@layer BiasedGRUCell
BiasedGRUCell((inputs, features)::Pair) = BiasedGRUCell(
    Flux.glorot_uniform(3 * features, inputs),
    Flux.glorot_uniform(3 * features, features),
    zeros32(3 * features),
    zeros32(3 * features),
)
Flux.initialstates(cell::BiasedGRUCell) = zero(cell.bh[1:size(cell.Wh, 2)])
function (cell::BiasedGRUCell)(x, h)
    from_x = Flux.chunk(cell.Wi * x .+ cell.b, 3; dims = 1)
    from_h = Flux.chunk(cell.Wh * h .+ cell.bh, 3; dims = 1)
    r = @. sigmoid_fast(from_x[1] + from_h[1])
    z = @. sigmoid_fast(from_x[2] + from_h[2])
    n = @. tanh_fast(from_x[3] + r * from_h[3])
    h = @. (1 - z) * n + z * h
    return h, h
end

"""Encode a class for each pixel as a picture, whose channels are one-hot vectors."""
onehot_pixels(labels, classes) =
    permutedims(Flux.onehotbatch(labels, classes), (2, 3, 1, 4))

"""Compute the loss of a class for each pixel, whose channels are the logits."""
pixel_crossentropy(outputs, targets) = Flux.logitcrossentropy(outputs, targets; dims = 3)

"""Return Huber's loss, which is linear from delta on."""
huber(delta) = (outputs, targets) -> Flux.huber_loss(outputs, targets; delta)

"""
Attend with heads of queries that share keys and values. width: features of a head. mask:
which queries (columns) attend to each key (rows). query_norm, key_norm: of each head,
before the rotary embedding.
"""
struct GroupedQueryAttention{P,O,N,R,M}
    query::P
    key::P
    value::P
    output::O
    query_norm::N
    key_norm::N
    rotary::R
    mask::M
    width::Int
end
Flux.@layer GroupedQueryAttention
function GroupedQueryAttention(
    features,
    (heads, kv_heads),
    width;
    bias = true,
    output_bias = bias,
    query_norm = identity,
    key_norm = identity,
    rotary = identity,
    mask = nothing,
)
    return GroupedQueryAttention(
        Dense(features => heads * width; bias),
        Dense(features => kv_heads * width; bias),
        Dense(features => kv_heads * width; bias),
        Dense(heads * width => features; bias = output_bias),
        query_norm,
        key_norm,
        rotary,
        mask,
        width,
    )
end
function (layer::GroupedQueryAttention)(x)
    queries = split_heads(layer.query_norm(by_head(layer.query(x), layer.width)), x)
    keys = split_heads(layer.key_norm(by_head(layer.key(x), layer.width)), x)
    queries, keys = layer.rotary(queries), layer.rotary(keys)
    values = split_heads(by_head(layer.value(x), layer.width), x)
    nheads = size(queries, 2)
    keys, values = repeat_heads(keys, nheads), repeat_heads(values, nheads)
    joined, _ = dot_product_attention(
        join_heads(queries),
        join_heads(keys),
        join_heads(values);
        nheads,
        layer.mask,
    )
    return layer.output(joined)
end

"""Return a sequence of heads (width, heads L, N)."""
by_head(x, width) = reshape(x, width, :, size(x, 3))

"""Return heads (width, heads, L, N) of a sequence of them. x: the layer's input."""
split_heads(heads, x) = reshape(heads, size(heads, 1), :, size(x, 2), size(x, 3))

join_heads(x) = reshape(x, :, size(x)[3:end]...)

"""Rotate pairs of features of (width, heads, L, N) by angles that grow with the place."""
struct Rotary{F,A}
    rotate::F
    cos::A
    sin::A
end
Flux.@layer Rotary trainable = ()
function Rotary(::Type{T}, rotate, width, places, base) where {T}
    angles = reshape(place_angles(width, places, base), :, 1, places)
    return Rotary(rotate, T.(cos.(angles)), T.(sin.(angles)))
end
(layer::Rotary)(x) = layer.rotate(
    x,
    Flux.@ignore_derivatives(layer.cos),
    Flux.@ignore_derivatives(layer.sin),
)

"""Rotate the i-th feature of the first half with that of the second, as Llama does."""
function rotate_halves(x, cos, sin)
    half = div(size(x, 1), 2)
    a, b = x[1:half, :, :, :], x[half+1:end, :, :, :]
    return vcat(a .* cos .- b .* sin, b .* cos .+ a .* sin)
end
