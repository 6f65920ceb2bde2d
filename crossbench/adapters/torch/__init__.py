"""PyTorch: an nn.Sequential trained by an ordinary eager loop."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...models.layers import (
    GRU,
    LSTM,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool,
    MaxPool,
    OneHot,
    ReLU,
    Residual,
)
from ...models.model import NamedLayer, Weights
from ...models.training import (
    SGD,
    Adadelta,
    Adam,
    BinaryCrossEntropy,
    Loss,
    Optimizer,
    RMSprop,
    SoftmaxCrossEntropy,
)
from ...workload import Adapter, Batch, Batches, Job, missing, placed, versions

if TYPE_CHECKING:
    import torch

SEED = 0
"""Of the dropouts' draws."""


def sequential(layers: Iterable[NamedLayer]) -> torch.nn.Sequential:
    from torch import nn

    return nn.Sequential(OrderedDict((named.name, module(named)) for named in layers))


def module(named: NamedLayer) -> torch.nn.Module:
    """The layer as a torch.nn.Module; its parameters have the canonical axes (see `canonical`)."""
    from torch import nn

    from . import layers

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
        case BatchNorm(epsilon, momentum):
            norm = nn.BatchNorm2d if len(named.input_shape) == 3 else nn.BatchNorm1d
            # torch's momentum is the share of the new value
            return norm(named.input_shape[0], epsilon, 1 - momentum)
        case Dropout(rate):
            return nn.Dropout(rate)
        case GlobalAveragePool() if len(named.input_shape) == 3:
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        case GlobalAveragePool():
            return layers.SequenceMean()
        case Embedding(vocabulary, features):
            return nn.Embedding(vocabulary, features)
        case OneHot(vocabulary):
            return layers.OneHot(vocabulary)
        case LSTM(features, bidirectional) | GRU(features, bidirectional):
            recurrent = layers.LastOfLSTM if isinstance(named.layer, LSTM) else layers.LastOfGRU
            options = {"batch_first": True, "bidirectional": bidirectional}
            return layers.one_bias(recurrent(named.input_shape[-1], features, **options))
        case Residual():
            return layers.Residual(sequential(named.body), sequential(named.shortcut))
    raise NotImplementedError(f"no translation to torch of the layer {named.layer}")


def canonical(path: str) -> str:
    """The name of "residual1.body.conv2.weight" is "conv2.weight", of "lstm1.bias_ih_l0"
    "lstm1.bias".
    """
    layer, parameter = path.split(".")[-2:]
    return f"{layer}.{parameter.replace('_l0', '').replace('bias_ih', 'bias')}"


def criterion(loss: Loss) -> torch.nn.Module:
    from torch import nn

    from . import layers

    match loss:
        case SoftmaxCrossEntropy():
            return nn.CrossEntropyLoss()
        case BinaryCrossEntropy():
            return layers.BinaryCrossEntropy()
    raise NotImplementedError(f"no translation to torch of the loss {loss}")


