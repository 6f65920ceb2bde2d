"""The adapter of Equinox, whose models are written as its tutorials write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbench.workload import Job, ProgramModules, versions

if TYPE_CHECKING:
    from .workload import EquinoxWorkload

PACKAGES = ("equinox", "jax", "optax")
GPU_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")


class EquinoxAdapter(ProgramModules):
    """Train in Equinox: its layers vmapped over the batch, and an optax optimizer."""

    title = "Equinox"

    def available(self, device: str) -> str | None:
        if absent := [package for package in PACKAGES if not versions(package)]:
            return f"not installed: pip install {' '.join(absent)}"
        if device == "gpu" and not versions(*GPU_PLUGINS):
            return "jax has no GPU plugin: pip install 'jax[cuda13]'"
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

    def build(self, job: Job) -> EquinoxWorkload:
        from .workload import EquinoxWorkload

        return EquinoxWorkload(job)


ADAPTER = EquinoxAdapter()
