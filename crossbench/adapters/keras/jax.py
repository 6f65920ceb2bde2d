"""Train in Keras on JAX: what the layer above JAX costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...workload import Batches, Job, versions
from ..jax.workload import JaxRuntime
from .workload import KerasWorkload


class JaxWorkload(JaxRuntime, KerasWorkload):
    """Train one model in Keras on JAX: a jitted step."""

    backend = "jax"

    def prepare(self, job: Job) -> None:
        super().prepare(job)
        self.jax.config.update("jax_default_device", self.device)
        self.differentiated: dict[Any, Any] = {}

    def backward(self, inputs: Any, labels: Any) -> tuple[Any, list[Any]]:
        model = self.of(inputs)
        if model not in self.differentiated:
            self.differentiated[model] = self.jax.jit(
                self.jax.value_and_grad(model.compute_loss_and_updates, has_aux=True),
                static_argnames=("training",),
            )
        groups = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.metrics_variables,
        )
        state = ([variable.value for variable in group] for group in groups)
        scale = [variable.value for variable in self.optimizer.variables]
        results = self.differentiated[model](
            *state, inputs, labels, None, training=True, optimizer_variables=scale
        )
        (loss, _), gradients = self.jax.block_until_ready(results)
        return loss, gradients

    def details(self) -> dict[str, str]:
        return super().details() | versions("jax", "jaxlib") | self.gpu_details()

    def place(self, batches: Batches) -> None:
        super().place(batches)
        if not batches.streamed:
            self.jax.block_until_ready(self.batches)

    def put(self, array: np.ndarray) -> Any:
        return self.jax.device_put(array, self.device)

    def wait(self) -> None:
        variables = self.model.variables + self.optimizer.variables
        self.jax.block_until_ready([variable.value for variable in variables])


WORKLOAD = JaxWorkload
