# Compile when the package is installed what every run needs: a step of the LeNet in both
# precisions. Without it the first step takes many times as long. The layers and their
# features are the LeNet's own, since NNlib's max-pool is compiled anew for each number of
# channels.

@setup_workload begin
    layer(type, name, shape; rest...) = Dict(
        "type" => type,
        "name" => name,
        "input_shape" => shape,
        Dict(String(k) => v for (k, v) in rest)...,
    )
    conv(name, shape, features) = layer(
        "Conv",
        name,
        shape;
        features,
        kernel = [5, 5],
        stride = [1, 1],
        padding = [0, 0],
    )
    maxpool(name, shape) = layer("MaxPool", name, shape; window = [2, 2], stride = [2, 2])
    layers = [
        conv("conv1", [3, 32, 32], 16),
        layer("ReLU", "relu1", [16, 28, 28]),
        maxpool("maxpool1", [16, 28, 28]),
        conv("conv2", [16, 14, 14], 8),
        layer("ReLU", "relu2", [8, 10, 10]),
        maxpool("maxpool2", [8, 10, 10]),
        layer("Flatten", "flatten1", [8, 5, 5]),
        layer("Dense", "dense1", [200]; features = 120),
        layer("Dense", "dense2", [120]; features = 84),
        layer("Dense", "dense3", [84]; features = 10),
    ]
    optimizer = Dict("type" => "SGD", "learning_rate" => 0.01, "momentum" => 0.9)
    description = JSON.json(
        Dict(
            "output_shape" => [10],
            "layers" => layers,
            "loss" => Dict("type" => "SoftmaxCrossEntropy"),
            "optimizer" => optimizer,
        ),
    )
    @compile_workload begin
        for precision in ("float32", "float64")
            T = ELTYPES[precision]
            workload = Workload(description, "cpu", precision)
            for (name, array) in weights(workload)
                load_weight!(workload, name, array)
            end
            reset_state!(workload)
            inputs, labels = rand(T, 32, 32, 3, 2), [0, 2]
            add_batch!(workload, inputs, labels)
            train_epoch!(workload)
            loss_and_gradients(workload, inputs, labels)
            predict(workload, inputs)
            wrap(precision, UInt(pointer(inputs)), size(inputs))
        end
        details(cpu_device())
    end
end
