# What the proof of sameness compares: the loss, its gradients and the logits, each as
# canonical arrays on the CPU. None of these functions changes the model.

"""
    loss_and_gradients(workload, inputs, labels, masks = nothing) -> (loss, gradients)

Return the loss of one batch in training, and its gradients by canonical name.
"""
function loss_and_gradients(workload, inputs, labels, masks = nothing)
    batch = make_batch(workload, inputs, labels, masks)
    # training changes running statistics and random number generators: those of a copy
    model = with_masks(deepcopy(workload.model), workload.dropouts, batch.masks)
    value, gradient = differentiate(model, workload.loss, batch.inputs, batch.targets)
    return Float64(value), gradient_arrays(workload, gradient)
end

"""
    predict(workload, inputs) -> Array

Return the outputs for any number of examples. Outside a gradient Flux's layers predict.
"""
predict(workload, inputs) = Array(cpu(workload.model(workload.device(flux_inputs(inputs)))))

"""
Drop the values that `mask` does not keep, and scale the others as a dropout of `rate` does.
"""
struct FixedMask{M}
    mask::M
    rate::Float64
end
(fixed::FixedMask)(x) =
    x .* ignore_derivatives(() -> fixed.mask ./ eltype(x)(1 - fixed.rate))

"""
    with_masks(model, dropouts, masks) -> model

Return the model with a `FixedMask` in place of each dropout, or as it is if `masks` is
`nothing`. It shares all its arrays.
"""
with_masks(model, dropouts, ::Nothing) = model
function with_masks(model, dropouts, masks)
    replacements = IdDict{Any,Any}()
    for (name, mask) in masks
        dropout = lookup(model, dropouts[name])
        replacements[dropout] = FixedMask(mask, dropout.p)
    end
    return fmap(
        node -> get(replacements, node, node),
        model;
        exclude = node -> node isa Dropout,
    )
end
