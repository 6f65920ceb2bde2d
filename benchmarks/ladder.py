"""Measure what each part of the tuned variants brings, alone and together: an adapter for each
framework, with a variant for each part.

Run by hand, the rounds paired in one run:

python -m crossbench --frameworks benchmarks/ladder.py:TORCH --variants all --data synthetic \
    --model lenet --batches 10 --rounds 6 --details

TORCH, JAX or FLUX. The column × idiomatic is what each part brings. In the rows whose names begin
with "kept" the C library keeps the memory that it frees; the last of them is the tuned variant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from crossbench.adapters.flux import FluxAdapter
from crossbench.adapters.jax import JaxAdapter
from crossbench.adapters.jax.source import OWN_LAYERS
from crossbench.adapters.jax.workload import JaxWorkload
from crossbench.adapters.torch import TorchAdapter
from crossbench.adapters.torch.workload import TorchWorkload
from crossbench.inputs.names import IDIOMATIC, MALLOC
from crossbench.models import MaxPool
from crossbench.models.reordered import pool_before_relu
from crossbench.source.layers import LayerSource
from crossbench.workload import KEEP_FREED_MEMORY, MALLOC_VARIANT, Job, Variant

Build = Callable[[Job], Any]


def kept(part: str) -> str:
    """Return the name of the variant with a part where freed memory is kept."""
    return f"kept_{part}"


def ladder(adapter: type, parts: dict[str, tuple[str, Build]]) -> Any:
    """Return an adapter whose variants have one of the parts each, or keep freed memory, or both.

    parts: what each is and builds, by name.
    """
    found = {IDIOMATIC: Variant("the idiomatic variant"), MALLOC: MALLOC_VARIANT}
    for name, (summary, _) in parts.items():
        found[name] = Variant(summary, ("cpu",))
        found[kept(name)] = Variant(summary, ("cpu",), KEEP_FREED_MEMORY)

    class Ladder(adapter):  # type: ignore[misc]
        variants = found

        def build(self, job: Job) -> Any:
            for name, (_, build) in parts.items():
                if job.variant in (name, kept(name)):
                    return build(job)
            return super().build(job)

    return Ladder()


def tuned(framework: str) -> Build:
    """Return what builds the framework's tuned workload; imported in the worker process alone."""
    return lambda job: import_module(f"crossbench.adapters.{framework}.tuned").WORKLOAD(job)


class FusedWorkload(TorchWorkload):
    """Train as the idiomatic workload does, with the fused optimizer."""

    is_fused = True


def channels_last(job: Job) -> Any:
    return import_module("crossbench.adapters.torch.channels_last").WORKLOAD(job)


class DisjointPools(JaxWorkload):
    """Train as the idiomatic workload does, with another form of the max-pool."""

    def layer_source(self, named: Any, dtypes: Any) -> LayerSource:
        layer = named.layer
        if isinstance(layer, MaxPool) and layer.window == layer.stride:
            pooled = f"disjoint_max_pool({{x}}, {layer.window})"
            return LayerSource(None, pooled, definitions=(OWN_LAYERS,))
        return super().layer_source(named, dtypes)


def on_one_device(job: Job) -> Any:
    """Build jax:tuned on the first of the CPU's devices alone."""
    workload = tuned("jax")(job)
    workload.devices = workload.devices[:1]
    return workload


def in_one_piece(job: Job) -> Any:
    """Build flux:tuned with its layers and optimizer, the batch in one piece."""
    workload = tuned("flux")(job)
    place = workload.place

    def place_whole(batches: Any) -> None:
        place(batches)
        workload.workload.pieces = workload.julia.split_batches(workload.workload, 1)

    workload.place = place_whole
    return workload


TORCH = ladder(
    TorchAdapter,
    {
        "channels_last": ("pictures and kernels with their channels last", channels_last),
        "pool_before_relu": (
            "the max-pool before its ReLU",
            lambda job: TorchWorkload(replace(job, model=pool_before_relu(job.model))),
        ),
        "fused": ("the fused optimizer", FusedWorkload),
        "pieces": ("all, and pieces of a batch in oneDNN's layout", tuned("torch")),
    },
)
JAX = ladder(
    JaxAdapter,
    {
        "disjoint_pool": ("the max-pool as a chain of comparisons", DisjointPools),
        "one_device": ("pieces of a batch, their convolutions by patches", on_one_device),
        "pieces": ("the same on two devices of the CPU", tuned("jax")),
    },
)
FLUX = ladder(
    FluxAdapter,
    {
        "one_piece": ("other layers and another update, the batch whole", in_one_piece),
        "pieces": ("the same in pieces, on all threads", tuned("flux")),
    },
)
