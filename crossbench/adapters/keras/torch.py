"""Train in Keras on PyTorch: what the layer above PyTorch costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...models import Weights
from ...workload import Batch
from ..torch.workload import TorchRuntime
from .program import SEED
from .workload import KerasWorkload


class TorchWorkload(TorchRuntime, KerasWorkload):
    """Train one model in Keras on PyTorch: eager, as Keras sets it by default."""

    backend = "torch"

    def load_weights(self, weights: Weights) -> None:
        super().load_weights(weights)
        self.torch.manual_seed(SEED)  # of its dropouts

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        with self.torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            return super().loss_and_gradients(batch)

    def backward(self, inputs: Any, labels: Any) -> tuple[Any, list[Any]]:
        self.model.zero_grad()
        logits = self.of(inputs)(inputs, training=True)
        loss = self.model.compute_loss(x=inputs, y=labels, y_pred=logits)
        loss.backward()
        gradients = [variable.value.grad for variable in self.model.trainable_variables]
        return loss.detach(), gradients

    def details(self) -> dict[str, str]:
        return super().details() | {"torch": str(self.torch.__version__)} | self.gpu_details()

    def put(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array).to(self.device)


WORKLOAD = TorchWorkload
