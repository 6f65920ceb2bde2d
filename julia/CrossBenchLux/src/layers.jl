# What models need and Lux has not got. A program has it word for word, each block for itself: an
# empty line is between two of them. The axes are reversed: a picture is (W, H, C, N), and a
# sequence (F, L, N).

"""Return the function that applies f to each number, with a constant behind it."""
elementwise(f) = x -> f.(x)
elementwise(f, constant) = x -> f.(x, constant)

"""Return the function that encodes token ids as one-hot vectors of numbers."""
onehot(::Type{T}, tokens) where {T} = x -> T.(onehotbatch(x, tokens))

to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))

sequence_mean(x) = dropdims(mean(x; dims = 2); dims = 2)

sequence_max(x) = dropdims(maximum(x; dims = 2); dims = 2)

"""Exchange the features of sequences with their places, as a convolution has them."""
swap_features(x) = permutedims(x, (2, 1, 3))

"""Return the function that pads pictures by `pad`, to the left, right, top and bottom."""
padded(pad, sides) = x -> pad(x, sides; dims = (1, 2))

"""
Return the function that interpolates between the centers of pictures' values.
Lux's Upsample aligns their corners, whatever it is asked for (1.31).
"""
bilinear(factor) = x -> upsample_bilinear(x, (factor, factor); align_corners = false)

first_of_sequence(x) = x[:, 1, :]

cat_channels(xs...) = cat(xs...; dims = 3)

multiply(xs...) = broadcast(*, xs...)

add(xs...) = broadcast(+, xs...)

# Before a Recurrence the pullback of `stack` fails (Lux 1.31, ChainRules 1).
stack_sequence(outputs) =
    reshape(reduce(vcat, outputs), size(first(outputs), 1), length(outputs), :)

"""Make a LayerNorm without a bias."""
layer_norm(features; epsilon) = Chain(
    LayerNorm((features, 1); dims = 1, epsilon, affine = false),
    Scale(features; use_bias = false),
)

"""
Return numbers along the axis of the channels of x, the third of a picture and the first of
others.
"""
along_channels(numbers, x) = ndims(x) == 4 ? reshape(numbers, 1, 1, :) : numbers

"""Multiply each channel by a weight."""
function channel_scale(channels)
    return @compact(; weight = ones32(channels)) do x
        @return along_channels(weight, x) .* x
    end
end

"""Multiply each channel by a weight, and add a bias to it."""
function channel_affine(channels)
    return @compact(; weight = ones32(channels), bias = zeros32(channels)) do x
        @return along_channels(weight, x) .* x .+ along_channels(bias, x)
    end
end

"""Return the function that divides by the root of the mean square of the channels."""
rms_norm(epsilon) = x -> x ./ sqrt.(mean(abs2, x; dims = 3) .+ epsilon)

"""Multiply negative values by the slope of their channel, or by the only one."""
function prelu(slopes)
    return @compact(; slope = fill(0.25f0, slopes)) do x
        @return relu.(x) .- along_channels(slope, x) .* relu.(.-x)
    end
end

"""Add a weight for each place of a sequence."""
function position_embedding(features, places)
    return @compact(; weight = zeros32(features, places)) do x
        @return x .+ weight
    end
end

"""
Add sines and cosines of the place, in turn (Vaswani et al., 2017); Lux' own layer has all
sines before the cosines, and other frequencies.
"""
function sinusoidal_positions(::Type{T}, features, places) where {T}
    angles = place_angles(features, places, 10000.0)
    table = reshape(stack((sin.(angles), cos.(angles)); dims = 1), features, places)
    return @compact(; table = @non_trainable(T.(table))) do x
        @return x .+ table
    end
end

"""Return the angle of each pair of features (rows) and place (columns)."""
place_angles(features, places, base) =
    base .^ (.-(0:2:features-1) ./ features) .* (0:places-1)'

