"""Write the code, in Julia, that loads the examples of a training program.

Also makes the arrays of its file with examples. CIFAR-10 is read from the published files; that
file has all other examples, and what NumPy's random numbers make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data import Dataset, Split
from ..data.augmentation import draw_changes, draw_starts, epoch_random
from ..data.sources import Augmentation, RandomPositions
from ..data.synthetic import MAX_BYTE_CLASSES
from ..models.model import Model
from ..models.parameters import Shape
from ..source.training_programs import EPOCHS, Training
from .source import LINE, beside, julia_string


@dataclass(frozen=True)
class JuliaData:
    """Holds the code that loads examples.

    path: the expression of where the data is. functions: those that load examples, and make batches
    of them. train and test: statements that load the examples to train on, and those to test on,
    which are among the first ones where both are in one file.
    """

    path: str
    functions: Sequence[str]
    train: Sequence[str]
    test: Sequence[str]


def julia_data(training: Training, loader: str, targets: str) -> JuliaData:
    """Return the code for the data of a training.

    loader: the function that returns batches of examples. targets: the expression of the loss'
    targets in `labels`, which are token ids from 1 or classes from 0.
    """
    model = training.model
    functions = [_to_batch(model, targets), *_augmented(training, loader)]
    drawn = [_drawn(model)] * training.is_augmented
    if training.data is not None:
        names = 'load_data(["data_batch_$i.bin" for i = 1:5], BATCHES * BATCH_SIZE)'
        drawn += [f"read!({beside(training.examples)}, drawn)"] * training.is_augmented
        test = ['test = load_data(["test_batch.bin"], TEST)'] * model.has_accuracy
        path = julia_string(training.data)
        return JuliaData(path, [LOAD_CIFAR10, *functions], [f"train = {names}", *drawn], test)
    drawn += ["read!(file, drawn)"] * training.is_augmented
    if isinstance(model.data.augmentation, RandomPositions):
        load = ["train = collect(reinterpret(Int32, read(file)))  # token ids"]
    else:
        functions.insert(0, _load_arrays(model))
        load = ["train = load_data(file, BATCHES * BATCH_SIZE)"]
        load += ["test = load_data(file, TEST)"] * model.has_accuracy
    lines = ["file = open(DATA)  # the arrays follow one another", *drawn, *load, "close(file)"]
    return JuliaData(beside(training.examples), functions, lines, [])


def example_arrays(training: Training, dataset: Dataset) -> dict[str, np.ndarray]:
    """Return the arrays of the file with examples, in its order: what is drawn for each epoch, and
    the examples that the program uses, where it does not read them from published files.
    """
    model = training.model
    found: dict[str, np.ndarray] = {}
    if training.is_augmented:
        drawn = [_draw(training, dataset.train, epoch) for epoch in range(EPOCHS)]
        found["drawn"] = np.stack(drawn)
    if training.data is not None:
        return found
    if isinstance(model.data.augmentation, RandomPositions):
        return found | {"tokens": _as_read(model, dataset.train.inputs.reshape(-1))}
    used = {"train": dataset.train.first(training.batches * training.batch_size)}
    if model.has_accuracy:
        used["test"] = dataset.test.first(training.test_examples)
    for name, split in used.items():
        found[f"{name}_inputs"] = _as_read(model, split.inputs)
        found[f"{name}_labels"] = _as_read(model, split.labels, are_labels=True)
    return found


def _draw(training: Training, examples: Split, epoch: int) -> np.ndarray:
    """Return what is drawn at random for an epoch: the places, from 1, at which blocks begin
    (batches, batch), or the changes (examples, 3) of pictures: down, right, flipped.
    """
    augmentation, size = training.model.data.augmentation, training.batch_size
    random = epoch_random(training.seed, epoch)
    drawn = []
    for _ in range(training.batches):
        if isinstance(augmentation, Augmentation):
            changes = draw_changes(size, examples.inputs.shape[2:], augmentation, random)
            drawn.append(np.stack([changes.down, changes.right, changes.flipped], axis=1))
        else:
            drawn.append(draw_starts(examples, size, random)[None] + 1)
    return np.concatenate(drawn).astype(np.int32)


def _as_read(model: Model, array: np.ndarray, are_labels: bool = False) -> np.ndarray:
    """Return an array as the program reads it; token ids count from 1."""
    is_token = model.vocabulary and (not are_labels or model.example_shapes.are_language)
    return (array + 1 if is_token else array).astype(_number_type(model, are_labels).lower())


def _number_type(model: Model, are_labels: bool = False) -> str:
    """Return the type, in Julia, of the inputs or the labels that the program reads."""
    shapes = model.example_shapes
    if are_labels:
        if shapes.classes is None:
            return "Float32"
        return "Int32" if shapes.vocabulary or shapes.classes > MAX_BYTE_CLASSES else "UInt8"
    if shapes.vocabulary:
        return "Int32"
    return "UInt8" if shapes.are_pictures else "Float32"


def _load_arrays(model: Model) -> str:
    """Return the function that reads examples from a file of arrays."""

    def sizes(shape: Shape) -> str:
        return ", ".join(map(str, (*shape[::-1], "examples")))

    return LOAD_ARRAYS.format(
        inputs=sizes(model.input_shape),
        labels=sizes(model.label_shape),
        type=_number_type(model),
        label_type=_number_type(model, are_labels=True),
    )


def _drawn(model: Model) -> str:
    """Return the statement that makes the array of what was drawn at random."""
    sizes = "3, BATCHES * BATCH_SIZE"
    if isinstance(model.data.augmentation, RandomPositions):
        sizes = "BATCH_SIZE, BATCHES"
    made = f"drawn = Array{{Int32}}(undef, {sizes}, {EPOCHS})"
    return f"# drawn at random for {EPOCHS} epochs; further ones repeat it\n{made}"


def _to_batch(model: Model, targets: str) -> str:
    """Return the function that makes a batch of examples, in the form of the model and the loss."""
    inputs = "inputs"
    if model.vocabulary is None:
        are_pictures = model.example_shapes.are_pictures
        inputs = "T.(inputs ./ 255.0f0)" if are_pictures else "T.(inputs)"
    start, batch = "to_batch(inputs, labels) =", f"({inputs}, {targets})"
    return f"{start} {batch}" if len(f"{start} {batch}") <= LINE else f"{start}\n    {batch}"


def _augmented(training: Training, loader: str) -> list[str]:
    """Return the functions that make the batches of an epoch, if each epoch has others."""
    model = training.model
    moved = " |> device" if training.device == "gpu" else ""
    match model.data.augmentation:
        case RandomPositions():
            last = model.input_shape[0] - 1
            return [RANDOM_BLOCKS.format(last=last, moved=moved, epochs=EPOCHS)]
        case Augmentation(flip=flip):
            height, width = model.input_shape[1:]
            flips = {"drawn": "down, right, flipped", "flip": FLIP} if flip else NO_FLIPS
            changed = CHANGE.format(width=width, height=height, **flips)
            given = {"loader": loader, "moved": moved, "epochs": EPOCHS}
            return [changed, AUGMENTED.format(**given)]
    return []


LOAD_CIFAR10 = '''
"""Read CIFAR-10's binary version: a label byte, and the red, green and blue planes."""
function load_data(names, examples)
    bytes = reduce(vcat, [read(joinpath(DATA, name)) for name in names])
    records = reshape(bytes, 3073, :)[:, 1:examples]
    return reshape(records[2:end, :], 32, 32, 3, :), records[1, :]
