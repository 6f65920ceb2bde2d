"""Train in PyTorch with pictures and convolution kernels whose channels are last in memory.

oneDNN and cuDNN have their fastest convolutions for this layout. It is PyTorch's memory format
`torch.channels_last`: shapes and results stay the same.
"""

from __future__ import annotations

from typing import Any

from ...workload import Batch, Job
from . import TorchWorkload


class ChannelsLastWorkload(TorchWorkload):
    """Train as the idiomatic workload does, in another memory format."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.module.to(memory_format=self.torch.channels_last)

    def _to_device(self, batch: Batch, streamed: bool = False) -> tuple[Any, Any, dict[str, Any]]:
        inputs, labels, masks = super()._to_device(batch, streamed)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=self.torch.channels_last)
        return inputs, labels, masks


WORKLOAD = ChannelsLastWorkload
