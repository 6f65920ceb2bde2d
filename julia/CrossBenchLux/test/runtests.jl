using CrossBenchLux
using CrossBenchLux: build_workload
using CrossBenchLux.Lux

include("../../CrossBenchJulia/test/models.jl")

@testset "CrossBenchLux" begin
    include("../../CrossBenchJulia/test/framework.jl")

    @testset "no layer has a type of its own, which the first epoch would compile" begin
        for name in ALL
            @test typeof(build(name, "float32").model) === typeof(build(name, "float32").model)
        end
    end

    @testset "a chain of many layers holds chains, which compile faster" begin
        workload, values = ready("long")
        @test [length(part) for part in Base.values(workload.model.layers)] == [4, 4, 4, 4, 4, 4, 3]
        (; parameters, states) = workload.state
        @test parameters.layer_2.layer_3.bias == values["dense7.bias"]
        @test states.layer_7.layer_3.running_mean == values["batchnorm1.running_mean"]
    end

    @testset "the second biases of a recurrent cell stay zero" begin
        for name in ("bidirectional", "lettered", "gated")
            workload, _ = with_batches(name)
            before = deepcopy(workload.state.parameters)
            train_epoch!(workload)
            pairs = CrossBenchJulia.Optimisers.trainables(workload.state.parameters; path = true)
            biases = [array for (path, array) in pairs if last(path) == :bias_hh]
            @test !isempty(biases)
            @test all(array -> all(iszero, array), biases)
            @test before != workload.state.parameters
        end
    end

    @testset "a parameter without a gradient has zeros of its shape" begin
        workload, values = ready("fitted")
        gradient = (; layer_1 = nothing, layer_2 = (weight = ones(3, 9), bias = nothing))
        gradients = CrossBenchJulia.gradient_arrays(workload, gradient)
        @test gradients["dense1.weight"] == zero(values["dense1.weight"])
        @test gradients["dense2.bias"] == zeros(3)
        @test gradients["dense2.weight"] == ones(9, 3)
    end

    @testset "a workload that is isolated changes nothing of its original" begin
        workload, _ = ready("residual")
        x, y = examples("residual", Float64, 4)
        before = deepcopy(workload.state.states)
        loss_and_gradients(workload, x, y)
        @test workload.state.states == before
        step!(workload, x, y)
        @test workload.state.states != before
    end

    @testset "details" begin
        details = CrossBenchJulia.details(first(ready("plain")))
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
