"""The adapter of Equinox, whose models are written as its tutorials write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbench.adapters.jax import GPU_PLUGINS, JaxAdapter, missing_plugin
from crossbench.workload import Adapter, Job, versions

from . import program

if TYPE_CHECKING:
    from .workload import EquinoxWorkload

PACKAGES = ("equinox", "jax", "optax")
JAX = JaxAdapter()
"""Answers for JAX, which Equinox runs on."""


class EquinoxAdapter(Adapter):
    """Train in Equinox: its layers vmapped over the batch, and an optax optimizer."""

    title = "Equinox"
    programs = program
    speed_variables = JAX.speed_variables

    def available(self, device: str) -> str | None:
        if absent := [package for package in PACKAGES if not versions(package)]:
            return f"not installed: pip install {' '.join(absent)}"
        return missing_plugin(device)

    def installed(self) -> dict[str, str]:
        return versions(*PACKAGES, *GPU_PLUGINS)

    def required_environment(self, device: str) -> dict[str, str]:
        return JAX.required_environment(device)

    def build(self, job: Job) -> EquinoxWorkload:
        from .workload import EquinoxWorkload

        return EquinoxWorkload(job)


ADAPTER = EquinoxAdapter()
