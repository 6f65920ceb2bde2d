"""Test the layers' output shapes, parameters and FLOPs, and the checks of their fields."""

import dataclasses
import math
from functools import cache

import numpy as np
import pytest
from small_models import SMALL_MODELS

from crossbench import models
from crossbench.inputs.errors import SpecError


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (models.Dense(10), (8, 5, 5)),
        (models.Conv(4, (5, 5)), (3, 4, 4)),
        (models.Conv(4, (3, 3), groups=2), (3, 9, 9)),
        (models.Conv(3, (3, 3), groups=2), (4, 9, 9)),
        (models.Conv(4, (3, 3), dilation=(2, 2)), (3, 4, 5)),
        (models.Conv1D(4, 3), (3, 9, 9)),
        (models.Conv1D(4, 3, dilation=2), (4, 3)),
        (models.TransposedConv(4, (3, 3)), (9, 7)),
        (models.TransposedConv(4, (3, 3), padding=(3, 0)), (3, 9, 9)),
        (models.TransposedConv(4, (3, 3), output_padding=(0, 1)), (3, 9, 9)),
        (models.TransposedConv(4, (3, 3), padding=(2, 2)), (3, 1, 1)),
        (models.MaxPool((2, 2), (2, 2), padding=(2, 0)), (3, 9, 9)),
        (models.Pad((3, 0), "reflect"), (3, 3, 9)),
        (models.Reshape((3, 4)), (13,)),
        (models.Upsample(2), (9, 7)),
        (models.GlobalAveragePool(), (8,)),
        (models.GlobalMaxPool(), (8,)),
        (models.ToSequence(), (9, 7)),
        (models.MultiHeadAttention(2, causal=True), (9, 7)),
        (models.MultiHeadAttention(4, causal=True, kv_heads=3), (9, 8)),
        (models.MultiHeadAttention(2, causal=True, rotary=models.Rotary()), (9, 6)),
        (models.PositionEmbedding(), (7,)),
        (models.SinusoidalPositions(), (9, 7)),
        (models.ClassToken(), (8, 5, 5)),
        (models.FirstOfSequence(), (7,)),
        (models.Unembedding(50), (7,)),
        (models.Embedding(50, 7), (9, 7)),
        (models.OneHot(50), (3, 32, 32)),
        (models.LSTM(4), (9,)),
        (models.GroupNorm(4, 1e-5), (6, 5, 5)),
        (models.GroupNorm(2, 1e-5), (9, 6)),
        (models.PReLU(per_channel=True), (9, 6)),
    ],
)
def test_a_shape_that_does_not_fit_is_an_error(layer, shape):
    with pytest.raises(ValueError, match=type(layer).__name__):
        layer.output_shape(shape)


@pytest.mark.parametrize(
    ("branches", "join", "input_shape", "output_shape"),
    [
        (((models.Dense(4),), ()), "concatenate", (5,), (9,)),
        (((), (models.Dense(4),)), "concatenate", (7, 5), (7, 9)),
        (((), (models.Conv(4, (1, 1)),), ()), "concatenate", (3, 8, 8), (10, 8, 8)),
        (((), (models.AveragePool((8, 8), (8, 8)),)), "multiply", (3, 8, 8), (3, 8, 8)),
        (((models.Dense(4),), ()), "add", (5,), None),
        (((models.Conv(4, (3, 3)),), ()), "concatenate", (3, 8, 8), None),
        (((models.AveragePool((8, 8), (8, 8)),), ()), "concatenate", (3, 8, 8), None),
        (((models.GlobalAveragePool(),), ()), "multiply", (3, 8, 8), None),
    ],
)
def test_branches_are_joined_where_their_shapes_allow_it(branches, join, input_shape, output_shape):
    layer = models.Branches(branches, join)
    if output_shape is not None:
        assert layer.output_shape(input_shape) == output_shape
        return
    with pytest.raises(ValueError, match=rf"branches that give \(.* cannot be joined by {join}"):
        layer.output_shape(input_shape)


