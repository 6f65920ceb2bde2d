"""Train in PyTorch as fast as it can be made on a CPU.

What takes the time in the idiomatic loop, by torch.profiler, and what is done about it:

- Convolutions and max-pools take most of a CNN's step, in a layout that oneDNN converts for each of
  them, over activations that do not fit the caches. Pictures and kernels have their channels last,
  and a batch is cut into pieces whose gradients are added. Within a piece a run of convolutions,
  max-pools and ReLUs keeps oneDNN's own layout: a piece of 125 pictures took 8.7 instead of 11.5
  milliseconds (LeNet, one thread of a Xeon with AVX-512).
- ReLU and max-pool go through the convolutions' whole output. The max-pool comes first here: values
  and gradients stay the same, and the ReLU has fewer of them. The LeNet was 1.15 times as fast,
  mnist_cnn 1.1 times.
- After each operation one core waits for the other. So each thread trains on pieces of its own, and
  the operations of a piece are not spread over the cores. PyTorch's second thread waits busily
  after an optimizer step on two threads: it slowed the LeNet's pieces down by a tenth, so a small
  model is updated in one.
- The kernel clears each page of a large tensor that was freed and is allocated anew. In the
  environment of this variant the C library keeps the memory that is freed.
- Adam goes through the memory of a large embedding once for each term of its formula. PyTorch has a
  fused kernel for SGD, Adam and AdamW.

Which part matters, by benchmarks/ladder.py on two cores of an AMD EPYC (Zen 5), the seconds of an
epoch in one run relative to the idiomatic row's: on the LeNet keeping memory brings most (0.35
alone), then the layout (0.25 with it) and the pieces (0.18, which keep their memory by themselves);
on mnist_cnn it is the pieces (0.73 to 0.78; memory alone 0.90), on text_lstm the memory (0.65;
pieces alone 0.95), on gpt_char the memory and the fused optimizer (0.90 together). On resnet63,
which is not cut, memory alone takes 0.81 of the time, all of it 0.95. The pool before the ReLU and
the fused optimizer brought nothing on the LeNet and mnist_cnn there once memory was kept; on the
Xeon the first did.

RMSprop and Adadelta stay as they are: updating in blocks that fit a core's cache, or a share in
each thread, was no faster. Neither was a ReLU that writes over its input. A convolution and its
max-pool by blocks of examples, so that the pool finds its input in a cache, brought 5 %.

How many pieces are best is tried on the first batch, in the first epoch. A batch norm needs the
whole batch at once, so a model with one is not cut. On a GPU nothing is cut: its proof
passed on an H100, nobody has timed it.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from ... import models
from ...models.model import Weights
from ...models.reordered import pool_before_relu
from ...workload import Batches, Job
from .channels_last import ChannelsLastWorkload, is_unsafe
from .layers import clip
from .program import SEED

PIECES_PER_THREAD = (1, 4)
"""Numbers of pieces that are tried, beside the whole batch."""
ATTEMPTS = 6
"""How often each of them is timed; the fastest counts."""
MIN_GAIN = 0.1
"""Share of a whole batch's seconds that pieces have to save: a smaller gain may be chance."""
SMALL_MODEL = 1_000_000
"""Parameters of a model that one thread updates in less than a millisecond."""


class TunedWorkload(ChannelsLastWorkload):
    """Train by pieces on several threads, with the fastest form of the optimizer."""

    is_fused = True

    def __init__(self, job: Job) -> None:
        super().__init__(replace(job, model=pool_before_relu(job.model)))
        self.threads_of_job = job.threads
        normed = any(isinstance(named.layer, models.BatchNorm) for named in job.model.all_layers())
        size = 0 if normed or self.device.type == "cuda" else job.threads
        self.replicas = [Replica(self, SEED + 1 + index) for index in range(size)]
        self.pool = ThreadPoolExecutor(
            max(1, size), initializer=torch.set_num_threads, initargs=(1,)
        )
        self.batch_size = 0
        self.pieces: int | None = None
        self.source_code = ""  # it takes other steps than what is written there

    def load_weights(self, weights: Weights) -> None:
        super().load_weights(weights)
        for replica in self.replicas:
            replica.generator.manual_seed(replica.seed)

    def place(self, batches: Batches) -> None:
        super().place(batches)
        if batches.batch_size != self.batch_size:
            self.batch_size, self.pieces = batches.batch_size, None

    def step(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> Tensor:
        loss = self.backward(inputs, labels, masks)
        self.update()
        return loss

    def backward(self, inputs: Tensor, labels: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
        self.optimizer.zero_grad()
        if self.pieces is None:
            self.pieces = self._fastest(inputs, labels, masks)
        loss, gradients = self._gradients(self.pieces, inputs, labels, masks)
        for parameter, gradient in zip(self.trained, gradients, strict=True):
            parameter.grad = gradient
        return loss

    def update(self) -> None:
        """Change the weights; where pieces were trained and the model is small, in one thread.

        A second one would wait busily afterwards, in the time of the pieces' threads.
        """
        is_small = sum(p.numel() for p in self.trained) <= SMALL_MODEL
        one_thread = is_small and self.pieces != 1
        if one_thread:
            torch.set_num_threads(1)
        if self.description.clip_norm is not None:
            clip(self.trained, self.description.clip_norm)
        self.optimizer.step()
        if self.schedule:
            self.schedule.step()
        if one_thread:
            torch.set_num_threads(self.threads_of_job)

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


def use_blocked_layout(network: nn.Sequential) -> None:
    """Have each run of convolutions, max-pools and ReLUs compute in oneDNN's own layout.

    A hook before its first module and one after its last convert its input and output.
    """
    runs: list[list[nn.Module]] = [[]]
    for module in network:
        if isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.ReLU) and not is_unsafe(module):
            runs[-1].append(module)
        else:
            runs.append([])
    for run in runs:
        if any(isinstance(module, nn.Conv2d) for module in run):
            run[0].register_forward_pre_hook(lambda _, inputs: (inputs[0].to_mkldnn(),))
            run[-1].register_forward_hook(lambda *arguments: arguments[-1].to_dense())


class Replica:
    """Compute gradients in one thread, by a copy of the modules that shares their parameters."""

    def __init__(self, workload: TunedWorkload, seed: int) -> None:
        self.seed, self.generator = seed, torch.Generator(workload.device)
        self.parameters = workload.trained
        self.criterion, self.autocast = workload.training.loss_function, workload.autocast
        tensors = [*workload.module.parameters(), *workload.module.buffers()]
        self.module = copy.deepcopy(workload.module, {id(tensor): tensor for tensor in tensors})
        # oneDNN has no float64, and none of its own layout in bfloat16: there the same modules
        # compute in the layout of the whole batch
        if workload.dtype == torch.float32 and not workload.is_mixed:
            use_blocked_layout(self.module)
        self.dropouts: dict[str, PieceDropout] = {}
        names = {id(module): name for name, module in workload.dropouts.items()}
        for path, module in list(workload.module.named_modules()):
            if id(module) in names:
                own = self.dropouts[names[id(module)]] = PieceDropout(module.p, self.generator)
                self.module.set_submodule(path, own)

    def gradients(self, pieces: Sequence[Any], size: int) -> tuple[Any, list[Any]]:
        """Return what the pieces, of inputs, labels and masks, add to the loss of a batch of this
        size, and to its gradients.
        """
        losses: list[Any] = []
        total: list[Any] = []
        for inputs, labels, masks in pieces:
            for name, dropout in self.dropouts.items():
                dropout.mask = masks.get(name)
            with self.autocast():  # of this thread
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
