"""Train in Keras on TensorFlow with jit_compile=True: XLA compiles the step.

On a CPU Keras' default leaves TensorFlow's kernels as they are; on a GPU it is XLA already.
"""

from __future__ import annotations

from .tensorflow import TensorFlowWorkload


class JitWorkload(TensorFlowWorkload):
    """Train as the idiomatic workload does, the step compiled by XLA."""

    jit_compile = True


WORKLOAD = JitWorkload
