"""Train a model in Keras 3 on TensorFlow, JAX or PyTorch.

Keras has one backend per process, chosen before it is imported. Each has an adapter of its own,
since it needs other packages and another environment.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from ...inputs.names import BFLOAT16, FLOAT32, IDIOMATIC
from ...workload import Adapter, Job, Variant, VariantModules, missing, versions
from ..jax import ADAPTER as JAX, GPU_PLUGINS, missing_plugin
from ..torch import ADAPTER as TORCH
from . import program
from .workload import KerasWorkload

VARIANTS = {
    IDIOMATIC: Variant("compile and train_on_batch, on TensorFlow"),
    "jit": Variant("on TensorFlow with jit_compile=True, which a GPU has by default", ("cpu",)),
    "jax": Variant("compile and train_on_batch, on JAX"),
    "torch": Variant("compile and train_on_batch, on PyTorch"),
}


class KerasAdapter(Adapter):
    """Build models in Keras on the backend that a subclass names, by the module of that name."""

    backend: str

    def required_environment(self, device: str) -> dict[str, str]:
        return {
            "KERAS_BACKEND": self.backend,
            # neither read a user's keras.json nor write one
            "KERAS_HOME": os.devnull,
            "KERAS_NNX_ENABLED": "false",
        }

    def lacks(self, compute: str, device: str) -> str | None:
        return None

    def build(self, job: Job) -> KerasWorkload:
        return import_module(f".{self.backend}", __name__).WORKLOAD(job)


class KerasOnTensorFlow(KerasAdapter):
    title = "Keras (TensorFlow)"
    program_computes = (FLOAT32, BFLOAT16)
    backend = "tensorflow"
    speed_variables = (
        *("TF_ENABLE_", "TF_DISABLE_", "TF_XLA_", "TF_NUM_", "TF_CPU_", "TF_GPU_", "TF_CUDNN_"),
        *("TF_DETERMINISTIC_", "TF_FORCE_", "XLA_"),
    )

    def available(self, device: str) -> str | None:
        if not versions("tensorflow-cpu"):
            return missing("keras", "keras", "tensorflow")
        if device == "gpu" and not versions("tensorflow"):
            return "tensorflow-cpu is built without CUDA: pip install 'tensorflow[and-cuda]'"
        return missing("keras", "keras")

    def installed(self) -> dict[str, str]:
        return versions("keras", "tensorflow", "tensorflow-cpu")

    def environment(self, device: str, threads: int) -> dict[str, str]:
        return {"TF_CPP_MIN_LOG_LEVEL": "2"}  # warnings of the CPU's features and missing GPUs


class KerasOnJax(KerasAdapter):
    title = "Keras (JAX)"
    backend = "jax"
    speed_variables = JAX.speed_variables

    def available(self, device: str) -> str | None:
        return missing("keras,jax", "keras", "jax") or missing_plugin(device)

    def installed(self) -> dict[str, str]:
        return versions("keras", "jax", "jaxlib", *GPU_PLUGINS)

    def required_environment(self, device: str) -> dict[str, str]:
        return super().required_environment(device) | JAX.required_environment(device)

    def proof_environment(self, device: str, cache: Path) -> dict[str, str]:
        return JAX.proof_environment(device, cache)


class KerasOnTorch(KerasAdapter):
    title = "Keras (torch)"
    backend = "torch"
    speed_variables = TORCH.speed_variables

    def available(self, device: str) -> str | None:
        return missing("keras,torch", "keras", "torch") or TORCH.available(device)

    def installed(self) -> dict[str, str]:
        return versions("keras") | TORCH.installed()

    def required_environment(self, device: str) -> dict[str, str]:
        own = {"KERAS_TORCH_DEVICE": "cuda" if device == "gpu" else "cpu"}
        return super().required_environment(device) | own


class KerasBackends(VariantModules, KerasOnTensorFlow):
    variants = VARIANTS
    programs = program

    def of_variant(self, name: str) -> Adapter:
        return {"jax": KerasOnJax(), "torch": KerasOnTorch()}.get(name, self)


ADAPTER = KerasBackends()
