"""Adapt a framework in Julia: what is installed, what is missing, and the worker's environment."""

from __future__ import annotations

from ..inputs.names import BFLOAT16
from ..workload import Adapter, Job, Unavailable, missing, versions
from . import julia
from .julia import Packages
from .workload import JuliaWorkload


class JuliaAdapter(Adapter):
    """A base for the adapters of frameworks in Julia."""

    name: str
    """The framework's name on the command line, and that of the extra that lists juliacall."""

    workload: type[JuliaWorkload]
    """Trains, with the framework's packages in Julia and its way to write programs."""

    @property
    def packages(self) -> Packages:
        return self.workload.packages

    def build(self, job: Job) -> JuliaWorkload:
        return self.workload(job)

    program_suffix = ".jl"
    arrays_suffix = ".bin"
    speed_variables = (
        *("JULIA_NUM_", "JULIA_GC_", "JULIA_CPU_", "JULIA_EXCLUSIVE", "JULIA_IMAGE_"),
        *("JULIA_LLVM_", "JULIA_CUDA_", "JULIA_NNLIB_"),
        *("PYTHON_JULIACALL_OPTIMIZE", "PYTHON_JULIACALL_MIN_OPTLEVEL", "PYTHON_JULIACALL_INLINE"),
        *("PYTHON_JULIACALL_CHECK_BOUNDS", "PYTHON_JULIACALL_COMPILE"),
        "PYTHON_JULIACALL_HEAP_SIZE_HINT",
    )

    def available(self, device: str) -> str | None:
        return missing(self.name, "juliacall")

    def lacks(self, compute: str, device: str) -> str | None:
        if compute == BFLOAT16:
            return f"{self.title} has no mixed precision: its bf16 makes the weights BFloat16"
        return None

    def left_out(self) -> str | None:
        if julia.is_installed(self.packages):
            return None
        return f"{self.title} is installed on the first run that names it: --frameworks {self.name}"

    def installed(self) -> dict[str, str]:
        found = julia.installed_versions(self.packages) | versions("juliacall")
        try:
            executable = julia.find()
            found["Julia"] = (
                f"{executable[1]} ({executable[0]})" if executable else "downloaded on first use"
            )
        except Unavailable as reason:
            found["Julia"] = str(reason)
        return found

    def environment(self, device: str, threads: int) -> dict[str, str]:
        return {
            "PYTHON_JULIACALL_THREADS": str(threads),
            # with more than one thread Julia crashes without its own signal handlers
            "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
            "PYTHON_JULIACALL_STARTUP_FILE": "no",
        }

    def to_install(self, device: str) -> str | None:
        return julia.to_install(self.packages, device)

    def install(self, device: str) -> None:
        julia.install(self.packages, device)
