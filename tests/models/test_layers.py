"""Test the layers' output shapes, parameters and FLOPs, and the checks of their fields."""

import math

import numpy as np
import pytest

from crossbench.inputs.errors import SpecError
from crossbench.models import (
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
    MaxPool,
    MultiHeadAttention,
    OneHot,
    PositionEmbedding,
    ReLU,
    Residual,
    ToSequence,
    Unembedding,
)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Conv(4, (3, 5), stride=(2, 1), padding=(1, 2)), (3, 9, 7), (4, 5, 7)),
        (MaxPool((2, 2), (2, 2)), (8, 11, 10), (8, 5, 5)),
        (Flatten(), (8, 5, 5), (200,)),
        (ToSequence(), (8, 5, 4), (20, 8)),
        (Dense(12), (9, 7), (9, 12)),
        (ClassToken(), (9, 7), (10, 7)),
        (FirstOfSequence(), (9, 7), (7,)),
        (Unembedding(50), (9, 7), (9, 50)),
        (GlobalAveragePool(), (8, 5, 4), (8,)),
        (GlobalAveragePool(), (9, 7), (7,)),
        (Embedding(50, 7), (9,), (9, 7)),
        (OneHot(50), (9,), (9, 50)),
        (LSTM(4, bidirectional=True), (9, 7), (8,)),
        (GRU(4), (9, 7), (4,)),
        (Residual((Dense(3),), (Flatten(), Dense(3))), (5,), (3,)),
    ],
)
def test_a_layer_gives_its_output_shape(layer, shape, expected):
    assert layer.output_shape(shape) == expected


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Dense(10), (8, 5, 5)),
        (Conv(4, (5, 5)), (3, 4, 4)),
        (MaxPool((2, 2), (2, 2)), (8, 1, 4)),
        (GlobalAveragePool(), (8,)),
        (ToSequence(), (9, 7)),
        (MultiHeadAttention(2, causal=True), (9, 7)),
        (PositionEmbedding(), (7,)),
        (ClassToken(), (8, 5, 5)),
        (FirstOfSequence(), (7,)),
        (Unembedding(50), (7,)),
        (Embedding(50, 7), (9, 7)),
        (OneHot(50), (3, 32, 32)),
        (LSTM(4), (9,)),
        (GRU(4), (3, 32, 32)),
    ],
)
def test_a_shape_that_does_not_fit_is_an_error(layer, shape):
    with pytest.raises(ValueError, match=type(layer).__name__):
        layer.output_shape(shape)


def test_the_branches_of_a_residual_must_have_the_same_shape():
    with pytest.raises(ValueError, match=r"a residual's body gives \(4,\), its shortcut \(5,\)"):
        Residual((Dense(4),)).output_shape((5,))


def test_recurrent_layers_have_parameters_for_each_gate_and_direction():
    shapes = {n: p.shape for n, p in LSTM(4, bidirectional=True).parameters((9, 7)).items()}
    one = {"weight_ih": (16, 7), "weight_hh": (16, 4), "bias": (16,)}
    assert shapes == one | {f"{name}_reverse": shape for name, shape in one.items()}
    assert {n: p.shape for n, p in GRU(4).parameters((9, 7)).items()} == {
        "weight_ih": (12, 7),
        "weight_hh": (12, 4),
        "bias": (12,),
    }


def test_a_convolution_without_bias_has_a_weight_alone():
    with_bias, without = (Conv(4, (5, 3), bias=bias) for bias in (True, False))
    assert Conv(4, (5, 3)) == with_bias
    shapes = {name: p.shape for name, p in with_bias.parameters((3, 9, 9)).items()}
    assert shapes == {"weight": (4, 3, 5, 3), "bias": (4,)}
    assert list(without.parameters((3, 9, 9))) == ["weight"]


def test_running_statistics_are_not_trained():
    parameters = BatchNorm(1e-3, 0.9).parameters((8, 5, 5))
    assert [n for n, p in parameters.items() if not p.trained] == ["running_mean", "running_var"]
    assert all(p.shape == (8,) for p in parameters.values())


def test_flops_count_a_multiply_add_as_two():
    # one output of a 5x5 kernel over 3 channels is 75 multiply-adds
    assert Conv(16, (5, 5)).forward_flops((3, 32, 32)) == 2 * 75 * 16 * 28 * 28
    assert Dense(120).forward_flops((200,)) == 2 * 200 * 120
    # four gates at each of 9 steps, from 7 inputs and 4 outputs, in two directions
    assert LSTM(4, bidirectional=True).forward_flops((9, 7)) == 2 * 9 * 2 * 4 * 4 * (7 + 4)


