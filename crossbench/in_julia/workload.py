"""Train a model in Julia through juliacall; the Julia side is under julia/, a package a framework.

Only the worker process imports juliacall, on its main thread: the import starts Julia. An epoch is
one call into Julia, or, if the batches are streamed, one call per batch. Arrays cross as addresses:
nothing is copied on the way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..inputs.names import TF32
from ..models.model import Weights
from ..workload import Batch, Batches, DeviceArrays, Job, Workload, versions
from .dialect import Dialect
from .julia import Packages, start
from .source import convolves


class JuliaWorkload(Workload):
    packages: Packages
    """The packages of the framework."""
    dialect: type[Dialect]
    """Writes the framework's programs."""

    def __init__(self, job: Job) -> None:
        self.julia = start(self.packages, job.device)
        self.device = job.device
        built_of = self.dialect(job.model, job.device).row()
        self.source_code = built_of["text"]
        self.workload = self.julia.build_workload(json.dumps(built_of), job.device, job.dtype)
        if job.compute == TF32:
            self.julia.allow_tensorfloat32(self.workload.device)
        self.julia.configure_runtime(job.threads, convolves=convolves(job.model))

    def load_weights(self, weights: Weights) -> None:
        for name, array in weights.items():
            array = np.ascontiguousarray(array)
            self.julia.load_weight_b(self.workload, name, wrap(self.julia, array))
        self.julia.reset_state_b(self.workload)

    def place(self, batches: Batches) -> None:
        self.streamed = batches if batches.streamed else None
        self.steps = len(batches)
        self.julia.clear_batches_b(self.workload)
        if not batches.streamed:
            for batch in batches:
                self._call(self.julia.add_batch_b, batch)

    def train_epoch(self) -> np.ndarray:
        if self.streamed is None:
            return np.array(self.julia.train_epoch_b(self.workload))
        self.julia.begin_epoch_b(self.workload)
        losses = [self._call(self.julia.step_b, batch) for batch in self.streamed]
        self.julia.finish_epoch_b(self.workload)
        return np.array(losses)

    def backward_epoch(self) -> Callable[[], Weights]:
        if self.streamed is None:
            gradients = self.julia.backward_epoch_b(self.workload)
        else:
            self.julia.begin_epoch_b(self.workload)
            for batch in self.streamed:
                gradients = self._call(self.julia.backward_b, batch)
            self.julia.finish_epoch_b(self.workload)  # waits for the device
        return lambda: _canonical(self.julia.gradient_arrays(self.workload, gradients))

    def predict_epoch(self) -> np.ndarray:
        if self.streamed is None:
            return np.array(self.julia.predict_epoch_b(self.workload)).T
        self.julia.begin_epoch_b(self.workload)
        logits = np.stack(list(self.predict_batches()))
        self.julia.finish_epoch_b(self.workload)
        return logits

    def predict_batches(self) -> Iterator[np.ndarray]:
        if self.streamed is not None:
            yield from (self.predict(batch.inputs) for batch in self.streamed)
            return
        predict = self.julia.predictor(self.workload)
        for step in range(1, self.steps + 1):
            yield np.array(self.julia.predict_batch(self.workload, predict, step)).T

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        loss, gradients = self._call(self.julia.loss_and_gradients, batch)
        return loss, _canonical(gradients)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        inputs = np.ascontiguousarray(inputs)
        return np.array(self.julia.predict(self.workload, wrap(self.julia, inputs))).T

    def weights(self) -> Weights:
        return _canonical(self.julia.weights(self.workload))

    def peak_memory(self) -> int | None:
        return self.julia.peak_memory(self.workload.device)

    def free_memory(self) -> None:
        self.julia.free_memory(self.workload.device)

    def collect_garbage(self) -> None:
        self.julia.GC.gc(False)  # not in full, which takes 0.3 s

    def threads(self) -> int | None:
        return int(self.details()["Julia threads"])

    def allocated(self) -> int | None:
        if self.device == "gpu":  # Julia's counter does not include CUDA.jl's memory
            return None
        self.train_epoch()
        return int(self.epoch_figures()["allocated MiB"] * 2**20)

    def arrays(self) -> JuliaArrays:
        return JuliaArrays(self.julia, self.workload.device)

    def details(self) -> dict[str, str]:
        found = dict(self.julia.details(self.workload))
        known = {name: found[name] for name in sorted(found)} | versions("juliacall")
        untested = self.packages.untested(known)
        return known | ({"newer than tested": untested} if untested else {})

    def epoch_figures(self) -> dict[str, float]:
        return dict(self.workload.figures)

    def _call(self, function: Any, batch: Batch) -> Any:
        """Call a Julia function of (workload, inputs, labels, masks) with the arrays of a batch.

        Julia may use the arrays only until the call returns.
        """
        inputs, labels = np.ascontiguousarray(batch.inputs), np.ascontiguousarray(batch.labels)
        arrays = {name: np.ascontiguousarray(mask) for name, mask in (batch.masks or {}).items()}
        masks = {name: wrap(self.julia, mask) for name, mask in arrays.items()}
        x, y = wrap(self.julia, inputs), wrap(self.julia, labels)
        return function(self.workload, x, y, masks or None)


def _canonical(arrays: Any) -> Weights:
    """Return copies of the arrays in a Julia Dict, their axes reversed to C order."""
    return {str(name): np.asarray(array).T.copy() for name, array in dict(arrays).items()}


class JuliaArrays(DeviceArrays):
    """Multiply and copy Julia's arrays on a device; their axes are in reversed order.

    So the product of two matrices is computed as that of the transposed ones, the second first.
    """

    def __init__(self, julia: Any, device: Any) -> None:
        self.julia, self.device = julia, device

    def put(self, array: np.ndarray) -> Any:
        return self.julia.put(self.device, wrap(self.julia, array))

    def fetch(self, array: Any, step: int = 1) -> np.ndarray:
        return np.array(self.julia.every(array, step)).T

    def address(self, array: Any) -> int:
        return self.julia.address(array)

    def multiply(self, a: Any, b: Any, into: Any) -> Any:
        return self.julia.multiply_b(self.device, into, b, a)

    def copy(self, source: Any, into: Any) -> Any:
        return self.julia.copy_on_b(self.device, into, source)


def wrap(julia: Any, array: np.ndarray) -> Any:
    """Return a Julia array on the same memory, axes reversed; the caller keeps that alive."""
    return julia.wrap(str(array.dtype), array.ctypes.data, array.shape[::-1])
