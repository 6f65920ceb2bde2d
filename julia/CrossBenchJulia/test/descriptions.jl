# Descriptions of small models, and what is expected of them by definition. The tests of each
# framework include this file where they have its `build_workload`.
using CrossBenchJulia
using CrossBenchJulia:
    CrossBenchJulia,
    add_batch!,
    begin_epoch!,
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
using JSON: JSON
using SpecialFunctions: erf
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
    T = CrossBenchJulia.ELTYPES[precision]
    workload = build_workload(JSON.json(description), device, precision)
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
    T = CrossBenchJulia.ELTYPES[precision]
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
