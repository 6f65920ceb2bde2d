"""Define small models that together use every layer, loss and optimizer, at odd sizes."""

from __future__ import annotations

from dataclasses import replace

from crossbench import models
from crossbench.data.sources import (
    CIFAR10,
    IMDB,
    NormalNumbers,
    RandomPositions,
    Source,
    Text,
    TinyShakespeare,
)
from crossbench.engine import rounds
from crossbench.engine.peak import PeakWork
from crossbench.models.layers import (
    GELU,
    GRU,
    LSTM,
    BatchNorm,
    ClassToken,
    Conv,
    Dense,
    Dropout,
    Embedding,
    FirstOfSequence,
    Flatten,
    GlobalAveragePool,
    LayerNorm,
    MaxPool,
    MultiHeadAttention,
    OneHot,
    PositionEmbedding,
    ReLU,
    Residual,
    RMSNorm,
    ToSequence,
    Unembedding,
)
from crossbench.models.model import Model
from crossbench.models.training import (
    SGD,
    Adadelta,
    Adam,
    AdamW,
    BinaryCrossEntropy,
    InverseTimeDecay,
    MeanSquaredError,
    RMSprop,
    SoftmaxCrossEntropy,
    WarmupCosine,
)

rounds.PEAK_WORK = dict.fromkeys(rounds.PEAK_WORK, PeakWork(512, 2**22, 0.05))
"""Small products and copies in each process that loads this file: else each row takes seconds."""


def model(name, layers, optimizer, loss=SoftmaxCrossEntropy(), data: Source = CIFAR10()):  # noqa: B008
    match data:
        case CIFAR10():
            shape = (3, 32, 32)
        case NormalNumbers():
            shape = data.shape
        case _:
            shape = (data.length,)
    return Model(name, shape, layers, loss, optimizer, 10, "the tests", data)


def named(name):
    """Return FILE.py:NAME of a model of this file, for a run in a process of its own."""
    return f"{__file__}:{name}"


def make_labels(model, shape, random, dtype="float32"):
    """Random labels for batches of this shape: classes, or targets."""
    if model.classes is None:
        return random.normal(size=(*shape, *model.label_shape)).astype(dtype)
    return random.integers(0, model.classes, (*shape, *model.label_shape))


REVIEWS, LETTERS = IMDB(words=50, length=9), Text(length=8, step=3)
NORM = BatchNorm(epsilon=1e-3, momentum=0.8)