"""Put the same weight before each sequence."""
function class_token(features)
    return @compact(; weight = zeros32(features)) do x
        @return hcat(repeat(weight, 1, 1, size(x, 3)), x)
    end
end

"""Begin with an embedding, and end with a multiplication by its weight."""
struct TiedModel{E,B} <: AbstractLuxContainerLayer{(:embedding, :body)}
    embedding::E
    body::B
end
function (model::TiedModel)(x, ps, st)
    embedded, st_embedding = model.embedding(x, ps.embedding, st.embedding)
    y, st_body = model.body(embedded, ps.body, st.body)
    outputs = ps.embedding.weight' * reshape(y, size(y, 1), :)
    states = (embedding = st_embedding, body = st_body)
    return reshape(outputs, :, size(y)[2:end]...), states
end

"""
Attend with heads of queries that share keys and values. width: features of a head. mask:
which queries (columns) attend to each key (rows). query_norm, key_norm: of each head,
before the rotary embedding.
"""
function grouped_query_attention(
    features,
    (heads, kv_heads),
    width;
    use_bias = true,
    output_bias = use_bias,
    query_norm = NoOpLayer(),
    key_norm = NoOpLayer(),
    rotary = NoOpLayer(),
    mask = nothing,
)
    return @compact(;
        query = Dense(features => heads * width; use_bias),
        key = Dense(features => kv_heads * width; use_bias),
        value = Dense(features => kv_heads * width; use_bias),
        output = Dense(heads * width => features; use_bias = output_bias),
        query_norm,
        key_norm,
        rotary,
        mask = @non_trainable(mask),
    ) do x
        queries = rotary(query_norm(split_heads(query(x), width)))
        keys = repeat_heads(rotary(key_norm(split_heads(key(x), width))), heads)
        values = repeat_heads(split_heads(value(x), width), heads)
        joined, _ = scaled_dot_product_attention(queries, keys, values; mask)
        @return output(reshape(joined, :, size(x)[2:end]...))
    end
end

split_heads(x, width) = reshape(x, width, :, size(x)[2:end]...)

"""Repeat heads (width, heads, L, N) of keys or values for those of the queries."""
function repeat_heads(x, count)
    heads, sizes = size(x, 2), size(x)[3:end]
    heads == count && return x
    # the gradient of repeat with inner, which Lux has here, is a loop over numbers
    repeated = repeat(reshape(x, :, 1, heads, sizes...), 1, div(count, heads), 1, 1, 1)
    return reshape(repeated, :, count, sizes...)
end

"""Return which queries (columns) attend to each key (rows)."""
attention_mask(places; causal, window = places) =
    [abs(q - k) < window && (k <= q || !causal) for k = 1:places, q = 1:places]

"""
Rotate pairs of features of (width, heads, L, N) by angles that grow with the place; Lux'
own layer has halves alone, with angles in Float32.
"""
function rotary_embedding(::Type{T}, rotate, width, places, base) where {T}
    angles = place_angles(width, places, base)
    cos_cache, sin_cache = T.(cos.(angles)), T.(sin.(angles))
    return @compact(;
        cos_cache = @non_trainable(cos_cache),
        sin_cache = @non_trainable(sin_cache),
    ) do x
        @return rotate(x, cos_cache, sin_cache)
    end
end

"""Rotate the i-th feature of the first half with that of the second, as Llama does."""
rotate_halves(x, cos, sin) = apply_rotary_embedding(x, cos, sin; seq_dim = 3)

"""Rotate each feature of two neighbours with the other, as GPT-J does."""
function rotate_neighbours(x, cos, sin)
    pairs = reshape(x, 2, :, size(x)[2:end]...)
    a, b = pairs[1:1, :, :, :, :], pairs[2:2, :, :, :, :]
    cos, sin = reshape(cos, 1, :, 1, size(x, 3)), reshape(sin, 1, :, 1, size(x, 3))
    return reshape(vcat(a .* cos .- b .* sin, b .* cos .+ a .* sin), size(x))
end
