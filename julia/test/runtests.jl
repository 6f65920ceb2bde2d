using CrossBenchFlux
using CrossBenchFlux:
    Workload,
    add_batch!,
    begin_epoch!,
    build_chain,
    clear_batches!,
    finish_epoch!,
    load_weight!,
    loss_and_gradients,
    predict,
    reset_state!,
    step!,
    train_epoch!,
    weights,
    wrap
using CrossBenchFlux.Flux
using CrossBenchFlux.JSON: JSON
using CrossBenchFlux.SpecialFunctions: erf
using Test

layer(type, name, shape; rest...) = Dict{String,Any}(
    "type" => type,
    "name" => name,
    "input_shape" => shape,
    (String(k) => v for (k, v) in rest)...,
)

"""Describe an optimizer, without clipping and with a constant rate unless `rest` has others."""
optimizer(type, learning_rate; clip_norm = nothing, schedule = nothing, rest...) =
    Dict{String,Any}(
        "type" => type,
        "learning_rate" => learning_rate,
        "clip_norm" => clip_norm,
        "schedule" => schedule,
        (String(k) => v for (k, v) in rest)...,
    )

const SGD = optimizer("SGD", 0.1; momentum = 0.9)

model(
    layers,
    output_shape...;
    loss = "SoftmaxCrossEntropy",
    label_smoothing = 0.0,
    optimizer = SGD,
) = Dict{String,Any}(
    "layers" => layers,
    "output_shape" => collect(output_shape),
    "loss" => Dict("type" => loss, "label_smoothing" => label_smoothing),
    "optimizer" => optimizer,
)

dense_layer(number, inputs, features; bias = true) =
    layer("Dense", "dense$number", [inputs]; features, bias)
gelu_layer(number, shape; tanh = false) = layer("GELU", "gelu$number", shape; tanh)
conv_layer(number, shape, features; kernel, stride, padding, bias = true) =
    layer("Conv", "conv$number", shape; features, kernel, stride, padding, bias)

"""Describe a small CNN with unequal sizes along the axes, so that a mixed-up axis shows."""
small(; more = [], optimizer = SGD) = model(
    [
        conv_layer(1, [2, 9, 8], 3; kernel = [3, 2], stride = [2, 1], padding = [1, 0]),
        layer("ReLU", "relu1", [3, 5, 7]),
        layer("MaxPool", "maxpool1", [3, 5, 7]; window = [2, 3], stride = [2, 2]),
        layer("Flatten", "flatten1", [3, 2, 3]),
        dense_layer(1, 18, 5),
        more...,
    ],
    5;
    optimizer,
)

conv3x3(number, shape, features; stride = [1, 1]) =
    conv_layer(number, shape, features; kernel = [3, 3], stride, padding = [1, 1])
conv1x1(number, shape, features; stride) =
    conv_layer(number, shape, features; kernel = [1, 1], stride, padding = [0, 0])
norm(number, shape) =
    layer("BatchNorm", "batchnorm$number", shape; epsilon = 1e-3, momentum = 0.9)

"""
Describe batch norms with a ReLU and without, a residual of each kind, and a batch norm of
features.
"""
function residual()
    body1 = [
        conv3x3(2, [3, 5, 4], 3),
        norm(2, [3, 5, 4]),
        layer("ReLU", "relu2", [3, 5, 4]),
        conv3x3(3, [3, 5, 4], 3),
    ]
    body2 = [conv3x3(4, [3, 5, 4], 4; stride = [2, 2])]
    shortcut2 = [conv1x1(5, [3, 5, 4], 4; stride = [2, 2])]
    layers = [
        conv3x3(1, [2, 5, 4], 3),
        norm(1, [3, 5, 4]),
        layer("ReLU", "relu1", [3, 5, 4]),
        layer("Residual", "residual1", [3, 5, 4]; body = body1, shortcut = []),
        layer("ReLU", "relu3", [3, 5, 4]),
        layer("Residual", "residual2", [3, 5, 4]; body = body2, shortcut = shortcut2),
        layer("GlobalAveragePool", "globalaveragepool1", [4, 3, 2]),
        norm(3, [4]),
        dense_layer(1, 4, 3),
    ]
    return model(layers, 3)
end

recurrent(type, number, shape; features = 3, bidirectional = false) =
    layer(type, "$(lowercase(type))$number", shape; features, bidirectional)

