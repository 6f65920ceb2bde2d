"""Measure what each part of torch:tuned brings, alone and together: an adapter with a variant each.

Run by hand, the rounds paired in one run:

python -m crossbench --frameworks benchmarks/ladder.py:TORCH --variants all --data synthetic \
    --model lenet --batches 10 --rounds 6

The column × idiomatic is what each part brings; the worker's environment keeps freed memory in the
rows whose names begin with "kept".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crossbench.adapters.torch import TorchAdapter, TorchWorkload, optimizer
from crossbench.implementation import IDIOMATIC
from crossbench.models.reordered import pool_before_relu
from crossbench.models.training import SGD, Adam, AdamW
from crossbench.workload import KEEP_FREED_MEMORY, MALLOC_VARIANT, Job, Variant

PARTS = {
    "channels_last": "pictures and kernels with their channels last",
    "pool_before_relu": "the max-pool before its ReLU",
    "fused": "the fused optimizer",
    "pieces": "torch:tuned: pieces of a batch on each thread, in oneDNN's layout",
}


KEPT = {
    f"kept_{name}": Variant(summary, ("cpu",), KEEP_FREED_MEMORY) for name, summary in PARTS.items()
}
VARIANTS = {
    IDIOMATIC: Variant("as torch"),
    "kept": MALLOC_VARIANT,
    **{name: Variant(summary, ("cpu",)) for name, summary in PARTS.items()},
    **KEPT,
}


class FusedWorkload(TorchWorkload):
    """Train as the idiomatic workload does, with the fused optimizer."""

    def new_optimizer(self) -> Any:
        if isinstance(self.description, SGD | Adam | AdamW):
            return optimizer(self.description, self.groups, fused=True)
        return super().new_optimizer()


class TorchLadder(TorchAdapter):
    """Build the workloads with one part of torch:tuned each."""

    variants = VARIANTS

    def build(self, job: Job) -> Any:
        match job.variant.removeprefix("kept").removeprefix("_"):
            case "channels_last":
                from crossbench.adapters.torch.channels_last import ChannelsLastWorkload

                return ChannelsLastWorkload(job)
            case "pool_before_relu":
                return TorchWorkload(replace(job, model=pool_before_relu(job.model)))
            case "fused":
                return FusedWorkload(job)
            case "pieces":
                from crossbench.adapters.torch.tuned import TunedWorkload

                return TunedWorkload(job)
        return TorchWorkload(job)


TORCH = TorchLadder()