def test_flops_count_a_multiply_add_as_two():
    # one output of a 5x5 kernel over 3 channels is 75 multiply-adds
    assert models.Conv(16, (5, 5)).forward_flops((3, 32, 32)) == 2 * 75 * 16 * 28 * 28
    # in four groups, each feature is of 2 of 8 channels
    assert models.Conv(16, (3, 3), groups=4).forward_flops((8, 9, 9)) == 2 * (2 * 9) * 16 * 7 * 7
    assert models.Conv1D(6, 4, stride=2).forward_flops((9, 5)) == 2 * (5 * 4) * 6 * 3
    # each value of the input goes to all features of a window
    transposed = models.TransposedConv(6, (4, 4), stride=(2, 2), padding=(1, 1))
    assert transposed.forward_flops((8, 5, 7)) == 2 * (8 * 5 * 7) * (6 * 4 * 4)
    assert models.Dense(120).forward_flops((200,)) == 2 * 200 * 120
    # four gates at each of 9 steps, from 7 inputs and 4 outputs, in two directions
    assert models.LSTM(4, bidirectional=True).forward_flops((9, 7)) == 2 * 9 * 2 * 4 * 4 * (7 + 4)


def test_all_outputs_of_a_recurrent_layer_are_a_sequence():
    stacked = models.GRU(4, bidirectional=True, sequences=True, both_biases=True)
    assert stacked.output_shape((9, 7)) == (9, 8)
    shapes = {name: p.shape for name, p in stacked.parameters((9, 7)).items()}
    assert shapes["bias"] == shapes["bias_hh"] == shapes["bias_hh_reverse"] == (12,)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (models.Conv(4, (3, 2), (2, 1), ((0, 1), (2, 0)), dilation=(1, 3)), (4, 4, 6)),
        (models.TransposedConv(4, (3, 2), (2, 3), (1, 0), output_padding=(1, 2)), (4, 16, 22)),
        (models.Pad((1, (0, 2))), (3, 10, 9)),
        (models.Upsample(3), (3, 24, 21)),
        (models.MaxPool((3, 3), stride=(2, 2), padding=(1, 1)), (3, 4, 4)),
    ],
)
def test_the_shapes_of_pictures(layer, shape):
    assert layer.output_shape((3, 8, 7)) == shape


def test_equal_sides_of_a_padding_are_one_number():
    assert models.Conv(4, (3, 3), padding=((1, 1), (2, 3))).padding == (1, (2, 3))
    assert models.Conv1D(4, 3, padding=[2, 2]).padding == 2


def test_attention_has_four_projections_and_two_products():
    unbiased = models.MultiHeadAttention(2, True, bias=False)
    # each of 9 places: four products with (8, 8), and with 9 keys and 9 values of 8, in all heads
    assert unbiased.forward_flops((9, 8)) == 2 * 9 * (4 * 8 * 8 + 2 * 9 * 8)
    # the gradient of x takes three of them, if nothing before needs it
    assert unbiased.training_flops((9, 8), False) == 3 * unbiased.forward_flops((9, 8)) - (
        2 * 9 * 3 * 8 * 8
    )


def test_flops_of_attention_with_shared_heads():
    layer = models.MultiHeadAttention(4, True, kv_heads=2, head_features=6, window=3)
    # queries and output have 24 features, keys and values 12; a window changes nothing
    assert layer.forward_flops((9, 8)) == 2 * 9 * (2 * 24 * 8 + 2 * 12 * 8 + 2 * 9 * 24)
    assert layer.training_flops((9, 8), False) == 3 * layer.forward_flops((9, 8)) - (
        2 * 9 * (24 + 2 * 12) * 8
    )


def test_normal_initial_values_have_their_standard_deviation():
    random = np.random.default_rng(0)
    attention = models.MultiHeadAttention(2, True, std=0.02, output_std=0.003)
    for name, parameter in attention.parameters((4, 200)).items():
        values = parameter.initializer.sample(random, parameter.shape)
        expected = 0 if "bias" in name else 0.003 if "output" in name else 0.02
        assert values.std() == pytest.approx(expected, rel=0.02)
        assert values.dtype == np.float32


SIZES = "a whole number from 1 to 2,147,483,647"
PAIRS = f"two whole numbers, each {SIZES.removeprefix('a whole number ')}"
BELOW_1 = "a number from 0 to below 1"
RATES = "a finite number of at least 0"


