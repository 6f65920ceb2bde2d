# What models need and Lux has not got, beside what is in CrossBenchJulia's layers.jl. A program
# has it word for word, each block for itself: an empty line is between two of them.

"""Return the function that encodes token ids as one-hot vectors of numbers."""
onehot(::Type{T}, tokens) where {T} = x -> T.(onehotbatch(x, tokens))

sequence_mean(x) = dropdims(mean(x; dims = 2); dims = 2)

# Before a Recurrence the pullback of `stack` fails (Lux 1.31, ChainRules 1).
stack_sequence(outputs) =
    reshape(reduce(vcat, outputs), size(first(outputs), 1), length(outputs), :)

"""Make a LayerNorm without a bias."""
layer_norm(features; epsilon) = Chain(
    LayerNorm((features, 1); dims = 1, epsilon, affine = false),
    Scale(features; use_bias = false),
)

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
    return @compact(; table = @non_trainable(sinusoids(T, features, places))) do x
        @return x .+ table
    end
end

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
