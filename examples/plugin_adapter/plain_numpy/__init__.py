"""The adapter: what crossbench asks in its own process, before a worker process starts.

The framework itself is imported in `build` alone, which runs in the worker process. NumPy needs no
such care, but torch takes seconds to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbench.workload import Adapter, Job, versions

if TYPE_CHECKING:
    from .workload import PlainNumpyWorkload


class PlainNumpyAdapter(Adapter):
    """Multilayer perceptrons in NumPy, trained by SGD."""

    title = "plain NumPy"

    def available(self, device: str) -> str | None:
        return None if device == "cpu" else "NumPy runs on the CPU only"

    def installed(self) -> dict[str, str]:
        return versions("numpy")

    def build(self, job: Job) -> PlainNumpyWorkload:
        from .workload import PlainNumpyWorkload

        return PlainNumpyWorkload(job)


ADAPTER = PlainNumpyAdapter()
