#=
The tuned variant: the same training steps as fast as Flux can be made on a CPU, with Flux, NNlib,
Optimisers and Zygote alone. Its layers are in tuned_layers.jl. What profiles of the idiomatic
variant showed on two cores (Flux 0.16.9), and what is done about it:

  - LeNet: the threads were idle for almost half of the time. The convolutions' weight gradient,
    which NNlib computes on one thread, was in 43 % of the samples, the max-pool's gradient, also on
    one thread, in 29 %. Here the batch is split into pieces, a task per thread trains them one by
    one, and their gradients are added. Batch norms compute their statistics over all pieces.
  - Convolutions: copying pixels to patches was in 42 % of the samples. Here nothing is copied: a
    place of the kernel multiplies a whole channel, and the max-pool behind a convolution takes its
    outputs while they are in the core's cache. The gradient of the model's input, which nobody
    needs, is left out.
  - text_lstm: 64 % of the samples were in allocation and garbage collection. Here a recurrent layer
    computes the whole sequence and its gradient in arrays that are allocated once; the input is
    multiplied for the whole sequence at once.
  - Embedding, which was not profiled: its gradient was a matrix of mostly zeros, as large as the
    weight. Optimizer, not profiled either: one thread went through memory once for every line of
    the rule. Here all threads do, and go through it once.

Which part matters, by benchmarks/ladder.py on two cores of an AMD EPYC (Zen 5), the seconds of an
epoch in one run relative to the idiomatic row's: the layers alone, the batch whole and so on one
thread, take 0.30 on the LeNet, 0.77 on mnist_cnn and 0.24 on text_lstm; in pieces on two threads
0.14, 0.41 and 0.12. Memory that the C library keeps takes 0.78, 0.93 and 0.96 of the idiomatic
row's time, and brought nothing more to the pieces. gpt_char lost by all of it (1.37 and 1.57).
=#

"""
    TunedWorkload(workload)

Train the model of an idiomatic `Workload` by the same steps in less time. On a GPU, where none
of this was tried, for a model that clips its gradients or ties a weight, and for one with
attention, its steps are the idiomatic ones.

  - `workload`: the idiomatic workload, whose properties are this one's too
  - `is_idiomatic`: whether its steps are the idiomatic ones
  - `pieces`: the `Pieces` into which batches are split, or `nothing` before the first step
  - `batch_size`: the number of examples for which they were chosen
"""
mutable struct TunedWorkload
    workload::FluxWorkload
    is_idiomatic::Bool
    pieces::Any
    batch_size::Int
    function TunedWorkload(workload)
        is_idiomatic = stays_idiomatic(workload)
        # the threads of BLAS would wait busily where the tasks run
        is_idiomatic || BLAS.set_num_threads(1)
        return new(workload, is_idiomatic, nothing, 0)
    end
end

Base.getproperty(tuned::TunedWorkload, name::Symbol) =
    hasfield(TunedWorkload, name) ? getfield(tuned, name) :
    getproperty(tuned.workload, name)
Base.setproperty!(tuned::TunedWorkload, name::Symbol, value) =
    hasfield(TunedWorkload, name) ? setfield!(tuned, name, value) :
    setproperty!(tuned.workload, name, value)

# What is fetched of it is the idiomatic workload's.
for name in (:isolated, :package_versions, :predictor, :optimizer_state)
    @eval $name(tuned::TunedWorkload) = $name(tuned.workload)
end
dropout_rng(tuned::TunedWorkload, path) = dropout_rng(tuned.workload, path)
parameter(tuned::TunedWorkload, name) = parameter(tuned.workload, name)

function step!(tuned::TunedWorkload, batch::Batch)
    tuned.is_idiomatic && return step!(tuned.workload, batch)
    ensure_pieces!(tuned, batch)
    isnothing(tuned.rate) || Flux.adjust!(tuned.state, tuned.rate(tuned.steps))
    tuned.steps += 1
    loss, gradients = differentiate_pieces(tuned, tuned.pieces, batch)
    for (name, parts) in gradients
        path = only(tuned.places[name].paths)
        update_parameter!(lookup(tuned.state, path), lookup(tuned.model, path), parts)
    end
    return loss
end

function backward!(tuned::TunedWorkload, batch::Batch)
    tuned.is_idiomatic && return backward!(tuned.workload, batch)
    ensure_pieces!(tuned, batch)
    return last(differentiate_pieces(tuned, tuned.pieces, batch))
end

"""
Return whether the steps stay the idiomatic ones: those that need all gradients at once do, and
those with attention, whose products NNlib spreads over the threads: on two cores gpt_char took
1.48 (1.41 to 1.75) times as long in pieces, 1.36 (1.25 to 1.51) times in one piece.
"""
stays_idiomatic(workload) =
    !(workload.device isa CPUDevice) ||
    !isnothing(workload.clip) ||
    any(place -> length(place.paths) > 1, Base.values(workload.places)) ||
    any(layer -> layer isa MultiHeadAttention, Flux.modules(workload.model))

