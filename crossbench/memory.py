"""Whether a model fits into this machine's memory, told before anything is built of it.

The figures are the least that any framework needs, so that no model is refused that would run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter

import psutil

from .data.sources import Pictures
from .data.synthetic import LARGE_TEST, LARGE_TRAIN
from .errors import SpecError
from .models import Model
from .models.layers import Embedding

PROOF_BYTES = 3 * 8  # of a weight, its gradient and the optimizer's state, in float64
TRAINING_BYTES = 2 * 4  # of a weight and its gradient, in float32
PROOF_EXAMPLES = 4  # that the proof has in memory at once, in float64


def check_memory(model: Model, examples: int = 1) -> None:
    """Raise SpecError where the memory cannot hold the model, a layer's output, or the data.

    examples: of a batch that is trained on the CPU.
    """
    needed, what = max(_needs(model, examples), key=itemgetter(0))
    if needed > total_bytes():
        raise SpecError(
            f"the model {model.name} needs at least {_gib(needed)} of memory for {what}, and this "
            f"machine has {_gib(total_bytes())}: make its layers or the batch smaller"
        )


def total_bytes() -> int:
    """Return the size of this machine's memory."""
    total: int = psutil.virtual_memory().total
    return total


def _needs(model: Model, examples: int) -> Iterator[tuple[int, str]]:
    """Yield how many bytes are needed at once, and what for."""
    layers = list(model.all_layers())
    # the proof takes some rows of an embedding, the training all of them
    embedded = sum(
        p.size for n in layers if isinstance(n.layer, Embedding) for p in n.parameters.values()
    )
    proved = model.parameter_count - embedded
    yield PROOF_BYTES * proved, f"its weights, gradients and optimizer's state ({proved:,} of each)"
    weights = model.parameter_count
    yield TRAINING_BYTES * weights, f"its weights and gradients ({weights:,} of each)"
    for named in layers:
        size = math.prod(named.output_shape)
        yield 8 * PROOF_EXAMPLES * size, f"{named.name}'s output in the proof"
        yield 4 * examples * size, f"{named.name}'s output of {examples:,} examples"
    if isinstance(model.data, Pictures):
        pixels = 3 * model.data.size**2
        yield (LARGE_TRAIN + LARGE_TEST) * pixels, "the pictures"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
