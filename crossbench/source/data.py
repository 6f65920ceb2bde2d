"""Writes the code, in Python, that loads the examples of a training program, and cuts them into
batches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..data import Dataset, synthetic
from ..data.augmentation import STREAM
from ..data.dataset import CLASSES
from ..data.sources import (
    CIFAR10,
    IMDB,
    MNIST,
    Augmentation,
    RandomPositions,
    Source,
    Text,
    TinyShakespeare,
)
from ..models import Model
from .statements import WIDTH, indented

if TYPE_CHECKING:
    from .training_programs import Training


@dataclass(frozen=True)
class PythonData:
    """Holds the code that loads examples and cuts them into batches.

    imports: modules of the standard library. functions: `load_data`, which yields the examples to
    train on and those to test on, each as inputs and labels; `batches`, which yields them batch by
    batch, and `augmented`, which yields those of an epoch. path: the expression of where the data
    is; None where a formula makes it.
    """

    imports: Sequence[str]
    functions: Sequence[str]
    path: str | None


def needs_arrays(training: Training) -> bool:
    """Return whether a program in Python reads the examples from a file that crossbench wrote."""
    source = training.model.data
    if training.data is not None:
        return isinstance(source, IMDB)
    return not (training.is_synthetic and isinstance(source, CIFAR10 | MNIST))


def example_arrays(training: Training, dataset: Dataset) -> dict[str, np.ndarray]:
    """Return the arrays of the file with examples, none where a program in Python needs none."""
    if not needs_arrays(training):
        return {}
    train = dataset.train
    if not isinstance(training.model.data.augmentation, RandomPositions):  # which draws from all
        train = train.first(training.batches * training.batch_size)
    return {
        f"{name}_{part}": getattr(split, part)
        for name, split in (("train", train), ("test", dataset.test))
        for part in ("inputs", "labels")
    }


def python_data(training: Training, channels_last: bool = False) -> PythonData:
    """Return the code for the data of a training."""
    imports: list[str] = []
    path: str | None = json.dumps(training.data, ensure_ascii=False)
    if needs_arrays(training):
        load, path = LOAD_ARRAYS, f'Path(__file__).with_name("{training.examples}")'
    elif training.data is None:
        load, path = _formula(training), None
    else:
        load = _published(training.model.data)
        imports = ["gzip"] if isinstance(training.model.data, MNIST) else []
    return PythonData(imports, [load, *_batches(training.model, channels_last)], path)


def _published(source: Source) -> str:
    match source:
        case CIFAR10():
            return LOAD_CIFAR10
        case MNIST():
            return LOAD_MNIST
        case Text(length=length, step=step):
            return LOAD_TEXT.format(length=length, size=length + 1, step=step)
        case TinyShakespeare(length=length):
            return LOAD_BLOCKS.format(length=length)
    raise TypeError(f"{type(source).__name__} is not a source of published data")


def _formula(training: Training) -> str:
    """Return the function that makes synthetic pictures in the shapes of CIFAR-10 or MNIST."""
    if isinstance(training.model.data, CIFAR10):
        stream, train, test = 10, synthetic.TRAIN, synthetic.TEST
    else:
        stream, train, test = 11, 60_000, 10_000
    channels, size, _ = training.model.input_shape
    chunk = max(1, synthetic.CHUNK * 32 * 32 // size**2)
    given = {"stream": stream, "train": train, "test": test, "classes": CLASSES, "chunk": chunk}
    return MAKE_PICTURES.format(channels=channels, size=size, **given)


def _batches(model: Model, channels_last: bool) -> list[str]:
    """Return the functions that yield batches as NumPy arrays."""
    as_arrays = partial(_as_arrays, model, channels_last)
    match model.data.augmentation:
        case RandomPositions():
            made = as_arrays("yield", "tokens[places]", "tokens[places + 1]")
            return [_with(made, RANDOM_BLOCKS.format(stream=STREAM, length=model.input_shape[0]))]
        case Augmentation(shift=shift, flip=flip):
            size = model.input_shape[1]
            flips = {"drawn": DRAWN, "flip": FLIP} if flip else {"drawn": NOT_DRAWN, "flip": ""}
            given = {"shift": int(shift * size + 1e-9), "size": size}
            arrays = ["def arrays(inputs, labels):"]
            arrays += indented(as_arrays("return", "inputs", "labels"))
            batches = _with(["yield arrays(inputs[chosen], labels[chosen])"], BATCHES)
            return [
                "\n".join(arrays),
                batches,
                AUGMENTED.format(stream=STREAM, **flips, **given).strip(),
            ]
    return [_with(as_arrays("yield", "inputs[chosen]", "labels[chosen]"), BATCHES)]


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
LOAD_MNIST = '''
def read(prefix, header):
    """Read a file of MNIST, which may be compressed, without its header."""
    path = min(options.data.glob(f"{prefix}-ubyte*"))
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    return np.frombuffer(content, np.uint8, offset=header)


def load_data():
    for prefix in ("train", "t10k"):
        images = read(f"{prefix}-images-idx3", 16).reshape(-1, 1, 28, 28)
        yield images, read(f"{prefix}-labels-idx1", 8)
'''
LOAD_TEXT = '''
def load_data():
    """Cut the text into pieces of {length} characters, each labelled with the next one."""
    text = options.data.read_text("utf-8").lower()
    _, tokens = np.unique(list(text), return_inverse=True)
    end = len(tokens) - len(tokens) // 10  # the last tenth is to test on
    for part in (tokens[:end], tokens[end:]):
        windows = np.lib.stride_tricks.sliding_window_view(part.astype(np.int32), {size})
        yield windows[::{step}, :-1], windows[::{step}, -1]
'''
LOAD_BLOCKS = '''
def load_data():
    """Cut the text into blocks of {length} characters, each labelled with the next one."""
    _, tokens = np.unique(list(options.data.read_text("utf-8")), return_inverse=True)
    end = len(tokens) - len(tokens) // 10  # the last tenth is to test on
    for part in (tokens[:end].astype(np.int32), tokens[end:].astype(np.int32)):
        used = (len(part) - 1) // {length} * {length}
        yield part[:used].reshape(-1, {length}), part[1 : used + 1].reshape(-1, {length})
'''
LOAD_ARRAYS = """
def load_data():
    arrays = np.load(options.data)
    for name in ("train", "test"):
        yield arrays[f"{name}_inputs"], arrays[f"{name}_labels"]
