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
    return join_pools(fmap(replace, model; exclude = node -> node isa REPLACED))
end

"""Return the model with each max-pool directly behind a convolution computed together with it."""
function join_pools(model)
    layers = model.layers
    joins(k) = k in 1:(length(layers)-1) && can_join(layers[k], layers[k+1])
    joined(k) = joins(k) ? with_pool(layers[k], layers[k+1]) : joins(k - 1) ? identity : layers[k]
    return Chain(layers isa Tuple ? ntuple(joined, length(layers)) : map(joined, eachindex(layers)))
end

can_join(layer, pool) = false

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
    FastConv(
        layer.weight,
        layer.bias,
        layer.σ,
        each_axis(layer.pad),
        Val(is_lowest),
        nothing,
    ) : layer
faster(layer::MaxPool, _) = FastMaxPool(layer.k, layer.stride)
faster(layer::LSTM, _) = FastLSTM(layer.cell)
faster(layer::GRU, _) = FastGRU(layer.cell)

# Flux has the pad of both ends of each axis, where it was given as one number.
each_axis(pad::NTuple{2}) = pad
each_axis(pad::NTuple{4}) = (pad[1], pad[3])

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

# Convolution with a stride of 1, with its activation and the max-pool behind it. Each channel is one
# range of numbers, in rows as wide as the padded input. There the pixel that a place of the kernel
# meets lies equally far from every output, so a place multiplies a whole range, and no patches are
# copied. The outputs that this computes beyond the end of each row are dropped.

"""Compute a `MaxPool` that remembers where it found each maximum."""
struct FastMaxPool{P}
    window::P
    stride::P
end
(pool::FastMaxPool)(x) = max_pool(x, pool)

pooled(pool::FastMaxPool, area) = (area .- pool.window) .÷ pool.stride .+ 1

"""
Compute a `Conv` and, where `pool` is a `FastMaxPool`, the maxima of its activation's values.
"""
struct FastConv{W,B,F,P,V,M}
    weight::W
    bias::B
    σ::F
    pad::P
    is_lowest::V
    pool::M
end

"""Activations that never fall: the maxima's values are the maxima of the values."""
const RISING = Union{typeof(identity),typeof(relu)}

(layer::FastConv)(x) = convolve(layer, layer.σ, x)
convolve(layer::FastConv, σ::RISING, x) =
    convolve(x, layer.weight, layer.bias, σ, layer.pad, layer.is_lowest, layer.pool)
function convolve(layer::FastConv, σ, x)
    y = convolve(x, layer.weight, false, identity, layer.pad, layer.is_lowest, nothing)
    return NNlib.bias_act!(σ, y, image_bias(layer.bias))
end

can_join(layer::FastConv, pool::FastMaxPool) = layer.σ isa RISING
with_pool(conv, pool) =
    FastConv(conv.weight, conv.bias, conv.σ, conv.pad, conv.is_lowest, pool)

image_bias(bias) = reshape(bias, 1, 1, :, 1)
image_bias(bias::Bool) = bias  # false: none

