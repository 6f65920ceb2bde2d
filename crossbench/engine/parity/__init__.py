"""Prove that a workload does the same work as the NumPy float64 reference, tensor by tensor.

Both get the same weights and the same few batches, and train by `train_epoch`, the very call
that is timed. In float64 rounding cannot hide a difference in the mathematics; in float32 the
deviation is a figure of the framework.
"""

from .examples import (
    BATCH_SIZE as BATCH_SIZE,
    LEARNING_RATE_SCALE as LEARNING_RATE_SCALE,
    SEED as SEED,
    STEPS as STEPS,
    large_weights as large_weights,
    proof_batches as proof_batches,
    proof_model as proof_model,
    proof_weights as proof_weights,
)
from .expected import (
    ExpectedTensors as ExpectedTensors,
    compute_reference as compute_reference,
    sides_of_zero as sides_of_zero,
)
from .precision import (
    precision_reference as precision_reference,
    prove_precision as prove_precision,
)
from .tensors import (
    cast as cast,
    compare as compare,
    deviation as deviation,
    run_workload as run_workload,
)
from .verdict import (
    judge as judge,
    observe as observe,
    prove as prove,
    single_deviations as single_deviations,
)
