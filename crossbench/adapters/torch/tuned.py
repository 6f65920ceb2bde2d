"""Train in PyTorch as fast as it can be made on a CPU.

What takes the time in the idiomatic loop, by torch.profiler, and what is done about it:

- Convolutions and max-pools take most of a CNN's step, in a layout that oneDNN converts for each of
  them, over activations that do not fit the caches. Pictures and kernels have their channels last,
  and a batch is cut into pieces whose gradients are added.
- ReLU and max-pool go through the convolutions' whole output. The max-pool comes first here: values
  and gradients stay the same, and the ReLU has fewer of them. The LeNet was 1.15 times as fast,
  mnist_cnn 1.1 times.
- After each operation one core waits for the other. So each thread trains on pieces of its own, and
  the operations of a piece are not spread over the cores.
- The kernel clears each page of a large tensor that was freed and is allocated anew. The process
  keeps the memory that it frees.
- Adam goes through the memory of a large embedding once for each term of its formula. PyTorch has a
  fused kernel for SGD, Adam and AdamW.

RMSprop and Adadelta stay as they are: updating in blocks that fit a core's cache, or a share in
each thread, was no faster. Neither was a ReLU that writes over its input. A convolution and its
max-pool by blocks of examples, so that the pool finds its input in a cache, brought 5 %.

How many pieces are best is tried on the first batch, in the first epoch. A batch norm needs the
whole batch at once, so a model with one is not cut. On a GPU nothing is cut; nobody has seen that
run yet.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import copy
import ctypes
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from ...models.layers import BatchNorm
from ...models.model import Weights
from ...models.reordered import pool_before_relu
from ...models.training import SGD, Adam, AdamW
from ...workload import Batches, Job
from . import SEED, optimizer
from .channels_last import ChannelsLastWorkload

PIECES_PER_THREAD = (1, 4)
"""Numbers of pieces that are tried, beside the whole batch."""
ATTEMPTS = 6
"""How often each of them is timed; the fastest counts."""
MIN_GAIN = 0.1
"""Share of a whole batch's seconds that pieces have to save: a smaller gain may be chance."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt, from its malloc.h."""