Zygote.@adjoint function convolve(x, weight, bias, σ, pad, is_lowest::Val, pool)
    kernel, (channels, features) = size(weight)[1:2], size(weight)[3:4]
    flipped = reverse(weight; dims = (1, 2))
    padded = size(x)[1:2] .+ 2 .* pad
    area = padded .- kernel .+ 1
    reach = (kernel[2] - 1) * padded[1] + kernel[1] - 1
    pixels = Planes(x, padded, channels, reach; corner = pad[2] * padded[1] + pad[1])
    outputs = Planes(x, (padded[1], area[2]), features, reach; before = reach)
    to_pixels = places(pixels, kernel, channels, 1)
    matrix = coefficients(reshape(flipped, :, features))
    y = similar(x, pooled(pool, area)..., features, size(x, 4))
    maxima = isnothing(pool) ? nothing : Maxima(y, outputs.len)
    for n in axes(x, 4)
        copy_rows!(pixels, x, n)
        fill_channels!(outputs, bias)
        correlate!(outputs, pixels, to_pixels, matrix)
        take_outputs!(y, n, outputs, σ, pool, maxima)
    end
    function back(dy)
        dbias, dmatrix = zero_bias(bias), zero(matrix)
        dx, dpixels = nothing, pixels
        if is_lowest isa Val{false}
            dx, dpixels = similar(x), Planes(x, padded, channels, reach; pixels.corner)
        end
        to_outputs = places(outputs, kernel, features, -1)
        transposed = coefficients(reshape(permutedims(flipped, (1, 2, 4, 3)), :, channels))
        fill!(outputs.numbers, 0)
        for n in axes(x, 4)
            put_gradient!(outputs, dy, y, n, σ, maxima)
            add_sums!(dbias, outputs)
            copy_rows!(pixels, x, n)
            add_correlations!(dmatrix, outputs, pixels, to_pixels)
            isnothing(dx) && continue
            fill!(dpixels.numbers, 0)
            correlate!(dpixels, outputs, to_outputs, transposed)
            take_rows!(dx, n, dpixels)
        end
        dflipped = reshape(dmatrix[1:prod(size(weight)[1:3]), 1:features], size(weight))
        return dx, reverse(dflipped; dims = (1, 2)), dbias, nothing, nothing, nothing, nothing
    end
    return y, back
end

zero_bias(bias) = zero(bias)
zero_bias(::Bool) = nothing

"""
Hold the channels of an image, each in one range of `len` numbers. Around a range there are
zeros, where a kernel meets them.

  - `numbers`: of all channels, of which there are a multiple of `OUTPUTS`
  - `width`: of a row
  - `before`: how many zeros lie before each range
  - `corner`: where in a range the first pixel of the image lies
"""
struct Planes{A}
    numbers::A
    width::Int
    before::Int
    len::Int
    corner::Int
end

"""Outputs and places of a kernel that are computed at a time: what vector registers hold."""
const OUTPUTS, PLACES = 4, 5
"""Numbers that a vector register holds at most: a range of a multiple leaves no rest."""
const LANES = 16
"""Numbers of a range that are computed at a time, few enough for a core's first cache."""
const BLOCK = 1024

function Planes(like, (width, height), channels, reach; before = 0, corner = 0)
    len = cld(width * height, LANES) * LANES
    behind = reach + LANES
    numbers = similar(like, cld(channels, OUTPUTS) * OUTPUTS * (before + len) + behind)
    return Planes(fill!(numbers, 0), width, before, len, corner)
end

range_start(planes, channel) = (channel - 1) * (planes.before + planes.len) + planes.before

"""Return where a place of the kernel meets the first number of a range, for all of them."""
function places(planes, kernel, channels, sign)
    starts = vec([
        range_start(planes, c) + sign * ((v - 1) * planes.width + u - 1) for
        u in 1:kernel[1], v in 1:kernel[2], c in 1:channels
    ])
    return [starts; fill(first(starts), mod(-length(starts), PLACES))]
end

"""Return the matrix (places, outputs) with zeros up to whole numbers of `PLACES` and `OUTPUTS`."""
function coefficients(matrix)
    rows, columns = cld.(size(matrix), (PLACES, OUTPUTS)) .* (PLACES, OUTPUTS)
    padded = fill!(similar(matrix, rows, columns), 0)
    padded[axes(matrix)...] = matrix
    return padded
end

"""Add to each range of `out` the ranges of `source` from `starts`, times a column of `matrix` each."""
function correlate!(out, source, starts, matrix)
    each_block(out, size(matrix)) do outputs, places, first, len
        from = ntuple(p -> starts[places+p] + first, Val(PLACES))
        factors = ntuple(Val(OUTPUTS * PLACES)) do i
            matrix[places+(i-1)%PLACES+1, outputs+(i-1)÷PLACES+1]
        end
        into = ntuple(f -> range_start(out, outputs + f) + first, Val(OUTPUTS))
        add_products!(out.numbers, into, source.numbers, from, factors, len)
    end
end