end
'''
LOAD_ARRAYS = """
function load_data(file, examples)
    inputs = read!(file, Array{{{type}}}(undef, {inputs}))
    return inputs, read!(file, Array{{{label_type}}}(undef, {labels}))
end
"""
FLIP = "        flipped == 1 && reverse!(columns)\n"
NO_FLIPS = {"drawn": "down, right", "flip": ""}
CHANGE = '''
"""Shift and flip pictures as it was drawn for them; the pixels at the edge are repeated."""
function change(pictures, drawn)
    changed = similar(pictures)
    for (i, ({drawn})) in enumerate(eachcol(drawn))
        columns = clamp.((1:{width}) .- right, 1, {width})
        rows = clamp.((1:{height}) .- down, 1, {height})
{flip}        changed[:, :, :, i] = pictures[columns, rows, :, i]
    end
    return changed
end
'''
AUGMENTED = '''
"""Return the batches of an epoch, whose pictures are changed just before their step."""
function augmented(train, drawn, epoch)
    examples = (train..., drawn[:, :, mod1(epoch, {epochs})])
    loader = {loader}(examples; batchsize = BATCH_SIZE)
    return (to_batch(change(x, d), labels){moved} for (x, labels, d) in loader)
end
'''
RANDOM_BLOCKS = '''
"""Return the batches of an epoch: blocks that begin at the places drawn for it."""
function augmented(tokens, drawn, epoch)
    places = ((0:{last}) .+ starts' for starts in eachcol(drawn[:, :, mod1(epoch, {epochs})]))
    return (to_batch(tokens[at], tokens[at.+1]){moved} for at in places)
end
'''
