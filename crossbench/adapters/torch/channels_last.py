"""Train in PyTorch with pictures and convolution kernels whose channels are last in memory.

oneDNN and cuDNN have their fastest convolutions for this layout. It is PyTorch's memory format
`torch.channels_last`: shapes and results stay the same.

On a CPU a convolution of one pixel with a stride, from fewer than 8 channels, keeps the ordinary
format: in this one oneDNN's backward pass writes outside of its memory, where there is no AVX-512
(oneDNN issue 6035; with PyTorch 2.13 the process died).
"""

from __future__ import annotations

from typing import Any

from ...workload import Batch, Job
from .source import is_unsafe_for_onednn
from .workload import TorchWorkload


class ChannelsLastWorkload(TorchWorkload):
    """Train as the idiomatic workload does, in another memory format."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.module.to(memory_format=self.torch.channels_last)
        for module in self.module.modules():
            if self.device.type == "cpu" and is_unsafe(module):
                module.to(memory_format=self.torch.contiguous_format)
                module.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(),))

    def _to_device(self, batch: Batch, streamed: bool = False) -> tuple[Any, Any, dict[str, Any]]:
        inputs, labels, masks = super()._to_device(batch, streamed)
        return self._channels_last(inputs), self._channels_last(labels), masks

    def _channels_last(self, tensor: Any) -> Any:
        """Return pictures in the memory format of this variant, anything else as it is."""
        if tensor.ndim != 4:
            return tensor
        return tensor.contiguous(memory_format=self.torch.channels_last)


def is_unsafe(module: Any) -> bool:
    """Return whether a module is a convolution that must keep the ordinary format on a CPU."""
    from torch import nn

    return isinstance(module, nn.Conv2d) and is_unsafe_for_onednn(
        module.kernel_size, module.stride, module.in_channels
    )


WORKLOAD = ChannelsLastWorkload
