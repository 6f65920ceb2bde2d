"""What the timed run itself proves: the losses of its first steps, and the change of its weights.

The proof of sameness takes a few small batches. Whoever does real work for those alone shows here:
the reference takes the first steps of the timed epoch too, and what an epoch did to the weights is
compared among the frameworks.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from ..adapters.reference import ReferenceWorkload
from ..models import Model, Weights
from ..models.layers import Dropout
from ..results.records import FIRST_EPOCH, MASKED, STEADY_EPOCH
from ..workload import Batches, Job
from .batches import ArrayBatches, StreamedBatches
from .timing import finite

MAX_STEPS, FLOPS = 3, 3e10
"""How many first steps the reference takes: as many as so many FLOPs allow, and at least the loss
of the first one."""
STEADY = 1 + 2**-7
"""A round's steady epochs start from weights so many times the initial ones: whoever remembers what
the first epoch computed, by its data or its weights, gives losses that are not the reference's."""
REPETITION, REPETITIONS = 2**-14, 64
"""On a GPU each repetition of an epoch adds so much to that factor, and so many differ."""
SKETCH = 16
"""Numbers that a weight's change is kept as."""
CHUNK = 2**20  # values at a time
SKETCH_SEED = 67
MASK_SEED = 68


def steps(model: Model, batch_size: int) -> int:
    """Return how many first steps the reference takes, where the epoch has as many."""
    affordable = int(FLOPS / (batch_size * max(1, model.training_flops)))
    return max(1, min(MAX_STEPS, affordable))


def scaled(weights: Weights, factor: float) -> Weights:
    """Return the weights times the factor, in their dtype."""
    return {name: array * array.dtype.type(factor) for name, array in weights.items()}


def first_batches(model: Model, batches: Batches) -> ArrayBatches:
    """Return the epoch's first batches, as many as the reference takes, with dropout masks."""
    first = list(islice(batches, MAX_STEPS))
    size = len(first[0].labels)
    first = first[: steps(model, size)]
    random = np.random.default_rng(MASK_SEED)
    masks = {
        named.name: random.random((len(first), size, *named.input_shape)) >= named.layer.rate
        for named in model.all_layers()
        if isinstance(named.layer, Dropout)
    }
    kind = StreamedBatches if batches.streamed else ArrayBatches
    return kind(
        np.stack([batch.inputs for batch in first]),
        np.stack([batch.labels for batch in first]),
        masks or None,
    )


def reference_losses(
    model: Model, weights: Weights, batches: Batches, dtype: str
) -> dict[str, list[float]]:
    """Return the losses of the first steps by the NumPy reference, by what they are of.

    batches: of the first epoch. weights: the initial ones. Frameworks draw their own dropout masks
    in the timed epochs, so with dropouts the losses are of given masks.
    """
    first = first_batches(model, batches)
    if first.kept:
        return {MASKED: _losses(model, weights, first, dtype)}
    return {
        FIRST_EPOCH: _losses(model, weights, first, dtype),
        STEADY_EPOCH: _losses(model, scaled(weights, STEADY), first, dtype),
    }


def _losses(model: Model, weights: Weights, batches: Batches, dtype: str) -> list[float]:
    workload = ReferenceWorkload(Job(model, "cpu", 1, dtype))
    workload.load_weights(weights)
    *before, last = batches
    return [*(workload.step(batch) for batch in before), workload.loss(last)]


def sketch(before: np.ndarray, after: np.ndarray) -> list[float | None]:
    """Return SKETCH numbers for the change of an array: sums of its values with random signs.

    The norm of the difference of two sketches is that of the changes, as well as chance allows: the
    standard deviation of its square is 35 % (the AMS sketch, Alon, Matias and Szegedy, 1996).
    Changes of up to SKETCH values are kept exactly. None stands for what is not finite.
    """
    random, sums = np.random.default_rng(SKETCH_SEED), np.zeros(SKETCH)
    for start in range(0, before.size, CHUNK):
        part = slice(start, start + CHUNK)
        change = after.ravel()[part].astype(np.float64) - before.ravel()[part]
        change = np.pad(change, (0, -len(change) % SKETCH))
        positive = np.unpackbits(random.integers(0, 256, len(change) // 8, np.uint8))
        sums += np.where(positive, change, -change).reshape(-1, SKETCH).sum(0)
    return finite(sums)
