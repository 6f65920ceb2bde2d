"""Adapt PyTorch: what is installed, the variants, and what builds a workload."""

from __future__ import annotations

import sys
from typing import Any

from ...inputs.names import BFLOAT16, FLOAT32, IDIOMATIC, MALLOC
from ...models import Model
from ...workload import (
    KEEP_FREED_MEMORY,
    MALLOC_VARIANT,
    Adapter,
    Job,
    Variant,
    VariantModules,
    missing,
    versions,
)
from . import program
from .workload import TorchWorkload


class TorchAdapter(Adapter):
    """Build models in PyTorch as its tutorials do; a base for adapters of a loop of one's own."""

    title = "PyTorch"
    program_computes = (FLOAT32, BFLOAT16)
    speed_variables = ("TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_", "ATEN_")

    def available(self, device: str) -> str | None:
        if reason := missing("torch", "torch"):
            return reason
        version = self.installed()["torch"]
        if device == "gpu" and version.endswith("+cpu"):
            return f"torch {version} is built without CUDA: install a CUDA build of torch"
        return None

    def lacks(self, compute: str, device: str) -> str | None:
        return None

    def installed(self) -> dict[str, str]:
        return versions("torch")

    def describes(self, found: Any) -> bool:
        torch = sys.modules.get("torch")  # who has a module has imported it
        return torch is not None and isinstance(found, torch.nn.Module)

    def describe(self, found: Any, input_shape: tuple[int, ...]) -> Model:
        from .reading import from_torch

        return from_torch(found, input_shape)

    def build(self, job: Job) -> TorchWorkload:
        return TorchWorkload(job)


VARIANTS = {
    IDIOMATIC: Variant("an nn.Sequential in an ordinary eager loop"),
    MALLOC: MALLOC_VARIANT,
    "compile": Variant("torch.compile of the model with its loss"),
    "channels_last": Variant("pictures and kernels with their channels last in memory"),
    "tuned": Variant(
        "as fast as PyTorch can be made; adapters/torch/tuned.py says how",
        environment=KEEP_FREED_MEMORY,
    ),
    "graphs": Variant("torch.compile with CUDA graphs (mode reduce-overhead)", ("gpu",)),
}


class TorchVariants(VariantModules, TorchAdapter):
    variants = VARIANTS
    programs = program


ADAPTER = TorchVariants()
