"""Define small models that together use every layer, loss and optimizer, at odd sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossbench import models
from crossbench.data.sources import (
    CIFAR10,
    IMDB,
    RandomPositions,
    Source,
    Synthetic,
    Text,
    TinyShakespeare,
)
from crossbench.engine.peak import PEAK_WORK, PeakWork
from crossbench.models.model import Model

PEAK_WORK.update(dict.fromkeys(PEAK_WORK, PeakWork(256, 2**23, 0.02)))
"""Small products and copies in each process that loads this file: else each row takes seconds."""


def model(
    name,
    layers,
    optimizer,
    loss=models.SoftmaxCrossEntropy(),  # noqa: B008
    data: Source = CIFAR10(),  # noqa: B008
    shape=None,
):
    """Return a model for the data. shape: of an input, where the data does not say it."""
    shape = shape or ((3, 32, 32) if isinstance(data, CIFAR10) else (data.length,))
    return Model(name, shape, layers, loss, optimizer, 10, "the tests", data)


def named(name):
    """Return FILE.py:NAME of a model of this file, for a run in a process of its own."""
    return f"{__file__}:{name}"


def make_inputs(model, shape, random, dtype="float32"):
    """Random examples for batches of this shape: pictures or numbers, or token ids."""
    shape = (*shape, *model.input_shape)
    if model.vocabulary is None:
        return random.random(shape).astype(dtype)
    return random.integers(0, model.vocabulary, shape, np.int32)


def make_labels(model, shape, random, dtype="float32"):
    """Random labels for batches of this shape: classes, or targets."""
    if model.classes is None:
        return random.normal(size=(*shape, *model.label_shape)).astype(dtype)
    return random.integers(0, model.classes, (*shape, *model.label_shape))


REVIEWS, LETTERS = IMDB(words=50, length=9), Text(length=8, step=3)
NORM = models.BatchNorm(epsilon=1e-3, momentum=0.8)

TINY = replace(models.get("lenet"), name="tiny", layers=(models.Flatten(), models.Dense(10)))
PLAIN = model(
    "plain",
    # stride, padding, and pool windows that overlap and do not reach the last of 16 rows
    (
        models.Conv(4, kernel=(5, 3), stride=(2, 3), padding=(2, 2)),
        models.ReLU(),
        models.MaxPool((3, 2), stride=(2, 2)),
        models.Flatten(),
        models.Dense(7),
        models.ReLU(),
        models.Dense(10),
    ),
    models.SGD(learning_rate=0.01, momentum=0.9),
)
NORMED = model(
    "normed",
    (
        # the convolution does not reach the last row of its input, the pool its last row and column
        models.Conv(3, kernel=(3, 4), stride=(3, 2)),
        NORM,
        models.ReLU(),
        models.MaxPool((3, 2), stride=(3, 2)),
        models.Flatten(),
        models.Dense(6),
        models.ReLU(),
        models.BatchNorm(epsilon=1e-2, momentum=0.9),
        models.Dense(10),
    ),
    # epsilon exceeds the rounding error that is the gradient of the bias before the batch norm
    models.Adam(learning_rate=1e-3, beta1=0.8, beta2=0.99, epsilon=1e-3),
)
POSITIVE = model(
    "positive",
    # some channels are positive in all places: before the batch norm, the gradient of their bias is
    # only rounding, out of which Adam makes a step
    (
        models.Conv(32, kernel=(3, 3), stride=(5, 5)),
        models.ReLU(),
        NORM,
        models.Flatten(),
        models.Dense(10),
    ),
    models.Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-7),
)
RESIDUAL = model(
    "residual",
    (
        models.Conv(3, kernel=(3, 3), stride=(3, 3)),
        models.Residual(
            body=(models.Conv(3, kernel=(3, 3), padding=(1, 1)), NORM, models.ReLU(), NORM)
        ),
        models.LeakyReLU(0.2),
        models.AveragePool((3, 2), stride=(2, 2), padding=(1, 1)),
        models.Residual(
            body=(
                models.Conv(5, kernel=(3, 3), stride=(2, 2), padding=(1, 1)),
                models.Residual(body=(NORM, models.ReLU()), shortcut=(models.Dropout(0.3),)),
            ),
            shortcut=(models.Conv(5, kernel=(1, 1), stride=(2, 2)), NORM),
        ),
        models.GlobalAveragePool(),
        models.Dense(10),
    ),
    models.SGD(learning_rate=0.01),
)
DROPPED = model(
    "dropped",
    (
        models.Conv(3, kernel=(4, 3), stride=(4, 4)),
        models.Dropout(0.25),
        models.ReLU(),
        models.Flatten(),
        models.Dense(9),
        models.Dropout(0.5),
        models.Dense(10),
    ),
    models.RMSprop(
        learning_rate=1e-3, rho=0.8, epsilon=1e-4, schedule=models.InverseTimeDecay(0.5)
    ),
)
AVERAGED = model(
    "averaged",
    (models.Embedding(50, 7), models.GlobalAveragePool(), models.Dense(1)),
    models.Adadelta(learning_rate=0.5, rho=0.9, epsilon=1e-5),
    models.BinaryCrossEntropy(),
    REVIEWS,
)
BIDIRECTIONAL = model(
    "bidirectional",
    (
        models.Embedding(50, 5),
        models.LSTM(4, bidirectional=True, sequences=True),
        models.LSTM(3, bidirectional=True),
        models.Dropout(0.5),
        models.Dense(1),
    ),
    models.Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    models.BinaryCrossEntropy(),
    REVIEWS,
)
LETTERED = model(
    "lettered",
    (models.OneHot(11), models.LSTM(6, sequences=True), models.LSTM(5), models.Dense(11)),
    models.RMSprop(learning_rate=0.01, rho=0.9, epsilon=1e-8),
    data=LETTERS,
)
GATED = model(
    "gated",
    (models.Embedding(50, 5), models.GRU(4), models.Dense(2)),
    models.Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    data=REVIEWS,
)
GATED_BOTH_WAYS = model(
    "gated_both_ways",
    (
        models.OneHot(11),
        models.GRU(3, bidirectional=True, sequences=True, both_biases=True),
        models.GRU(4, bidirectional=True, both_biases=True),
        models.Dense(11),
    ),
    models.SGD(learning_rate=0.1, momentum=0.5, weight_decay=0.1),
    data=LETTERS,
)
FITTED = model(
    "fitted",
    (models.Dense(9), models.GELU(), models.Dense(3)),
    # a larger learning rate diverges from the proof's large inputs
    models.SGD(learning_rate=1e-4, momentum=0.9, nesterov=True),
    models.MeanSquaredError(),
    Synthetic(),
    (7,),
)
UNBIASED = model(
    "unbiased",
    (
        models.Conv(4, kernel=(3, 2), stride=(2, 1), bias=False),
        models.GELU(),
        models.Residual(
            body=(
                models.Conv(4, kernel=(3, 3), padding=(1, 1), bias=False),
                NORM,
                models.GELU(),
                NORM,
            )
        ),
        models.GELU(),
        models.Conv(5, kernel=(2, 3), bias=False),
        models.Flatten(),
        models.Dense(6),
        models.BatchNorm(epsilon=1e-5, momentum=0.9),
        models.GELU(),
        models.Dense(2),
    ),
    models.Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    models.Huber(delta=0.5),
    Synthetic(),
    (2, 9, 8),
)
ROBUST = model(
    "robust",
    (models.Dense(9), models.GELU(), models.Dense(3)),
    models.Adagrad(learning_rate=1e-2, initial_accumulator=0.1, epsilon=1e-3),
    models.AbsoluteError(),
    Synthetic(),
    (7,),
)
SEGMENTED = model(
    "segmented",
    # a class for each pixel
    (models.Conv(6, kernel=(3, 3), padding=(1, 1)), models.GELU(), models.Conv(4, kernel=(1, 1))),
    models.Lion(
        learning_rate=1e-3,
        beta1=0.8,
        beta2=0.95,
        weight_decay=0.2,
        schedule=models.Steps(milestones=(20, 30), gamma=0.3),
    ),
    models.SoftmaxCrossEntropy(label_smoothing=0.1),
    Synthetic(),
    (2, 9, 8),
)

SPEAKING = model(
    "speaking",
    # a language model: the loss is over all places, the first and the last weight are one
    (
        models.Embedding(11, 6),
        models.PositionEmbedding(std=0.5),
        models.Residual(
            body=(
                models.LayerNorm(1e-3, bias=False),
                models.MultiHeadAttention(2, causal=True, bias=False),
            )
        ),
        models.Residual(
            body=(
                models.LayerNorm(1e-2),
                models.Dense(5, bias=False),
                models.GELU(tanh=True),
                models.Dense(6),
            )
        ),
        models.RMSNorm(1e-3),
        models.Unembedding(11),
    ),
    models.AdamW(
        learning_rate=1e-3,
        beta1=0.8,
        beta2=0.99,
        epsilon=1e-4,
        weight_decay=0.3,
        matrices_only=True,
        clip_norm=0.5,
        schedule=models.WarmupCosine(warmup=10, steps=50, minimum=0.2),
    ),
    data=TinyShakespeare(length=7, augmentation=RandomPositions()),
)
PATCHED = model(
    "patched",
    (
        models.Conv(6, kernel=(8, 6), stride=(8, 7)),
        models.ToSequence(),
        models.ClassToken(std=0.5),
        models.PositionEmbedding(),
        models.Residual(body=(models.RMSNorm(1e-2), models.MultiHeadAttention(3, causal=False))),
        models.Dropout(0.3),
        models.LayerNorm(1e-3),
        models.FirstOfSequence(),
        models.Dense(10),
    ),
    models.AdamW(1e-3, beta1=0.9, beta2=0.99, epsilon=1e-5, weight_decay=0.2),
    models.SoftmaxCrossEntropy(label_smoothing=0.2),
)
BENT = model(
    "bent",
    # the other activations, of pictures, sequences and vectors, norms and scales
    (
        models.Conv(6, kernel=(3, 2)),
        models.ReLU6(),
        models.GroupNorm(3, epsilon=1e-2),
        models.SiLU(),
        models.Residual(
            body=(
                models.LayerNorm(1e-2),
                models.Conv(9, kernel=(1, 1)),
                models.HardSwish(),
                models.Conv(6, kernel=(1, 1)),
                models.Scale(0.5),
            )
        ),
        models.PReLU(per_channel=True),
        models.RMSNorm(1e-2),
        models.Conv(4, kernel=(2, 3), bias=False),
        models.BatchNorm(epsilon=1e-2, momentum=0.8, affine=False),
        models.LayerNorm(1e-3, bias=False),
        models.GroupNorm(2, epsilon=1e-5, affine=False),
        models.ToSequence(),
        models.ELU(1.5),
        models.Dense(5),
        models.RMSNorm(1e-3, affine=False),
        models.Scale(),
        models.Softplus(),
        models.LayerNorm(1e-3, affine=False),
        models.PReLU(),
        models.GlobalAveragePool(),
        models.Dense(7),
        models.Tanh(),
        models.LayerNorm(1e-2),
        models.PReLU(per_channel=True),
        models.Dense(6),
        models.Scale(0.1),
        models.Sigmoid(),
        models.Dense(2),
    ),
    models.AdamW(1e-3, beta1=0.9, beta2=0.99, epsilon=1e-5, weight_decay=0.3, matrices_only=True),
    models.MeanSquaredError(),
    Synthetic(),
    (2, 9, 8),
)

BRANCHED = model(
    "branched",
    # a dense connection, a squeeze whose channels weigh all places, and branches in the last branch
    (
        models.Conv(4, kernel=(3, 3), stride=(4, 4)),
        models.Branches(((), (NORM, models.Conv(3, (3, 3), padding=(1, 1)))), "concatenate"),
        NORM,  # products of large inputs would diverge
        models.Branches(
            ((), (models.AveragePool((8, 8), (8, 8)), models.Conv(7, (1, 1)))), "multiply"
        ),
        models.Branches(
            (
                (models.Conv(5, (1, 1)), models.LeakyReLU(0.1)),
                (models.Conv(5, (2, 2)), models.Conv(5, (2, 2), padding=(1, 1))),
                (
                    models.Conv(5, (1, 1)),
                    models.Residual((NORM, models.Conv(5, (3, 3), padding=(1, 1)))),
                ),
            ),
            "add",
        ),
        models.ToSequence(),
        models.LayerNorm(1e-3),
        models.Branches(((models.Dense(5), models.GELU()), (models.Dense(5),)), "multiply"),
        models.Branches(((models.GlobalAveragePool(),), (models.Flatten(),)), "concatenate"),
        models.Dense(10),
    ),
    models.SGD(
        learning_rate=0.001,
        momentum=0.9,
        nesterov=True,
        weight_decay=0.1,
        matrices_only=True,
        schedule=models.OneCycle(warmup=10, steps=40, start=0.2, end=0.05),
    ),
)

GENERATED = model(
    "generated",
    # a vector becomes a picture: the first transposed convolution and the dilated one are "same" in
    # Keras and JAX, the others have to be padded or cut, and no size is another axis's
    (
        models.Dense(24),
        models.Reshape((6, 2, 2)),
        models.LeakyReLU(0.2),
        models.TransposedConv(4, kernel=(4, 4), stride=(2, 2), padding=(1, 1), bias=False),
        models.ReLU(),
        models.TransposedConv(
            4, kernel=(3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2)
        ),
        models.ReLU(),
        models.Upsample(2, "bilinear"),
        models.Conv(8, kernel=(3, 2), stride=(2, 1), padding=((0, 1), (2, 0)), groups=2),
        models.Pad(((2, 0), (0, 1)), "reflect"),
        models.LeakyReLU(0.1),
        models.Conv(8, kernel=(3, 3), padding=(2, 2), groups=8, dilation=(2, 2)),
        models.Upsample(2),
        models.Conv(16, kernel=(4, 3), stride=(2, 2), bias=False, groups=8),
        models.Pad((1, (0, 2))),
        models.Conv(16, kernel=(1, 1)),  # else the largest values at the edges are zeros
        models.MaxPool((3, 2), stride=(2, 2), padding=(1, 1)),
        models.Reshape((8, 12, 15)),
        models.GlobalMaxPool(),
        models.Dense(3),
    ),
    models.SGD(learning_rate=1e-3, momentum=0.9),
    data=Synthetic(),
    shape=(7,),
)
CONVOLVED = model(
    "convolved",
    (
        models.Embedding(50, 6),
        models.Rescaling(-0.7, 0.2),
        models.Conv1D(8, kernel=3, padding=(2, 0)),
        models.ReLU(),
        models.LayerNorm(1e-3),
        models.MaxPool1D(3, stride=2, padding=1),
        models.BatchNorm(1e-3, 0.8),
        models.Conv1D(16, kernel=4, stride=2, padding=(0, 1), bias=False, groups=8),
        models.GELU(),
        models.BatchNorm(1e-5, 0.9, affine=False),
        models.AveragePool1D(3, stride=1, padding=1),
        models.Transpose(),
        models.Dense(6),
        models.Conv1D(6, kernel=2, padding=1, groups=2, dilation=2),
        models.GlobalMaxPool(),
        models.Dense(1),
    ),
    # some weights with three axes decay: those of the convolutions
    models.AdamW(
        1e-3,
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-4,
        weight_decay=0.2,
        matrices_only=True,
        schedule=models.Cosine(40, minimum=0.1),
    ),
    models.BinaryCrossEntropy(),
    REVIEWS,
)

ROTATED = model(
    "rotated",
    (
        models.Embedding(50, 8),
        models.SinusoidalPositions(),
        models.Residual(
            body=(
                models.MultiHeadAttention(
                    4,
                    causal=True,
                    kv_heads=2,
                    head_features=6,
                    window=3,
                    rotary=models.Rotary(100.0),
                    norm=models.RMSNorm(1e-2),
                    output_bias=False,
                ),
            )
        ),
        models.MultiHeadAttention(
            2,
            causal=False,
            bias=False,
            kv_heads=1,
            window=4,
            rotary=models.Rotary(50.0, interleaved=True),
        ),
        models.MultiHeadAttention(4, causal=True, bias=False, kv_heads=2),
        models.GlobalAveragePool(),
        models.Dense(2),
    ),
    models.AdamW(1e-3, beta1=0.9, beta2=0.99, epsilon=1e-4, weight_decay=0.2, matrices_only=True),
    data=REVIEWS,
)

ALL = (PLAIN, NORMED, POSITIVE, RESIDUAL, DROPPED, AVERAGED, BIDIRECTIONAL, LETTERED, GATED)
ALL += (GATED_BOTH_WAYS, FITTED, UNBIASED, ROBUST, SEGMENTED, SPEAKING, PATCHED, BRANCHED, BENT)
ALL += (GENERATED, CONVOLVED, ROTATED)
SMALL_MODELS = {model.name: model for model in ALL}
