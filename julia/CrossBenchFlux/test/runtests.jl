using CrossBenchFlux
using CrossBenchFlux: build_workload
using CrossBenchFlux.Flux

include("../../CrossBenchJulia/test/models.jl")

@testset "CrossBenchFlux" begin
    include("../../CrossBenchJulia/test/framework.jl")

    @testset "no layer has a type of its own, which the first epoch would compile" begin
        for name in ALL
            @test typeof(build(name, "float32").model) === typeof(build(name, "float32").model)
        end
    end

    @testset "a chain of many layers holds a vector, which compiles faster" begin
        workload, values = ready("long")
        @test workload.model isa Chain{<:Vector}
        x, y = examples("long", Float64, 4)
        loss, gradients = loss_and_gradients(workload, x, y)
        # the same layers in a tuple
        workload.model = Chain(workload.model.layers...)
        same_loss, same_gradients = loss_and_gradients(workload, x, y)
        @test loss ≈ same_loss
        @test keys(gradients) == keys(same_gradients)
        @test all(gradients[name] ≈ same_gradients[name] for name in keys(gradients))
    end

    @testset "a parameter without a gradient has zeros of its shape" begin
        workload, values = ready("fitted")
        layers = (nothing, (weight = ones(3, 9), bias = nothing))
        gradients = CrossBenchJulia.gradient_arrays(workload, (; layers))
        @test gradients["dense1.weight"] == zero(values["dense1.weight"])
        @test gradients["dense2.bias"] == zeros(3)
        @test gradients["dense2.weight"] == ones(9, 3)
    end

    @testset "the tuned variant has the idiomatic steps for attention alone" begin
        stays(name) = CrossBenchFlux.TunedWorkload(build(name, "float32")).is_idiomatic
        @test !stays("plain")
        @test !stays("residual")
        @test stays("patched")
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
        details = CrossBenchJulia.details(first(ready("plain")))
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
