"""Train in Keras on PyTorch: what the layer above PyTorch costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...workload import Job
from ..torch.workload import TorchArrays
from .workload import KerasWorkload


class TorchWorkload(KerasWorkload):
    """Train one model in Keras on PyTorch: eager, as Keras sets it by default."""

    backend = "torch"

    def prepare(self, job: Job) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(job.threads)
        # TensorFloat-32 has 10 bits of mantissa; the table says float32
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        # have cuDNN try its convolutions and take the fastest, as XLA does
        torch.backends.cudnn.benchmark = True
        self.device = torch.device("cuda" if job.device == "gpu" else "cpu")

    def differentiate(self, inputs: Any, labels: Any) -> tuple[float, list[Any]]:
        self.model.zero_grad()
        with self.torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            logits = self.model(inputs, training=True)
        loss = self.model.compute_loss(x=inputs, y=labels, y_pred=logits)
        loss.backward()
        gradients = [variable.value.grad for variable in self.model.trainable_variables]
        self.model.zero_grad()
        return loss.item(), gradients

    def peak_memory(self) -> int | None:
        return self.torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None

    def free_memory(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

    def threads(self) -> int | None:
        return self.torch.get_num_threads()

    def arrays(self) -> TorchArrays:
        return TorchArrays(self.device)

    def details(self) -> dict[str, str]:
        details = super().details() | {"torch": str(self.torch.__version__)}
        if self.device.type == "cuda":
            cudnn = self.torch.backends.cudnn.version()
            details["GPU"] = self.torch.cuda.get_device_name()
            details["CUDA"] = f"{self.torch.version.cuda}, cuDNN {cudnn}"
        return details

    def put(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).to(self.device)

    def wait(self, *tensors: Any) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()


WORKLOAD = TorchWorkload