"""
MAKE_PICTURES = '''
def uniform(random, n, *ranges):
    low, high = np.transpose(ranges)
    return random.uniform(low, high, (n, len(ranges))).astype(np.float32).T


def gratings(angle, waves, phase):
    """Make sine waves of a direction, a number and a phase, a picture each."""
    y, x = np.mgrid[0:{size}, 0:{size}, 0:1][:2].astype(np.float32) / {size}
    across = x * np.cos(angle) + y * np.sin(angle)
    return np.sin(2 * np.pi * waves * across + phase)


def make_pictures(labels, random):
    """Make a grating of each picture's class, another one at random, a tint and noise."""
    n, number = len(labels), labels.astype(np.float32)
    hue = number[:, None] * np.float32(2 * np.pi / {classes})
    hue = hue + np.array([0, 2.1, 4.2], np.float32)
    tint = 0.1 * random.standard_normal((n, {channels}), np.float32)
    tint = 0.15 * np.sin(hue[:, :{channels}]) + tint
    phase, contrast = uniform(random, n, (0, 2 * np.pi), (0.2, 0.4))
    angle = number * np.float32(np.pi / {classes})
    grating = contrast * gratings(angle, 2 + number % 3, phase)
    other = uniform(random, n, (0, np.pi), (1, 6), (0, 2 * np.pi))
    light = (grating + 0.25 * gratings(*other)).transpose(2, 0, 1)[:, None]
    noise = 0.3 * random.random((n, {channels}, {size}, {size}), np.float32) - 0.15
    light = tint[:, :, None, None] + light + noise
    return (1 / (1 + np.exp(-4 * light)) * 255 + 0.5).astype(np.uint8)


def load_data():
    """Make the first pictures, {chunk} at a time: as many as are used, or a few more."""
    sizes = ({train}, BATCHES * BATCH_SIZE), ({test}, TEST)
    for (n, used), random in zip(sizes, np.random.default_rng([SEED, {stream}]).spawn(2)):
        labels = random.integers(0, {classes}, n, dtype=np.uint8)
        parts = np.split(labels, range({chunk}, n, {chunk}))[: -(-used // {chunk})]
        yield np.concatenate([make_pictures(part, random) for part in parts]), labels
'''
BATCHES = """
def batches(inputs, labels, examples):
    for start in range(0, examples, BATCH_SIZE):
        chosen = slice(start, min(start + BATCH_SIZE, examples))
"""
DRAWN = "flipped = random.random(BATCH_SIZE) < 0.5"
NOT_DRAWN = "random.random(BATCH_SIZE)  # of flips, which there are none of"
FLIP = "        shifted[flipped] = shifted[flipped, :, :, ::-1]\n"
AUGMENTED = '''
def augmented(inputs, labels, epoch):
    """Shift and flip the pictures at random, anew in each epoch."""
    random = np.random.default_rng([SEED, {stream}, epoch])
    for start in range(0, BATCHES * BATCH_SIZE, BATCH_SIZE):
        chosen = slice(start, start + BATCH_SIZE)
        down, right = random.integers(-{shift}, {shift} + 1, (2, BATCH_SIZE))
        {drawn}
        margin = ((0, 0), (0, 0), ({shift}, {shift}), ({shift}, {shift}))
        padded = np.pad(inputs[chosen], margin, mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, ({size}, {size}), (2, 3))
        shifted = windows[np.arange(BATCH_SIZE), :, {shift} - down, {shift} - right]
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
