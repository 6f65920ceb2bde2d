"""Train in Keras on JAX: what the layer above JAX costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...workload import Job, versions
from ..jax.workload import JaxArrays
from .workload import KerasWorkload


class JaxWorkload(KerasWorkload):
    """Train one model in Keras on JAX: a jitted step."""

    backend = "jax"

    def prepare(self, job: Job) -> None:
        import jax

        # this holds for the whole process, which uses one workload at a time
        jax.config.update("jax_enable_x64", job.dtype == "float64")
        # XLA's default on a GPU is TensorFloat-32, which has 10 bits of mantissa
        jax.config.update("jax_default_matmul_precision", "highest")
        self.jax = jax
        self.device = jax.devices(job.device)[0]
        jax.config.update("jax_default_device", self.device)
        self.value_and_gradient: Any = None

    def differentiate(self, inputs: Any, labels: Any) -> tuple[float, list[Any]]:
        if self.value_and_gradient is None:
            loss = self.model.compute_loss_and_updates
            self.value_and_gradient = self.jax.jit(
                self.jax.value_and_grad(loss, has_aux=True), static_argnames=("training",)
            )
        groups = (
            self.model.trainable_variables,
            self.model.non_trainable_variables,
            self.model.metrics_variables,
        )
        state = ([variable.value for variable in group] for group in groups)
        scale = [variable.value for variable in self.optimizer.variables]
        (loss, _), gradients = self.value_and_gradient(
            *state, inputs, labels, None, training=True, optimizer_variables=scale
        )
        return float(loss), gradients

    def peak_memory(self) -> int | None:
        if self.device.platform == "cpu":
            return None
        return (self.device.memory_stats() or {}).get("peak_bytes_in_use")

    def arrays(self) -> JaxArrays:
        return JaxArrays(self.device)

    def details(self) -> dict[str, str]:
        details = super().details() | versions("jax", "jaxlib")
        if self.device.platform == "cpu":
            return details
        return details | {
            "GPU": self.device.device_kind,
            "CUDA": " ".join(self.device.client.platform_version.split()),
        }

    def put(self, array: np.ndarray) -> Any:
        return self.jax.device_put(array, self.device)

    def wait(self, *tensors: Any) -> None:
        state = [variable.value for variable in self.model.variables + self.optimizer.variables]
        self.jax.block_until_ready((tensors, state))


WORKLOAD = JaxWorkload
