"""Test the dropout masks that a framework draws itself; the rest of the proof gives it masks.

One training step of a dense layer behind the dropouts, from weights of 0, reveals the mask of every
example: the dropouts' inputs are ones, and each example has a label of its own, so the gradient is
a known linear combination of the masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..models import SGD, Dense, Dropout, Flatten, Model, SoftmaxCrossEntropy
from ..workload import Job, Workload
from .batches import ArrayBatches

EXAMPLES, SHAPE = 128, (16, 16, 16)
"""524,288 draws in a step: where one of three rates is off by 0.01, the count is off by 8 standard
deviations."""
LEARNING_RATE = 1e-4
"""So small that the softmax of the second step equals that of the first to 1 %."""
MAX_DEVIATIONS = 6.0
"""Standard deviations that each count may be off. A correct dropout fails one of the five checks
once in 100 million times, and as the masks have a seed, always or never."""
SCALE_BOUND = 1e-2
"""The largest relative error of the values kept, which should be 1 / (1 - rate)."""


def probe(build: Callable[[Job], Workload], job: Job) -> dict[str, float | None]:
    """Return the error of the masks that the model's dropouts draw, by property of the masks.

    1 is the largest error allowed, None is not finite; empty where the model has no dropout. The
    dropouts follow one another, so masks that they share change the share of values kept.
    """
    rates = [n.layer.rate for n in job.model.all_layers() if isinstance(n.layer, Dropout)]
    if not rates:
        return {}
    workload = build(replace(job, model=probe_model(rates)))
    first, second = _dropout_outputs(workload)
    keep = math.prod(1 - rate for rate in _at_least_two(rates))
    errors = mask_errors(first, second, keep)
    return {name: float(value) if math.isfinite(value) else None for name, value in errors.items()}


def probe_model(rates: list[float]) -> Model:
    """Return a model of dropouts with these rates and a dense layer behind them."""
    *before, last = _at_least_two(rates)
    layers = (*map(Dropout, before), Flatten(), Dropout(last), Dense(EXAMPLES + 1))
    return Model(
        "dropout", SHAPE, layers, SoftmaxCrossEntropy(), SGD(LEARNING_RATE), EXAMPLES, "the proof"
    )


def mask_errors(first: np.ndarray, second: np.ndarray, keep: float) -> dict[str, float]:
    """Return the errors of the masks, given what the dropouts returned for ones in two steps.

    first, second: (examples, values). keep: the probability that a value is kept.
    """
    masks = [outputs > 0.5 / keep for outputs in (first, second)]
    both, variance = np.stack(masks), keep * (1 - keep)
    _, examples, values = both.shape
    per_value, per_example = masks[0].sum(0), masks[0].sum(1)
    equal = keep**2 + (1 - keep) ** 2  # the probability that two independent draws agree
    deviations = {
        "the share of values kept": _z_score(int(both.sum()), both.size, keep),
        "the independence of examples": _variance_z_score(
            per_value, keep * examples, variance * examples
        ),
        "the independence of values": _variance_z_score(
            per_example, keep * values, variance * values
        ),
        "the independence of steps": _z_score((masks[0] == masks[1]).sum(), both[0].size, equal),
    }
    scale = np.abs(first - masks[0] / keep).max() * keep
    errors = {name: abs(value) / MAX_DEVIATIONS for name, value in deviations.items()}
    return errors | {"the scale of values kept": float(scale / SCALE_BOUND)}


def _at_least_two(rates: list[float]) -> list[float]:
    """Return the rates, a single one twice, so that every model has two dropouts in a row."""
    return rates if len(rates) > 1 else 2 * rates


def _dropout_outputs(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Return the dropouts' outputs for ones in two steps, each (examples, values)."""
    values = math.prod(SHAPE)
    weights = {
        "dense1.weight": np.zeros((EXAMPLES + 1, values), np.float32),
        "dense1.bias": np.zeros(EXAMPLES + 1, np.float32),
    }
    workload.load_weights(weights)
    ones = np.ones((1, EXAMPLES, *SHAPE), np.float32)
    workload.place(ArrayBatches(ones, np.arange(EXAMPLES)[None]))
    outputs, before = [], weights["dense1.weight"]
    for _ in range(2):
        workload.train_epoch()
        after = workload.weights()["dense1.weight"]
        gradient = (before.astype(np.float64) - after) / LEARNING_RATE
        outputs.append(np.linalg.lstsq(_logit_gradients(), gradient, rcond=None)[0])
        before = after
    return outputs[0], outputs[1]


def _logit_gradients() -> np.ndarray:
    """Return (softmax - label) / examples for logits of 0, (labels, examples)."""
    gradients = np.full((EXAMPLES + 1, EXAMPLES), 1 / (EXAMPLES + 1))
    np.fill_diagonal(gradients, 1 / (EXAMPLES + 1) - 1)
    return gradients / EXAMPLES


def _z_score(count: float, n: int, probability: float) -> float:
    """Return by how many standard deviations a binomial count of n differs from its mean."""
    deviation = math.sqrt(n * probability * (1 - probability))
    return _ratio(float(count) - n * probability, deviation)


def _variance_z_score(counts: np.ndarray, mean: float, variance: float) -> float:
    """Return by how many standard deviations the variance of the counts differs from `variance`
    (chi-square, by the cube root of E. Wilson and M. Hilferty, 1931).
    """
    n = len(counts)
    ratio = _ratio(float(((counts - mean) ** 2).sum()), n * variance) if variance else 1.0
    return (np.cbrt(ratio) - (1 - 2 / (9 * n))) / math.sqrt(2 / (9 * n))


def _ratio(a: float, b: float) -> float:
    """Return a / b: 0 for 0 / 0, and infinity for any other number over 0."""
    return a / b if b else 0.0 if a == 0 else math.inf
