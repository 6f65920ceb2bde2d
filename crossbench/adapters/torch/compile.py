"""Train in PyTorch with torch.compile: TorchInductor's kernels for the model with its loss.

The optimizer stays PyTorch's own. Compilation happens in the first epoch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from ...workload import Job
from .workload import TorchWorkload


class CompiledWorkload(TorchWorkload):
    """Train as the idiomatic workload does, with a compiled function from a batch to its loss, and
    predict with one from inputs to logits.
    """

    variant = "compile"
    mode: str | None = None

    def __init__(self, job: Job) -> None:
        # every process compiles anew: another one's kernels would hide what the first epoch costs
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor")
        super().__init__(job)
        self.compiled_inference = self.torch.compile(super().infer, mode=self.mode)
        self.masked = self.torch.compile(super().loss, mode=self.mode)

    def loss(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> Any:
        return self.masked(inputs, labels, masks) if masks else super().loss(inputs, labels, masks)

    def infer(self, inputs: Any) -> Any:
        return self.compiled_inference(inputs)


WORKLOAD = CompiledWorkload
