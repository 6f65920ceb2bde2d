"""Load the examples of a run, and fit its model to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from . import data as datasets
from .data.sources import RandomPositions
from .host.memory import check_memory
from .inputs.errors import SpecError
from .models import Model
from .results.settings import Data, Settings


def load_examples(
    model: Model,
    settings: Settings,
    batch_sizes: Collection[int],
    limits: tuple[int | None, int | None],
) -> tuple[Model, datasets.Dataset, Data]:
    """Return the model that fits the data, the examples that are used, and their description, which
    has no checksum yet.

    limits: the most batches and the most examples per epoch.
    """
    largest, (most_batches, most_examples) = max(batch_sizes), limits
    given = [n for n in (most_examples, most_batches and most_batches * largest) if n is not None]
    most = min(given, default=None)
    dataset = datasets.load(model.data, settings.data, settings.seed, model.example_shapes, most)
    fitted, examples = _fit_to_data(model, dataset), len(dataset.train)
    if largest > examples:
        raise SpecError(f"batch_size is {largest}, but there are only {examples} examples")
    data = Data(dataset.name, "", examples, len(dataset.test), *limits, dataset.note)
    used = max(size * data.batches(size) for size in batch_sizes)
    if most is not None and not isinstance(model.data.augmentation, RandomPositions):
        dataset = replace(dataset, train=dataset.train.first(used))
    if all(data.is_cut(size) for size in batch_sizes):
        dataset = replace(dataset, test=dataset.test.first(used))
    return fitted, dataset, replace(data, test_examples=len(dataset.test))


def _fit_to_data(model: Model, dataset: datasets.Dataset) -> Model:
    """Return the model with the data's vocabulary size.

    Raises SpecError if its input shape, vocabulary, label shape or classes do not match the data.
    """
    model, train = model.with_vocabulary(dataset.vocabulary), dataset.train
    check_memory(model)
    vocabulary = dataset.vocabulary or 0
    if model.input_shape != train.inputs.shape[1:]:
        mismatch = f"examples of shape {model.input_shape}, not {train.inputs.shape[1:]}"
    elif vocabulary > (model.vocabulary or 0):
        mismatch = f"a vocabulary of {model.vocabulary or 0:,}, not {vocabulary:,}"
    elif model.label_shape != train.labels.shape[1:]:
        mismatch = f"{_kind(model.label_shape)}, not {_kind(train.labels.shape[1:])}"
    elif model.classes is not None and (labels := 1 + int(train.labels.max())) > model.classes:
        mismatch = f"{model.classes:,} labels, not {labels:,}"
    else:
        return model
    raise SpecError(
        f"the model {model.name} is for {mismatch}, as {dataset.name} has: name the model's own "
        "data, as in Model(..., data=MNIST()), or none, and examples are made for it"
    )


def _kind(label_shape: tuple[int, ...]) -> str:
    return f"targets of shape {label_shape}" if label_shape else "classes"
