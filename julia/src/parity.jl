# What the proof of sameness compares: the loss, its gradients and the logits, each as canonical
# arrays on the CPU. None of them changes the model.

"""The loss of one batch in training, and its gradients by canonical name."""
function loss_and_gradients(workload, inputs, labels, kept = nothing)
    b = batch(workload, inputs, labels, kept)
    # of a copy: its running statistics and random numbers may go on
    model = with_masks(deepcopy(workload.model), workload.dropouts, b.kept)
    value, gradient = differentiate(model, workload.loss, b.inputs, b.targets)
    return Float64(value), gradient_arrays(workload, gradient)
end

"""The outputs for any number of examples. Outside of a gradient Flux's layers predict."""
predict(workload, inputs) =
    Array(cpu(workload.model(workload.device(native_inputs(inputs)))))

# A dropout whose draws are given.
struct Given{M}
    mask::M
    rate::Float64
end
(given::Given)(x) = x .* ignore_derivatives(() -> given.mask ./ eltype(x)(1 - given.rate))

"""The model with the masks in place of its dropouts; it shares all its arrays."""
with_masks(model, dropouts, ::Nothing) = model
function with_masks(model, dropouts, kept)
    given = IdDict{Any,Any}()
    for (name, mask) in kept
        dropout = follow(model, dropouts[name])
        given[dropout] = Given(mask, dropout.p)
    end
    return fmap(part -> get(given, part, part), model; exclude = part -> part isa Dropout)
end
