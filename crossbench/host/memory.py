"""Checks whether a model fits into this machine's memory, before any framework builds it.

The figures are the least that any framework needs, so a model that would run is never refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter

from ..data import synthetic
from ..data.sources import Synthetic
from ..inputs.errors import SpecError
from ..models import Model
from ..models.shortened import shortened
from .machine import total_bytes

PROOF_BYTES = 3 * 8
"""Bytes per parameter in the parity proof: weight, gradient and optimizer state, in float64."""
TRAINING_BYTES = 2 * 4
"""Bytes per parameter in training: weight and gradient, in float32."""
PROOF_EXAMPLES = 4
"""Examples that the parity proof holds in memory at once, in float64."""


def check_memory(model: Model, examples: int = 1) -> None:
    """Raise SpecError if the memory cannot hold the weights, a layer's output, or the data.

    examples: batch size of training on the CPU; 1 if only GPUs train.
    """
    needed, what = max(_needs(model, examples), key=itemgetter(0))
    if needed > total_bytes():
        raise SpecError(
            f"the model {model.name} needs at least {_gib(needed)} of memory for {what}, and this "
            f"machine has {_gib(total_bytes())}: make its layers or the batch smaller"
        )


def _needs(model: Model, examples: int) -> Iterator[tuple[int, str]]:
    """Yield how many bytes must be in memory at once, and for what, for each large need."""
    proved = shortened(model)
    count = proved.parameter_count
    yield PROOF_BYTES * count, f"its weights, gradients and optimizer's state ({count:,} of each)"
    weights = model.parameter_count
    yield TRAINING_BYTES * weights, f"its weights and gradients ({weights:,} of each)"
    for named in proved.all_layers():
        size = math.prod(named.output_shape)
        yield 8 * PROOF_EXAMPLES * size, f"{named.name}'s output in the proof"
    for named in model.all_layers():
        size = math.prod(named.output_shape)
        yield 4 * examples * size, f"{named.name}'s output of {examples:,} examples"
    if isinstance(model.data, Synthetic):
        shapes = model.example_shapes
        size = 1 if shapes.are_pictures else 4
        values = math.prod(shapes.inputs) + math.prod(shapes.labels)
        yield size * values * sum(synthetic.counts(shapes)), "the data"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