def optimizer(
    description: Optimizer, parameters: Iterator[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    from torch import optim

    match description:
        case SGD(learning_rate, momentum):
            return optim.SGD(parameters, lr=learning_rate, momentum=momentum)
        case Adam(learning_rate, beta1, beta2, epsilon):
            return optim.Adam(parameters, lr=learning_rate, betas=(beta1, beta2), eps=epsilon)
        case RMSprop(learning_rate, rho, epsilon):
            return optim.RMSprop(parameters, lr=learning_rate, alpha=rho, eps=epsilon)
        case Adadelta(learning_rate, rho, epsilon):
            return optim.Adadelta(parameters, lr=learning_rate, rho=rho, eps=epsilon)
    raise NotImplementedError(f"no translation to torch of the optimizer {description}")


def schedule(
    description: Optimizer, optimizer: torch.optim.Optimizer
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """How the learning rate changes from step to step; None where it does not."""
    from torch.optim.lr_scheduler import LambdaLR

    match description:
        case RMSprop(decay=decay) if decay:
            return LambdaLR(optimizer, lambda step: 1 / (1 + decay * step))
    return None


class TorchWorkload:
    def __init__(self, job: Job) -> None:
        import torch

        torch.set_num_threads(job.threads)
        # TensorFloat-32 keeps 10 bits of the mantissa; the table says float32
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        # choose the fastest of cuDNN's convolutions by trying them, as XLA and CUDA.jl do
        torch.backends.cudnn.benchmark = True
        self.torch = torch
        self.device = torch.device("cuda" if job.device == "gpu" else "cpu")
        self.dtype = getattr(torch, job.dtype)
        self.module = sequential(job.model.named_layers())
        self.module.to(self.device, self.dtype).train()
        modules = self.module.named_modules()
        self.dropouts = {p.split(".")[-1]: m for p, m in modules if isinstance(m, torch.nn.Dropout)}
        state = self.module.state_dict(keep_vars=True)
        tensors = {canonical(path): tensor for path, tensor in state.items()}
        self.tensors = {name: tensors[name] for name in job.model.parameters}
        self.trained = {name: t for name, t in self.tensors.items() if t.requires_grad}
        self.criterion = criterion(job.model.loss)
        self.description = job.model.optimizer

    def load_weights(self, weights: Weights) -> None:
        with self.torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(self.torch.from_numpy(weights[name]))
        self.optimizer = optimizer(self.description, iter(self.trained.values()))
        self.schedule = schedule(self.description, self.optimizer)
        self.torch.manual_seed(SEED)

    def place(self, batches: Batches) -> None:
        self.batches = placed(batches, partial(self._placed, streamed=batches.streamed))

    def train_epoch(self) -> np.ndarray:
        losses = []
        for inputs, labels, kept in self.batches:
            self.optimizer.zero_grad()
            loss = self.criterion(self._logits(inputs, kept), labels)
            loss.backward()
            self.optimizer.step()
            if self.schedule:
                self.schedule.step()
            losses.append(loss.detach())
        epoch = self.torch.stack(losses).double().cpu()
        self._synchronize()  # the last losses do not wait for the last update
        return epoch.numpy()

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        inputs, labels, kept = self._placed(batch)
        with self._unchanged():
            loss = self.criterion(self._logits(inputs, kept), labels)
            gradients = self.torch.autograd.grad(loss, list(self.trained.values()))
        arrays = (gradient.cpu().numpy().copy() for gradient in gradients)
        return loss.item(), dict(zip(self.trained, arrays, strict=True))

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        self.module.eval()
        with self.torch.inference_mode():
            logits = self.module(self._tensor(inputs)).cpu().numpy()
        self.module.train()
        return logits

    def weights(self) -> Weights:
        return {n: tensor.detach().cpu().numpy().copy() for n, tensor in self.tensors.items()}

    def peak_memory(self) -> int | None:
        return self.torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None

    def free_memory(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

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

    def _logits(self, inputs: torch.Tensor, kept: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """In training; kept: what each dropout keeps, empty where it draws that itself."""
        if not kept:
            return self.module(inputs)
        from .layers import keep

        with ExitStack() as hooks:
            for name, mask in kept.items():
                hooks.enter_context(self.dropouts[name].register_forward_hook(keep(mask)))
            return self.module(inputs)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """A pass in training leaves running statistics and the dropouts' draws as they were."""
        before = [buffer.clone() for buffer in self.module.buffers()]
        with self.torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            yield
        with self.torch.no_grad():
            for buffer, values in zip(self.module.buffers(), before, strict=True):
                buffer.copy_(values)

    def _placed(self, batch: Batch, streamed: bool = False) -> tuple[Any, Any, dict[str, Any]]:
        move = partial(self._tensor, streamed=streamed)
        kept = {name: move(mask) for name, mask in (batch.kept or {}).items()}
        return move(batch.inputs), move(batch.labels), kept

    def _tensor(self, array: np.ndarray, streamed: bool = False) -> torch.Tensor:
        """streamed: through pinned memory, so that a GPU trains on while the array is copied."""
        tensor = self.torch.from_numpy(array)
        if streamed and self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


class TorchAdapter(Adapter):
    title = "PyTorch"

    def available(self, device: str) -> str | None:
        if reason := missing("torch", "torch"):
            return reason
        version = self.installed()["torch"]
        if device == "gpu" and version.endswith("+cpu"):
            return f"torch {version} is a build without CUDA: install torch's CUDA build"
        return None

    def installed(self) -> dict[str, str]:
        return versions("torch")

    def build(self, job: Job) -> TorchWorkload:
        return TorchWorkload(job)


ADAPTER = TorchAdapter()
