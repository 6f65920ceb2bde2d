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

    @testset "the tuned variant trains whole batches where a layer needs them" begin
        whole(name) = CrossBenchFlux.stays_whole(build(name, "float32"))
        @test !whole("plain")
        @test whole("residual")
        @test whole("patched")
    end

    @testset "the tuned variant's gradients are the idiomatic ones" begin
        for name in ("plain", "averaged", "lettered", "gated", "gated_both_ways")
            workload, _ = ready(name)
            x, y = examples(name, Float64, 7)
            loss, gradients = loss_and_gradients(workload, x, y)
            tuned = CrossBenchFlux.tuned(workload)
            same_loss, same_gradients = loss_and_gradients(tuned, x, y)
            @test loss ≈ same_loss
            @test all(gradients[name] ≈ same_gradients[name] for name in keys(gradients))
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
