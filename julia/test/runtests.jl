using CrossBenchFlux
using CrossBenchFlux: Workload, arrays, chain, load_weight!, loss_and_gradients, place!, predict,
    reset!, train_epoch!, weights, wrap
using CrossBenchFlux.Flux
using CrossBenchFlux.JSON: JSON
using Test

layer(type, name, shape; rest...) = Dict{String,Any}(
    "type" => type, "name" => name, "input_shape" => shape, (String(k) => v for (k, v) in rest)...)

"""A small CNN with unequal sizes along the axes, so that a mixed-up axis shows."""
small(; more = []) = Dict{String,Any}(
    "layers" => [
        layer("Conv", "conv1", [2, 9, 8];
            features = 3, kernel = [3, 2], stride = [2, 1], padding = [1, 0]),
        layer("ReLU", "relu1", [3, 5, 7]),
        layer("MaxPool", "maxpool1", [3, 5, 7]; window = [2, 3], stride = [2, 2]),
        layer("Flatten", "flatten1", [3, 2, 3]),
        layer("Dense", "dense1", [18]; features = 5),
        more...,
    ],
    "loss" => Dict("type" => "SoftmaxCrossEntropy"),
    "optimizer" => Dict("type" => "SGD", "learning_rate" => 0.1, "momentum" => 0.9),
)

function ready(precision; steps = 3, batch = 4)
    T = CrossBenchFlux.NUMBER[precision]
    workload = Workload(JSON.json(small()), "cpu", precision)
    values = Dict(
        name => T.(0.3 .* sin.(reshape(1:length(a), size(a)))) for (name, a) in weights(workload))
    foreach(((name, a),) -> load_weight!(workload, name, a), values)
    reset!(workload)
    inputs = T.(reshape(cos.(1:(8 * 9 * 2 * batch * steps)), 8, 9, 2, batch, steps))
    labels = reshape((1:(batch * steps)) .% 5, batch, steps)
    place!(workload, inputs, labels)
    return workload, values, inputs, labels
end

@testset "CrossBenchFlux" begin
    @testset "the chain is one that a Flux user would write" begin
        model, names = chain(small())
        @test model isa Chain
        @test [typeof(l).name.name for l in model.layers[1:2]] == [:Conv, :MaxPool]
        @test model[1].σ === relu  # joined to the convolution
        @test model[1].stride == (1, 2)  # width first
        @test model[2].k == (3, 2)
        @test model[3] === Flux.flatten
        @test model[4] isa Dense
        @test model[4].σ === identity
        @test Flux.outputsize(model, (8, 9, 2, 4)) == (5, 4)
        @test names == Dict("conv1" => 1, "maxpool1" => 2, "flatten1" => 3, "dense1" => 4)
    end

    @testset "what it does not know is named" begin
        @test_throws "no translation to Flux of the layer Wavelet" chain(
            small(; more = [layer("Wavelet", "wavelet1", [5])]))
        @test_throws "no translation to Flux of the loss Hinge" CrossBenchFlux.loss_function(
            Dict("loss" => Dict("type" => "Hinge")))
        @test_throws "no translation to Optimisers.jl of the optimizer Newton" CrossBenchFlux.rule(
            Dict("optimizer" => Dict("type" => "Newton")))
        @test_throws "the device tpu needs CUDA.jl" Workload(JSON.json(small()), "tpu", "float32")
    end

    @testset "weights cross and come back" begin
        workload, values, _, _ = ready("float64")
        @test weights(workload) == values
        kernel = workload.model[1].weight
        @test kernel == values["conv1.weight"][end:-1:1, end:-1:1, :, :]  # flipped
        @test workload.model[4].weight == values["dense1.weight"]'
        @test_throws "conv1.weight has the size" load_weight!(workload, "conv1.weight", zeros(2, 2, 2, 2))
    end

    @testset "the convolution is the canonical cross-correlation" begin
        workload, values, inputs, _ = ready("float64")
        kernel, x = values["conv1.weight"], inputs[:, :, :, 1, 1]  # W, H, I, O and W, H, C
        padded = zeros(8, 11, 2)
        padded[:, 2:10, :] = x
        expected = [
            values["conv1.bias"][o] + sum(padded[w:(w+1), (2h-1):(2h+1), :] .* kernel[:, :, :, o])
            for w in 1:7, h in 1:5, o in 1:3
        ]
        @test workload.model[1](inputs[:, :, :, 1:1, 1])[:, :, :, 1] ≈ relu.(expected)
    end

    @testset "gradients are those of finite differences" begin
        workload, values, inputs, labels = ready("float64")
        x, y = inputs[:, :, :, :, 1], labels[:, 1]
        loss, gradients = loss_and_gradients(workload, x, y)
        @test keys(gradients) == keys(values)
        for (name, gradient) in gradients
            direction = cos.(reshape(1:length(gradient), size(gradient)))
            shifted(s) = begin
                load_weight!(workload, name, values[name] .+ s .* direction)
                first(loss_and_gradients(workload, x, y))
            end
            @test (shifted(1e-6) - shifted(-1e-6)) / 2e-6 ≈ sum(gradient .* direction) rtol = 1e-6
            load_weight!(workload, name, values[name])
        end
        @test first(loss_and_gradients(workload, x, y)) == loss
    end

    @testset "training in $precision" for precision in ("float32", "float64")
        workload, values, inputs, labels = ready(precision)
        @test eltype(workload.model[1].weight) == CrossBenchFlux.NUMBER[precision]
        first_loss, _ = loss_and_gradients(workload, inputs[:, :, :, :, 1], labels[:, 1])
        losses = train_epoch!(workload)
        @test length(losses) == 3
        @test losses[1] ≈ first_loss
        @test all(eltype(a) == CrossBenchFlux.NUMBER[precision] for a in Base.values(weights(workload)))
        # again from the same weights: the same, so the momentum was reset
        foreach(((name, a),) -> load_weight!(workload, name, a), values)
        reset!(workload)
        @test train_epoch!(workload) ≈ losses
        for _ in 1:30
            losses = train_epoch!(workload)
        end
        @test losses[end] < 0.5 * first_loss
        @test size(predict(workload, inputs[:, :, :, :, 1])) == (5, 4)
        @test Set(keys(workload.figures)) == Set(["allocated MiB", "GC s", "compile s"])
        @test workload.figures["allocated MiB"] > 0
        @test workload.figures["compile s"] == 0  # all was compiled before
    end

    @testset "placed data is a copy" begin
        workload, _, inputs, _ = ready("float64")
        before = copy(workload.batches[1][1])
        fill!(inputs, 0)
        @test workload.batches[1][1] == before
    end

    @testset "an array is wrapped, not copied" begin
        memory = collect(1.0:6.0)
        GC.@preserve memory begin
            wrapped = wrap("float64", UInt(pointer(memory)), (2, 3))
            wrapped[2, 3] = 60
        end
        @test memory[6] == 60
    end

    @testset "the peak's work" begin
        @test CrossBenchFlux.matrix_product(identity, 8)() === nothing
        source, target = rand(Float32, 1001), zeros(Float32, 1001)
        CrossBenchFlux.copy_all!(target, source)
        @test target == source
        before = CrossBenchFlux.BLAS.get_num_threads()
        CrossBenchFlux.matrix_product(identity, 8)()
        @test CrossBenchFlux.BLAS.get_num_threads() == before
    end

    @testset "details" begin
        details = CrossBenchFlux.details()
        @test details["Julia"] == string(VERSION)
        @test startswith(details["Flux"], "0.16")
        @test details["Julia threads"] == string(Threads.nthreads())
    end
end