"""Describe a bidirectional LSTM over an embedding, a dropout, and one logit."""
words() = model(
    [
        layer("Embedding", "embedding1", [6]; vocabulary = 7, features = 4),
        recurrent("LSTM", 1, [6, 4]; bidirectional = true),
        layer("Dropout", "dropout1", [6]; rate = 0.4),
        dense_layer(1, 6, 1),
    ],
    1;
    loss = "BinaryCrossEntropy",
)

"""Describe a GRU over one-hot characters."""
characters() = model(
    [
        layer("OneHot", "onehot1", [6]; vocabulary = 5),
        recurrent("GRU", 1, [6, 5]),
        dense_layer(1, 3, 5),
    ],
    5,
)

"""Describe the mean of an embedding along the sequence, and one logit."""
bag() = model(
    [
        layer("Embedding", "embedding1", [6]; vocabulary = 7, features = 4),
        layer("GlobalAveragePool", "globalaveragepool1", [6, 4]),
        dense_layer(1, 4, 1),
    ],
    1;
    loss = "BinaryCrossEntropy",
)

"""Describe convolutions without bias and a batch norm, each with a GELU, and numbers to predict."""
function numbers()
    conv(number, shape, features, stride) = conv_layer(
        number,
        shape,
        features;
        kernel = [3, 3],
        stride,
        padding = [1, 1],
        bias = false,
    )
    layers = [
        conv(1, [2, 5, 4], 3, [1, 1]),
        gelu_layer(1, [3, 5, 4]),
        conv(2, [3, 5, 4], 4, [2, 2]),
        norm(1, [4, 3, 2]),
        gelu_layer(2, [4, 3, 2]),
        layer("Flatten", "flatten1", [4, 3, 2]),
        gelu_layer(3, [24]),
        dense_layer(1, 24, 3),
    ]
    return model(layers, 3; loss = "MeanSquaredError", optimizer = ADAM)
end

residual_layer(number, shape, body...) =
    layer("Residual", "residual$number", shape; body = collect(body), shortcut = [])
layer_norm(number, shape; bias = true) =
    layer("LayerNorm", "layernorm$number", shape; epsilon = 1e-2, bias)
attention(number, shape; heads = 2, causal = false, bias = true) =
    layer("MultiHeadAttention", "multiheadattention$number", shape; heads, causal, bias)

"""
Describe a causal transformer of token ids, with a label at each place and tied weights, that
clips its gradients and has a schedule.
"""
function sentences()
    shape = [5, 4]
    layers = [
        layer("Embedding", "embedding1", [5]; vocabulary = 7, features = 4),
        layer("PositionEmbedding", "positionembedding1", shape),
        residual_layer(
            1,
            shape,
            layer_norm(1, shape; bias = false),
            attention(1, shape; causal = true, bias = false),
        ),
        residual_layer(
            2,
            shape,
            layer_norm(2, shape),
            layer("Dense", "dense1", shape; features = 6, bias = false),
            gelu_layer(1, [5, 6]; tanh = true),
            layer("Dense", "dense2", [5, 6]; features = 4, bias = true),
        ),
        layer("RMSNorm", "rmsnorm1", shape; epsilon = 1e-2),
        layer("Unembedding", "unembedding1", shape; vocabulary = 7),
    ]
    rates = (learning_rate = 0.2, weight_decay = 0.01)
    return model(
        layers,
        5,
        7;
        optimizer = adamw(true; clip_norm = 0.2, schedule = COSINE, rates...),
    )
end

"""Describe a transformer of a picture's patches, with a class token and smoothed labels."""
patches() = model(
    [
        conv_layer(1, [2, 6, 4], 4; kernel = [3, 2], stride = [3, 2], padding = [0, 0]),
        layer("ToSequence", "tosequence1", [4, 2, 2]),
        layer("ClassToken", "classtoken1", [4, 4]),
        layer("PositionEmbedding", "positionembedding1", [5, 4]),
        residual_layer(1, [5, 4], layer_norm(1, [5, 4]), attention(1, [5, 4])),
        layer("FirstOfSequence", "firstofsequence1", [5, 4]),
        dense_layer(1, 4, 3),
    ],
    3;
    label_smoothing = 0.1,
    optimizer = adamw(false; learning_rate = 0.05, weight_decay = 0.01),
)

const BUILDS =
    (small, residual, words, characters, bag, numbers, sentences, patches)

vocabulary(description) = get(description["layers"][1], "vocabulary", nothing)

