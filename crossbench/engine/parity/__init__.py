"""Prove that a workload does the same work as the NumPy float64 reference, tensor by tensor.

Both get the same weights and the same few batches, and train by `train_epoch`, the very call
that is timed. In float64 rounding cannot hide a difference in the mathematics; in float32 the
deviation is a figure of the framework.
"""

from .differences import compare, deviation
from .examples import (
    BATCH_SIZE,
    LEARNING_RATE_SCALE,
    SEED,
    STEPS,
    large_weights,
    proof_batches,
    proof_model,
    proof_weights,
)
from .expected import ReferenceTensors, compute_reference
from .tensors import PRECISIONS, collect_tensors, concatenate, run_workload
from .verdict import Observation, full_float32, judge, observe, prove

__all__ = [
    "BATCH_SIZE",
    "LEARNING_RATE_SCALE",
    "PRECISIONS",
    "SEED",
    "STEPS",
    "Observation",
    "ReferenceTensors",
    "collect_tensors",
    "compare",
    "compute_reference",
    "concatenate",
    "deviation",
    "full_float32",
    "judge",
    "large_weights",
    "observe",
    "proof_batches",
    "proof_model",
    "proof_weights",
    "prove",
    "run_workload",
]
