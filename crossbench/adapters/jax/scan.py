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
from ...workload import Batches, Job
from .workload import JaxWorkload


class ScanWorkload(JaxWorkload):
    """Train as the idiomatic workload does, all steps in one program."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)

        def body(carry: Any, batch: Any) -> Any:
            *carry, loss = self.untraced_step(*carry, *batch)
            return tuple(carry), loss

        def epoch(parameters: Any, state: Any, others: Any, batches: Any) -> Any:
            return self.jax.lax.scan(body, (parameters, state, others), batches)

        def backward(carry: Any, batch: Any) -> Any:
            parameters, others, _ = carry
            gradients, others, kept = self.untraced_backward(parameters, others, *batch)
            return (parameters, others, gradients), kept

        def backward_epoch(parameters: Any, others: Any, batches: Any) -> Any:
            return self.jax.lax.scan(backward, (parameters, others, parameters), batches)

        def predictions(parameters: Any, others: Any, batches: Any) -> Any:
            return self.jax.lax.map(lambda inputs: self.logits(parameters, others, inputs), batches)

        self.epoch = self.jax.jit(epoch, donate_argnums=(0, 1))
        self.whole_backward_epoch = self.jax.jit(backward_epoch)
        self.predictions = self.jax.jit(predictions)

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
        carry, losses = self.epoch(self.parameters, self.state, self.others, self.stacked)
        self.parameters, self.state, self.others = carry
        epoch = np.asarray(losses, np.float64)
        self.jax.block_until_ready(carry)
        return epoch

    def backward_epoch(self) -> Callable[[], Weights]:
        if self.stacked is None:
            return super().backward_epoch()
        done = self.whole_backward_epoch(self.parameters, self.others, self.stacked)
        (_, self.others, gradients), _ = self.jax.block_until_ready(done)
        return lambda: self._canonical(gradients)

    def predict_epoch(self) -> np.ndarray:
        if self.stacked is None:
            return super().predict_epoch()
        return np.asarray(self.predictions(self.parameters, self.others, self.stacked[0]))

    def predict_batches(self) -> Iterator[np.ndarray]:
        if self.stacked is None:
            yield from super().predict_batches()
            return
        for inputs in self.stacked[0]:
            yield np.asarray(self.infer(inputs))

    def allocated(self) -> int | None:
        return None  # the steps reuse the buffers of one program: no sum over the epoch


WORKLOAD = ScanWorkload
