# The layers of the tuned variant. Each has the weights of the layer that it stands for, in fields
# of the same names, and is only ever differentiated. Predictions are the idiomatic model's.

const REPLACED = Union{Conv,MaxPool,Dense,BatchNorm,Dropout,LSTM,GRU}
const WITH_WEIGHTS = Union{Conv,Dense,BatchNorm,LSTM,GRU,Flux.Embedding}

"""
    tune(model, group, piece) -> Chain

Return the model with faster layers on the same weights, for a piece of a batch.
"""
function tune(model, group, piece)
    layers = Flux.modules(model)
    lowest = layers[something(findfirst(layer -> layer isa WITH_WEIGHTS, layers), 1)]
    replace(layer::BatchNorm) = SyncBatchNorm(layer.γ, layer.β, layer, group, piece)
    replace(layer) = faster(layer, layer === lowest)
    return fmap(replace, model; exclude = node -> node isa REPLACED)
end

"""
    faster(layer, is_lowest) -> layer

Return the layer, or a faster one. Nobody needs the gradient of the lowest layer's input.
"""
faster(layer, is_lowest) = layer
faster(layer::Dropout, _) = Dropout(layer.p, layer.dims, layer.active, Xoshiro(0))
faster(layer::Dense, is_lowest) =
    is_lowest ? LowestDense(layer.weight, layer.bias, layer.σ) : layer
faster(layer::Conv, is_lowest) =
    layer.stride == (1, 1) ?
    FastConv(layer.weight, layer.bias, layer.σ, layer.pad, Val(is_lowest)) : layer
faster(layer::MaxPool, _) = FastMaxPool(layer.k, layer.stride)
faster(layer::LSTM, _) = FastLSTM(layer.cell)
faster(layer::GRU, _) = FastGRU(layer.cell)

"""Compute a `Dense` without the gradient of its input."""
struct LowestDense{W,B,F}
    weight::W
    bias::B
    σ::F
end
(layer::LowestDense)(x) =
    NNlib.bias_act!(layer.σ, multiply_lowest(layer.weight, x), layer.bias)