"""Add to each number of `matrix` the product of a range of `out` and one of `source` from `starts`."""
function add_correlations!(matrix, out, source, starts)
    each_block(out, size(matrix)) do outputs, places, first, len
        from = ntuple(p -> starts[places+p] + first, Val(PLACES))
        into = ntuple(f -> range_start(out, outputs + f) + first, Val(OUTPUTS))
        sums = inner_products(out.numbers, into, source.numbers, from, len)
        for f in 1:OUTPUTS, p in 1:PLACES
            matrix[places+p, outputs+f] += sums[f][p]
        end
    end
end

@inline function each_block(f, planes, (places, outputs))
    for first in 0:BLOCK:(planes.len-1)
        len = min(BLOCK, planes.len - first)
        for output in 0:OUTPUTS:(outputs-1), place in 0:PLACES:(places-1)
            f(output, place, first, len)
        end
    end
end

# the 4 and the 5 below are `OUTPUTS` and `PLACES`
function add_products!(y, into, x, from, factors, len)
    @nexprs 4 f -> into_f = into[f]
    @nexprs 5 p -> from_p = from[p]
    @inbounds @simd ivdep for i in 1:len
        @nexprs 4 f -> y_f = y[into_f+i]
        @nexprs 5 p -> begin
            x_p = x[from_p+i]
            @nexprs 4 f -> y_f = muladd(factors[5*(f-1)+p], x_p, y_f)
        end
        @nexprs 4 f -> y[into_f+i] = y_f
    end
end

function inner_products(y, into, x, from, len)
    @nexprs 4 f -> into_f = into[f]
    @nexprs 5 p -> from_p = from[p]
    @nexprs 4 f -> @nexprs 5 p -> sum_f_p = zero(eltype(y))
    @inbounds @simd for i in 1:len
        @nexprs 4 f -> y_f = y[into_f+i]
        @nexprs 5 p -> begin
            x_p = x[from_p+i]
            @nexprs 4 f -> sum_f_p = muladd(y_f, x_p, sum_f_p)
        end
    end
    @nexprs 4 f -> sums_f = @ntuple 5 p -> sum_f_p
    return @ntuple 4 sums
end

function fill_channels!(planes, bias)
    for (channel, b) in enumerate(bias)
        start = range_start(planes, channel)
        fill!(view(planes.numbers, (start+1):(start+planes.len)), b)
    end
end
fill_channels!(planes, ::Bool) = fill!(planes.numbers, 0)

function add_sums!(dbias, planes)
    for channel in eachindex(dbias)
        start = range_start(planes, channel)
        dbias[channel] += sum(view(planes.numbers, (start+1):(start+planes.len)))
    end
end
add_sums!(::Nothing, planes) = nothing

"""Copy image `n` of `x` into the planes."""
copy_rows!(planes, x, n) =
    each_row((i, j, len) -> copyto!(planes.numbers, i, x, j, len), planes, x, n)

"""Copy image `n` of `x` out of the planes."""
take_rows!(x, n, planes) =
    each_row((i, j, len) -> copyto!(x, j, planes.numbers, i, len), planes, x, n)

"""Call `f` with the index of each row in the planes and in `x`, and the row's length."""
@inline function each_row(f, planes, x, n)
    (len, rows, channels) = size(x)
    for c in 1:channels, h in 1:rows
        in_planes = range_start(planes, c) + planes.corner + (h - 1) * planes.width + 1
        f(in_planes, (((n - 1) * channels + c - 1) * rows + h - 1) * len + 1, len)
    end
end

pooled(::Nothing, area) = area
take_outputs!(y, n, outputs, σ, ::Nothing, ::Nothing) =
    each_row(outputs, y, n) do i, j, len
        @inbounds @simd ivdep for k in 0:(len-1)
            y[j+k] = σ(outputs.numbers[i+k])
        end
    end
put_gradient!(outputs, dy, y, n, σ, ::Nothing) =
    each_row(outputs, y, n) do i, j, len
        @inbounds @simd ivdep for k in 0:(len-1)
            outputs.numbers[i+k] = slope(σ, y[j+k]) * dy[j+k]
        end
    end

"""Return the slope of the activation where its value is `y`."""
slope(::typeof(identity), y) = one(y)
slope(::typeof(relu), y) = ifelse(y > 0, one(y), zero(y))

# Max-pool

