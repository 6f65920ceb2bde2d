# What Python cannot see of a framework in Julia. Included after models.jl. That each model trains as
# the reference does is tested from Python.

@testset "as every framework" begin
    @testset "weights come back as they were loaded, and a table without a copy" begin
        for name in ALL
            workload, values = ready(name)
            @test weights(workload) == values
        end
        workload, values = ready("averaged")
        table = CrossBenchJulia.parameter(workload, "embedding1.weight")
        @test weights(workload)["embedding1.weight"] === table
        workload, values = ready("plain")
        kernel = CrossBenchJulia.parameter(workload, "conv1.weight")
        @test kernel == values["conv1.weight"][end:-1:1, end:-1:1, :, :]  # flipped
        dense = CrossBenchJulia.parameter(workload, "dense1.weight")
        @test dense == values["dense1.weight"]'
        wrong = zeros(2, 2, 2, 2)
        @test_throws "conv1.weight has the size" load_weight!(workload, "conv1.weight", wrong)
    end

    @testset "arrays that are not those of the names are an error" begin
        row = deepcopy(MODELS["plain"]["row"])
        pop!(row["arrays"])
        @test_throws "the model has 6 arrays, not 5" build_workload(JSON.json(row), "cpu", "float32")
        row = deepcopy(MODELS["plain"]["row"])
        reverse!(row["arrays"])
        @test_throws "numbers, not" build_workload(JSON.json(row), "cpu", "float32")
    end

    @testset "a weight that has two places has one gradient, their sum" begin
        workload, values = ready("speaking")
        x, y = examples("speaking", Float64, 4)
        _, gradients = loss_and_gradients(workload, x, y)
        array, direction = values["embedding1.weight"], cos.(gradients["embedding1.weight"])
        shifted(s) = begin
            load_weight!(workload, "embedding1.weight", array .+ s .* direction)
            first(loss_and_gradients(workload, x, y))
        end
        slope = (shifted(1e-6) - shifted(-1e-6)) / 2e-6
        @test slope ≈ sum(gradients["embedding1.weight"] .* direction) rtol = 1e-6
    end

    @testset "a dropout draws new masks in each step, and the same after a reset" begin
        workload, values = with_batches("bidirectional")
        x, y = examples("bidirectional", Float64, 4)
        losses = train_epoch!(workload)
        load!(workload, values)
        once = loss_and_gradients(workload, x, y)
        @test loss_and_gradients(workload, x, y) == once  # the generator did not advance
        @test train_epoch!(workload) == losses
        load!(workload, values)
        foreach(_ -> rand(only(CrossBenchJulia.dropout_rngs(workload))), 1:3)
        @test train_epoch!(workload) != losses
        load!(workload, values)
        in_turn = map(1:3) do step
            clear_batches!(workload)
            add_batch!(workload, examples("bidirectional", Float64, 4; shift = 10step)...)
            return only(train_epoch!(workload))
        end
        @test in_turn == losses  # other batches leave the generator where it is
        workload, _ = ready("dropped")
        rngs = CrossBenchJulia.dropout_rngs(workload)
        @test rand(rngs[1], 3) != rand(rngs[2], 3)
    end

    @testset "a dropout that drops nothing" begin
        workload, _ = ready("still")
        x, y = examples("still", Float64, 4)
        once = loss_and_gradients(workload, x, y)
        @test isfinite(first(once))
        @test loss_and_gradients(workload, x, y) == once
    end

    @testset "an optimizer begins anew when weights are loaded, in its arrays: $name" for name in
                                                                                          ALL

        workload, values = with_batches(name)
        arrays(leaf::CrossBenchJulia.Optimisers.Leaf) = arrays(leaf.state)
        arrays(array::AbstractArray{<:Number}) = Any[array]
        arrays(::Union{Number,Nothing}) = Any[]
        arrays(tree) = mapreduce(arrays, vcat, Base.values(tree); init = Any[])
        before = arrays(CrossBenchJulia.optimizer_state(workload))
        losses = train_epoch!(workload)
        load!(workload, values)
        after = arrays(CrossBenchJulia.optimizer_state(workload))
        @test length(before) == length(after)
        @test all(a === b && all(iszero, b) for (a, b) in zip(before, after))
        @test train_epoch!(workload) == losses
    end

    @testset "numbers are of one type in $precision: $name" for precision in ("float32", "float64"),
        name in ALL

        T = CrossBenchJulia.ELTYPES[precision]
        workload, values = with_batches(name, precision)
        x, y = examples(name, T, 4; shift = 10)
        _, gradients = loss_and_gradients(workload, x, y)
        train_epoch!(workload)
        # all of this type: a constant of another type would show in what follows it
        @test all(eltype(a) == T for a in Base.values(weights(workload)))
        @test all(eltype(a) == T for a in Base.values(gradients))
        @test eltype(predict(workload, x)) == T
        @test eltype(workload.batches[1].inputs) == (MODELS[name]["takes_tokens"] ? Int32 : T)
        load!(workload, values)
        train_epoch!(workload)
        @test Set(keys(workload.figures)) == Set(["allocated MiB", "GC s", "compile s"])
        @test workload.figures["allocated MiB"] > 0
        @test workload.figures["compile s"] == 0  # all was compiled before
    end

    @testset "batches of an epoch are copies, and those that are streamed train alike" begin
        for name in ("plain", "averaged")
            workload, values = with_batches(name)
            train_epoch!(workload)  # compilation allocates too
            load!(workload, values)
            losses = train_epoch!(workload)
            expected = deepcopy(weights(workload))
            whole = workload.figures["allocated MiB"]
            load!(workload, values)
            begin_epoch!(workload)
            batches = [examples(name, Float64, 4; shift = 10t) for t in 1:3]
            @test [step!(workload, batch...) for batch in batches] == losses
            finish_epoch!(workload)
            @test weights(workload) == expected
            @test workload.figures["allocated MiB"] >= 0.9 * whole
            clear_batches!(workload)
            x, y = first(batches)
            add_batch!(workload, x, y)
            before = deepcopy(workload.batches[1])
            fill!(x, 0)
            fill!(y, 0)
            @test workload.batches[1].inputs == before.inputs
            @test workload.batches[1].targets == before.targets
            clear_batches!(workload)
            @test isempty(train_epoch!(workload))
        end
    end

    @testset "a device that is not there" begin
        @test_throws "the device tpu needs CUDA.jl" build("plain", "float32", "tpu")
    end
end
