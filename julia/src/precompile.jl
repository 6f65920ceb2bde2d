# Compile once, when the package is installed, what every run needs: a step of a small CNN with
# each kind of layer, in both precisions. Without it the first step takes many times as long.

@setup_workload begin
    layer(type, name, shape; rest...) =
        Dict("type" => type, "name" => name, "input_shape" => shape, Dict(String(k) => v for (k, v) in rest)...)
    description = JSON.json(Dict(
        "layers" => [
            layer("Conv", "conv1", [3, 8, 8]; features = 4, kernel = [3, 3], stride = [1, 1], padding = [0, 0]),
            layer("ReLU", "relu1", [4, 6, 6]),
            layer("MaxPool", "maxpool1", [4, 6, 6]; window = [2, 2], stride = [2, 2]),
            layer("Conv", "conv2", [4, 3, 3]; features = 4, kernel = [2, 2], stride = [1, 1], padding = [0, 0]),
            layer("ReLU", "relu2", [4, 2, 2]),
            layer("MaxPool", "maxpool2", [4, 2, 2]; window = [2, 2], stride = [2, 2]),
            layer("Flatten", "flatten1", [4, 1, 1]),
            layer("Dense", "dense1", [4]; features = 6),
            layer("Dense", "dense2", [6]; features = 5),
            layer("Dense", "dense3", [5]; features = 3),
        ],
        "loss" => Dict("type" => "SoftmaxCrossEntropy"),
        "optimizer" => Dict("type" => "SGD", "learning_rate" => 0.01, "momentum" => 0.9),
    ))
    @compile_workload begin
        for precision in ("float32", "float64")
            T = NUMBER[precision]
            workload = Workload(description, "cpu", precision)
            for (name, array) in weights(workload)
                load_weight!(workload, name, array)
            end
            reset!(workload)
            inputs, labels = rand(T, 8, 8, 3, 2, 2), [0 1; 2 0]
            place!(workload, inputs, labels)
            train_epoch!(workload)
            loss_and_gradients(workload, inputs[:, :, :, :, 1], labels[:, 1])
            predict(workload, inputs[:, :, :, :, 1])
            wrap(precision, UInt(pointer(inputs)), size(inputs))
        end
        details()
    end
end
