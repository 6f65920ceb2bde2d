"""Train in JAX with the whole epoch in one call: lax.scan over the steps.

Python then costs nothing between the steps, which matters on a GPU. On the CPU a convolution inside
of lax.scan takes a slow path (jax issue 12868). Batches that are streamed are not all on the device
at once: they are trained step by step, as the idiomatic workload does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...models import Weights
from ...source.places import channels_first
from ...workload import Batches, Job
from .workload import JaxWorkload


class ScanWorkload(JaxWorkload):
    """Train as the idiomatic workload does, all steps in one program."""

    one_call = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        jax, gradients_of = self.jax, self.module.compute_gradients.__wrapped__
        self.step = jax.jit(self.step, donate_argnums=0)  # of streamed batches

        def backward(carry: Any, batch: Any) -> Any:
            parameters, others, _ = carry
            gradients, others, kept = gradients_of(parameters, others, batch)
            return (parameters, others, gradients), kept

        def backward_epoch(parameters: Any, others: Any, batches: Any) -> Any:
            return jax.lax.scan(backward, (parameters, others, parameters), batches)

        def predictions(weights: Any, batches: Any) -> Any:
            return jax.lax.map(lambda inputs: self.module.predict(weights, inputs), batches)

        self.whole_backward_epoch = jax.jit(backward_epoch)
        self.predictions = jax.jit(predictions)

    def place(self, batches: Batches) -> None:
        super().place(batches)
        self.stacked = None
        if not batches.streamed:
            stack = self.jax.numpy.stack
            self.stacked = self.jax.tree.map(lambda *arrays: stack(arrays), *self.batches)
            self.batches = []
            self.jax.block_until_ready(self.stacked)

    def train_epoch(self) -> np.ndarray:
        if self.stacked is None:
            return super().train_epoch()
        self.state, losses = self.module.train_epoch(self.state, self.stacked)
        epoch = np.asarray(losses, np.float64)
        self.jax.block_until_ready(self.state)
        return epoch

    def backward_epoch(self) -> Callable[[], Weights]:
        if self.stacked is None:
            return super().backward_epoch()
        done = self.whole_backward_epoch(*self.split(), self.stacked)
        (_, _, gradients), _ = self.jax.block_until_ready(done)
        return lambda: self._canonical(gradients)

    def predict_epoch(self) -> np.ndarray:
        if self.stacked is None:
            return super().predict_epoch()
        outputs = np.asarray(self.predictions(self.state[0], self.stacked[0]))
        return channels_first(outputs, self.model.output_shape)

    def predict_batches(self) -> Iterator[np.ndarray]:
        if self.stacked is None:
            return super().predict_batches()
        return (self._outputs(inputs) for inputs in self.stacked[0])

    def allocated(self) -> int | None:
        return None  # the steps reuse the buffers of one program: no sum over the epoch


WORKLOAD = ScanWorkload
