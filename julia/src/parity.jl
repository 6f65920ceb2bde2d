# What the proof of sameness compares: the loss, its gradients, the logits and the weights, each as
# canonical arrays on the CPU. None of them changes the model.

"""The loss of one batch, and its gradients by canonical name."""
function loss_and_gradients(workload, inputs, labels)
    classes = 0:(outputs(workload.model) - 1)
    x, y = workload.device((copy(inputs), Flux.onehotbatch(labels, classes)))
    value, gradients = Flux.withgradient(m -> workload.loss(m(x), y), workload.model)
    return Float64(value), arrays(workload.model, workload.names, gradients[1])
end

predict(workload, inputs) = Array(cpu(workload.model(workload.device(copy(inputs)))))

weights(workload) = arrays(workload.model, workload.names)
