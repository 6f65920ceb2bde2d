# The models to test with, which crossbench's tests write into the file that is named on the command
# line. The tests of each framework include this file where they have its `build_workload`.
using CrossBenchJulia
using CrossBenchJulia:
    CrossBenchJulia,
    JSON,
    add_batch!,
    begin_epoch!,
    clear_batches!,
    finish_epoch!,
    load_weight!,
    loss_and_gradients,
    predict,
    reset_state!,
    step!,
    train_epoch!,
    weights
using Test

const MODELS = Dict(d["name"] => d for d in JSON.parsefile(only(ARGS)))
const ALL = sort!(collect(keys(MODELS)))

build(name, precision, device = "cpu") =
    build_workload(JSON.json(MODELS[name]["row"]), device, precision)

"""Return n examples for a model, (..., n), and their labels or targets."""
function examples(name, T, n; shift = 0)
    described = MODELS[name]
    (places..., outputs) = described["output_shape"]
    shape, size = (reverse(described["input_shape"])..., n), (reverse(places)..., n)
    labels = reshape([(shift + i) % max(2, outputs) for i in 1:prod(size)], size)
    if !described["has_classes"]
        labels = T.(reshape(sin.(shift .+ (1:(outputs*n))), outputs, n))
    end
    described["takes_tokens"] || return T.(reshape(cos.(shift .+ (1:prod(shape))), shape)), labels
    return Int32.(reshape([(shift + i^2) % 7 for i in 1:prod(shape)], shape)), labels
end

"""
Return a workload with weights that are all different, and these weights. Running variances
are positive.
"""
function ready(name, precision = "float64", device = "cpu")
    T, workload = CrossBenchJulia.ELTYPES[precision], build(name, precision, device)
    values = Dict(
        name => T.(0.3 .* sin.(length(name) .+ reshape(1:length(a), size(a)))) for
        (name, a) in weights(workload)
    )
    for (name, a) in values
        endswith(name, "running_var") && (values[name] = 1 .+ a)
    end
    load!(workload, values)
    return workload, values
end

function load!(workload, values)
    foreach(((name, a),) -> load_weight!(workload, name, a), values)
    reset_state!(workload)
end

"""Return what `ready` does, with three batches of four examples on the device."""
function with_batches(name, precision = "float64", device = "cpu")
    workload, values = ready(name, precision, device)
    T = CrossBenchJulia.ELTYPES[precision]
    for step in 1:3
        add_batch!(workload, examples(name, T, 4; shift = 10step)...)
    end
    return workload, values
end