@pytest.mark.parametrize("size", [0, 2.0, True, "64", None, math.nan, 2**80])
def test_a_size_is_a_whole_number_of_at_least_1(size):
    with pytest.raises(SpecError) as caught:
        models.Dense(size)
    assert str(caught.value) == f"Dense: features must be {SIZES}, not {size!r}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.Dense(10**5000), f"Dense: features must be {SIZES}, not a value of type"),
        (lambda: models.Conv(4, (3,)), f"Conv: kernel must be {PAIRS}, not (3,)"),
        (lambda: models.Conv(4, "33"), f"Conv: kernel must be {PAIRS}, not '33'"),
        (lambda: models.BatchNorm(math.inf, 0.9), "BatchNorm: epsilon must be a finite number ov"),
        (lambda: models.Dropout(math.nan), f"Dropout: rate must be {BELOW_1}, not nan"),
        (lambda: models.Dropout(True), f"Dropout: rate must be {BELOW_1}, not True"),
        (lambda: models.SGD(math.inf), f"SGD: learning_rate must be {RATES}, not inf"),
        (lambda: models.SGD("0.1"), f"SGD: learning_rate must be {RATES}, not '0.1'"),
        (
            lambda: models.Residual(models.ReLU()),
            "Branches: branches must be two tuples of layers",
        ),
        (
            lambda: models.Branches(((), ()), "sum"),
            "Branches: join must be 'add' or 'multiply' or 'concatenate', not 'sum'",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused_in_one_line(make, message):
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


SIZED = (
    "features",
    "groups",
    "factor",
    "heads",
    "kv_heads",
    "head_features",
    "vocabulary",
    "warmup",
    "steps",
    "step",
    "length",
    "batch_size",
)
PAIRED = ("kernel", "window", "stride", "dilation", "shape")
SWITCHES = (
    "affine",
    "bias",
    "per_channel",
    "bidirectional",
    "causal",
    "tanh",
    "matrices_only",
    "bigrams",
    "flip",
    "sequences",
    "both_biases",
    "nesterov",
    "linear",
    "output_bias",
    "interleaved",
)
SHARES = ("rate", "slope", "momentum", "label_smoothing", "beta1", "beta2", "rho")
NOT_NEGATIVE = ("initial", "std", "output_std", "learning_rate", "weight_decay", "decay")
NOT_NEGATIVE += ("initial_accumulator",)
OVER_0 = ("epsilon", "alpha", "clip_norm", "delta", "gamma", "base")
WRONG = {
    **dict.fromkeys((*SIZED, *OVER_0, "batches"), 0),
    **dict.fromkeys(("start", "end"), 1.5),
    "milestones": (0, 3),
    **dict.fromkeys(PAIRED, (0, 3)),
    **dict.fromkeys(SWITCHES, 0),
    **dict.fromkeys(SHARES, 1),
    **dict.fromkeys(NOT_NEGATIVE, -0.1),
    **dict.fromkeys(("scale", "offset"), float("inf")),
    **dict.fromkeys(("minimum", "shift"), 1.5),
    "branches": ((models.ReLU,), ()),
    "join": "sum",
    **dict.fromkeys(("loss", "optimizer", "schedule", "data", "augmentation"), models.SGD),
    **dict.fromkeys(("padding", "output_padding"), (-1, 0)),
    "mode": "cubic",
    **dict.fromkeys(("rotary", "norm"), models.SGD),
    "words": 3,
    "name": "",
    "source": "two\nlines",
    "input_shape": (3, 0, 32),
    "layers": (),
    "for_vocabulary": 3,
    **dict.fromkeys(("weights", "own_paths"), 3),
}
"""A value that is not allowed, by the name of a field of a model, or of what it is made of."""


@cache
def described():
    """Return one description of each kind, from models that have all of them."""
    found = {}
    for model in (*SMALL_MODELS.values(), models.get("cifar_cnn"), models.get("mnist_mlp")):
        layers = [named.layer for named in model.all_layers()]
        data, optimizer = model.data, model.optimizer
        others = (model, model.loss, optimizer, optimizer.schedule, data, data.augmentation)
        rotaries = (getattr(layer, "rotary", None) for layer in layers)
        for one in (*layers, *rotaries, *others):
            if dataclasses.is_dataclass(one):
                found[type(one).__name__] = one
    return found


@pytest.mark.parametrize("kind", described())
def test_each_field_of_a_description_is_checked(kind):
    one = described()[kind]
    for field in dataclasses.fields(one):
        with pytest.raises(SpecError, match=f"^{kind}: {field.name} must be .*, not ") as caught:
            dataclasses.replace(one, **{field.name: WRONG[field.name]})
        assert "\n" not in str(caught.value)


def test_numpy_numbers_and_lists_become_python_numbers_and_tuples():
    conv = models.Conv(np.int64(4), [np.int32(3), 3], padding=np.array([1, 1]))
    assert conv == models.Conv(4, (3, 3), padding=(1, 1))
    assert [type(n) for n in (conv.features, *conv.kernel, *conv.padding)] == [int] * 5
    dropout = models.Dropout(np.float64(0.5))
    assert (dropout.rate, type(dropout.rate)) == (0.5, float)
    assert type(models.Residual([models.ReLU()]).branches[0]) is tuple
