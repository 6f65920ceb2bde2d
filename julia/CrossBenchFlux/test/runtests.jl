using CrossBenchFlux
using CrossBenchFlux: build_chain, build_workload
using CrossBenchFlux.Flux

include("../../CrossBenchJulia/test/descriptions.jl")

@testset "CrossBenchFlux" begin
    include("../../CrossBenchJulia/test/framework.jl")

    @testset "the chain is one that a Flux user would write" begin
        net = build_chain(small()["layers"], Float32)
        @test net isa Chain{<:Tuple}
        @test [typeof(l).name.name for l in net.layers[1:2]] == [:Conv, :MaxPool]
        @test net[1].σ === relu  # fused with the convolution
        @test net[1].stride == (1, 2)  # width first
        @test net[2].k == (3, 2)
        @test net[3] === Flux.flatten
        @test net[4] isa Dense
        @test net[4].σ === identity
        @test Flux.outputsize(net, (8, 9, 2, 4)) == (5, 4)

        net = build_chain(residual()["layers"], Float32)
        @test net[2] isa BatchNorm
        @test net[2].λ === relu
        @test net[3] isa SkipConnection
        @test [l.λ for l in net[3].layers if l isa BatchNorm] == [relu]
        @test net[5] isa Parallel
        @test net[5].connection === +
        @test Flux.outputsize(net, (4, 5, 2, 6)) == (3, 6)

        net = build_chain(words()["layers"], Float32)
        @test net[1] isa Flux.Embedding
        @test net[2] isa Parallel
        @test net[2].connection === vcat
        @test net[2][1][1] isa LSTM
        @test net[3] isa Dropout
        @test net[3].p == 0.4
        @test build_chain(characters()["layers"], Float32)[2][1] isa GRU

        net = build_chain(numbers()["layers"], Float32)
        @test [typeof(l).name.name for l in net.layers[1:3]] == [:Conv, :Conv, :BatchNorm]
        @test [net[1].σ, net[2].σ, net[3].λ] == [gelu_erf, identity, gelu_erf]
        @test net[1].bias === net[2].bias === false
    end

    @testset "a chain of many layers holds a vector, which compiles faster" begin
        body(i) = [dense_layer(i, 3, 3)]
        block(i) = layer("Residual", "residual$i", [3]; shortcut = [], body = body(i))
        layers = Any[block(i) for i in 1:40]
        long = model([layers; norm(1, [3])], 3)
        workload, values = ready(long)
        @test workload.model isa Chain{<:Vector}
        @test weights(workload) == values
        x, y = examples(long, Float64, 4)
        loss, gradients = loss_and_gradients(workload, x, y)
        step!(workload, x, y)
        after = deepcopy(weights(workload))
        # the same layers in a tuple
        workload.model = Chain(workload.model.layers[1:40]..., workload.model[41])
        CrossBenchJulia.set_up_optimizer!(workload)
        load!(workload, values)
        same_loss, same_gradients = loss_and_gradients(workload, x, y)
        @test loss ≈ same_loss
        @test keys(gradients) == keys(same_gradients)
        @test all(gradients[name] ≈ same_gradients[name] for name in keys(gradients))
        step!(workload, x, y)
        @test all(after[name] ≈ a for (name, a) in weights(workload))
    end

    @testset "the error names what is not supported" begin
        unsupported = "the Flux adapter does not support the"
        wavelet = [layer("Wavelet", "wavelet1", [5])]
        @test_throws "$unsupported layer Wavelet" build_chain(wavelet, Float32)
        hinge = Dict("type" => "Hinge")
        @test_throws "$unsupported loss Hinge" CrossBenchFlux.loss_function(hinge)
    end

    @testset "nested layers have names of their own" begin
        workload, values = ready(residual())
        net = workload.model
        @test Set(first.(split.(keys(values), '.'))) ==
              Set([("conv$i" for i in 1:5)..., ("batchnorm$i" for i in 1:3)..., "dense1"])
        @test net[3].layers[3].bias == values["conv3.bias"]
        @test net[3].layers[2].σ² == values["batchnorm2.running_var"]
        @test net[5][1][1].bias == values["conv4.bias"]
        @test net[5][2][1].bias == values["conv5.bias"]
    end

    @testset "a residual is the sum of its body and its shortcut" begin
        workload, _ = ready(residual())
        net, x = workload.model, rand(4, 5, 3, 2)
        body = net[3].layers
        @test net[3](x) ≈ body[3](body[2](body[1](x))) + x
        @test net[5](x) ≈ net[5][1](x) + net[5][2](x)
    end

    @testset "one-hot characters" begin
        ids, _ = examples(characters(), Float64, 3)
        onehot = ready(characters())[1].model[1](ids .+ Int32(1))
        @test onehot isa Array{Float64,3}
        @test onehot == [ids[t, n] == c for c in 0:4, t in 1:6, n in 1:3]
    end

    @testset "a parameter without a gradient has zeros of its shape" begin
        workload, values = ready(small())
        layers = (nothing, nothing, nothing, (weight = ones(5, 18), bias = nothing))
        gradients = CrossBenchJulia.gradient_arrays(workload, (; layers))
        @test gradients["conv1.weight"] == zero(values["conv1.weight"])
        @test gradients["dense1.bias"] == zeros(5)
        @test gradients["dense1.weight"] == ones(18, 5)
    end

    @testset "patches, their class token and their positions, in row order" begin
        workload, values = ready(patches())
        x, _ = examples(patches(), Float64, 2)
        pictures = workload.model[1](x)  # W, H, C, N
        rows = [pictures[w, h, :, 2] for h in 1:2 for w in 1:2]
        sequence = hcat(values["classtoken1.weight"], rows...)
        expected = sequence .+ values["positionembedding1.weight"]
        @test workload.model[1:4](x)[:, :, 2] ≈ expected
        centred = expected .- sum(expected; dims = 1) ./ 4
        normal = centred ./ sqrt.(sum(abs2, centred; dims = 1) ./ 4 .+ 1e-2)
        scaled = values["layernorm1.weight"] .* normal .+ values["layernorm1.bias"]
        @test workload.model[5].layers[1](reshape(expected, 4, 5, 1))[:, :, 1] ≈ scaled
    end

    @testset "the tuned variant has the idiomatic steps for attention alone" begin
        function stays_idiomatic(layers...)
            embedding = layer("Embedding", "embedding1", [5]; vocabulary = 7, features = 4)
            output = layer("Dense", "dense1", [5, 4]; features = 7, bias = true)
            description = JSON.json(model([embedding, layers..., output], 5, 7))
            tuned = CrossBenchFlux.TunedWorkload(build_workload(description, "cpu", "float32"))
            return tuned.is_idiomatic
        end
        @test !stays_idiomatic()
        @test stays_idiomatic(residual_layer(1, [5, 4], attention(1, [5, 4])))
    end

    @testset "the tuned convolution and its max-pool are Flux's" begin
        for (kernel, pad, window, stride, σ, bias) in (
            ((3, 2), (0, 1), nothing, nothing, relu, true),
            ((3, 2), (1, 0), nothing, nothing, identity, false),
            ((5, 5), (2, 2), nothing, nothing, CrossBenchFlux.gelu_erf, true),
            ((3, 2), (0, 0), (2, 2), (2, 2), relu, true),
            ((3, 2), (0, 0), (3, 2), (2, 2), identity, true),
            ((1, 1), (0, 0), (3, 3), (2, 1), relu, true),
        )
            init(shape...) = randn(Float64, shape...)
            conv = f64(Conv(kernel, 3 => 5, σ; pad, bias = bias && randn(5), init))
            # more rows than are computed at a time
            x = randn(40, 30, 3, 2)
            pool = isnothing(window) ? nothing : CrossBenchFlux.FastMaxPool(window, stride)
            whole = isnothing(window) ? conv : Chain(conv, MaxPool(window; stride))
            fast = CrossBenchFlux.FastConv(conv.weight, conv.bias, σ, conv.pad, Val(false), pool)
            weights = randn(size(whole(x)))
            value, (ours, dx) = Flux.withgradient((m, x) -> sum(weights .* m(x)), fast, x)
            expected, (theirs, dy) = Flux.withgradient((m, x) -> sum(weights .* m(x)), whole, x)
            theirs = isnothing(window) ? theirs : theirs.layers[1]
            @test value ≈ expected
            @test ours.weight ≈ theirs.weight
            @test !bias || ours.bias ≈ theirs.bias
            @test dx ≈ dy
        end
    end

    @testset "details" begin
        details = CrossBenchJulia.details(first(ready(small())))
        @test details["Julia"] == string(VERSION)
        @test startswith(details["Flux"], "0.16")
        @test details["Julia threads"] == string(Threads.nthreads())
    end

    if isnothing(Base.find_package("JLArrays"))
        @info "JLArrays.jl is not installed: devices other than the CPU are not tested"
    else
        include("../../CrossBenchJulia/test/device.jl")
    end
end
