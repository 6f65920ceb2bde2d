# What a framework's package compiles when it is installed: the first epoch of each model of the
# catalogue. Without it the first step takes many times as long. The models are those of the
# catalogue themselves, since NNlib's max-pool is compiled anew for each number of channels. The
# proof of sameness trains in float64 too: that is compiled for the LeNet alone, because all of it
# would make the package larger and load more slowly.

"""Parameters of the largest model that is precompiled: GPT-2 would take gigabytes."""
const MAX_PRECOMPILED = 100_000_000

"""Return two examples of a described model, with token ids and classes of 0."""
function first_examples(described, T)
    inputs, outputs = described["input_shape"], described["output_shape"]
    x = described["takes_tokens"] ? zeros(Int32, inputs..., 2) : rand(T, reverse(inputs)..., 2)
    described["has_classes"] || return x, rand(T, reverse(outputs)..., 2)
    return x, zeros(Int, reverse(outputs[1:(end-1)])..., 2)
end

"""
    train_catalogue(build, file)

Train and predict with each model that the file describes, on two examples. `build` takes what a
`Workload` is built of and a precision, and returns the workloads: the idiomatic one first.
"""
function train_catalogue(build, file)
    for described in JSON.parsefile(file), precision in ("float32", "float64")
        described["parameters"] > MAX_PRECOMPILED && continue
        precision == "float64" && described["name"] != "lenet" && continue
        x, y = first_examples(described, ELTYPES[precision])
        for (place, workload) in enumerate(build(JSON.json(described["row"]), precision))
            train_once(workload, x, y)
            place == 1 || continue
            loss_and_gradients(workload, x, y)
            predict(workload, x)
            details(workload)
        end
        wrap(precision, UInt(pointer(x)), size(x))
    end
end

function train_once(workload, x, y)
    for (name, array) in weights(workload)
        load_weight!(workload, name, array)
    end
    reset_state!(workload)
    clear_batches!(workload)
    add_batch!(workload, x, y)
    train_epoch!(workload)
    predict_epoch!(workload)
    predict_batch(workload, predictor(workload), 1)
end
