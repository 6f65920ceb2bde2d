"""Train in Keras on TensorFlow."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ...inputs.names import TF32
from ...workload import DeviceArrays, Job, Unavailable
from .workload import KerasWorkload


class TensorFlowWorkload(KerasWorkload):
    """Train one model in Keras on TensorFlow: a tf.function for the step."""

    backend = "tensorflow"

    def prepare(self, job: Job) -> None:
        import tensorflow as tf

        self.tf = tf
        with suppress(RuntimeError):  # a process's first workload decides; `threads` tells
            tf.config.threading.set_intra_op_parallelism_threads(job.threads)
            tf.config.threading.set_inter_op_parallelism_threads(job.threads)
        tf.config.experimental.enable_tensor_float_32_execution(job.compute == TF32)
        if job.device == "cpu":  # the worker sees no GPU
            return
        gpus = tf.config.list_physical_devices("GPU")
        if not gpus:
            raise Unavailable(
                "TensorFlow finds no GPU, or not the CUDA libraries that it was built with: "
                "pip install 'tensorflow[and-cuda]'"
            )
        # a preallocated pool would be the peak, and gone for the other workers on the GPU
        tf.config.experimental.set_memory_growth(gpus[0], True)

    def backward(self, inputs: Any, labels: Any) -> tuple[Any, list[Any]]:
        loss, gradients, _ = self.module.compute_gradients(self.of(inputs), inputs, labels)
        return loss, gradients

    def peak_memory(self) -> int | None:
        if self.job.device == "cpu":
            return None
        return self.tf.config.experimental.get_memory_info("GPU:0")["peak"]

    def threads(self) -> int | None:
        return self.tf.config.threading.get_intra_op_parallelism_threads()

    def arrays(self) -> TensorFlowArrays:
        return TensorFlowArrays(self)

    def details(self) -> dict[str, str]:
        from tensorflow.python.util import _pywrap_util_port

        details = super().details() | {"tensorflow": self.tf.__version__}
        if self.job.device == "cpu":
            return details | {"oneDNN": "on" if _pywrap_util_port.IsMklEnabled() else "off"}
        gpu = self.tf.config.list_physical_devices("GPU")[0]
        build = self.tf.sysconfig.get_build_info()
        return details | {
            "GPU": self.tf.config.experimental.get_device_details(gpu)["device_name"],
            "CUDA": f"{build['cuda_version']}, cuDNN {build['cudnn_version']}",
        }

    def put(self, array: np.ndarray) -> Any:
        with self.tf.device("GPU:0" if self.job.device == "gpu" else "CPU:0"):
            return self.tf.identity(self.tf.constant(array))

    def wait(self) -> None:
        self.tf.test.experimental.sync_devices()


class TensorFlowArrays(DeviceArrays):
    """Multiply and copy tensors on a workload's device; TensorFlow allocates each result."""

    def __init__(self, workload: TensorFlowWorkload) -> None:
        self.workload, self.tf = workload, workload.tf

    def put(self, array: np.ndarray) -> Any:
        return self._waited_for(self.workload.put(array))

    def operand(self, array: np.ndarray) -> Any:
        is_mixed = self.workload.job.is_mixed
        dtype = self.tf.bfloat16 if is_mixed else self.tf.float32
        return self._waited_for(self.tf.cast(self.put(array), dtype))

    def fetch(self, array: Any, step: int = 1) -> np.ndarray:
        return self.tf.cast(array[::step], self.tf.float32).numpy()

    def address(self, array: Any) -> int | None:
        if self.workload.job.device == "gpu":
            return None
        return np.asarray(memoryview(array)).ctypes.data

    def multiply(self, a: Any, b: Any, into: Any) -> Any:
        return self._waited_for(self.tf.matmul(a, b))

    def copy(self, source: Any, into: Any) -> Any:
        # tf.identity and keras.ops.copy return the same memory
        return self._waited_for(self.tf.raw_ops.DeepCopy(x=source))

    def _waited_for(self, tensor: Any) -> Any:
        self.workload.wait()
        return tensor


WORKLOAD = TensorFlowWorkload
