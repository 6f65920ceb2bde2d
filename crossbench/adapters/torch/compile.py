"""Train in PyTorch with torch.compile: TorchInductor's kernels for the model with its loss.

The optimizer stays PyTorch's own. Compilation happens in the first epoch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from ... import models
from ...workload import Job
from .workload import TorchWorkload


class CompiledWorkload(TorchWorkload):
    """Train as the idiomatic workload does, with a compiled function from a batch to its loss, and
    predict with one from inputs to logits.
    """

    mode: str | None = None

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # every process compiles anew: another one's kernels would hide what the first epoch costs
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor")
        self.compiled = self.torch.compile(super().loss, mode=self.mode)
        self.compiled_logits = self.torch.compile(super()._logits, mode=self.mode)
        self.has_loss = not isinstance(job.model.loss, models.GivenGradient)
        self.compiled_inference = self.torch.compile(super().infer, mode=self.mode)

    def loss(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> Any:
        if self.has_loss:
            return self.compiled(inputs, labels, masks)
        # without a loss of their own: a compiler leaves out what does not change the loss
        with self.autocast():
            return self.criterion(self.compiled_logits(inputs, masks), labels)

    def infer(self, inputs: Any) -> Any:
        return self.compiled_inference(inputs)


WORKLOAD = CompiledWorkload
