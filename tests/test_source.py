"""Source code: calls, numbers and statements that are broken into lines as Black does."""

import subprocess
from itertools import product

import numpy as np
import pytest

from crossbench import models
from crossbench.data import Split
from crossbench.data.sources import Augmentation, Synthetic
from crossbench.engine.batches import AugmentedBatches
from crossbench.source.data import python_data
from crossbench.source.statements import Call, bracketed, code
from crossbench.source.training_programs import Block, Training, grouped, shared_blocks


@pytest.mark.parametrize(
    ("value", "text"),
    [(1 - 0.99, "0.01"), (1e-7, "1e-07"), (3, "3"), ((5, 3), "(5, 3)"), ("DTYPE", "DTYPE")],
)
def test_a_value_is_written_without_its_rounding_error(value, text):
    assert code(value) == text


ITEMS = [f"argument{number}" for number in range(4)]


def test_statements_are_broken_as_black_does(tmp_path):
    for number, (width, brackets) in enumerate(product([2, 4, 6, 12], ["()", "[]", "{}"])):
        start, end = "x = f(" if brackets == "()" else f"x = {brackets[0]}", brackets[1]
        items = [f'"{item}": {item}' for item in width * ITEMS]
        if brackets != "{}":
            items = [*ITEMS, Call("function", tuple(width * ITEMS[:2]))]
        (tmp_path / f"program{number}.py").write_text(bracketed(start, items, end) + "\n")
    command = ["ruff", "format", "--isolated", "--diff", tmp_path]
    run = subprocess.run(command, capture_output=True)
    assert run.returncode == 0, run.stdout


def groups(model):
    """Return what `grouped` finds: names of layers, and sizes and numbers of equal blocks."""
    return [
        (len(part.layers), part.count) if isinstance(part, Block) else part.name
        for part in grouped(list(models.get(model).named_layers()))
    ]


def test_equal_blocks_that_follow_one_another_are_one():
    ends = ["embedding1", "positionembedding1"], ["layernorm9", "unembedding1"]
    assert groups("gpt_char") == [*ends[0], (2, 4), *ends[1]]
    blocks = [part for part in groups("resnet63") if isinstance(part, tuple)]
    assert blocks == [(2, 10), (2, 9), (2, 9)]
    assert len(groups("mlp7_relu")) == len(models.get("mlp7_relu").layers)


def test_blocks_that_differ_in_their_width_alone_share_a_function():
    blocks = {
        "block": ("def block():\n    return f(64, 3)", 64),
        "block2": ("def block2():\n    return f(128, 3)", 128),
        "block3": ("def block3():\n    return f(128, 5)", 128),
    }
    functions, lines = shared_blocks(blocks, ["block(), block2(), block3()"])
    assert functions == ["def block(features):\n    return f(features, 3)", blocks["block3"][0]]
    assert lines == ["block(64), block(128), block3()"]


@pytest.mark.parametrize("size", [(10, 10), (10, 30)])
def test_a_programs_augmented_pictures_are_the_rows(size):
    augmentation, shape = Augmentation(shift=0.2, flip=True), (3, *size)
    layers = (models.Flatten(), models.Dense(10))
    model = models.Model(
        *("m", shape, layers, models.SoftmaxCrossEntropy(), models.SGD(0.1), 4, "the tests"),
        Synthetic(augmentation=augmentation),
    )
    training = Training(model, "idiomatic", "cpu", 1, 4, 2, 4, 5, None, "w", "d")
    found = {"np": np, "BATCH_SIZE": 4, "BATCHES": 2, "SEED": 5}
    exec("\n".join(python_data(training).functions[1:]), found)
    random = np.random.default_rng(0)
    split = Split(random.integers(0, 256, (8, *shape), np.uint8), random.integers(0, 10, 8))
    engines = AugmentedBatches(split, 4, 2, augmentation, 5)
    made = found["augmented"](split.inputs, split.labels, 0)
    for (inputs, labels), expected in zip(made, engines, strict=True):
        np.testing.assert_array_equal(inputs, expected.inputs)
        np.testing.assert_array_equal(labels, expected.labels)
