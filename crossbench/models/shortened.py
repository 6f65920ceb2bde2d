"""Shorten a model for its proof, which trains it in float64 on a CPU.

An embedding gets fewer rows, and a large model fewer of its equal blocks, and shorter sequences or
smaller pictures. The timed run trains the whole model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from . import Embedding, Layer, Model, Unembedding
from .model import with_inner_layers

MAX_EMBEDDING_ROWS, MAX_TIED_ROWS = 50_000, 2_000
"""Rows of an embedding at most: a row that no example uses does nothing. Fewer where the last layer
shares them: its logits would take gigabytes."""
MAX_EXAMPLE_FLOPS = 5e9
"""Where training takes more FLOPs for an example, some of the layers, places and pixels are left
out."""
MAX_EQUAL_BLOCKS, MAX_LENGTH, MIN_SIZE = 2, 64, 64
"""Equal blocks that follow one another, and places of a sequence, that are kept of such a model;
the sides of its pictures are halved until it is small enough, but not below this."""


def shortened(model: Model) -> Model:
    """Return the model that its proof trains."""
    is_tied = any(isinstance(layer, Unembedding) for layer in model.layers)
    most_rows = MAX_TIED_ROWS if is_tied else MAX_EMBEDDING_ROWS
    layers = tuple(
        replace(layer, vocabulary=min(layer.vocabulary, most_rows))
        if isinstance(layer, Embedding | Unembedding)
        else layer
        for layer in model.layers
    )
    model = replace(model, weights=None)  # the proof has its own
    smaller = replace(model, layers=layers)
    if smaller.training_flops <= MAX_EXAMPLE_FLOPS:
        return smaller
    kept = without_repetitions(layers)
    own_paths = model.own_paths if len(kept) == len(layers) else None
    smaller = replace(model, layers=kept, own_paths=own_paths)
    if len(model.input_shape) == 3:
        return _with_smaller_pictures(smaller)
    if smaller.training_flops <= MAX_EXAMPLE_FLOPS or model.vocabulary is None:
        return smaller
    return replace(smaller, input_shape=(min(MAX_LENGTH, *model.input_shape),))


def _with_smaller_pictures(model: Model) -> Model:
    """Return the model for pictures whose sides are halved until it is small enough, or until one
    of its windows is larger than what it slides over.
    """
    while model.training_flops > MAX_EXAMPLE_FLOPS and min(model.input_shape[1:]) >= 2 * MIN_SIZE:
        channels, height, width = model.input_shape
        try:
            model = replace(model, input_shape=(channels, height // 2, width // 2))
        except ValueError:
            break
    return model


def without_repetitions(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return the layers with at most MAX_EQUAL_BLOCKS of equal blocks that follow one another."""
    return _without_repetitions(layers)[0]


def _without_repetitions(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], list[int]]:
    """Return the layers that are kept, and for each layer the place among them of its equal."""
    kept: list[Layer] = []
    places: list[int] = []
    for layer in layers:
        places.append(len(kept))
        kept.append(layer)
        for size in range(1, len(kept) // (MAX_EQUAL_BLOCKS + 1) + 1):
            blocks = [kept[len(kept) - n * size :][:size] for n in range(1, MAX_EQUAL_BLOCKS + 2)]
            if all(block == blocks[0] for block in blocks):
                del kept[-size:]
                places = [at if at < len(kept) else at - size for at in places]
                break
    return tuple(kept), places


def in_whole_model(model: Model, parameters: Iterable[str]) -> list[str]:
    """Return the parameters of the model that those of its proof stand for, by full name."""
    standing = _stands_for(model)
    split = (parameter.partition(".") for parameter in parameters)
    return [f"{layer}.{name}" for proved, _, name in split for layer in standing[proved]]


def _stands_for(model: Model) -> dict[str, list[str]]:
    """Return the layers of the model that each layer of its proof stands for, by name."""
    smaller = list(shortened(model).named_layers())
    _, places = _without_repetitions(model.layers)
    if len(smaller) == len(model.layers):
        places = list(range(len(smaller)))
    found: dict[str, list[str]] = {}
    for named, place in zip(model.named_layers(), places, strict=True):
        pairs = zip(with_inner_layers([smaller[place]]), with_inner_layers([named]), strict=True)
        for proved, layer in pairs:
            found.setdefault(proved.name, []).append(layer.name)
    return found


def left_out(model: Model) -> list[str]:
    """Return what the proof has less of than the model, in a few words each."""
    smaller, words = shortened(model), list[str]()
    if len(smaller.layers) < len(model.layers):
        words.append(f"{len(smaller.layers)} of {len(model.layers)} layers (equal blocks repeat)")
    if len(model.input_shape) == 3 and smaller.input_shape != model.input_shape:
        (height, width), whole = smaller.input_shape[1:], model.input_shape[1:]
        words.append(f"pictures of {height} by {width}, not {whole[0]} by {whole[1]}")
    elif smaller.input_shape != model.input_shape:
        words.append(f"{smaller.input_shape[0]:,} of {model.input_shape[0]:,} places")
    if smaller.vocabulary != model.vocabulary:
        words.append(f"{smaller.vocabulary:,} of {model.vocabulary:,} token ids")
    return words
