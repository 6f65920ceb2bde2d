#=
The tuned variant: the same training steps in less time on a CPU, with Flux, NNlib and Zygote alone.

  - In NNlib 0.9 the weights' gradient of a convolution and the gradient of a max-pool run on one
    thread. Here the batch is split into pieces, a task per thread trains them one by one, and
    their gradients are added.
  - text_lstm: 64 % of the samples of a profile were in allocation and garbage collection. Here a
    recurrent layer computes the whole sequence and its gradient in arrays that are allocated once;
    the input is multiplied for the whole sequence at once.

By benchmarks/ladder.py on two cores of an AMD EPYC, the seconds of an epoch in one run relative to
the idiomatic row's: in pieces the LeNet takes 0.54, text_lstm 0.37; with its own recurrent layers
text_lstm takes 0.10. A convolution and a max-pool written anew for one thread, in 430 lines,
brought the LeNet to 0.15: that is for NNlib to have, and no longer here.
=#

"""
Mark a `Workload` whose batches are trained in pieces.

  - `is_whole`: whether they are trained whole, by the idiomatic steps: see `stays_whole`
  - `models`: the model of each piece: they share the weights, each has dropouts of its own
  - `batch_size`: the number of examples for which they were chosen
"""
mutable struct Tuned <: Framework
    is_whole::Bool
    models::Vector{Any}
    batch_size::Int
end

const TunedWorkload = Workload{Tuned}

"""Return the idiomatic workload with tuned steps; both have the same weights and optimizer."""
function tuned(workload::FluxWorkload)
    fields = (name => getfield(workload, name) for name in fieldnames(Workload))
    is_whole = stays_whole(workload)
    # the threads of BLAS would wait busily where the tasks run
    is_whole || BLAS.set_num_threads(1)
    return Workload(; fields..., framework = Tuned(is_whole, [], 0))
end

"""
Return whether the steps stay the idiomatic ones: on a GPU, where none of this was tried, for a
batch norm, which needs the whole batch, and for attention, whose products NNlib spreads over the
threads: on two cores gpt_char took 1.48 (1.41 to 1.75) times as long in pieces.
"""
stays_whole(workload) =
    !(workload.device isa CPUDevice) ||
    any(layer -> layer isa WHOLE, Flux.modules(workload.model))

const WHOLE = Union{BatchNorm,MultiHeadAttention,GroupedQueryAttention}

function differentiate(workload::TunedWorkload, batch)
    pieces = workload.framework
    pieces.is_whole && return invoke(differentiate, Tuple{FluxWorkload,Any}, workload, batch)
    if pieces.batch_size != examples(batch)
        pieces.models, pieces.batch_size = choose_pieces(workload, batch), examples(batch)
    end
    return differentiate_pieces(workload, pieces.models, batch)
end

function isolated(workload::TunedWorkload)
    copied = invoke(isolated, Tuple{FluxWorkload}, workload)
    copied.framework = Tuned(workload.framework.is_whole, [], 0)  # pieces of its own
    return copied
end

function reset_state!(workload::TunedWorkload)
    invoke(reset_state!, Tuple{Any}, workload)
    seed_dropouts!(workload, workload.framework.models)
    return nothing
end

"""Return how batches are split, for whoever reads the figures; empty before the first step."""
function tuning(workload)
    workload.framework.is_whole && return Dict("pieces of a batch" => "1")
    count = length(workload.framework.models)
    count == 0 && return Dict{String,String}()
    return Dict("pieces of a batch" => "$count on $(min(count, Threads.nthreads())) threads")
end

"""Numbers of pieces per thread that are tried."""
const PIECES_PER_THREAD = (1, 2, 5, 10)

"""
    choose_pieces(workload, batch) -> models

Try some numbers of pieces, and return the models of the fastest. Trying them changes nothing:
gradients are thrown away, and each trial has dropouts of its own.
"""
function choose_pieces(workload, batch)
    counts = unique(min.(Threads.nthreads() .* PIECES_PER_THREAD, examples(batch)))
    trials = [split_batches(workload, count) for count in counts]
    differentiate_pieces(workload, first(trials), batch)  # compiles
    seconds(models) = @elapsed differentiate_pieces(workload, models, batch)
    return split_batches(workload, counts[argmin([min(seconds(t), seconds(t)) for t in trials])])
end

"""Return a model for each piece."""
function split_batches(workload, count)
    models = Any[fmap(own, workload.model; exclude = is_replaced) for _ in 1:count]
    seed_dropouts!(workload, models)
    return models
end

is_replaced(node) = node isa Union{Dropout,LSTM,GRU}
own(layer) = layer
own(layer::Dropout) = Dropout(layer.p, layer.dims, layer.active, Xoshiro(0))
own(layer::LSTM) = FastLSTM(layer.cell)
own(layer::GRU) = FastGRU(layer.cell)

function seed_dropouts!(workload, models)
    names = sort!(collect(keys(workload.dropouts)))
    for (piece, model) in enumerate(models), (dropout, name) in enumerate(names)
        seed!(lookup(model, workload.dropouts[name]).rng, UInt32[dropout, piece])
    end
end

examples(batch) = size(batch.inputs, ndims(batch.inputs))

"""
    differentiate_pieces(workload, models, batch) -> (loss, gradient)

Return the batch's loss and its gradient, the sums over the pieces. Which piece is whose does not
depend on time, so neither does the rounding.
"""
function differentiate_pieces(workload, models, batch)
    count = min(length(models), examples(batch))
    tasks = min(count, Threads.nthreads())
    sums = Vector{Any}(undef, tasks)
    @sync for task in 1:tasks
        Threads.@spawn NNlib.@disallow_spawns begin
            sums[task] = mapreduce(plus, task:tasks:count) do piece
                range = ((piece-1)*examples(batch)÷count+1):(piece*examples(batch)÷count)
                differentiate_piece(workload, models[piece], batch, range)
            end
        end
    end
    return reduce(plus, sums)
end

plus((loss, gradient), (other_loss, other)) = (loss + other_loss, Zygote.accum(gradient, other))

"""Return what the examples in `range` add to the loss and the gradient of their batch."""
function differentiate_piece(workload, model, batch, range)
    masks =
        isnothing(batch.masks) ? nothing :
        Dict{String,Any}(name => last_axis(mask, range) for (name, mask) in batch.masks)
    model = with_masks(model, workload.dropouts, masks)
    whole, share = workload.loss, length(range) / examples(batch)
    loss(outputs, y) = eltype(outputs)(share) * whole(outputs, y)
    x, y = last_axis(batch.inputs, range), last_axis(batch.targets, range)
    return value_and_gradient(model, loss, x, y)
end

last_axis(array, range) = array[ntuple(_->:, ndims(array)-1)..., range]

# Recurrent layers. Each has the cell of the layer that it stands for, and is only ever
# differentiated: predictions are the idiomatic model's. Arrays are (features, length, batch), as the
# inputs are.

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
