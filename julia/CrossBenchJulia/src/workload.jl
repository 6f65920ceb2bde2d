# A model with its optimizer and data, and what a framework must define for it. The axes are reversed:
# (N, C, H, W) in Python is (W, H, C, N) here, and a sequence (N, L, F) is (F, L, N).

"""The element types of the arrays that Python hands over, by NumPy's name."""
const ELTYPES = Dict(
    "float32" => Float32,
    "float64" => Float64,
    "int32" => Int32,
    "int64" => Int64,
    "bool" => Bool,
)

"""
Say where a parameter or a running statistic is.

  - `paths`: its places in what the framework trains, of which a shared one has several
  - `size`: that of its canonical array
  - `change`: what is done to a canonical array: `Val(:same)`, `Val(:flipped)` or `Val(:transposed)`
  - `is_trained`: whether the optimizer updates it
"""
struct Place
    paths::Vector{Tuple}
    size::Tuple
    change::Val
    is_trained::Bool
end

"""
Hold a model on a device, with its loss, its optimizer and the batches of its epoch.

  - `framework`: what the methods of a framework dispatch on
  - `model`: the framework's model
  - `places`: the `Place` of each parameter, by name ("conv1.weight")
  - `dropouts`: the path of each dropout, by name ("dropout1")
  - `loss`: the framework's loss
  - `targets`: the function that turns labels (classes from 0, or numbers) into targets
  - `rate`: the learning rate as a function of the step (from 0), or `nothing`
  - `clip`: the function that scales gradients down to a norm, or `nothing`
  - `state`: what the framework trains: the optimizer's state, or the model's too
  - `steps`: how many steps were taken since the weights were loaded
  - `batches`: each a `Batch` on the device
  - `counters_before`: what `counters` returned before the epoch
  - `figures`: what the epoch added to these counters, in the unit of their name
"""
Base.@kwdef mutable struct Workload{F}
    framework::F
    model::Any
    places::Dict{String,Place}
    dropouts::Dict{String,Tuple}
    loss::Any
    targets::Function
    rate::Any
    clip::Any
    device::Any
    state::Any
    steps::Int = 0
    batches::Vector{Any} = Any[]
    counters_before::Dict{String,Int} = Dict{String,Int}()
    figures::Dict{String,Float64} = Dict{String,Float64}()
end

Base.copy(workload::Workload) =
    Workload(; (name => getfield(workload, name) for name in fieldnames(Workload))...)

"""
    Workload(framework, json, device_name, precision)

Build what `json` describes: the statements that make the model, its loss and its optimizer, the
names of its arrays and those of its dropouts, in the order in which the framework has them. The
statements are evaluated in the framework's package. `device_name` is "cpu" or "gpu", `precision`
"float32" or "float64".
"""
function Workload(
    framework,
    json::AbstractString,
    device_name::AbstractString,
    precision::AbstractString,
)
    row, T, device = JSON.parse(json), ELTYPES[precision], select_device(device_name)
    package = parentmodule(typeof(framework))
    made = include_string(package, "let T = $T\n$(row["text"])\nend", "training.jl")
    built = build(framework, made.model, T, device)
    length(built.dropouts) == length(row["dropouts"]) ||
        error("the model has $(length(built.dropouts)) dropouts, not $(length(row["dropouts"]))")
    # functions of a text are newer than the functions that call them
    latest(f) = isnothing(f) ? f : (arguments...) -> Base.invokelatest(f, arguments...)
    return Workload(;
        framework,
        device,
        built.model,
        places = placed(row["arrays"], built.arrays, T),
        dropouts = Dict{String,Tuple}(zip(row["dropouts"], built.dropouts)),
        made.loss,
        targets = latest(made.targets),
        rate = latest(made.rate),
        clip = latest(made.clip),
        state = Base.invokelatest(made.set_up, built.trained...),
    )
end

"""
    build(framework, model, T, device) -> NamedTuple

Move a model to the device, with numbers of the type `T`. Return the `model`, the arguments of the
function that makes the optimizer's state (`trained`), the `array_places` of all `arrays`, and the
paths of the `dropouts`.
"""
function build end

"""
    array_places(tree) -> [array => paths, ...]

Return the arrays of numbers in a model, in its own order, with all places of each.
"""
function array_places(tree)
    found = Pair{Any,Vector{Tuple}}[]
    add_places!(found, tree, ())
    return found
end

add_places!(found, node, path) =
    foreach(((key, child),) -> add_places!(found, child, (path..., key)), pairs(children(node)))
function add_places!(found, array::AbstractArray{<:AbstractFloat}, path)
    known = findfirst(((other, _),) -> other === array, found)
    isnothing(known) ? push!(found, array => Tuple[path]) : push!(found[known].second, path)
    return nothing
end
add_places!(found, ::Union{AbstractArray{<:Number},AbstractRNG}, path) = nothing

"""Return the `Place` of each array by its name. described: in the order of the arrays."""
function placed(described, arrays, T)
    names = [d["name"] for d in described]
    length(names) == length(arrays) ||
        error("the model has $(length(arrays)) arrays, not $(length(names)): $(join(names, ", "))")
    found = Dict{String,Place}()
    for (d, (array, paths)) in zip(described, arrays)
        (; name, size, change, is_trained) = (; (Symbol(k) => v for (k, v) in d)...)
        length(array) == prod(size) || error("$name has $(length(array)) numbers, not $(prod(size))")
        eltype(array) == T || error("$name is $(eltype(array)), not $T")
        isempty(name) && continue  # it stays zero
        found[name] = Place(paths, Tuple(Int.(size)), Val(Symbol(change)), is_trained)
    end
    return found
end

"""
    parameter(workload, name) -> array

Return a parameter or a running statistic in the framework's own form: the array that the
model computes with.
"""
function parameter end

"""Return the tree that `Optimisers.setup` made."""
function optimizer_state end

"""Return the random number generator of the dropout at a path in the model, or `nothing`."""
function dropout_rng end

"""Set the learning rate of the steps that follow."""
function adjust_rate! end

"""
    differentiate(workload, batch) -> (loss, gradient)

Return the loss of one batch in training, and its gradient as the framework has it.
"""
function differentiate end

"""Train on one batch, and return its loss."""
function train! end

"""
Return a workload of the same model and weights, whose running statistics and random number
generators may change without those of this one.
"""
function isolated end

"""
    predictor(workload) -> function

Return the function that predicts the outputs of inputs on the device.
"""
function predictor end

"""Return the versions of the framework's packages, by name."""
function package_versions end
