import pytest

from crossbench.models.layers import Conv, Dense, Flatten, MaxPool, ReLU


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Conv(16, (5, 5)), (3, 32, 32), (16, 28, 28)),
        (Conv(4, (3, 5), stride=(2, 1), padding=(1, 2)), (3, 9, 7), (4, 5, 7)),
        (MaxPool((2, 2), (2, 2)), (8, 11, 10), (8, 5, 5)),
        (ReLU(), (8, 5, 5), (8, 5, 5)),
        (Flatten(), (8, 5, 5), (200,)),
        (Dense(120), (200,), (120,)),
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
    ],
)
def test_a_shape_that_does_not_fit_is_an_error(layer, shape):
    with pytest.raises(ValueError, match=type(layer).__name__):
        layer.output_shape(shape)


def test_flops_count_a_multiply_add_as_two():
    # one output of a 5x5 kernel over 3 channels is 75 multiply-adds
    assert Conv(16, (5, 5)).forward_flops((3, 32, 32)) == 2 * 75 * 16 * 28 * 28
    assert Dense(120).forward_flops((200,)) == 2 * 200 * 120
