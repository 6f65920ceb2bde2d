"""Writes the code, in Python, that loads a program's examples, and cuts them into batches."""

from __future__ import annotations

import json
from functools import partial

import numpy as np

from ..data import Dataset
from ..data.augmentation import STREAM, margins
from ..data.sources import Augmentation, RandomPositions
from ..models import Model
from .statements import WIDTH, indented
from .training_programs import PythonData, Training


def example_arrays(training: Training, dataset: Dataset) -> dict[str, np.ndarray]:
    """Return the arrays of the file with examples, none where a program reads published files."""
    if training.data is not None:
        return {}
    train = dataset.train
    if not isinstance(training.model.data.augmentation, RandomPositions):  # which draws from all
        train = train.first(training.batches * training.batch_size)
    splits = (("train", train), ("test", dataset.test.first(training.test_examples)))
    return {
        f"{name}_{part}": getattr(split, part)
        for name, split in splits
        for part in ("inputs", "labels")
    }


def python_data(training: Training, channels_last: bool = False) -> PythonData:
    """Return the code for the data of a training."""
    load, path = LOAD_CIFAR10, json.dumps(training.data, ensure_ascii=False)
    if training.data is None:
        load, path = LOAD_ARRAYS, f'Path(__file__).with_name("{training.examples}")'
    return PythonData([load, *_batches(training.model, channels_last)], path)


def _batches(model: Model, channels_last: bool) -> list[str]:
    """Return the functions that yield batches as NumPy arrays."""
    as_arrays = partial(_as_arrays, model, channels_last)
    match model.data.augmentation:
        case RandomPositions():
            made = as_arrays("yield", "tokens[places]", "tokens[places + 1]")
            return [_with(made, RANDOM_BLOCKS.format(stream=STREAM, length=model.input_shape[0]))]
        case Augmentation() as augmentation:
            arrays = ["def arrays(inputs, labels):"]
            arrays += indented(as_arrays("return", "inputs", "labels"))
            batches = _with(["yield arrays(inputs[chosen], labels[chosen])"], BATCHES)
            return ["\n".join(arrays), batches, _augmented(model, augmentation)]
    return [_with(as_arrays("yield", "inputs[chosen]", "labels[chosen]"), BATCHES)]


def _augmented(model: Model, augmentation: Augmentation) -> str:
    """Return the function that yields the batches of an epoch with its pictures changed."""
    height, width = model.input_shape[1:]
    down, right = margins(augmentation, (height, width))
    shifts = SHIFTS if down == right else SHIFTS_OF_EACH
    return AUGMENTED.format(
        stream=STREAM,
        shifts=shifts.format(down=down, right=right),
        drawn=DRAWN if augmentation.flip else NOT_DRAWN,
        flip=FLIP if augmentation.flip else "",
        down=down,
        right=right,
        height=height,
        width=width,
    ).strip()


def _with(last: list[str], text: str) -> str:
    """Return a function whose loop ends with these statements."""
    return "\n".join([text.strip(), *indented(indented(last))])


def _as_arrays(model: Model, channels_last: bool, verb: str, inputs: str, labels: str) -> list[str]:
    """Return the statements that give a batch of examples.

    verb: return or yield. inputs, labels: expressions of the examples.
    """
    is_moved = len(model.input_shape) == 3 and channels_last
    moved = f"{inputs}.transpose(0, 2, 3, 1)" if is_moved else inputs
    if model.vocabulary is not None:
        made = f"{moved}.astype(np.int32)"
    elif model.example_shapes.are_pictures:
        made = f"{moved} / np.float32(255)"
    else:
        made = f"{moved}.astype(np.float32)"
    of_labels = f"{labels}.astype({'np.int64' if model.classes else 'np.float32'})"
    line = f"{verb} {made}, {of_labels}"
    if len(line) <= WIDTH - 8:
        return [line]
    return [f"pictures = {made}", f"{verb} pictures, {of_labels}"]


LOAD_CIFAR10 = '''
def load_data():
    """Read CIFAR-10's binary version: a label byte, and the red, green and blue planes."""
    for names in [f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]:
        files = [np.fromfile(options.data / name, np.uint8) for name in names]
        records = np.concatenate(files).reshape(-1, 3073)
        yield records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
'''
LOAD_ARRAYS = """
def load_data():
    arrays = np.load(options.data)
    for name in ("train", "test"):
        yield arrays[f"{name}_inputs"], arrays[f"{name}_labels"]
"""
BATCHES = """
def batches(inputs, labels, examples):
    for start in range(0, examples, BATCH_SIZE):
        chosen = slice(start, min(start + BATCH_SIZE, examples))
"""
DRAWN = "flipped = random.random(BATCH_SIZE) < 0.5"
NOT_DRAWN = "random.random(BATCH_SIZE)  # of flips, which there are none of"
SHIFTS = "down, right = random.integers(-{down}, {down} + 1, (2, BATCH_SIZE))"
SHIFTS_OF_EACH = """down = random.integers(-{down}, {down} + 1, BATCH_SIZE)
        right = random.integers(-{right}, {right} + 1, BATCH_SIZE)"""
FLIP = "        shifted[flipped] = shifted[flipped, :, :, ::-1]\n"
AUGMENTED = '''
def augmented(inputs, labels, epoch):
    """Shift and flip the pictures at random, anew in each epoch."""
    random = np.random.default_rng([SEED, {stream}, epoch])
    for start in range(0, BATCHES * BATCH_SIZE, BATCH_SIZE):
        chosen = slice(start, start + BATCH_SIZE)
        {shifts}
        {drawn}
        margin = ((0, 0), (0, 0), ({down}, {down}), ({right}, {right}))
        padded = np.pad(inputs[chosen], margin, mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, ({height}, {width}), (2, 3))
        shifted = windows[np.arange(BATCH_SIZE), :, {down} - down, {right} - right]
{flip}        yield arrays(shifted, labels[chosen])
'''
RANDOM_BLOCKS = '''
def augmented(inputs, labels, epoch):
    """Draw blocks that begin anywhere in the text, anew in each epoch."""
    random = np.random.default_rng([SEED, {stream}, epoch])
    tokens = inputs.reshape(-1)
    for _ in range(BATCHES):
        starts = random.integers(0, len(tokens) - {length}, BATCH_SIZE)
        places = starts[:, None] + np.arange({length})
'''