class TunedWorkload(ChannelsLastWorkload):
    """Train by pieces on several threads, with the fastest form of the optimizer."""

    def __init__(self, job: Job) -> None:
        super().__init__(replace(job, model=pool_before_relu(job.model)))
        keep_freed_memory()
        normed = any(isinstance(named.layer, BatchNorm) for named in job.model.all_layers())
        size = 0 if normed or self.device.type == "cuda" else job.threads
        self.replicas = [Replica(self, SEED + 1 + index) for index in range(size)]
        self.pool = ThreadPoolExecutor(
            max(1, size), initializer=torch.set_num_threads, initargs=(1,)
        )
        self.pieces: int | None = None

    def new_optimizer(self) -> torch.optim.Optimizer:
        if isinstance(self.description, SGD | Adam | AdamW):
            return optimizer(self.description, self.groups, fused=True)
        return super().new_optimizer()

    def load_weights(self, weights: Weights) -> None:
        super().load_weights(weights)
        for replica in self.replicas:
            replica.generator.manual_seed(replica.seed)

    def place(self, batches: Batches) -> None:
        super().place(batches)
        self.pieces = None

    def step(self, inputs: Tensor, labels: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
        if self.pieces is None:
            self.pieces = self._fastest(inputs, labels, masks)
        loss, gradients = self._gradients(self.pieces, inputs, labels, masks)
        for parameter, gradient in zip(self.trained, gradients, strict=True):
            parameter.grad = gradient
        self.update()
        return loss

    def details(self) -> dict[str, str]:
        if self.pieces is None:
            return super().details()
        count = "1" if self.pieces == 1 else f"{self.pieces} on {len(self.replicas)} threads"
        return super().details() | {"pieces of a batch": count}

    def allocated(self) -> int | None:
        return None  # the profiler sees one thread alone

    def _fastest(self, *batch: Any) -> int:
        """Return the number of pieces that trains the batch fastest; change nothing."""
        threads, (_, labels, _) = len(self.replicas), batch
        numbers = [threads * n for n in PIECES_PER_THREAD if 1 < threads * n <= len(labels)]
        if not numbers:
            return 1
        seconds = dict.fromkeys([1, *numbers], float("inf"))
        states = [replica.generator.get_state() for replica in self.replicas]
        with self._restored():
            for _ in range(ATTEMPTS):
                for pieces, before in seconds.items():
                    start = time.perf_counter()
                    self._gradients(pieces, *batch)
                    seconds[pieces] = min(before, time.perf_counter() - start)
        for replica, state in zip(self.replicas, states, strict=True):
            replica.generator.set_state(state)
        fastest = min(seconds, key=lambda pieces: seconds[pieces])
        return fastest if seconds[fastest] < (1 - MIN_GAIN) * seconds[1] else 1

    def _gradients(
        self, pieces: int, inputs: Tensor, labels: Tensor, masks: Mapping[str, Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the loss of a batch and its gradients, each with the strides of its parameter."""
        if pieces == 1:
            loss = self.loss(inputs, labels, masks)
            return loss.detach(), self._aligned(torch.autograd.grad(loss, self.trained))
        cut = zip(
            inputs.tensor_split(pieces),
            labels.tensor_split(pieces),
            _split_masks(masks, pieces),
            strict=True,
        )
        parts, threads = list(cut), len(self.replicas)
        work = [
            self.pool.submit(replica.gradients, parts[index::threads], len(labels))
            for index, replica in enumerate(self.replicas)
        ]
        losses, gradients = zip(*(part.result() for part in work), strict=True)
        return sum(losses), self._aligned(reduce(_sums, gradients))

    def _aligned(self, gradients: Sequence[Any]) -> list[Tensor]:
        """Return the gradients with the strides of their parameters: a fused kernel needs that."""
        return [
            g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
            for g, p in zip(gradients, self.trained, strict=True)
        ]


def keep_freed_memory() -> None:
    """Have the process keep the memory that it frees, where the C library is glibc.

    Otherwise each large tensor gets pages that the kernel has to clear first.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


class Replica:
    """Compute gradients in one thread, by a copy of the modules that shares their parameters."""

    def __init__(self, workload: TunedWorkload, seed: int) -> None:
        self.seed, self.generator = seed, torch.Generator(workload.device)
        self.parameters = workload.trained
        self.criterion = workload.criterion
        tensors = [*workload.module.parameters(), *workload.module.buffers()]
        self.module = copy.deepcopy(workload.module, {id(tensor): tensor for tensor in tensors})
        self.dropouts: dict[str, PieceDropout] = {}
        for path, module in list(self.module.named_modules()):
            if isinstance(module, nn.Dropout):
                parent, _, name = path.rpartition(".")
                self.dropouts[name] = PieceDropout(module.p, self.generator)
                setattr(self.module.get_submodule(parent), name, self.dropouts[name])

    def gradients(self, pieces: Sequence[Any], size: int) -> tuple[Any, list[Any]]:
        """Return what the pieces, of inputs, labels and masks, add to the loss of a batch of this
        size, and to its gradients.
        """
        losses: list[Any] = []
        total: list[Any] = []
        for inputs, labels, masks in pieces:
            for name, dropout in self.dropouts.items():
                dropout.mask = masks.get(name)
            loss = self.criterion(self.module(inputs), labels) * (len(labels) / size)
            gradients = torch.autograd.grad(loss, self.parameters)
            total = _sums(total, gradients) if total else list(gradients)
            losses.append(loss.detach())
        return sum(losses), total


class PieceDropout(nn.Module):
    """Drop values by the given mask, or by a generator that no other thread draws from."""

    mask: Tensor | None = None

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        super().__init__()
        self.rate, self.generator = rate, generator

    def forward(self, x: Tensor) -> Tensor:
        mask = self.mask
        if mask is None:
            mask = torch.empty_like(x).bernoulli_(1 - self.rate, generator=self.generator)
        return x * mask / (1 - self.rate)


def _sums(total: Sequence[Tensor], more: Sequence[Tensor]) -> list[Tensor]:
    """Add the second tensors to the first ones, in place."""
    return [a.add_(b) for a, b in zip(total, more, strict=True)]


def _split_masks(masks: Mapping[str, Tensor], pieces: int) -> list[dict[str, Tensor]]:
    """Return the masks of each piece of a batch."""
    split = {name: mask.tensor_split(pieces) for name, mask in masks.items()}
    return [{name: parts[i] for name, parts in split.items()} for i in range(pieces)]


WORKLOAD = TunedWorkload