function max_pool end

Zygote.@adjoint function max_pool(x, pool)
    (width, height, channels, images) = size(x)
    y = similar(x, pooled(pool, (width, height))..., channels, images)
    maxima, starts = Maxima(y, width * height), (0:(channels-1)) .* (width * height)
    for n in 1:images
        find_maxima!(maxima, y, n, image_of(x, n), starts, width, identity, pool)
    end
    function back(dy)
        dx = zero(x)
        for n in 1:images
            spread!(image_of(dx, n), dy, y, n, identity, maxima)
        end
        return dx, nothing
    end
    return y, back
end

image_of(x, n) = view(vec(x), numbers_of(x, n))

"""Return the indices of the numbers of image `n`."""
function numbers_of(x, n)
    len = length(x) ÷ size(x, 4)
    return ((n-1)*len+1):(n*len)
end

"""
Hold where in an image each maximum was found, and the maxima of parts of rows and of windows in
one channel, whatever the stride.
"""
struct Maxima{V,I}
    chosen::I
    rows::V
    row_at::Vector{Int32}
    windows::V
    window_at::Vector{Int32}
end

function Maxima(y, len)
    positions() = Vector{Int32}(undef, len)
    return Maxima(similar(y, Int32), similar(y, len), positions(), similar(y, len), positions())
end

"""
Set image `n` of `y` to the activation of the largest number in each window of `x`, whose channels
begin behind `starts`, in rows of `width`. Windows are computed at every place, whatever the stride:
that is one loop over a whole channel. Of equal numbers the first is chosen, row by row.
"""
function find_maxima!(maxima, y, n, x, starts, width, σ, pool)
    (; chosen, rows, row_at, windows, window_at) = maxima
    (right, down) = pool.stride
    last_window = (size(y, 2) - 1) * down * width + (size(y, 1) - 1) * right + 1
    last_row = last_window + (pool.window[2] - 1) * width
    for (c, start) in enumerate(starts)
        first_numbers!(rows, row_at, x, start, last_row)
        for a in 1:(pool.window[1]-1)
            keep_larger!(rows, row_at, x, start + a, last_row)
        end
        copyto!(windows, 1, rows, 1, last_window)
        copyto!(window_at, 1, row_at, 1, last_window)
        for b in 1:(pool.window[2]-1)
            keep_larger!(windows, window_at, rows, row_at, b * width, last_window)
        end
        @inbounds for h in axes(y, 2), w in axes(y, 1)
            k = (h - 1) * down * width + (w - 1) * right + 1
            y[w, h, c, n], chosen[w, h, c, n] = σ(windows[k]), window_at[k]
        end
    end
end

"""Add each gradient of image `n` where its maximum was found."""
function spread!(dx, dy, y, n, σ, maxima)
    @inbounds for i in numbers_of(y, n)
        dx[maxima.chosen[i]] += slope(σ, y[i]) * dy[i]
    end
end

function first_numbers!(best, at, x, start, len)
    @inbounds @simd ivdep for i in 1:len
        best[i], at[i] = x[start+i], (start + i) % Int32
    end
end

function keep_larger!(best, at, x, start, len)
    @inbounds @simd ivdep for i in 1:len
        is_larger = x[start+i] > best[i]
        best[i] = ifelse(is_larger, x[start+i], best[i])
        at[i] = ifelse(is_larger, (start + i) % Int32, at[i])
    end
end

function keep_larger!(best, at, x, x_at, start, len)
    @inbounds @simd ivdep for i in 1:len
        is_larger = x[start+i] > best[i]
        best[i] = ifelse(is_larger, x[start+i], best[i])
        at[i] = ifelse(is_larger, x_at[start+i], at[i])
    end
end

function take_outputs!(y, n, outputs, σ, pool, maxima)
    starts = (range_start(outputs, c) for c in axes(y, 3))
    find_maxima!(maxima, y, n, outputs.numbers, starts, outputs.width, σ, pool)
end

function put_gradient!(outputs, dy, y, n, σ, maxima)
    fill!(outputs.numbers, 0)
    spread!(outputs.numbers, dy, y, n, σ, maxima)
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
