"""PyTorch: an nn.Sequential trained by an ordinary eager loop."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..models.layers import Conv, Dense, Flatten, MaxPool, ReLU
from ..models.model import NamedLayer, Weights
from ..models.training import SGD, Loss, Optimizer, SoftmaxCrossEntropy
from ..workload import Adapter, Batches, Job, versions

if TYPE_CHECKING:
    import torch


def module(named: NamedLayer) -> torch.nn.Module:
    """The layer as a torch.nn.Module; its parameters have the canonical names and axes."""
    from torch import nn

    match named.layer:
        case Conv(features, kernel, stride, padding):
            return nn.Conv2d(named.input_shape[0], features, kernel, stride, padding)
        case MaxPool(window, stride):
            return nn.MaxPool2d(window, stride)
        case ReLU():
            return nn.ReLU()
        case Flatten():
            return nn.Flatten()
        case Dense(features):
            return nn.Linear(named.input_shape[0], features)
    raise NotImplementedError(f"no translation to torch of the layer {named.layer}")


def criterion(loss: Loss) -> torch.nn.Module:
    from torch import nn

    match loss:
        case SoftmaxCrossEntropy():
            return nn.CrossEntropyLoss()
    raise NotImplementedError(f"no translation to torch of the loss {loss}")


def optimizer(
    description: Optimizer, parameters: Iterator[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    from torch import optim

    match description:
        case SGD(learning_rate, momentum):
            return optim.SGD(parameters, lr=learning_rate, momentum=momentum)
    raise NotImplementedError(f"no translation to torch of the optimizer {description}")


class TorchWorkload:
    def __init__(self, job: Job) -> None:
        import torch

        torch.set_num_threads(job.threads)
        # TensorFloat-32 keeps 10 bits of the mantissa; the table says float32
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.torch = torch
        self.device = torch.device("cuda" if job.device == "gpu" else "cpu")
        self.dtype = getattr(torch, job.dtype)
        layers = [(named.name, module(named)) for named in job.model.named_layers()]
        self.module = torch.nn.Sequential(OrderedDict(layers))
        self.module.to(self.device, self.dtype).train()
        self.criterion = criterion(job.model.loss)
        self.description = job.model.optimizer

    def load_weights(self, weights: Weights) -> None:
        state = {name: self.torch.from_numpy(array) for name, array in weights.items()}
        self.module.load_state_dict(state)
        self.optimizer = optimizer(self.description, self.module.parameters())

    def place(self, batches: Batches) -> None:
        inputs = self.torch.from_numpy(batches.inputs).to(self.device)
        labels = self.torch.from_numpy(batches.labels).to(self.device)
        self.batches = list(zip(inputs, labels, strict=True))

    def train_epoch(self) -> np.ndarray:
        losses = []
        for inputs, labels in self.batches:
            self.optimizer.zero_grad()
            loss = self.criterion(self.module(inputs), labels)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        epoch = self.torch.stack(losses).double().cpu()
        self._synchronize()  # the last losses do not wait for the last update
        return epoch.numpy()

    def loss_and_gradients(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, Weights]:
        self.module.zero_grad()
        loss = self.criterion(self.module(self._tensor(inputs)), self._tensor(labels))
        loss.backward()
        gradients = {n: p.grad.cpu().numpy().copy() for n, p in self.module.named_parameters()}
        self.module.zero_grad()
        return loss.item(), gradients

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        with self.torch.inference_mode():
            return self.module(self._tensor(inputs)).cpu().numpy()

    def weights(self) -> Weights:
        return {n: p.detach().cpu().numpy().copy() for n, p in self.module.named_parameters()}

    def peak_memory(self) -> int | None:
        return self.torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None

    def threads(self) -> int | None:
        return self.torch.get_num_threads()

    def epoch_figures(self) -> dict[str, float]:
        return {}

    def allocated(self) -> int | None:
        if self.device.type == "cuda":
            counter = "allocated_bytes.all.allocated"
            before = self.torch.cuda.memory_stats()[counter]
            self.train_epoch()
            return self.torch.cuda.memory_stats()[counter] - before
        with self.torch.profiler.profile(profile_memory=True) as profile:
            self.train_epoch()
        events = profile.profiler.kineto_results.events()
        return sum(e.nbytes() for e in events if e.name() == "[memory]" and e.nbytes() > 0)

    def matrix_product(self, size: int) -> Callable[[], None]:
        a, b, out = self.torch.rand((3, size, size), device=self.device)
        return self._whole(lambda: self.torch.mm(a, b, out=out))

    def copy(self, size: int) -> Callable[[], None]:
        source, target = self.torch.rand((2, size // 4), device=self.device)
        return self._whole(lambda: target.copy_(source))

    def details(self) -> dict[str, str]:
        blas = re.search(
            r"(Math Kernel Library Version \S+|BLAS_INFO=\w+)", self.torch.__config__.show()
        )
        details = {"torch": str(self.torch.__version__), "BLAS": blas[0] if blas else "unknown"}
        if self.device.type == "cuda":
            details["GPU"] = self.torch.cuda.get_device_name()
            details["CUDA"] = (
                f"{self.torch.version.cuda}, cuDNN {self.torch.backends.cudnn.version()}"
            )
        return details

    def _whole(self, work: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            work()
            self._synchronize()

        return call

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return self.torch.from_numpy(array).to(self.device)


class TorchAdapter(Adapter):
    title = "PyTorch"

    def available(self, device: str) -> str | None:
        version = self.installed().get("torch")
        if version is None:
            return "torch is not installed: pip install 'crossbench[torch]'"
        if device == "gpu" and version.endswith("+cpu"):
            return f"torch {version} is a build without CUDA: install torch's CUDA build"
        return None

    def installed(self) -> dict[str, str]:
        return versions("torch")

    def build(self, job: Job) -> TorchWorkload:
        return TorchWorkload(job)


ADAPTER = TorchAdapter()
