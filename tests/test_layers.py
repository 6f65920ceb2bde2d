import pytest

from crossbench.models.layers import (
    GRU,
    LSTM,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool,
    MaxPool,
    OneHot,
    ReLU,
    Residual,
)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Conv(16, (5, 5)), (3, 32, 32), (16, 28, 28)),
        (Conv(4, (3, 5), stride=(2, 1), padding=(1, 2)), (3, 9, 7), (4, 5, 7)),
        (MaxPool((2, 2), (2, 2)), (8, 11, 10), (8, 5, 5)),
        (ReLU(), (8, 5, 5), (8, 5, 5)),
        (Flatten(), (8, 5, 5), (200,)),
        (Dense(120), (200,), (120,)),
        (BatchNorm(1e-3, 0.9), (8, 5, 5), (8, 5, 5)),
        (Dropout(0.5), (8, 5, 5), (8, 5, 5)),
        (GlobalAveragePool(), (8, 5, 4), (8,)),
        (GlobalAveragePool(), (9, 7), (7,)),
        (Embedding(50, 7), (9,), (9, 7)),
        (OneHot(50), (9,), (9, 50)),
        (LSTM(4), (9, 7), (4,)),
        (LSTM(4, bidirectional=True), (9, 7), (8,)),
        (GRU(4), (9, 7), (4,)),
        (Residual((Conv(8, (3, 3), padding=(1, 1)), ReLU())), (8, 5, 5), (8, 5, 5)),
        (Residual((Dense(3),), (Flatten(), Dense(3))), (5,), (3,)),
    ],
)
def test_output_shape(layer, shape, expected):
    assert layer.output_shape(shape) == expected


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Dense(10), (8, 5, 5)),
        (Conv(4, (5, 5)), (200,)),
        (Conv(4, (5, 5)), (3, 4, 4)),
        (MaxPool((2, 2), (2, 2)), (8, 1, 4)),
        (GlobalAveragePool(), (8,)),
        (Embedding(50, 7), (9, 7)),
        (OneHot(50), (3, 32, 32)),
        (LSTM(4), (9,)),
        (GRU(4), (3, 32, 32)),
    ],
)
def test_a_shape_that_does_not_fit_is_an_error(layer, shape):
    with pytest.raises(ValueError, match=type(layer).__name__):
        layer.output_shape(shape)


def test_the_ways_of_a_residual_must_meet():
    with pytest.raises(ValueError, match=r"a residual's body gives \(4,\), its shortcut \(5,\)"):
        Residual((Dense(4),)).output_shape((5,))


def test_parameters_of_recurrent_layers():
    shapes = {n: p.shape for n, p in LSTM(4, bidirectional=True).parameters((9, 7)).items()}
    one = {"weight_ih": (16, 7), "weight_hh": (16, 4), "bias": (16,)}
    assert shapes == one | {f"{name}_reverse": shape for name, shape in one.items()}
    assert {n: p.shape for n, p in GRU(4).parameters((9, 7)).items()} == {
        "weight_ih": (12, 7),
        "weight_hh": (12, 4),
        "bias": (12,),
    }


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
