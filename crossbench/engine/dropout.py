"""A probe of a framework's own dropout, whose masks are given in the rest of the proof.

A step of a dense layer from weights of 0 tells the mask of every example: its inputs are ones, and
each example has a label of its own, so the gradient is a known mixture of the masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..models import Model
from ..models.layers import Dense, Dropout, Flatten
from ..models.training import SGD, SoftmaxCrossEntropy
from ..workload import Job, Workload
from .batches import ArrayBatches

EXAMPLES, SHAPE = 128, (16, 16, 16)
"""524,288 draws in a step: one rate of three that is off by 0.01 is 8 standard deviations away."""
RATE = 1e-4
"""The learning rate: so small that the second step's softmax is the first one's, to 1 %."""
DEVIATIONS = 6.0
"""Standard deviations that each count may be off. A right dropout fails one of the five once in
100 million times, and as the draws have a seed, always or never."""
SCALE_BOUND = 1e-2
"""How far what is kept may be from 1 / (1 - rate), relatively."""


def probe(build: Callable[[Job], Workload], job: Job) -> dict[str, float | None]:
    """Return how far the masks of the model's dropouts are from what they should be.

    By what is counted, 1 for as far as is allowed, None for not finite; empty where the model has
    no dropout. The dropouts follow one another, so that draws they share show in the share kept.
    """
    rates = [n.layer.rate for n in job.model.all_layers() if isinstance(n.layer, Dropout)]
    if not rates:
        return {}
    workload = build(replace(job, model=probe_model(rates)))
    first, second = _inputs_of_dense(workload)
    kept = math.prod(1 - rate for rate in _several(rates))
    found = compare(first, second, kept)
    return {name: float(value) if math.isfinite(value) else None for name, value in found.items()}


def probe_model(rates: list[float]) -> Model:
    *before, last = _several(rates)
    layers = (*map(Dropout, before), Flatten(), Dropout(last), Dense(EXAMPLES + 1))
    return Model("dropout", SHAPE, layers, SoftmaxCrossEntropy(), SGD(RATE), EXAMPLES, "the proof")


def compare(first: np.ndarray, second: np.ndarray, kept: float) -> dict[str, float]:
    """Return the probe's figures of what the dropouts made of ones in two steps.

    first, second: (examples, values). kept: the share that should be.
    """
    masks = [inputs > 0.5 / kept for inputs in (first, second)]
    both, variance = np.stack(masks), kept * (1 - kept)
    _, examples, values = both.shape
    per_value, per_example = masks[0].sum(0), masks[0].sum(1)
    alike = kept**2 + (1 - kept) ** 2
    deviations = {
        "the share of values kept": _deviations(both.sum(), both.size, kept),
        "the independence of examples": _spread(per_value, kept * examples, variance * examples),
        "the independence of values": _spread(per_example, kept * values, variance * values),
        "the independence of steps": _deviations((masks[0] == masks[1]).sum(), both[0].size, alike),
    }
    scale = np.abs(first - masks[0] / kept).max() * kept
    found = {name: abs(value) / DEVIATIONS for name, value in deviations.items()}
    return found | {"the scale of values kept": float(scale / SCALE_BOUND)}


def _several(rates: list[float]) -> list[float]:
    """Return two rates at least: one dropout comes twice."""
    return rates if len(rates) > 1 else 2 * rates


def _inputs_of_dense(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Return what the dropouts made of ones in two steps, each (examples, values)."""
    values = math.prod(SHAPE)
    weights = {
        "dense1.weight": np.zeros((EXAMPLES + 1, values), np.float32),
        "dense1.bias": np.zeros(EXAMPLES + 1, np.float32),
    }
    workload.load_weights(weights)
    ones = np.ones((1, EXAMPLES, *SHAPE), np.float32)
    workload.place(ArrayBatches(ones, np.arange(EXAMPLES)[None]))
    found, before = [], weights["dense1.weight"]
    for _ in range(2):
        workload.train_epoch()
        after = workload.weights()["dense1.weight"]
        gradient = (before.astype(np.float64) - after) / RATE
        found.append(np.linalg.lstsq(_mixture(), gradient, rcond=None)[0])
        before = after
    return found[0], found[1]


def _mixture() -> np.ndarray:
    """Return (softmax - label) / examples of logits that are all 0, (labels, examples)."""
    mixture = np.full((EXAMPLES + 1, EXAMPLES), 1 / (EXAMPLES + 1))
    np.fill_diagonal(mixture, 1 / (EXAMPLES + 1) - 1)
    return mixture / EXAMPLES


def _deviations(count: float, n: int, share: float) -> float:
    """Return the standard deviations of a count of n from its share."""
    return _over(float(count) - n * share, math.sqrt(n * share * (1 - share)))


def _spread(counts: np.ndarray, mean: float, variance: float) -> float:
    """Return the standard deviations of the counts' variance from its own (chi-square, by the
    cube root of E. Wilson and M. Hilferty, 1931).
    """
    n = len(counts)
    ratio = _over(float(((counts - mean) ** 2).sum()), n * variance) if variance else 1.0
    return (np.cbrt(ratio) - (1 - 2 / (9 * n))) / math.sqrt(2 / (9 * n))


def _over(a: float, b: float) -> float:
    return a / b if b else 0.0 if a == 0 else math.inf
