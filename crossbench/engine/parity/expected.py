"""Compute the reference's tensors, and what each difference from them is divided by."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ...adapters.reference import ReferenceWorkload
from ...inputs.names import FLOAT32
from ...models import SGD, Model, Weights
from ...results.parity import FLOAT64_BOUND, GRADIENT_PREFIX
from ...workload import Job, Workload
from .examples import SEED, large_weights, proof_batches, proof_model, proof_weights, seeds
from .tensors import (
    TRAINED_SUFFIXES,
    cast,
    collect_tensors,
    compare,
    concatenate,
    deviation,
    norm,
    train_from_both,
)

CHANCE_FACTOR = 10.0
"""A framework may differ from the reference in float64 by so many times what the reference differs
from itself where it adds up in another order, or by 1e-9."""

NEAR_ZERO = 1e-5
"""How near an input is to a step in the slope of an activation, which a ReLU has at 0, where a
float32 framework may have it on the other side: relative to the root mean square of the inputs plus
the size of the input with the step. In resnet63 one that is between 1e-6 and 5e-6 from 0 moved the
gradient of batchnorm19.bias by 7.3e-5 in Flux and Lux, whose sums OpenBLAS adds up."""

BESIDE_ZERO = "beside zero"
"""Name of the form in which inputs near such a step are on the other side."""

NEGLIGIBLE_GRADIENT = 1e-10
"""A gradient whose norm is a smaller part of the norm of all gradients is only rounding."""


@dataclass(frozen=True)
class ExpectedTensors:
    """Hold the reference's float64 tensors, in files that several processes map.

    scales: what the difference of each tensor is divided by; float64_scales: the same in float64.
    rounding_only: parameters whose gradient is only rounding. forms: how far the reference is from
    these tensors in other forms, by their name: in float32, where it rounds, or where inputs of
    ReLUs near 0 are on the other side. seed: of the weights and the examples.
    """

    directory: Path
    names: list[str]
    rounding_only: list[str]
    scales: dict[str, float]
    float64_scales: dict[str, float] = field(default_factory=dict)
    forms: dict[str, dict[str, float | None]] = field(default_factory=dict)
    seed: int = SEED

    @classmethod
    def keep(cls, directory: Path, tensors: Weights) -> ExpectedTensors:
        """Write the tensors to files of a directory, which it creates; their scales are norms."""
        directory.mkdir(exist_ok=True)
        for index, array in enumerate(tensors.values()):
            np.save(directory / f"{index}.npy", array)
        rounding_only = rounding_only_gradients(tensors)
        return cls(directory, list(tensors), rounding_only, norms_of(tensors, rounding_only))

    def deviations(self, observed: Weights, dtype: str = FLOAT32) -> dict[str, float | None]:
        """Return the deviation of each tensor, None where it is not finite.

        Raises ValueError where a tensor is missing or has another shape.
        """
        expected = {
            name: np.load(self.directory / f"{index}.npy", mmap_mode="r")
            for index, name in enumerate(self.names)
        }
        scales = self.float64_scales if dtype == "float64" else self.scales
        return compare(observed, expected, scales)


def compute_reference(model: Model, directory: Path) -> ExpectedTensors:
    """Return the tensors that every framework must reproduce; creates the directory for them.

    Raises SpecError where each seed leaves near ties in a max-pool.
    """
    model = proof_model(model)
    for seed in seeds(model):
        workload = ReferenceWorkload(Job(model, "cpu", 1, "float64"))
        tensors = collect_tensors(workload, model, seed, "float64")
        if not workload.near_ties:
            break
    kept = ExpectedTensors.keep(directory, tensors)
    by_precision = scales(model, tensors, seed, kept)
    for name, size in differences_by_chance(workload, model, seed, tensors).items():
        by_chance = CHANCE_FACTOR / FLOAT64_BOUND * size
        by_precision["float64"][name] = max(by_precision["float64"][name], by_chance)
    single = ReferenceWorkload(Job(model, "cpu", 1, FLOAT32))
    reference = replace(
        kept, scales=by_precision[FLOAT32], float64_scales=by_precision["float64"], seed=seed
    )
    forms = {
        FLOAT32: reference.deviations(collect_tensors(single, model, seed, FLOAT32)),
        BESIDE_ZERO: near_zero_deviations(workload, model, seed, tensors, reference.scales),
    }
    return replace(reference, forms=forms)


def sides_of_zero(model: Model) -> list[float]:
    """Return NEAR_ZERO with both signs; nothing for a model without activations whose slope has a
    step.
    """
    has_corners = any(named.layer.corners for named in model.all_layers())
    return [NEAR_ZERO, -NEAR_ZERO] if has_corners else []


def near_zero_deviations(
    workload: ReferenceWorkload, model: Model, seed: int, tensors: Weights, sizes: dict[str, float]
) -> dict[str, float | None]:
    """Return how far the gradients are at most where all inputs of ReLUs that are so near 0 that
    float32 may have them on the other side are taken to be positive, or not to be.

    Empty for a model without ReLUs. sizes: what the difference of each tensor is divided by.
    """
    sides = sides_of_zero(model)
    if not sides:
        return {}
    whole = concatenate(proof_batches(model, seed))
    workload.load_weights(cast(proof_weights(model, seed), "float64"))
    found: dict[str, float | None] = {}
    for near_zero in sides:
        workload.near_zero = near_zero
        for parameter, gradient in workload.loss_and_gradients(whole)[1].items():
            name = f"{GRADIENT_PREFIX}{parameter}"
            size = deviation(name, gradient, tensors[name], sizes[name])
            found[name] = max(size or 0.0, found.get(name) or 0.0)
    workload.near_zero = 0.0
    return found


def rounding_only_gradients(tensors: Weights) -> list[str]:
    """Return the parameters whose gradients are only rounding."""
    norms = {
        name.removeprefix(GRADIENT_PREFIX): np.linalg.norm(array)
        for name, array in tensors.items()
        if name.startswith(GRADIENT_PREFIX)
    }
    bound = NEGLIGIBLE_GRADIENT * math.hypot(*norms.values())
    return [name for name, size in norms.items() if size < bound]


def differences_by_chance(
    workload: Workload, model: Model, seed: int, tensors: Weights
) -> dict[str, float]:
    """Return by how much the weights after the steps differ where the examples of each batch are
    added up in another order, which changes nothing but the rounding.

    Adam makes a step out of rounding where a part of a gradient is nothing else, such as that of a
    bias whose channel is positive in all places, before a batch norm: a framework may then be as
    far from the reference. Empty for SGD, whose step is as small as the gradient.
    """
    if isinstance(model.optimizer, SGD):
        return {}
    weights, batches = proof_weights(model, seed), proof_batches(model, seed)
    masks = {name: mask[:, ::-1] for name, mask in (batches.masks or {}).items()}
    turned = replace(
        batches, inputs=batches.inputs[:, ::-1], labels=batches.labels[:, ::-1], masks=masks
    )
    found = train_from_both(workload, model, weights, turned, "float64")
    return {
        name: norm(name, array - tensors[name])
        for name, array in found.items()
        if name.endswith(TRAINED_SUFFIXES)
    }


def scales(
    model: Model, tensors: Weights, seed: int, kept: ExpectedTensors
) -> dict[str, dict[str, float]]:
    """Return what the difference of each tensor is divided by, by precision: its norm.

    The scale of a gradient that is only rounding is the norm of all gradients. In float64 the scale
    of a weight after the steps is its change, unless that is by chance: weight decay or a wrong
    schedule changes the weight little. In float32 the weight's own rounding would hide that, so its
    norm is the scale there, and weights that change by chance are left out: Adam makes a full-size
    change out of rounding.
    """
    norms = kept.scales
    by_chance = {f"{name}{suffix}" for name in kept.rounding_only for suffix in TRAINED_SUFFIXES}
    changes = _changes(model, tensors, seed)
    return {
        "float32": {name: scale for name, scale in norms.items() if name not in by_chance},
        "float64": norms | {n: change for n, change in changes.items() if n not in by_chance},
    }


def norms_of(tensors: Weights, rounding_only: Iterable[str]) -> dict[str, float]:
    """Return the norm of each tensor, of a gradient that is only rounding that of all gradients."""
    norms = {name: norm(name, array) for name, array in tensors.items()}
    gradients = math.hypot(*(n for name, n in norms.items() if name.startswith(GRADIENT_PREFIX)))
    return norms | {f"{GRADIENT_PREFIX}{name}": gradients for name in rounding_only}


def _changes(model: Model, tensors: Weights, seed: int) -> dict[str, float]:
    """Return the norm of the change of each weight, by the name of the tensor after the steps."""
    start = proof_weights(model, seed)
    starts = zip(TRAINED_SUFFIXES, (start, large_weights(model, start)), strict=True)
    return {
        f"{name}{suffix}": norm(suffix, tensors[f"{name}{suffix}"] - before)
        for suffix, weights in starts
        for name, before in weights.items()
    }