TINY = replace(models.get("lenet"), name="tiny", layers=(Flatten(), Dense(10)))
PLAIN = model(
    "plain",
    # stride, padding, and pool windows that overlap and do not reach the last of 16 rows
    (
        Conv(4, kernel=(5, 3), stride=(2, 3), padding=(2, 2)),
        ReLU(),
        MaxPool((3, 2), stride=(2, 2)),
        Flatten(),
        Dense(7),
        ReLU(),
        Dense(10),
    ),
    SGD(learning_rate=0.01, momentum=0.9),
)
NORMED = model(
    "normed",
    (
        # the convolution does not reach the last row of its input, the pool its last row and column
        Conv(3, kernel=(3, 4), stride=(3, 2)),
        NORM,
        ReLU(),
        MaxPool((3, 2), stride=(3, 2)),
        Flatten(),
        Dense(6),
        ReLU(),
        BatchNorm(epsilon=1e-2, momentum=0.99),
        Dense(10),
    ),
    # epsilon exceeds the rounding error that is the gradient of the bias before the batch norm
    Adam(learning_rate=1e-3, beta1=0.8, beta2=0.99, epsilon=1e-3),
)
POSITIVE = model(
    "positive",
    # some channels are positive in all places: before the batch norm, the gradient of their bias is
    # only rounding, out of which Adam makes a step
    (Conv(32, kernel=(3, 3), stride=(5, 5)), ReLU(), NORM, Flatten(), Dense(10)),
    Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-7),
)
RESIDUAL = model(
    "residual",
    (
        Conv(3, kernel=(3, 3), stride=(3, 3)),
        Residual(body=(Conv(3, kernel=(3, 3), padding=(1, 1)), NORM, ReLU(), NORM)),
        ReLU(),
        Residual(
            body=(
                Conv(5, kernel=(3, 3), stride=(2, 2), padding=(1, 1)),
                Residual(body=(NORM, ReLU()), shortcut=(Dropout(0.3),)),
            ),
            shortcut=(Conv(5, kernel=(1, 1), stride=(2, 2)), NORM),
        ),
        GlobalAveragePool(),
        Dense(10),
    ),
    SGD(learning_rate=0.01),
)
DROPPED = model(
    "dropped",
    (
        Conv(3, kernel=(4, 3), stride=(4, 4)),
        Dropout(0.25),
        ReLU(),
        Flatten(),
        Dense(9),
        Dropout(0.5),
        Dense(10),
    ),
    RMSprop(learning_rate=1e-3, rho=0.8, epsilon=1e-4, schedule=InverseTimeDecay(0.5)),
)
AVERAGED = model(
    "averaged",
    (Embedding(50, 7), GlobalAveragePool(), Dense(1)),
    Adadelta(learning_rate=0.5, rho=0.9, epsilon=1e-5),
    BinaryCrossEntropy(),
    REVIEWS,
)
BIDIRECTIONAL = model(
    "bidirectional",
    (Embedding(50, 5), LSTM(4, bidirectional=True), Dropout(0.5), Dense(1)),
    Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    BinaryCrossEntropy(),
    REVIEWS,
)
LETTERED = model(
    "lettered",
    (OneHot(11), LSTM(6), Dense(11)),
    RMSprop(learning_rate=0.01, rho=0.9, epsilon=1e-8),
    data=LETTERS,
)
GATED = model(
    "gated",
    (Embedding(50, 5), GRU(4), Dense(2)),
    Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    data=REVIEWS,
)
GATED_BOTH_WAYS = model(
    "gated_both_ways",
    (OneHot(11), GRU(3, bidirectional=True), Dense(11)),
    SGD(learning_rate=0.1, momentum=0.5),
    data=LETTERS,
)
FITTED = model(
    "fitted",
    (Dense(9), GELU(), Dense(3)),
    SGD(learning_rate=1e-4, momentum=0.9),  # a larger one diverges from the proof's large inputs
    MeanSquaredError(),
    NormalNumbers(shape=(7,), outputs=3),
)
UNBIASED = model(
    "unbiased",
    (
        Conv(4, kernel=(3, 2), stride=(2, 1), bias=False),
        GELU(),
        Residual(body=(Conv(4, kernel=(3, 3), padding=(1, 1), bias=False), NORM, GELU(), NORM)),
        GELU(),
        Conv(5, kernel=(2, 3), bias=False),
        Flatten(),
        Dense(6),
        NORM,
        GELU(),
        Dense(2),
    ),
    Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    MeanSquaredError(),
    NormalNumbers(shape=(2, 9, 8), outputs=2),
)

SPEAKING = model(
    "speaking",
    # a language model: the loss is over all places, the first and the last weight are one
    (
        Embedding(11, 6),
        PositionEmbedding(std=0.5),
        Residual(
            body=(LayerNorm(1e-3, bias=False), MultiHeadAttention(2, causal=True, bias=False))
        ),
        Residual(body=(LayerNorm(1e-2), Dense(5, bias=False), GELU(tanh=True), Dense(6))),
        RMSNorm(1e-3),
        Unembedding(11),
    ),
    AdamW(
        learning_rate=1e-3,
        beta1=0.8,
        beta2=0.99,
        epsilon=1e-4,
        weight_decay=0.3,
        matrices_only=True,
        clip_norm=0.5,
        schedule=WarmupCosine(warmup=10, steps=50, minimum=0.2),
    ),
    data=TinyShakespeare(length=7, augmentation=RandomPositions()),
)
PATCHED = model(
    "patched",
    (
        Conv(6, kernel=(8, 6), stride=(8, 7)),
        ToSequence(),
        ClassToken(std=0.5),
        PositionEmbedding(),
        Residual(body=(RMSNorm(1e-2), MultiHeadAttention(3, causal=False))),
        Dropout(0.3),
        LayerNorm(1e-3),
        FirstOfSequence(),
        Dense(10),
    ),
    AdamW(1e-3, beta1=0.9, beta2=0.99, epsilon=1e-5, weight_decay=0.2),
    SoftmaxCrossEntropy(label_smoothing=0.2),
)

SMALL_MODELS = {
    m.name: m
    for m in (
        PLAIN,
        NORMED,
        POSITIVE,
        RESIDUAL,
        DROPPED,
        AVERAGED,
        BIDIRECTIONAL,
        LETTERED,
        GATED,
        GATED_BOTH_WAYS,
        FITTED,
        UNBIASED,
        SPEAKING,
        PATCHED,
    )
}
