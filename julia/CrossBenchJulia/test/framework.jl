# What every framework in Julia must do, by definition. Included after descriptions.jl.

@testset "as every framework" begin
    @testset "weights come back as they were loaded" begin
        for build in BUILDS
            description = build()
            workload, values = ready(description)
            @test weights(workload) == values
        end
        workload, values = ready(words())  # no copy of a large table after each epoch
        table = CrossBenchJulia.parameter(workload, "embedding1.weight")
        @test weights(workload)["embedding1.weight"] === table
        workload, values = ready(small())
        kernel = CrossBenchJulia.parameter(workload, "conv1.weight")
        @test kernel == values["conv1.weight"][end:-1:1, end:-1:1, :, :]  # flipped
        dense = CrossBenchJulia.parameter(workload, "dense1.weight")
        @test dense == values["dense1.weight"]'
        name, wrong = "conv1.weight", zeros(2, 2, 2, 2)
        @test_throws "conv1.weight has the size" load_weight!(workload, name, wrong)
    end

    @testset "the convolution is the canonical cross-correlation" begin
        description = model(
            [
                small()["layers"][1:2]...,
                layer("Flatten", "flatten1", [3, 5, 7]),
                dense_layer(1, 105, 2),
            ],
            2,
        )
        workload, values = ready(description)
        inputs, _ = examples(description, Float64, 1)
        kernel, x = values["conv1.weight"], inputs[:, :, :, 1]  # W, H, I, O and W, H, C
        padded = zeros(8, 11, 2)
        padded[:, 2:10, :] = x
        bias = values["conv1.bias"]
        convolved = [
            bias[o] + sum(padded[w:(w+1), (2h-1):(2h+1), :] .* kernel[:, :, :, o]) for
            w in 1:7, h in 1:5, o in 1:3
        ]
        hidden = vec(max.(convolved, 0))
        @test predict(workload, inputs) ≈
              values["dense1.weight"]' * hidden .+ values["dense1.bias"]
    end

    @testset "batch norm of $inputs" for (inputs, shape) in
                                         (("features", [3]), ("pictures", [3, 2, 2]))
        flat = prod(shape)
        layers = [
            norm(1, shape),
            layer("Flatten", "flatten1", shape),
            dense_layer(1, flat, 3),
        ]
        description = model(layers, 3)
        workload, values = ready(description)
        names = ("weight", "bias", "running_mean", "running_var")
        weight, bias, mean, var = (values["batchnorm1.$name"] for name in names)
        x, y = examples(description, Float64, 5)
        channels = [vec(selectdim(x, ndims(x) - 1, c)) for c in 1:3]
        n = length(channels[1])
        logits(normal) =
            values["dense1.weight"]' * reshape(normal, flat, 5) .+ values["dense1.bias"]
        function normalized(means, variances)
            out = similar(x)
            for c in 1:3
                centred = selectdim(x, ndims(x) - 1, c) .- means[c]
                selectdim(out, ndims(x) - 1, c) .=
                    weight[c] .* centred ./ sqrt(variances[c] + 1e-3) .+ bias[c]
            end
            return logits(out)
        end
        means = sum.(channels) ./ n
        squares = [sum((c .- m) .^ 2) for (c, m) in zip(channels, means)]
        @test predict(workload, x) ≈ normalized(mean, var)
        z = normalized(means, squares ./ n)
        chosen = [z[label+1, i] for (i, label) in enumerate(y)]
        expected = sum(vec(log.(sum(exp.(z); dims = 1))) .- chosen) / 5
        loss, gradients = loss_and_gradients(workload, x, y)
        @test loss ≈ expected
        @test Set(keys(gradients)) ==
              Set(["batchnorm1.weight", "batchnorm1.bias", "dense1.weight", "dense1.bias"])
        @test weights(workload) == values  # the running statistics too
        add_batch!(workload, x, y)
        train_epoch!(workload)
        after = weights(workload)
        @test after["batchnorm1.running_mean"] ≈ 0.9 .* mean .+ 0.1 .* means
        @test after["batchnorm1.running_var"] ≈ 0.9 .* var .+ 0.1 .* squares ./ (n - 1)
    end

    @testset "an embedding, and its mean, of numbers from 0" begin
        workload, values = ready(bag())
        ids, _ = examples(bag(), Float64, 3)
        table = values["embedding1.weight"]
        average(column) = sum(table[:, id+1] for id in column) ./ 6
        means = hcat((average(column) for column in eachcol(ids))...)
        @test predict(workload, ids) ≈
              values["dense1.weight"]' * means .+ values["dense1.bias"]
    end

    @testset "$(nameof(cell)), both directions: $both" for (cell, type) in
                                                           ((lstm, "LSTM"), (gru, "GRU")),
        both in (false, true)

        description = characters()
        description["layers"][2] = recurrent(type, 1, [6, 5]; bidirectional = both)
        description["layers"][3] = dense_layer(1, both ? 6 : 3, 5)
        workload, values = ready(description)
        ids, _ = examples(description, Float64, 3)
        function last_output(column, suffix)
            x = [id == c ? 1.0 : 0.0 for c in 0:4, id in column]
            names = ("weight_ih", "weight_hh", "bias")
            prefix = "$(lowercase(type))1"
            return cell(x, (values["$prefix.$name$suffix"] for name in names)...)
        end
        function outputs(column)
            forward = last_output(column, "")
            return both ? vcat(forward, last_output(reverse(column), "_reverse")) : forward
        end
        h = hcat((outputs(column) for column in eachcol(ids))...)
        @test predict(workload, ids) ≈ values["dense1.weight"]' * h .+ values["dense1.bias"]
    end

    @testset "binary cross-entropy" begin
        workload, _ = ready(bag())
        ids, labels = examples(bag(), Float64, 3; shift = 1)
        labels[2] = 1 - labels[2]  # of both kinds
        p = sigmoid.(vec(predict(workload, ids)))
        expected = -sum(y == 1 ? log(q) : log(1 - q) for (y, q) in zip(labels, p)) / 3
        @test first(loss_and_gradients(workload, ids, labels)) ≈ expected
    end

    @testset "an exact GELU and the mean of the squared errors" begin
        layers = [
            dense_layer(1, 3, 4),
            gelu_layer(1, [4]),
            dense_layer(2, 4, 2),
        ]
        description = model(layers, 2; loss = "MeanSquaredError")
        workload, values = ready(description)
        x, y = examples(description, Float64, 5)
        z = values["dense1.weight"]' * x .+ values["dense1.bias"]
        hidden = z ./ 2 .* (1 .+ erf.(z ./ sqrt(2)))
        outputs = values["dense2.weight"]' * hidden .+ values["dense2.bias"]
        @test predict(workload, x) ≈ outputs
        @test first(loss_and_gradients(workload, x, y)) ≈ sum((outputs .- y) .^ 2) / 10
    end

    @testset "gradients are those of finite differences: $build" for build in BUILDS
        description = build()
        workload, values = ready(description)
        x, y = examples(description, Float64, 4)
        masks = example_masks(description, 4)
        loss, gradients = loss_and_gradients(workload, x, y, masks)
        @test keys(gradients) == Set(n for n in keys(values) if !occursin("running", n))
        for (name, gradient) in gradients
            direction = cos.(reshape(1:length(gradient), size(gradient)))
            shifted(s) = begin
                load_weight!(workload, name, values[name] .+ s .* direction)
                first(loss_and_gradients(workload, x, y, masks))
            end
            slope = (shifted(1e-6) - shifted(-1e-6)) / 2e-6
            @test slope ≈ sum(gradient .* direction) rtol = 1e-6 atol = 1e-9
            load_weight!(workload, name, values[name])
        end
        @test first(loss_and_gradients(workload, x, y, masks)) == loss
    end

    @testset "given masks replace those that a dropout draws" begin
        workload, values = with_batches(words())
        x, y = examples(words(), Float64, 4)
        masks = example_masks(words(), 4)
        embedded = (values["embedding1.weight"][:, column .+ 1] for column in eachcol(x))
        weight(suffix) = (values["lstm1.$name$suffix"] for name in ("weight_ih", "weight_hh", "bias"))
        both(x) = vcat(lstm(x, weight("")...), lstm(reverse(x; dims = 2), weight("_reverse")...))
        hidden = hcat(map(both, embedded)...) .* masks["dropout1"] ./ 0.6
        z = vec(values["dense1.weight"]' * hidden .+ values["dense1.bias"])
        expected = sum(log.(1 .+ exp.(z)) .- y .* z) / 4
        @test first(loss_and_gradients(workload, x, y, masks)) ≈ expected
        _, gradients = loss_and_gradients(workload, x, y, masks)
        @test step!(workload, x, y, masks) ≈ expected
        @test weights(workload)["lstm1.weight_hh"] ≈
              values["lstm1.weight_hh"] - 0.1 * gradients["lstm1.weight_hh"]
        load!(workload, values)
        clear_batches!(workload)
        add_batch!(workload, x, y, masks)
        masks["dropout1"] .= false  # it was copied
        @test only(train_epoch!(workload)) ≈ expected
        clear_batches!(workload)
        add_batch!(workload, x, y)
        load!(workload, values)
        @test !(only(train_epoch!(workload)) ≈ expected)  # the dropouts are there as before
    end

    @testset "a dropout draws new masks in each step, and the same after a reset" begin
        workload, values = with_batches(words())
        x, y = examples(words(), Float64, 4)
        @test predict(workload, x) == predict(workload, x)
        losses = train_epoch!(workload)
        load!(workload, values)
        once = loss_and_gradients(workload, x, y)
        @test loss_and_gradients(workload, x, y) == once  # the generator did not advance
        given = example_masks(words(), 4)
        @test first(once) != first(loss_and_gradients(workload, x, y, given))
        @test train_epoch!(workload) == losses
        load!(workload, values)
        foreach(_ -> rand(only(CrossBenchJulia.dropout_rngs(workload))), 1:3)
        @test train_epoch!(workload) != losses
        load!(workload, values)
        in_turn = map(1:3) do step
            clear_batches!(workload)
            add_batch!(workload, examples(words(), Float64, 4; shift = 10step)...)
            return only(train_epoch!(workload))
        end
        @test in_turn == losses  # other batches leave the generator where it is
    end

    @testset "a dropout that drops nothing" begin
        layers = [layer("Dropout", "dropout1", [50]; rate = 0.0), dense_layer(1, 50, 2)]
        workload, _ = ready(model(layers, 2))
        x, y = examples(model(layers, 2), Float64, 4)
        once = loss_and_gradients(workload, x, y)
        @test isfinite(first(once))
        @test loss_and_gradients(workload, x, y) == once
    end

    @testset "two dropouts draw differently" begin
        layers = [
            layer("Dropout", "dropout1", [50]; rate = 0.5),
            layer("Dropout", "dropout2", [50]; rate = 0.5),
            dense_layer(1, 50, 2),
        ]
        workload, _ = ready(model(layers, 2))
        rngs = CrossBenchJulia.dropout_rngs(workload)
        @test rand(rngs[1], 3) != rand(rngs[2], 3)
    end

    @testset "$(o["type"]) by its formula" for o in OPTIMIZERS
        workload, expected = ready(small(; optimizer = o))
        rule = Val(Symbol(o["type"]))
        state = Dict(name => Any[zero(a), zero(a)] for (name, a) in expected)
        for t in 0:3
            x, y = examples(small(), Float64, 4; shift = t)
            _, gradients = loss_and_gradients(workload, x, y)
            norm = sqrt(sum(sum(abs2, g) for g in Base.values(gradients)))
            bound = something(o["clip_norm"], norm)
            @test bound == norm || (norm > bound) == (bound < 1)
            rate = factor(o["schedule"], t)
            for (name, g) in gradients
                decays = o["type"] == "AdamW" && !(o["matrices_only"] && ndims(g) < 2)
                shrinkage = decays ? o["learning_rate"] * o["weight_decay"] : 0.0
                change = formula(rule, o, min(1, bound / norm) .* g, state[name], t)
                expected[name] -= rate .* (change .+ shrinkage .* expected[name])
            end
            step!(workload, x, y)
            @test all(
                isapprox(a, expected[name]; rtol = 1e-12) for (name, a) in weights(workload)
            )
        end
    end

    @testset "$(o["type"]) begins anew when weights are loaded, in its arrays" for o in
                                                                                OPTIMIZERS

        workload, values = with_batches(small(; optimizer = o))
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

    @testset "the decay restarts when weights are loaded" begin
        workload, values = with_batches(small(; optimizer = DECAYING))
        losses = train_epoch!(workload)
        train_epoch!(workload)
        load!(workload, values)
        @test train_epoch!(workload) == losses
    end

    @testset "training in $precision: $build" for precision in ("float32", "float64"),
        build in BUILDS

        T = CrossBenchJulia.ELTYPES[precision]
        workload, values = with_batches(build(), precision)
        x, y = examples(build(), T, 4; shift = 10)
        first_loss, gradients = loss_and_gradients(workload, x, y)
        losses = train_epoch!(workload)
        @test length(losses) == 3
        @test losses[1] ≈ first_loss
        # all of this type: a constant of another type would show in what follows it
        @test all(eltype(a) == T for a in Base.values(weights(workload)))
        @test all(eltype(a) == T for a in Base.values(gradients))
        @test eltype(predict(workload, x)) == T
        input_type = isnothing(vocabulary(build())) ? T : Int32
        @test eltype(workload.batches[1].inputs) == input_type
        # again from the same weights: the same, so the momentum was reset
        load!(workload, values)
        @test train_epoch!(workload) ≈ losses
        clear_batches!(workload)
        add_batch!(workload, x, y)  # so few examples can be memorized
        for _ in 1:100
            losses = train_epoch!(workload)
        end
        @test losses[end] < 0.5 * first_loss
        @test size(predict(workload, x)) == (reverse(build()["output_shape"])..., 4)
        @test Set(keys(workload.figures)) == Set(["allocated MiB", "GC s", "compile s"])
        @test workload.figures["allocated MiB"] > 0
        @test workload.figures["compile s"] == 0  # all was compiled before
    end

    @testset "attention, causal or not, by its formula" for causal in (false, true)
        shape = [5, 4]
        layers = [
            layer("Embedding", "embedding1", [5]; vocabulary = 7, features = 4),
            attention(1, shape; causal),
            layer("Unembedding", "unembedding1", shape; vocabulary = 7),
        ]
        description = model(layers, 5, 7)
        workload, values = ready(description)
        ids, _ = examples(description, Float64, 1)
        x = values["embedding1.weight"][:, vec(ids).+1]
        weight(name) = values["multiheadattention1.$(name)_weight"]
        bias(name) = values["multiheadattention1.$(name)_bias"]
        project(name, x) = weight(name)' * x .+ bias(name)
        q, k, v = (project(name, x) for name in ("query", "key", "value"))
        joined = similar(x)
        for h in (1:2, 3:4), i in 1:5
            seen = 1:(causal ? i : 5)
            scores = exp.(vec(k[h, seen]' * q[h, i]) ./ sqrt(2))
            joined[h, i] = v[h, seen] * (scores ./ sum(scores))
        end
        logits = values["embedding1.weight"]' * project("output", joined)
        @test predict(workload, ids)[:, :, 1] ≈ logits
    end

    @testset "streamed batches train like those that are on the device before" begin
        for build in (small, words)
            workload, values = with_batches(build())
            train_epoch!(workload)  # compilation allocates too
            load!(workload, values)
            losses = train_epoch!(workload)
            expected = deepcopy(weights(workload))
            whole = workload.figures["allocated MiB"]
            load!(workload, values)
            begin_epoch!(workload)
            batches = [examples(build(), Float64, 4; shift = 10t) for t in 1:3]
            @test [step!(workload, batch...) for batch in batches] == losses
            finish_epoch!(workload)
            @test weights(workload) == expected
            @test workload.figures["allocated MiB"] >= 0.9 * whole
        end
    end

    @testset "batches of an epoch are copies" begin
        for build in (small, words)
            workload, _ = ready(build())
            x, y = examples(build(), Float64, 4)
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

    @testset "a device that is not there, and what is described wrongly" begin
        json = JSON.json(small())
        @test_throws "the device tpu needs CUDA.jl" build_workload(json, "tpu", "float32")
        newton = Dict("type" => "Newton")
        @test_throws "does not support the optimizer Newton" CrossBenchJulia.rule(newton)
    end
end
