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
Return the function that interpolates between the centers of pictures' values; Lux's Upsample
aligns their corners, whatever it is asked for (1.31).
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
