# What the proof of sameness compares: the loss, its gradients and the logits, each as
# canonical arrays on the CPU. None of these functions changes the model.

"""
    loss_and_gradients(workload, inputs, labels, masks = nothing) -> (loss, gradients)

Return the loss of one batch in training, and its gradients by canonical name.
"""
function loss_and_gradients(workload, inputs, labels, masks = nothing)
    batch = make_batch(workload, inputs, labels, masks)
    value, gradient = differentiate(isolated(workload), batch)
    return Float64(value), gradient_arrays(workload, gradient)
end

"""
    predict(workload, inputs) -> Array

Return the outputs for any number of examples.
"""
predict(workload, inputs) =
    Array(cpu_device()(predictor(workload)(workload.device(from_one(inputs)))))

"""Return what a dropout of `rate` makes of `x` where it keeps the values of `mask`."""
apply_mask(x, mask, rate) = x .* ignore_derivatives(() -> mask ./ eltype(x)(1 - rate))

"""Return 0, whose gradient of the outputs is the targets."""
given_gradient(outputs, targets) = zero(eltype(outputs))
ChainRulesCore.rrule(::typeof(given_gradient), outputs, targets) =
    zero(eltype(outputs)), _ -> (NoTangent(), targets, NoTangent())