"""Return n examples for a described model, (..., n), and their labels or targets."""
function examples(description, T, n; shift = 0)
    shape = (reverse(description["layers"][1]["input_shape"])..., n)
    (places..., outputs) = description["output_shape"]
    size = (places..., n)
    labels = reshape([(shift + i) % max(2, outputs) for i in 1:prod(size)], size)
    if description["loss"]["type"] == "MeanSquaredError"
        labels = T.(reshape(sin.(shift .+ (1:(outputs*n))), outputs, n))
    end
    v = vocabulary(description)
    isnothing(v) && return T.(reshape(cos.(shift .+ (1:prod(shape))), shape)), labels
    return Int32.(reshape([(shift + i^2) % v for i in 1:prod(shape)], shape)), labels
end

"""Return dropout masks for n examples that drop every third value."""
function example_masks(description, n)
    mask(shape) = reshape([i % 3 != 0 for i in 1:(prod(shape)*n)], reverse(shape)..., n)
    return Dict{String,Any}(
        l["name"] => mask(l["input_shape"]) for
        l in description["layers"] if l["type"] == "Dropout"
    )
end

"""
Return a workload with weights that are all different, and these weights. Running variances
are positive.
"""
function ready(description, precision = "float64", device = "cpu")
    T = CrossBenchFlux.ELTYPES[precision]
    workload = Workload(JSON.json(description), device, precision)
    values = Dict(
        name => T.(0.3 .* sin.(length(name) .+ reshape(1:length(a), size(a)))) for
        (name, a) in weights(workload)
    )
    for (name, a) in values
        endswith(name, "running_var") && (values[name] = 1 .+ a)
    end
    load!(workload, values)
    return workload, values
end

function load!(workload, values)
    foreach(((name, a),) -> load_weight!(workload, name, a), values)
    reset_state!(workload)
end

"""Return what `ready` does, with three batches of four examples on the device."""
function with_batches(description, precision = "float64", device = "cpu")
    workload, values = ready(description, precision, device)
    T = CrossBenchFlux.ELTYPES[precision]
    for step in 1:3
        add_batch!(workload, examples(description, T, 4; shift = 10step)...)
    end
    return workload, values
end

sigmoid(x) = 1 / (1 + exp(-x))

# Run a cell over the columns of x, by definition. Canonical weights are (in, gates) here.
function lstm(x, ih, hh, bias)
    h = c = zeros(size(hh, 1))
    for xt in eachcol(x)
        i, f, g, o = eachcol(reshape(ih' * xt + hh' * h + bias, :, 4))
        c = sigmoid.(f) .* c + sigmoid.(i) .* tanh.(g)
        h = sigmoid.(o) .* tanh.(c)
    end
    return h
end

