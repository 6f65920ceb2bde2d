"""Adapt JAX with Flax NNX and optax: what is installed, the variants, what builds a workload."""

from __future__ import annotations

from pathlib import Path

from ...inputs.names import BFLOAT16, FLOAT32, IDIOMATIC, MALLOC, TF32
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
from .workload import PACKAGES, JaxWorkload

GPU_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
CACHE_BYTES = 2**28
"""Bytes of compiled programs that are kept for later proofs; a LeNet's are 0.2 MB."""


def missing_plugin(device: str) -> str | None:
    """Return what JAX needs for a GPU and how to install it; None for nothing."""
    if device == "gpu" and not versions(*GPU_PLUGINS):
        return "jax has no GPU plugin: pip install 'jax[cuda13]'"
    return None


class JaxAdapter(Adapter):
    """Build models in JAX as its tutorials do; a base for adapters of a loop of one's own."""

    title = "JAX/Flax"
    program_computes = (FLOAT32, TF32, BFLOAT16)
    speed_variables = ("XLA_", "JAX_")

    def available(self, device: str) -> str | None:
        return missing("jax", "jax", "flax", "optax") or missing_plugin(device)

    def lacks(self, compute: str, device: str) -> str | None:
        return None

    def installed(self) -> dict[str, str]:
        return versions(*PACKAGES, *GPU_PLUGINS)

    def required_environment(self, device: str) -> dict[str, str]:
        return {
            "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda,cpu",
            # a preallocated pool would be the peak, and gone for the other workers on the GPU
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            # a first epoch compiles, whatever the user's other programs have compiled before
            "JAX_ENABLE_COMPILATION_CACHE": "false",
        }

    def proof_environment(self, device: str, cache: Path) -> dict[str, str]:
        if not versions("filelock"):  # JAX needs it to keep its cache small
            return {}
        return {
            "JAX_ENABLE_COMPILATION_CACHE": "true",
            "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
            "JAX_COMPILATION_CACHE_MAX_SIZE": str(CACHE_BYTES),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def build(self, job: Job) -> JaxWorkload:
        return JaxWorkload(job)


VARIANTS = {
    IDIOMATIC: Variant("a Flax NNX model and an optax optimizer in one jitted training step"),
    MALLOC: MALLOC_VARIANT,
    "scan": Variant("the whole epoch in one call: lax.scan over the steps"),
    "tuned": Variant(
        "as fast as JAX can be made; adapters/jax/tuned.py says how",
        environment=KEEP_FREED_MEMORY,
    ),
}


class JaxVariants(VariantModules, JaxAdapter):
    variants = VARIANTS
    programs = program


ADAPTER = JaxVariants()