def test_attention_has_four_projections_and_two_products():
    shapes = {n: p.shape for n, p in MultiHeadAttention(2, True).parameters((9, 8)).items()}
    names = ("query", "key", "value", "output")
    assert shapes == {f"{n}_weight": (8, 8) for n in names} | {f"{n}_bias": (8,) for n in names}
    unbiased = MultiHeadAttention(2, True, bias=False)
    assert list(unbiased.parameters((9, 8))) == [f"{n}_weight" for n in names]
    # each of 9 places: four products with (8, 8), and with 9 keys and 9 values of 8, in all heads
    assert unbiased.forward_flops((9, 8)) == 2 * 9 * (4 * 8 * 8 + 2 * 9 * 8)
    # the gradient of x takes three of them, if nothing before needs it
    assert unbiased.training_flops((9, 8), False) == 3 * unbiased.forward_flops((9, 8)) - (
        2 * 9 * 3 * 8 * 8
    )


def test_normal_initial_values_have_their_standard_deviation():
    random = np.random.default_rng(0)
    attention = MultiHeadAttention(2, True, std=0.02, output_std=0.003)
    for name, parameter in attention.parameters((4, 200)).items():
        values = parameter.initializer.sample(random, parameter.shape)
        expected = 0 if "bias" in name else 0.003 if "output" in name else 0.02
        assert values.std() == pytest.approx(expected, rel=0.02)
        assert values.dtype == np.float32


SIZES = "a whole number from 1 to 2,147,483,647"
PAIRS = f"two whole numbers, each {SIZES.removeprefix('a whole number ')}"
BELOW_1 = "a number from 0 to below 1"


@pytest.mark.parametrize("size", [0, 2.0, True, "64", None, math.nan, 2**80])
def test_a_size_is_a_whole_number_of_at_least_1(size):
    with pytest.raises(SpecError) as caught:
        Dense(size)
    assert str(caught.value) == f"Dense: features must be {SIZES}, not {size!r}"


@pytest.mark.parametrize("pair", [3, (3,), (0, 3), (2.5, 3), "33"])
def test_a_kernel_is_a_pair_of_sizes(pair):
    with pytest.raises(SpecError) as caught:
        Conv(4, pair)
    assert str(caught.value) == f"Conv: kernel must be {PAIRS}, not {pair!r}"


@pytest.mark.parametrize("rate", [1, -0.1, math.nan, "0.5", None, True])
def test_a_rate_is_a_number_below_1(rate):
    with pytest.raises(SpecError) as caught:
        Dropout(rate)
    assert str(caught.value) == f"Dropout: rate must be {BELOW_1}, not {rate!r}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(10**5000), f"Dense: features must be {SIZES}, not a value of type int"),
        (lambda: Conv(0, (3, 3)), f"Conv: features must be {SIZES}, not 0"),
        (lambda: Conv(4, (3, 3), stride=3), f"Conv: stride must be {PAIRS}, not 3"),
        (lambda: Conv(4, (3, 3), padding=(-1, 0)), "Conv: padding must be two whole numbers, each"),
        (lambda: Conv(4, (3, 3), bias=0), "Conv: bias must be True or False, not 0"),
        (lambda: MaxPool(3, (2, 2)), f"MaxPool: window must be {PAIRS}, not 3"),
        (lambda: MaxPool((2, 2), 3), f"MaxPool: stride must be {PAIRS}, not 3"),
        (lambda: LSTM(0), f"LSTM: features must be {SIZES}, not 0"),
        (lambda: LSTM(4, bidirectional="both"), "LSTM: bidirectional must be True or False, not"),
        (lambda: GRU(0), f"GRU: features must be {SIZES}, not 0"),
        (lambda: OneHot(0), f"OneHot: vocabulary must be {SIZES}, not 0"),
        (lambda: Embedding(0, 8), f"Embedding: vocabulary must be {SIZES}, not 0"),
        (lambda: Embedding(8, 0), f"Embedding: features must be {SIZES}, not 0"),
        (lambda: BatchNorm(0, 0.9), "BatchNorm: epsilon must be a finite number over 0, not 0"),
        (lambda: BatchNorm(math.inf, 0.9), "BatchNorm: epsilon must be a finite number over 0"),
        (lambda: BatchNorm(1e-3, 1), f"BatchNorm: momentum must be {BELOW_1}, not 1"),
        (lambda: Residual((ReLU,)), "Residual: body must be a tuple of layers, not"),
        (lambda: Residual(ReLU()), "Residual: body must be a tuple of layers, not"),
        (lambda: Residual((ReLU(),), 3), "Residual: shortcut must be a tuple of layers, not 3"),
    ],
)
def test_each_field_of_a_layer_is_checked(make, message):
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_numpy_numbers_and_lists_become_python_numbers_and_tuples():
    conv = Conv(np.int64(4), [np.int32(3), 3], padding=np.array([1, 1]))
    assert conv == Conv(4, (3, 3), padding=(1, 1))
    assert [type(n) for n in (conv.features, *conv.kernel, *conv.padding)] == [int] * 5
    dropout = Dropout(np.float64(0.5))
    assert (dropout.rate, type(dropout.rate)) == (0.5, float)
    assert type(Residual([ReLU()]).body) is tuple