function gru(x, ih, hh, bias)
    h = zeros(size(hh, 1))
    for xt in eachcol(x)
        wr, wz, wn = eachcol(reshape(ih' * xt + bias, :, 3))
        ur, uz, un = eachcol(reshape(hh' * h, :, 3))
        z = sigmoid.(wz + uz)
        h = (1 .- z) .* tanh.(wn + sigmoid.(wr + ur) .* un) + z .* h
    end
    return h
end

# Each optimizer by its formula: what step t, from 0, subtracts from the weight; s is the
# optimizer's state.
function formula(::Val{:SGD}, o, g, s, t)
    s[1] = o["momentum"] .* s[1] .+ g
    return o["learning_rate"] .* s[1]
end
function formula(::Val{:Adam}, o, g, s, t)
    s[1] = o["beta1"] .* s[1] .+ (1 - o["beta1"]) .* g
    s[2] = o["beta2"] .* s[2] .+ (1 - o["beta2"]) .* g .^ 2
    m, v = s[1] ./ (1 - o["beta1"]^(t + 1)), s[2] ./ (1 - o["beta2"]^(t + 1))
    return o["learning_rate"] .* m ./ (sqrt.(v) .+ o["epsilon"])
end
formula(::Val{:AdamW}, rest...) = formula(Val(:Adam), rest...)
function formula(::Val{:RMSprop}, o, g, s, t)
    s[1] = o["rho"] .* s[1] .+ (1 - o["rho"]) .* g .^ 2
    return o["learning_rate"] .* g ./ (sqrt.(s[1]) .+ o["epsilon"])
end
function formula(::Val{:Adadelta}, o, g, s, t)
    s[1] = o["rho"] .* s[1] .+ (1 - o["rho"]) .* g .^ 2
    change = g .* sqrt.(s[2] .+ o["epsilon"]) ./ sqrt.(s[1] .+ o["epsilon"])
    s[2] = o["rho"] .* s[2] .+ (1 - o["rho"]) .* change .^ 2
    return o["learning_rate"] .* change
end

const ADAM = optimizer("Adam", 0.01; beta1 = 0.8, beta2 = 0.95, epsilon = 1e-2)
const COSINE =
    Dict("type" => "WarmupCosine", "warmup" => 1, "steps" => 3, "minimum" => 0.25)
adamw(matrices_only; learning_rate = 0.01, weight_decay = 0.5, rest...) = optimizer(
    "AdamW",
    learning_rate;
    beta1 = 0.8,
    beta2 = 0.95,
    epsilon = 1e-2,
    weight_decay,
    matrices_only,
    rest...,
)
rmsprop(schedule) = optimizer("RMSprop", 0.01; rho = 0.8, epsilon = 1e-2, schedule)
const DECAYING = rmsprop(Dict("type" => "InverseTimeDecay", "decay" => 0.5))

"""
The optimizers to test: every number is large enough to show in the result. The norm of the
gradients is over the first bound and under the second.
"""
const OPTIMIZERS = [
    SGD,
    optimizer("SGD", 0.1; momentum = 0.0),
    ADAM,
    adamw(false; clip_norm = 0.1, schedule = COSINE),
    adamw(true; clip_norm = 1e3),
    DECAYING,
    rmsprop(nothing),
    optimizer("Adadelta", 0.7; rho = 0.8, epsilon = 1e-2),
]

"""Return what the learning rate is multiplied by in a step, from 0."""
function factor(schedule, t)
    isnothing(schedule) && return 1.0
    schedule["type"] == "InverseTimeDecay" && return 1 / (1 + schedule["decay"] * t)
    return (0.5, 1.0, 0.625, 0.25)[t+1]  # of COSINE
end

@testset "CrossBenchFlux" begin
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
        newton = Dict("type" => "Newton")
        @test_throws "$unsupported optimizer Newton" CrossBenchFlux.rule(newton)
        json = JSON.json(small())
        @test_throws "the device tpu needs CUDA.jl" Workload(json, "tpu", "float32")
    end

    @testset "weights come back as they were loaded" begin
        for build in BUILDS
            description = build()
            workload, values = ready(description)
            @test weights(workload) == values
        end
        workload, values = ready(words())  # no copy of a large table after each epoch
        @test weights(workload)["embedding1.weight"] === workload.model[1].weight
        workload, values = ready(small())
        kernel = workload.model[1].weight
        @test kernel == values["conv1.weight"][end:-1:1, end:-1:1, :, :]  # flipped
        @test workload.model[4].weight == values["dense1.weight"]'
        name, wrong = "conv1.weight", zeros(2, 2, 2, 2)
        @test_throws "conv1.weight has the size" load_weight!(workload, name, wrong)
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

    @testset "the convolution is the canonical cross-correlation" begin
        workload, values = ready(small())
        inputs, _ = examples(small(), Float64, 1)
        kernel, x = values["conv1.weight"], inputs[:, :, :, 1]  # W, H, I, O and W, H, C
        padded = zeros(8, 11, 2)
        padded[:, 2:10, :] = x
        bias = values["conv1.bias"]
        expected = [
            bias[o] + sum(padded[w:(w+1), (2h-1):(2h+1), :] .* kernel[:, :, :, o]) for
            w in 1:7, h in 1:5, o in 1:3
        ]
        @test workload.model[1](inputs)[:, :, :, 1] ≈ relu.(expected)
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
        targets = Flux.onehotbatch(y, 0:2)
        expected = Flux.logitcrossentropy(normalized(means, squares ./ n), targets)
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

    @testset "a residual is the sum of its body and its shortcut" begin
        workload, _ = ready(residual())
        net, x = workload.model, rand(4, 5, 3, 2)
        body = net[3].layers
        @test net[3](x) ≈ body[3](body[2](body[1](x))) + x
        @test net[5](x) ≈ net[5][1](x) + net[5][2](x)
    end

    @testset "an embedding, its mean, and one-hot characters, counted from 0" begin
        workload, values = ready(bag())
        ids, _ = examples(bag(), Float64, 3)
        table = values["embedding1.weight"]
        average(column) = sum(table[:, id+1] for id in column) ./ 6
        means = hcat((average(column) for column in eachcol(ids))...)
        @test predict(workload, ids) ≈
              values["dense1.weight"]' * means .+ values["dense1.bias"]
        onehot = ready(characters())[1].model[1](ids .% Int32(5) .+ Int32(1))
        @test onehot isa Array{Float64,3}
        @test onehot == [ids[t, n] % 5 == c for c in 0:4, t in 1:6, n in 1:3]
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

    @testset "a parameter without a gradient has zeros of its shape" begin
        workload, values = ready(small())
        layers = (nothing, nothing, nothing, (weight = ones(5, 18), bias = nothing))
        gradients = CrossBenchFlux.gradient_arrays(workload, (; layers))
        @test gradients["conv1.weight"] == zero(values["conv1.weight"])
        @test gradients["dense1.bias"] == zeros(5)
        @test gradients["dense1.weight"] == ones(18, 5)
    end

    @testset "given masks replace those that a dropout draws" begin
        workload, values = with_batches(words())
        x, y = examples(words(), Float64, 4)
        masks = example_masks(words(), 4)
        hidden = workload.model[1:2](x .+ 1) .* masks["dropout1"] ./ 0.6
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
        @test any(layer -> layer isa Dropout, workload.model)  # as before
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
        foreach(_ -> rand(workload.model[3].rng), 1:3)
        @test train_epoch!(workload) != losses
    end

    @testset "two dropouts draw differently" begin
        layers = [
            layer("Dropout", "dropout1", [50]; rate = 0.5),
            layer("Dropout", "dropout2", [50]; rate = 0.5),
            dense_layer(1, 50, 2),
        ]
        workload, _ = ready(model(layers, 2))
        rngs = [workload.model[i].rng for i in 1:2]
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

    @testset "the decay restarts when weights are loaded" begin
        workload, values = with_batches(small(; optimizer = DECAYING))
        losses = train_epoch!(workload)
        train_epoch!(workload)
        load!(workload, values)
        @test train_epoch!(workload) == losses
    end

    @testset "training in $precision: $build" for precision in ("float32", "float64"),
        build in BUILDS

        T = CrossBenchFlux.ELTYPES[precision]
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

    @testset "the tuned variant has the idiomatic steps for attention alone" begin
        function stays_idiomatic(layers...)
            embedding = layer("Embedding", "embedding1", [5]; vocabulary = 7, features = 4)
            output = layer("Dense", "dense1", [5, 4]; features = 7, bias = true)
            description = JSON.json(model([embedding, layers..., output], 5, 7))
            tuned = CrossBenchFlux.TunedWorkload(Workload(description, "cpu", "float32"))
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

    @testset "an array is wrapped, not copied" begin
        memory = collect(1.0:6.0)
        GC.@preserve memory begin
            wrapped = wrap("float64", UInt(pointer(memory)), (2, 3))
            wrapped[2, 3] = 60
        end
        @test memory[6] == 60
        bits, ids = [true, false], Int32[3, 4]
        GC.@preserve bits ids begin
            @test wrap("bool", UInt(pointer(bits)), (2,)) == bits
            @test wrap("int32", UInt(pointer(ids)), (2,)) == ids
        end
    end

    @testset "the functions of the peak" begin
        source, target = rand(Float32, 1001), zeros(Float32, 1001)
        @test CrossBenchFlux.copy_on!(identity, target, source) === target
        @test target == source
        there = CrossBenchFlux.put(identity, source)
        @test there == source
        @test CrossBenchFlux.address(there) != CrossBenchFlux.address(source)
        a, b, product = rand(Float32, 8, 8), rand(Float32, 8, 8), zeros(Float32, 8, 8)
        before = CrossBenchFlux.BLAS.get_num_threads()
        @test CrossBenchFlux.multiply!(identity, product, a, b) === product
        @test product ≈ a * b
        @test CrossBenchFlux.every(product, 3) == product[:, [1, 4, 7]]
        @test CrossBenchFlux.BLAS.get_num_threads() == before
    end

    @testset "BLAS gets the threads unless convolutions use those of Julia" begin
        function blas_threads(convolves)
            CrossBenchFlux.configure_runtime(2; convolves)
            return CrossBenchFlux.BLAS.get_num_threads()
        end
        @test blas_threads(false) == 2
        @test blas_threads(true) == (Threads.nthreads() > 1 ? 1 : 2)
        CrossBenchFlux.BLAS.set_num_threads(1)
    end

    @testset "details" begin
        details = CrossBenchFlux.details(CrossBenchFlux.select_device("cpu"))
        @test details["Julia"] == string(VERSION)
        @test startswith(details["Flux"], "0.16")
        @test details["Julia threads"] == string(Threads.nthreads())
    end

    if isnothing(Base.find_package("JLArrays"))
        @info "JLArrays.jl is not installed: devices other than the CPU are not tested"
    else
        include("device.jl")
    end
end