multiply_lowest(weight, x) = weight * x
Zygote.@adjoint multiply_lowest(weight, x) = weight * x, dy -> (dy * x', nothing)

# Batch norm

"""
Compute a `BatchNorm` over all pieces of a batch, as a synchronized batch norm does over all
devices. `norm`, the model's own, has the running statistics; the first piece updates them.
"""
struct SyncBatchNorm{V,N}
    γ::V
    β::V
    norm::N
    group::Any
    piece::Int
end
(layer::SyncBatchNorm)(x) =
    sync_norm(x, layer.γ, layer.β, layer.norm, layer.group, layer.piece)

function sync_norm end

Zygote.@adjoint function sync_norm(x, γ, β, norm, group, piece)
    T, planes = eltype(x), reshape(x, :, length(γ), size(x, ndims(x)))
    sums = all_reduce!(group, piece, [channel_sums(planes); length(x) ÷ length(γ)])
    count = sums[end]
    μ = sums[1:(end-1)] ./ count
    σ² = all_reduce!(group, piece, channel_sums(planes, μ, planes, μ)) ./ count
    piece == 1 && track_statistics!(norm, μ, σ² .* (count / (count - 1)))
    σ⁻¹ = inv.(sqrt.(σ² .+ T(norm.ϵ)))
    scale = γ .* σ⁻¹
    shift = β .- μ .* scale
    apply(f) = f.(planes .* scale' .+ shift')  # f takes what the activation takes
    y = apply(norm.λ)
    function back(dy)
        g = activation_gradient(norm.λ, reshape(dy, size(planes)), y, apply)
        dβ, dγ = channel_sums(g), channel_sums(g, zero(μ), planes, μ) .* σ⁻¹
        means = all_reduce!(group, piece, [dβ; dγ]) ./ count
        mean_dβ, mean_dγ = means[1:length(γ)], means[(length(γ)+1):end]
        dx = scale' .* (g .- mean_dβ' .- (planes .- μ') .* (σ⁻¹ .* mean_dγ)')
        return reshape(dx, size(x)), dγ, dβ, nothing, nothing, nothing
    end
    return reshape(y, size(x)), back
end

"""
Return the gradient of what an activation takes, from the gradient `dy` of its values `y`.
`apply(f)` is `f` of what it takes: a GELU's slope does not follow from its value.
"""
function activation_gradient end

activation_gradient(::typeof(identity), dy, y, apply) = dy
activation_gradient(::typeof(relu), dy, y, apply) = ifelse.(y .> 0, dy, zero(eltype(dy)))
activation_gradient(::typeof(gelu_erf), dy, y, apply) = dy .* apply(NNlib.deriv_gelu_erf)

function track_statistics!(norm, μ, σ²)
    norm.μ .= (1 - norm.momentum) .* norm.μ .+ norm.momentum .* μ
    norm.σ² .= (1 - norm.momentum) .* norm.σ² .+ norm.momentum .* σ²
end

channel_sums(planes) = vec(sum(planes; dims = (1, 3)))

"""Return the sum of (a - a₀) (b - b₀) over each channel; a₀ and b₀ have a number per channel."""
function channel_sums(a, a₀, b, b₀)
    sums = zero(a₀)
    for n in axes(a, 3), c in axes(a, 2)
        total, a_c, b_c = zero(eltype(sums)), a₀[c], b₀[c]
        @inbounds @simd for i in axes(a, 1)
            total += (a[i, c, n] - a_c) * (b[i, c, n] - b_c)
        end
        sums[c] += total
    end
    return sums
end

"""
Add up arrays over the pieces of a batch, each in a task of its own.

  - `members`: how many pieces there are
  - `arrived`: how many have handed in an array in this round
  - `round`: how many sums were computed
  - `arrays`, `total`: the arrays of the pieces, and the last sum
  - `failed`: whether a piece was left by an error, so that its array will never come
"""
mutable struct AllReduce
    members::Int
    arrived::Int
    round::Int
    arrays::Vector{Any}
    total::Any
    failed::Bool
    changed::Threads.Condition
end
AllReduce(members) = AllReduce(
    members,
    0,
    0,
    Vector{Any}(nothing, members),
    nothing,
    false,
    Threads.Condition(),
)
Flux.Functors.@leaf AllReduce  # a copied model must not copy it

"""Hand in the array of a piece, wait for those of the others and return their sum."""
function all_reduce!(group, piece, array)
    return lock(group.changed) do
        group.arrays[piece] = array
        group.arrived += 1
        if group.arrived == group.members
            group.total = sum(group.arrays[1:group.members])
            group.arrived = 0
            group.round += 1
            notify(group.changed)
        else
            round = group.round
            while group.round == round
                group.failed && error("another piece of the batch failed")
                wait(group.changed)
            end
        end
        return group.total::typeof(array)
    end
end

"""Do the work of a piece; if it fails, let no other piece wait for it."""
function leave_on_error(work, group)
    try
        return work()
    catch
        lock(group.changed) do
            group.failed = true
            notify(group.changed)
        end
        rethrow()
    end
end

# Convolution with a stride of 1. An image is a matrix (pixels, channels) with rows as wide as the
# padded input. There the patches' pixels at one place of the kernel are one contiguous range. The
# outputs that this computes beyond the end of each row are dropped.

struct FastConv{W,B,F,P,V}
    weight::W
    bias::B
    σ::F
    pad::P
    is_lowest::V
end
function (layer::FastConv)(x)
    y = convolve(x, layer.weight, layer.pad, layer.is_lowest)
    return NNlib.bias_act!(layer.σ, y, image_bias(layer.bias))
end

image_bias(bias) = reshape(bias, 1, 1, :, 1)
image_bias(bias::Bool) = bias  # false: none

function convolve end

Zygote.@adjoint function convolve(x, weight, pad, ::Val{is_lowest}) where {is_lowest}
    kernel, features = size(weight)[1:2], size(weight, 4)
    matrix = reshape(reverse(weight; dims = (1, 2)), :, features)
    padded = (size(x)[1:2] .+ 2 .* pad..., size(x, 3))
    height = padded[2] - kernel[2] + 1
    y = similar(x, padded[1] - kernel[1] + 1, height, features, size(x, 4))
    # the last range ends a few numbers behind the image
    image = fill!(similar(x, prod(padded) + kernel[1]), 0)
    patches = similar(x, padded[1] * height, size(matrix, 1))
    outputs = similar(x, padded[1] * height, features)
    for n in axes(x, 4)
        copy_rows!(image, padded, pad, x, n)
        copy_patches!(patches, image, padded, kernel)
        mul!(outputs, patches, matrix)
        take_rows!(y, n, outputs, (padded[1], height), (0, 0))
    end
    function back(dy)
        dmatrix, dx = zero(matrix), is_lowest ? nothing : similar(x)
        fill!(outputs, 0)
        for n in axes(x, 4)
            copy_rows!(image, padded, pad, x, n)
            copy_patches!(patches, image, padded, kernel)
            copy_rows!(outputs, (padded[1], height), (0, 0), dy, n)
            mul!(dmatrix, patches', outputs, true, true)
            is_lowest && continue
            mul!(patches, outputs, matrix')
            add_patches!(fill!(image, 0), patches, padded, kernel)
            take_rows!(dx, n, image, padded, pad)
            fill!(image, 0)
        end
        dweight = reverse(reshape(dmatrix, size(weight)); dims = (1, 2))
        return dx, dweight, nothing, nothing
    end
    return y, back
end

function copy_patches!(patches, image, padded, kernel)
    each_place(padded, kernel) do place, start
        copyto!(patches, (place - 1) * size(patches, 1) + 1, image, start, size(patches, 1))
    end
end

function add_patches!(image, patches, padded, kernel)
    each_place(padded, kernel) do place, start
        before = (place - 1) * size(patches, 1)
        @inbounds @simd ivdep for i in 1:size(patches, 1)
            image[start+i-1] += patches[before+i]
        end
    end
end

"""Call `f` with the number of each place of the kernel and the index of its first pixel."""
@inline function each_place(f, (width, height, channels), (kernel_width, kernel_height))
    place = 0
    for c in 1:channels, h in 1:kernel_height, w in 1:kernel_width
        f(place += 1, ((c - 1) * height + h - 1) * width + w)
    end
end

"""Copy image `n` of `x` into a larger image, behind a border."""
copy_rows!(image, size, border, x, n) =
    each_row((i, j, len) -> copyto!(image, i, x, j, len), size, border, x, n)

"""Copy image `n` of `x` out of a larger image."""
take_rows!(x, n, image, size, border) =
    each_row((i, j, len) -> copyto!(x, j, image, i, len), size, border, x, n)

"""Call `f` with the index of each row in the larger image and in `x`, and the row's length."""
@inline function each_row(f, (width, height), (left, top), x, n)
    (len, rows, channels) = size(x)
    for c in 1:channels, h in 1:rows
        in_image = ((c - 1) * height + top + h - 1) * width + left + 1
        f(in_image, (((n - 1) * channels + c - 1) * rows + h - 1) * len + 1, len)
    end
end

# Max-pool

"""Compute a `MaxPool` that remembers where it found each maximum."""
struct FastMaxPool{P}
    window::P
    stride::P
end
(layer::FastMaxPool)(x) = max_pool(x, layer.window, layer.stride)

function max_pool end

Zygote.@adjoint function max_pool(x, window, stride)
    area = (size(x)[1:2] .- window) .÷ stride .+ 1
    y = similar(x, area..., size(x, 3), size(x, 4))
    chosen = similar(y, Int)
    find_maxima!(flat_planes(y), flat_planes(chosen), flat_planes(x), window, stride)
    function back(dy)
        dx = zero(x)
        @inbounds for i in eachindex(chosen)
            dx[chosen[i]] += dy[i]
        end
        return dx, nothing, nothing
    end
    return y, back
end

flat_planes(x) = reshape(x, size(x, 1), size(x, 2), :)

function find_maxima!(y, chosen, x, window, stride)
    for p in axes(y, 3), h in axes(y, 2), b in 1:window[2], a in 1:window[1]
        start = ((p - 1) * size(x, 2) + (h - 1) * stride[2] + b - 1) * size(x, 1) + a
        is_first = a == b == 1
        @inbounds @simd ivdep for w in axes(y, 1)
            i = start + (w - 1) * stride[1]
            is_better = is_first | (x[i] > y[w, h, p])
            y[w, h, p] = ifelse(is_better, x[i], y[w, h, p])
            chosen[w, h, p] = ifelse(is_better, i, chosen[w, h, p])
        end
    end
end

# Recurrent layers. Arrays are (features, length, batch), as the inputs are.

struct FastLSTM{C}
    cell::C
end
(layer::FastLSTM)(x) = lstm(x, layer.cell.Wi, layer.cell.Wh, layer.cell.bias)

function lstm end

Zygote.@adjoint function lstm(x, Wi, Wh, bias)
    gates, cells, y = lstm_outputs(x, Wi, Wh, bias)
    function back(dy)
        dgates = lstm_gradient(dy, gates, cells, Wh)
        return recurrent_gradients(x, Wi, y, dgates, dgates)
    end
    return y, back
end

function lstm_outputs(x, Wi, Wh, bias)
    g = multiply_sequence(Wi, x)
    H, (_, L, N) = size(Wh, 2), size(g)
    c, y = similar(g, H, L, N), similar(g, H, L, N)
    for t in 1:L
        t > 1 && mul!(view(g,:,t,:), Wh, view(y,:,(t-1),:), true, true)
        for n in 1:N
            @inbounds @simd ivdep for k in 1:H
                i = sigmoid_fast(g[k, t, n] + bias[k])
                f = sigmoid_fast(g[H+k, t, n] + bias[H+k])
                u = tanh_fast(g[2H+k, t, n] + bias[2H+k])
                o = sigmoid_fast(g[3H+k, t, n] + bias[3H+k])
                before = t > 1 ? c[k, t-1, n] : zero(u)
                cell = f * before + i * u
                g[k, t, n], g[H+k, t, n], g[2H+k, t, n], g[3H+k, t, n] = i, f, u, o
                c[k, t, n], y[k, t, n] = cell, o * tanh_fast(cell)
            end
        end
    end
    return g, c, y
end

function lstm_gradient(dy, g, c, Wh)
    H, L, N = size(c)
    dg, dh, dc = similar(g), fill!(similar(g, H, N), 0), fill!(similar(g, H, N), 0)
    for t in L:-1:1
        for n in 1:N
            @inbounds @simd ivdep for k in 1:H
                i, f, u, o = g[k, t, n], g[H+k, t, n], g[2H+k, t, n], g[3H+k, t, n]
                before = t > 1 ? c[k, t-1, n] : zero(u)
                squashed, d = tanh_fast(c[k, t, n]), dy[k, t, n] + dh[k, n]
                cell = dc[k, n] + d * o * (1 - squashed^2)
                dg[k, t, n] = cell * u * i * (1 - i)
                dg[H+k, t, n] = cell * before * f * (1 - f)
                dg[2H+k, t, n] = cell * i * (1 - u^2)
                dg[3H+k, t, n] = d * squashed * o * (1 - o)
                dc[k, n] = cell * f
            end
        end
        mul!(dh, Wh', view(dg,:,t,:))
    end
    return dg
end

struct FastGRU{C}
    cell::C
end
(layer::FastGRU)(x) = gru(x, layer.cell.Wi, layer.cell.Wh, layer.cell.b)

function gru end

Zygote.@adjoint function gru(x, Wi, Wh, bias)
    gates, hidden, y = gru_outputs(x, Wi, Wh, bias)
    back(dy) = recurrent_gradients(x, Wi, y, gru_gradients(dy, gates, hidden, y, Wh)...)
    return y, back
end

# `hidden` is what the reset gate is multiplied with: the third part of Wh * h.
function gru_outputs(x, Wi, Wh, bias)
    g = multiply_sequence(Wi, x)
    H, (_, L, N) = size(Wh, 2), size(g)
    y, hidden, s = similar(g, H, L, N), similar(g, H, L, N), fill!(similar(g, 3H, N), 0)
    for t in 1:L
        t > 1 && mul!(s, Wh, view(y,:,(t-1),:))
        for n in 1:N
            @inbounds @simd ivdep for k in 1:H
                r = sigmoid_fast(g[k, t, n] + s[k, n] + bias[k])
                z = sigmoid_fast(g[H+k, t, n] + s[H+k, n] + bias[H+k])
                u = tanh_fast(g[2H+k, t, n] + r * s[2H+k, n] + bias[2H+k])
                before = t > 1 ? y[k, t-1, n] : zero(u)
                g[k, t, n], g[H+k, t, n], g[2H+k, t, n] = r, z, u
                hidden[k, t, n], y[k, t, n] = s[2H+k, n], (1 - z) * u + z * before
            end
        end
    end
    return g, hidden, y
end

function gru_gradients(dy, g, hidden, y, Wh)
    H, L, N = size(y)
    dg, ds, dh = similar(g), similar(g), fill!(similar(g, H, N), 0)
    for t in L:-1:1
        for n in 1:N
            @inbounds @simd ivdep for k in 1:H
                r, z, u = g[k, t, n], g[H+k, t, n], g[2H+k, t, n]
                before = t > 1 ? y[k, t-1, n] : zero(u)
                d = dy[k, t, n] + dh[k, n]
                du, dz = d * (1 - z) * (1 - u^2), d * (before - u) * z * (1 - z)
                dr = du * hidden[k, t, n] * r * (1 - r)
                dg[k, t, n], dg[H+k, t, n], dg[2H+k, t, n] = dr, dz, du
                ds[k, t, n], ds[H+k, t, n], ds[2H+k, t, n] = dr, dz, du * r
                dh[k, n] = d * z
            end
        end
        mul!(dh, Wh', view(ds,:,t,:), true, true)
    end
    return dg, ds
end

multiply_sequence(Wi, x) = reshape(Wi * flat_sequence(x), :, size(x, 2), size(x, 3))
flat_sequence(x) = reshape(x, size(x, 1), :)

"""
Return the gradients of x, Wi, Wh and the bias. `dg` and `ds` are those of Wi * x and Wh * h.
"""
function recurrent_gradients(x, Wi, y, dg, ds)
    before = fill!(similar(y), 0)
    before[:, 2:end, :] .= @view y[:, 1:(end-1), :]
    g, s = flat_sequence(dg), flat_sequence(ds)
    dx = reshape(Wi' * g, size(x))
    return dx, g * flat_sequence(x)', s * flat_sequence(before)', vec(sum(g; dims = 2))
end