function reset_state!(tuned::TunedWorkload)
    reset_state!(tuned.workload)
    isnothing(tuned.pieces) || seed_dropouts!(tuned, tuned.pieces)
    return nothing
end

"""Return how batches are split, for whoever reads the figures; empty before the first step."""
function tuning(tuned)
    tuned.is_idiomatic && return Dict("pieces of a batch" => "1")
    isnothing(tuned.pieces) && return Dict{String,String}()
    count = length(tuned.pieces.models)
    threads = min(count, Threads.nthreads())
    return Dict("pieces of a batch" => count == 1 ? "1" : "$count on $threads threads")
end

# Pieces of a batch

"""Choose the pieces before the first step with so many examples; other batches keep them."""
function ensure_pieces!(tuned, batch)
    tuned.batch_size == examples(batch) && return
    tuned.pieces, tuned.batch_size = choose_pieces(tuned, batch), examples(batch)
    return nothing
end

"""
Hold a model for each piece of a batch. They share the weights; each has dropouts of its own.
`group` adds up over the pieces that are trained at the same time.
"""
struct Pieces
    models::Vector{Chain}
    group::Any
end

function split_batches(tuned, count)
    group = AllReduce(count)
    pieces = Pieces([tune(tuned.model, group, piece) for piece in 1:count], group)
    seed_dropouts!(tuned, pieces)
    return pieces
end

"""Numbers of pieces per thread that `choose_pieces` tries."""
const PIECES_PER_THREAD = (1, 2, 5, 10)

"""
    choose_pieces(tuned, batch) -> Pieces

Try some numbers of pieces and return the fastest. Trying them changes nothing: gradients are
thrown away, each trial has dropouts of its own, and a model with batch norms has no choice.
"""
function choose_pieces(tuned, batch)
    counts = unique(min.(piece_counts(tuned.model), examples(batch)))
    length(counts) == 1 && return split_batches(tuned, only(counts))
    trials = [split_batches(tuned, count) for count in counts]
    differentiate_pieces(tuned, first(trials), batch)  # compiles
    seconds(pieces) = @elapsed differentiate_pieces(tuned, pieces, batch)
    return split_batches(
        tuned,
        counts[argmin([min(seconds(t), seconds(t)) for t in trials])],
    )
end

function piece_counts(model)
    # a batch norm waits for all pieces, so each needs a task of its own
    is_normed = any(layer -> layer isa BatchNorm, Flux.modules(model))
    return Threads.nthreads() .* (is_normed ? (1,) : PIECES_PER_THREAD)
end

examples(batch) = size(batch.inputs, ndims(batch.inputs))

function seed_dropouts!(tuned, pieces)
    names = sort!(collect(keys(tuned.dropouts)))
    for (piece, model) in enumerate(pieces.models), (dropout, name) in enumerate(names)
        seed!(lookup(model, tuned.dropouts[name]).rng, UInt32[dropout, piece])
    end
end

"""
    differentiate_pieces(tuned, pieces, batch) -> (loss, gradients)

Return the batch's loss, and for each trained parameter, by name, arrays whose sum is its
gradient: one per task, or `SparseColumns`. Which piece is whose does not depend on time, so
neither does the rounding.
"""
function differentiate_pieces(tuned, pieces, batch)
    count = min(length(pieces.models), examples(batch))
    tasks = min(count, Threads.nthreads())
    pieces.group.members = count
    losses, gradients = zeros(count), [Dict{String,Vector{Any}}() for _ in 1:tasks]
    @sync for task in 1:tasks
        Threads.@spawn NNlib.@disallow_spawns for piece in task:tasks:count
            range = ((piece-1)*examples(batch)÷count+1):(piece*examples(batch)÷count)
            losses[piece] = leave_on_error(pieces.group) do
                differentiate_piece!(gradients[task], tuned, pieces.models[piece], batch, range)
            end
        end
    end
    return sum(losses), mergewith(vcat, gradients...)
end

"""
Add the gradients of the examples in `range` to `gradients`, and return their share of the loss.
"""
function differentiate_piece!(gradients, tuned, model, batch, range)
    x, y = last_axis(batch.inputs, range), last_axis(batch.targets, range)
    masks =
        isnothing(batch.masks) ? nothing :
        Dict{String,Any}(name => last_axis(mask, range) for (name, mask) in batch.masks)
    model = look_up_first(with_masks(model, tuned.dropouts, masks), x)
    share = length(range) / examples(batch)
    value, gradient = differentiate_share(model, tuned.loss, x, y, share)
    for (name, place) in tuned.places
        place.is_trained || continue
        path = only(place.paths)
        found = lookup(gradient, path)
        isnothing(found) && continue
        add_part!(get!(() -> [], gradients, name), as_part(lookup(model, Base.front(path)), found))
    end
    return value
end

last_axis(array, range) = array[ntuple(_->:, ndims(array)-1)..., range]

function differentiate_share(model, loss, x, y, share)
    value, gradients = Flux.withgradient(model) do m
        outputs = m(x)
        return eltype(outputs)(share) * loss(outputs, y)
    end
    return Float64(value), gradients[1]
