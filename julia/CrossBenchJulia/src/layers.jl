# What models need and neither Flux nor Lux has got. A program has it word for word, each block
# for itself: an empty line is between two of them. The axes are reversed: a picture is
# (W, H, C, N), and a sequence (F, L, N).

"""Return the function that applies f to each number, with a constant behind it."""
elementwise(f) = x -> f.(x)
elementwise(f, constant) = x -> f.(x, constant)

to_sequence(x) = permutedims(reshape(x, :, size(x, 3), size(x, 4)), (2, 1, 3))

sequence_max(x) = dropdims(maximum(x; dims = 2); dims = 2)

"""Exchange the features of sequences with their places, as a convolution has them."""
swap_features(x) = permutedims(x, (2, 1, 3))

"""Return the function that pads pictures by `pad`, to the left, right, top and bottom."""
padded(pad, sides) = x -> pad(x, sides; dims = (1, 2))

first_of_sequence(x) = x[:, 1, :]

cat_channels(xs...) = cat(xs...; dims = 3)

multiply(xs...) = broadcast(*, xs...)

add(xs...) = broadcast(+, xs...)

"""Return the angle of each pair of features (rows) and place (columns)."""
place_angles(features, places, base) =
    base .^ (.-(0:2:features-1) ./ features) .* (0:places-1)'

"""Return which queries (columns) attend to each key (rows)."""
attention_mask(places; causal, window = places) =
    [abs(q - k) < window && (k <= q || !causal) for k = 1:places, q = 1:places]

"""Rotate each feature of two neighbours with the other, as GPT-J does."""
function rotate_neighbours(x, cos, sin)
    pairs = reshape(x, 2, :, size(x)[2:end]...)
    a, b = pairs[1:1, :, :, :, :], pairs[2:2, :, :, :, :]
    cos, sin = reshape(cos, 1, :, 1, size(x, 3)), reshape(sin, 1, :, 1, size(x, 3))
    return reshape(vcat(a .* cos .- b .* sin, b .* cos .+ a .* sin), size(x))
end

"""
Return the function that interpolates between the centers of pictures' values; the Upsample
of Flux and of Lux aligns their corners.
"""
bilinear(factor) = x -> upsample_bilinear(x, (factor, factor); align_corners = false)

"""
Return numbers along the axis of the channels of x, the third of a picture and the first of
others. A norm's weight or bias is true or false where it has none.
"""
along_channels(numbers, x) = ndims(x) == 4 ? reshape(numbers, 1, 1, :) : numbers
along_channels(number::Bool, x) = number

"""Repeat heads (width, heads, L, N) of keys or values for those of the queries."""
function repeat_heads(x, count)
    heads, sizes = size(x, 2), size(x)[3:end]
    heads == count && return x
    # the gradient of repeat with inner is a loop over numbers
    repeated = repeat(reshape(x, :, 1, heads, sizes...), 1, div(count, heads), 1, 1, 1)
    return reshape(repeated, :, count, sizes...)
end

"""Return sines and cosines of each place (columns), in turn, as numbers of type T."""
function sinusoids(::Type{T}, features, places) where {T}
    angles = place_angles(features, places, 10000.0)
    return T.(reshape(stack((sin.(angles), cos.(angles)); dims = 1), features, places))
end
