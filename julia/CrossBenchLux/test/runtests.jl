using CrossBenchLux
using CrossBenchLux: build_model, build_workload
using CrossBenchLux.Lux
using CrossBenchLux.NNlib: gelu_erf

include("../../CrossBenchJulia/test/descriptions.jl")

"""Return what a layer of the workload's model, at a path, makes of `x` in training."""
function output(workload, path, x)
    (; parameters, states) = workload.state
    layer = foldl((l, name) -> getproperty(l, name), path; init = workload.model)
    find(tree) = CrossBenchJulia.lookup(tree, path)
    return first(layer(x, find(parameters), find(states)))
end

@testset "CrossBenchLux" begin
    include("../../CrossBenchJulia/test/framework.jl")

    @testset "the model is one that a Lux user would write" begin
        net = build_model(small()["layers"])
        @test net isa Chain
        @test [nameof(typeof(l)) for l in Base.values(net.layers)] ==
              [:Conv, :MaxPool, :FlattenLayer, :Dense]
        @test net[1].activation === relu  # fused with the convolution
        @test net[1].stride == (1, 2)  # width first
        @test net[4].activation === identity

        net = build_model(residual()["layers"])
        @test net[2] isa BatchNorm
        @test net[2].activation === relu
        @test net[3] isa SkipConnection
        @test net[5] isa Parallel
        @test net[5].connection === +

        net = build_model(words()["layers"])
        @test net[1] isa Embedding
        @test net[2] isa Parallel
        @test net[2].layers[1] isa Recurrence
        @test net[2].layers[1].cell isa LSTMCell
        @test net[3] isa Dropout
        @test net[3].p == 0.4
        @test build_model(characters()["layers"])[2].cell isa GRUCell

        net = build_model(numbers()["layers"])
        @test [net[i].activation for i in 1:3] == [gelu_erf, identity, gelu_erf]
        @test build_model(sentences()["layers"]) isa CrossBenchLux.TiedModel
    end

    @testset "a chain of many layers holds chains, which compile faster" begin
        block(i) = layer(
            "Residual",
            "residual$i",
            [3];
            shortcut = [],
            body = [dense_layer(i, 3, 3)],
        )
        long = model([Any[block(i) for i in 1:17]; norm(1, [3])], 3)
        workload, values = ready(long)
        @test [length(part) for part in Base.values(workload.model.layers)] == [4, 4, 4, 4, 2]
        @test weights(workload) == values
        (; parameters, states) = workload.state
        @test parameters.layer_2.layer_3.layer_1.bias == values["dense7.bias"]
        @test states.layer_5.layer_2.running_mean == values["batchnorm1.running_mean"]
        x, y = examples(long, Float64, 4)
        slope(name) = last(loss_and_gradients(workload, x, y))[name]
        @test size(slope("dense17.weight")) == (3, 3)
        @test sum(abs, slope("dense1.weight")) > 0
    end

    @testset "the error names what is not supported" begin
        unsupported = "the Lux adapter does not support the"
        wavelet = [layer("Wavelet", "wavelet1", [5])]
        @test_throws "$unsupported layer Wavelet" build_model(wavelet)
        hinge = Dict("type" => "Hinge")
        @test_throws "$unsupported loss Hinge" CrossBenchLux.objective(hinge)
    end

    @testset "nested layers have names of their own" begin
        workload, values = ready(residual())
        (; parameters, states) = workload.state
        @test Set(first.(split.(keys(values), '.'))) ==
              Set([("conv$i" for i in 1:5)..., ("batchnorm$i" for i in 1:3)..., "dense1"])
        @test parameters.layer_3.layer_3.bias == values["conv3.bias"]
        @test states.layer_3.layer_2.running_var == values["batchnorm2.running_var"]
        @test parameters.layer_5.layer_1.layer_1.bias == values["conv4.bias"]
        @test parameters.layer_5.layer_2.layer_1.bias == values["conv5.bias"]
    end

    @testset "every parameter of the model is a described one, but for the second biases" begin
        for build in BUILDS
            workload, values = ready(build())
            second = CrossBenchLux.second_biases(workload)
            size_of(path) = length(CrossBenchJulia.lookup(workload.state.parameters, path))
            trained = [v for (n, v) in values if !occursin("running", n)]
            @test Lux.parameterlength(workload.model) ==
                  sum(length, trained) + sum(size_of, second; init = 0)
        end
    end

    @testset "the second biases of a recurrent cell stay zero" begin
        for build in (words, characters)
            workload, _ = with_batches(build())
            before = deepcopy(workload.state.parameters)
            train_epoch!(workload)
            paths = CrossBenchLux.second_biases(workload)
            @test !isempty(paths)
            for path in paths
                @test all(iszero, CrossBenchJulia.lookup(workload.state.parameters, path))
            end
            @test before != workload.state.parameters
        end
    end

    @testset "a parameter without a gradient has zeros of its shape" begin
        workload, values = ready(small())
        gradient = (; layer_1 = nothing, layer_4 = (weight = ones(5, 18), bias = nothing))
        gradients = CrossBenchJulia.gradient_arrays(workload, gradient)
        @test gradients["conv1.weight"] == zero(values["conv1.weight"])
        @test gradients["dense1.bias"] == zeros(5)
        @test gradients["dense1.weight"] == ones(18, 5)
    end

    @testset "one-hot characters" begin
        workload, _ = ready(characters())
        ids, _ = examples(characters(), Float64, 3)
        onehot = output(workload, (:layer_1,), ids .+ Int32(1))
        @test onehot isa Array{Float64,3}
        @test onehot == [ids[t, n] == c for c in 0:4, t in 1:6, n in 1:3]
    end

    @testset "patches, their class token and their positions, in row order" begin
        workload, values = ready(patches())
        x, _ = examples(patches(), Float64, 2)
        pictures = output(workload, (:layer_1,), x)  # W, H, C, N
        rows = [pictures[w, h, :, 2] for h in 1:2 for w in 1:2]
        sequence = hcat(values["classtoken1.weight"], rows...)
        expected = sequence .+ values["positionembedding1.weight"]
        found = foldl((y, i) -> output(workload, (Symbol("layer_$i"),), y), 2:4; init = pictures)
        @test found[:, :, 2] ≈ expected
    end

    @testset "a workload that is isolated changes nothing of its original" begin
        workload, _ = ready(residual())
        x, y = examples(residual(), Float64, 4)
        before = deepcopy(workload.state.states)
        loss_and_gradients(workload, x, y)
        @test workload.state.states == before
        step!(workload, x, y)
        @test workload.state.states != before
    end

    @testset "details" begin
        details = CrossBenchJulia.details(first(ready(small())))
        @test details["Julia"] == string(VERSION)
        @test startswith(details["Lux"], "1.")
        @test details["Julia threads"] == string(Threads.nthreads())
    end

    if isnothing(Base.find_package("JLArrays"))
        @info "JLArrays.jl is not installed: devices other than the CPU are not tested"
    else
        include("../../CrossBenchJulia/test/device.jl")
    end
end
