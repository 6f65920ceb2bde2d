# What a framework's package compiles when it is installed: the first epoch of each model of the
# catalogue. Without it the first step takes many times as long. The models are those of the
# catalogue themselves, since NNlib's max-pool is compiled anew for each number of channels. The
# proof of sameness trains in float64 too: that is compiled for the LeNet alone, because all of it
# would make the package larger and load more slowly.

"""File with the descriptions of the catalogue's models, which crossbench writes."""
const CATALOGUE = joinpath(@__DIR__, "models.json")

"""Parameters of the largest model that is precompiled: GPT-2 would take gigabytes."""
const MAX_PRECOMPILED = 100_000_000

"""Return labels of two examples: targets, a class at each place of a sequence, or classes."""
function example_labels(model, T)
    isnothing(model["classes"]) && return rand(T, model["output_shape"]..., 2)
    return zeros(Int, reverse(model["output_shape"][1:(end-1)])..., 2)
end

"""
    train_catalogue(build)

Train and predict with each model of the catalogue, on two examples. `build` takes a
description and a precision, and returns the workloads: the idiomatic one first.
"""
function train_catalogue(build)
    for model in JSON.parsefile(CATALOGUE), precision in ("float32", "float64")
        model["parameters"] > MAX_PRECOMPILED && continue
        precision == "float64" && model["name"] != "lenet" && continue
        shape, T = model["input_shape"], ELTYPES[precision]
        takes_tokens = model["layers"][1]["type"] in ("Embedding", "OneHot")
        inputs = takes_tokens ? ones(Int32, shape..., 2) : rand(T, reverse(shape)..., 2)
        labels = example_labels(model, T)
        workloads = build(JSON.json(model), precision)
        for workload in workloads
            for (name, array) in weights(workload)
                load_weight!(workload, name, array)
            end
            reset_state!(workload)
            clear_batches!(workload)
            add_batch!(workload, inputs, labels)
            train_epoch!(workload)
            predict_epoch!(workload)
            predict_batch(workload, predictor(workload), 1)
        end
        idiomatic = first(workloads)
        loss_and_gradients(idiomatic, inputs, labels)
        predict(idiomatic, inputs)
        details(idiomatic)
        wrap(precision, UInt(pointer(inputs)), size(inputs))
    end
end
