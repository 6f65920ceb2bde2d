# Compile when the package is installed what the first epoch of each model of the catalogue needs,
# in both variants. Without it the first step takes many times as long. The models are those of the
# catalogue themselves, since NNlib's max-pool is compiled anew for each number of channels. The
# proof of sameness trains in float64 too: that is compiled for the LeNet alone, because all of it
# would make the package larger and load more slowly.

"""Parameters of the largest model that is precompiled: GPT-2 would take gigabytes."""
const MAX_PRECOMPILED = 100_000_000

"""Return labels of two examples: targets, a class at each place of a sequence, or classes."""
function example_labels(model, T)
    isnothing(model["classes"]) && return rand(T, model["output_shape"]..., 2)
    return zeros(Int, reverse(model["output_shape"][1:(end-1)])..., 2)
end

@setup_workload begin
    file = joinpath(@__DIR__, "models.json")
    include_dependency(file)
    models = JSON.parsefile(file)
    @compile_workload begin
        for model in models, precision in ("float32", "float64")
            precision == "float64" && model["name"] != "lenet" && continue
            description, shape, T = JSON.json(model), model["input_shape"], ELTYPES[precision]
            takes_tokens = model["layers"][1]["type"] in ("Embedding", "OneHot")
            inputs = takes_tokens ? ones(Int32, shape..., 2) : rand(T, reverse(shape)..., 2)
            model["parameters"] > MAX_PRECOMPILED && continue
            labels = example_labels(model, T)
            idiomatic = Workload(description, "cpu", precision)
            for workload in (idiomatic, TunedWorkload(idiomatic))
                for (name, array) in weights(workload)
                    load_weight!(workload, name, array)
                end
                reset_state!(workload)
                clear_batches!(workload)
                add_batch!(workload, inputs, labels)
                train_epoch!(workload)
                predict_epoch!(workload)
                predict_batch(workload, 1)
            end
            loss_and_gradients(idiomatic, inputs, labels)
            predict(idiomatic, inputs)
            wrap(precision, UInt(pointer(inputs)), size(inputs))
        end
        details(cpu_device())
    end
end