end

as_part(layer, gradient::Array) = gradient
as_part(layer, gradient) = Array(gradient)
add_part!(parts, part) = isempty(parts) ? push!(parts, part) : (parts[1] .+= part)

# Optimizer

"""How many numbers of a parameter are updated at a time: few enough to stay in a core's cache."""
const CHUNK = 2^14

"""
    update_parameter!(leaf, x, parts)

Update the parameter `x`, whose gradient is the sum of `parts`, and its state in `leaf`, which
`Flux.setup` made. The rules of Optimisers.jl work element by element, so on chunks too.
"""
function update_parameter!(leaf, x, parts)
    len = chunk_length(first(parts), x)
    chunks = cld(length(x), len)
    tasks = min(chunks, Threads.nthreads())
    states = Vector{Any}(undef, tasks)
    update(task) =
        states[task] =
            update_chunks!(leaf.rule, leaf.state, x, (parts...,), len, task:tasks:chunks)
    tasks == 1 ? update(1) : @sync(foreach(t -> Threads.@spawn(update(t)), 1:tasks))
    leaf.state = with_scalars(leaf.state, first(states))
    return nothing
end

function update_chunks!(rule, state, x, parts, len, chunks)
    buffer = similar(x, len)
    local chunk_state
    GC.@preserve state x parts buffer for chunk in chunks
        range = ((chunk-1)*len+1):min(chunk*len, length(x))
        values, gradient = chunk_of(x, range), add_up!(buffer, parts, range)
        chunk_state, change =
            Optimisers.apply!(rule, chunk_of(state, range), values, gradient)
        values .= values .- change
    end
    return chunk_state
end

chunk_length(part, x) = CHUNK

function add_up!(buffer, parts, range)
    total = chunk_of(parts[1], range)
    foreach(part -> total .+= chunk_of(part, range), Base.tail(parts))
    return total
end

# An Array and no view: the rules of Optimisers.jl write into nothing else.
chunk_of(array::Array, range) =
    unsafe_wrap(Array, pointer(array, first(range)), length(range))
chunk_of(state::Tuple, range) = map(s -> chunk_of(s, range), state)
chunk_of(state, range) = state

"""Return a whole state with the numbers, such as Adam's powers of beta, of a chunk's state."""
with_scalars(whole::Array, ::Array) = whole
with_scalars(whole::Tuple, chunk::Tuple) = map(with_scalars, whole, chunk)
with_scalars(whole, chunk) = chunk

# Embedding

"""
Stand for the embedding that a model begins with: return the vectors that were looked up, which
are its `weight`, so that Zygote returns the gradient of these vectors alone.
"""
struct LookedUp{N,W}
    tokens::N
    weight::W
end
(found::LookedUp)(x) = found.weight

look_up_first(chain, x) = chain
look_up_first(chain::Chain{<:Tuple{Flux.Embedding,Vararg}}, x) =
    Chain(LookedUp(vec(x), chain.layers[1](x)), Base.tail(chain.layers)...)

"""
Hold the gradient of an embedding's weight (features, vocabulary): `vectors[:, order[i]]` is
added to the column `tokens[i]`. `tokens` are sorted; the same one may come several times.
"""
struct SparseColumns{N,A}
    tokens::N
    order::Vector{Int}
    vectors::A
end

function SparseColumns(tokens, vectors)
    order = sortperm(tokens)
    return SparseColumns(tokens[order], order, reshape(vectors, size(vectors, 1), :))
end

as_part(layer::LookedUp, gradient::Array) = SparseColumns(layer.tokens, gradient)
add_part!(parts, part::SparseColumns) = push!(parts, part)

chunk_length(::SparseColumns, x) = max(1, CHUNK ÷ size(x, 1)) * size(x, 1)

function add_up!(buffer, parts::Tuple{SparseColumns,Vararg}, range)
    total = fill!(chunk_of(buffer, 1:length(range)), 0)
    foreach(part -> add_columns!(total, part, range), parts)
    return total
end

function add_columns!(total, part, range)
    rows = size(part.vectors, 1)
    tokens_before = (first(range) - 1) ÷ rows
    for i in searchsortedfirst(part.tokens, tokens_before+1):length(part.tokens)
        start = (part.tokens[i] - tokens_before - 1) * rows
        start < length(total) || break
        column = part.order[i]
        @inbounds @simd for row in 1:rows
            total[start+row] += part.vectors[row, column]
        end
    end
end

# What is fetched

"""Return the gradients that `differentiate_pieces` returned, by canonical name."""
gradient_arrays(tuned::TunedWorkload, gradients::Dict) = Dict{String,Array}(
    name => to_array(tuned, name, whole_gradient(parameter(tuned, name), parts)) for
    (name, parts) in gradients
)

whole_gradient(x, parts) = whole_gradient(x, parts, first(parts))
whole_gradient(x, parts, ::Any) = reduce(+, parts)
whole_gradient(x, parts, ::SparseColumns) =
    reshape(add_up!(similar(x, length(x)), (parts...,), 1:length(x)), size(x))
