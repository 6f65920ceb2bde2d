"""Make the environment of worker processes, and tell what of it the user has set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from .. import adapters
from ..data.download import DataUnavailable, cache_directory
from ..host.gpus import HIDDEN, TF32_OVERRIDE, find_gpus
from ..host.machine import processor_digest
from ..inputs.names import TF32
from ..inputs.printable import printable
from ..workload import Adapter
from .assignment import Assignment

THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("PJRT_NPROC", "NPROC"),  # XLA
)
"""What OpenMP, OpenBLAS, MKL and XLA read when they are loaded."""
ALLOCATORS = (
    *("MALLOC_", "TCMALLOC_", "MIMALLOC_", "GLIBC_TUNABLES"),
    *("LD_PRELOAD", "DYLD_INSERT_LIBRARIES"),
)
LIBRARIES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_"),
    *("ONEDNN_", "DNNL_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_"),
)
"""Beginnings of the names of variables that change how fast allocators, and the libraries that
frameworks share, are."""
NO_SETTINGS = ("HOME", "PATH", "DIR", "ROOT", "VISIBLE_DEVICES", "KMP_DUPLICATE_LIB_OK")
"""Ends of the names of those that tell where something is, choose a GPU, as cells do, or that a
framework sets where it is imported, and that change no speed."""
TEMPORARY_FOLDER = "tmp"
"""The workers' folder for temporary files, beside the data."""
SHARED_CORES = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Environment of the workers that prove, which run at the same time, unless the user has set it: no
thread of OpenMP keeps a core busy while it waits."""
COMPILED_FOLDER = "compiled"
"""The folder for what was compiled for proofs, in the cache; it has one for each processor."""


def user_settings(variants: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the user's environment variables that change the speed of these frameworks' variants,
    or of libraries that they share, but for those that a run sets itself.
    """
    used = [adapters.get(framework, variant) for framework, variant in variants]
    begins = ALLOCATORS + LIBRARIES + tuple(name for a in used for name in a.speed_variables)
    replaced = set(THREAD_VARIABLES)
    for adapter in used:
        replaced |= {*adapter.required_environment("cpu"), *adapter.required_environment("gpu")}
    return {
        name: printable(value)
        for name, value in sorted(os.environ.items())
        if name.startswith(begins) and not name.endswith(NO_SETTINGS) and name not in replaced
    }


def environment(assignment: Assignment) -> dict[str, str]:
    """Return the user's environment.

    It overrides the adapter's defaults, and what the measurement requires overrides it. Temporary
    files go to a folder beside the data, and are removed with it.
    """
    job, adapter = assignment.job, adapters.get(assignment.framework, assignment.job.variant)
    variant = adapters.variants(assignment.framework)[job.variant]
    found = (
        adapter.environment(job.device, job.threads)
        | os.environ
        | adapter.required_environment(job.device)
        | dict(variant.environment)
        | (HIDDEN if assignment.gpu is None else find_gpus().environment(assignment.gpu))
        | dict.fromkeys(THREAD_VARIABLES, str(job.threads))
        | {"TMPDIR": str(assignment.data / TEMPORARY_FOLDER)}
    )
    if job.compute == TF32:
        found.pop(TF32_OVERRIDE, None)
    return found


def proof_environment(assignment: Assignment) -> dict[str, str]:
    """Return the environment of a worker that proves."""
    adapter = adapters.get(assignment.framework, assignment.job.variant)
    kept = kept_programs_environment(adapter, assignment.job.device)
    return SHARED_CORES | environment(assignment) | kept


def kept_programs_environment(adapter: Adapter, device: str) -> dict[str, str]:
    """Return the environment of a process that times nothing: what it compiles is cached."""
    with suppress(DataUnavailable):
        folder = cache_directory() / COMPILED_FOLDER / processor_digest()
        return adapter.proof_environment(device, folder)
    return {}  # no home directory: nothing is kept
