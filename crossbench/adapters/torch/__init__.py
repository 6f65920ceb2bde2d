"""Train a model in PyTorch: an nn.Sequential in an ordinary eager loop."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...inputs.names import IDIOMATIC, MALLOC
from ...models.model import Model, NamedLayer, Weights
from ...workload import (
    KEEP_FREED_MEMORY,
    MALLOC_VARIANT,
    Adapter,
    Batch,
    Batches,
    Job,
    Variant,
    VariantModules,
    batches_on_device,
    missing,
    versions,
)

if TYPE_CHECKING:
    import torch

SEED = 0
"""Seed of the dropout masks."""


def sequential(layers: Iterable[NamedLayer]) -> torch.nn.Sequential:
    """Build the layers, in order, as submodules with their names."""
    from torch import nn

    return nn.Sequential(OrderedDict((named.name, module(named)) for named in layers))


def module(named: NamedLayer) -> torch.nn.Module:
    """Build a layer as a torch.nn.Module; its parameters have the canonical axes."""
    from torch import nn

    from . import layers

    match named.layer:
        case models.Conv(features, kernel, stride, padding, bias):
            channels = named.input_shape[0]
            return nn.Conv2d(channels, features, kernel, stride, padding, bias=bias)
        case models.MaxPool(window, stride):
            return nn.MaxPool2d(window, stride)
        case models.ReLU():
            return nn.ReLU()
        case models.GELU(tanh):
            return nn.GELU("tanh" if tanh else "none")
        case models.Flatten():
            return nn.Flatten()
        case models.ToSequence():
            return layers.ToSequence()
        case models.Dense(features, bias):
            return nn.Linear(named.input_shape[-1], features, bias)
        case models.BatchNorm(epsilon, momentum):
            norm = nn.BatchNorm2d if len(named.input_shape) == 3 else nn.BatchNorm1d
            # torch's momentum is the weight of the new value, the description's of the old one
            return norm(named.input_shape[0], epsilon, 1 - momentum)
        case models.LayerNorm(epsilon, bias):
            return nn.LayerNorm(named.input_shape[-1], epsilon, bias=bias)
        case models.RMSNorm(epsilon):
            return nn.RMSNorm(named.input_shape[-1], epsilon)
        case models.Dropout(rate):
            return nn.Dropout(rate)
        case models.GlobalAveragePool() if len(named.input_shape) == 3:
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        case models.GlobalAveragePool():
            return layers.SequenceMean()
        case models.Embedding(vocabulary, features):
            return nn.Embedding(vocabulary, features)
        case models.OneHot(vocabulary):
            return layers.OneHot(vocabulary)
        case models.Unembedding(vocabulary):
            return layers.Unembedding(named.input_shape[-1], vocabulary, bias=False)
        case models.PositionEmbedding():
            return layers.PositionEmbedding(named.input_shape)
        case models.ClassToken():
            return layers.ClassToken(named.input_shape[-1])
        case models.FirstOfSequence():
            return layers.FirstOfSequence()
        case models.MultiHeadAttention(heads, causal, bias):
            return layers.SelfAttention(named.input_shape[-1], heads, causal, bias)
        case models.LSTM(features, bidirectional) | models.GRU(features, bidirectional):
            recurrent = (
                layers.LSTMLastOutput
                if isinstance(named.layer, models.LSTM)
                else layers.GRULastOutput
            )
            options = {"batch_first": True, "bidirectional": bidirectional}
            return layers.one_bias(recurrent(named.input_shape[-1], features, **options))
        case models.Residual():
            return layers.Residual(sequential(named.body), sequential(named.shortcut))
    raise NotImplementedError(f"the torch adapter does not support the layer {named.layer}")


def tied(network: torch.nn.Module) -> torch.nn.Module:
    """Have each Unembedding in the network share the weight of its Embedding."""
    from . import layers

    for part in network.modules():
        if isinstance(part, layers.Unembedding):
            part.weight = network.embedding1.weight
    return network


def canonical_name(path: str) -> str:
    """Return the canonical name of a parameter from its path in the module.

    "residual1.body.conv2.weight" is "conv2.weight", "lstm1.bias_ih_l0" is "lstm1.bias", and
    "multiheadattention1.output.weight" is "multiheadattention1.output_weight".
    """
    *_, holder, layer, parameter = ("", *path.split("."))
    if holder.startswith("multiheadattention"):
        return f"{holder}.{layer}_{parameter}"
    return f"{layer}.{parameter.replace('_l0', '').replace('bias_ih', 'bias')}"


def canonical_parts(path: str, tensor: torch.Tensor) -> dict[str, tuple[torch.Tensor, slice]]:
    """Return the canonical parameters that a tensor of the module holds, each with its rows."""
    name = canonical_name(path)
    if "projection_" not in name:
        return {name: (tensor, slice(None))}
    size = len(tensor) // 3
    return {
        name.replace("projection", part): (tensor, slice(index * size, (index + 1) * size))
        for index, part in enumerate(("query", "key", "value"))
    }


def criterion(loss: models.Loss) -> torch.nn.Module:
    """Build the loss as a module of (logits, labels)."""
    from torch import nn

    from . import layers

    match loss:
        case models.SoftmaxCrossEntropy(label_smoothing):
            return layers.CrossEntropy(label_smoothing=label_smoothing)
        case models.BinaryCrossEntropy():
            return layers.BinaryCrossEntropy()
        case models.MeanSquaredError():
            return nn.MSELoss()
    raise NotImplementedError(f"the torch adapter does not support the loss {loss}")


def optimizer(
    description: models.Optimizer, parameters: Iterable[Any], **options: Any
) -> torch.optim.Optimizer:
    """Build the optimizer of these parameters, or of groups of them, without its schedule.

    options: further ones, which do not change what it computes, such as fused.
    """
    from torch import optim

    match description:
        case models.SGD(rate, momentum):
            return optim.SGD(parameters, lr=rate, momentum=momentum, **options)
        case models.Adam(rate, beta1, beta2, epsilon):
            return optim.Adam(parameters, lr=rate, betas=(beta1, beta2), eps=epsilon, **options)
        case models.AdamW(rate, beta1, beta2, epsilon, decay):
            options |= {"betas": (beta1, beta2), "eps": epsilon, "weight_decay": decay}
            return optim.AdamW(parameters, lr=rate, **options)
        case models.RMSprop(rate, rho, epsilon):
            return optim.RMSprop(parameters, lr=rate, alpha=rho, eps=epsilon, **options)
        case models.Adadelta(rate, rho, epsilon):
            return optim.Adadelta(parameters, lr=rate, rho=rho, eps=epsilon, **options)
    raise NotImplementedError(f"the torch adapter does not support the optimizer {description}")


def schedule(
    description: models.Optimizer, optimizer: torch.optim.Optimizer
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """Build the schedule of the learning rate by step; None if the rate is constant."""
    from torch.optim.lr_scheduler import LambdaLR

    return LambdaLR(optimizer, description.schedule.factor) if description.schedule else None


def clip(parameters: list[torch.Tensor], clip_norm: float) -> None:
    """Scale the gradients down where the norm of them all is over clip_norm.

    As torch.nn.utils.clip_grad_norm_ does, but for the 1e-6 that it adds to the norm.
    """
    from torch.nn import utils

    norm = utils.get_total_norm([parameter.grad for parameter in parameters])
    utils.clip_grads_with_norm_(parameters, clip_norm, norm - 1e-6)


class TorchArrays:
    """Multiply and copy tensors on a device."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self.torch, self.device = torch, device

    def put(self, array: np.ndarray) -> torch.Tensor:
        return self._waited_for(self.torch.tensor(array, device=self.device))

    def fetch(self, array: torch.Tensor, step: int = 1) -> np.ndarray:
        return array[::step].cpu().numpy()

    def address(self, array: torch.Tensor) -> int:
        return array.data_ptr()

    def multiply(self, a: torch.Tensor, b: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        return self._waited_for(self.torch.mm(a, b, out=into))

    def copy(self, source: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        return self._waited_for(into.copy_(source))

    def _waited_for(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()
        return tensor


class TorchWorkload:
    """Train one model in PyTorch."""

    def __init__(self, job: Job) -> None:
        import torch

        torch.set_num_threads(job.threads)
        # TensorFloat-32 has 10 bits of mantissa; the table says float32
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        # have cuDNN try its convolutions and take the fastest, as XLA and CUDA.jl do
        torch.backends.cudnn.benchmark = True
        self.torch = torch
        self.device = torch.device("cuda" if job.device == "gpu" else "cpu")
        self.dtype = getattr(torch, job.dtype)
        self.module = tied(sequential(job.model.named_layers()))
        self.module.to(self.device, self.dtype).train()
        modules = self.module.named_modules()
        self.dropouts = {p.split(".")[-1]: m for p, m in modules if isinstance(m, torch.nn.Dropout)}
        parts: dict[str, tuple[Any, slice]] = {}
        for path, tensor in self.module.state_dict(keep_vars=True).items():
            parts |= canonical_parts(path, tensor)
        self.tensors = {name: parts[name] for name in job.model.parameters}
        tensors = {id(t): t for t, _ in self.tensors.values() if t.requires_grad}
        self.trained = list(tensors.values())
        self.criterion = criterion(job.model.loss)
        self.description = job.model.optimizer
        self.groups = self._groups(job.model)

    def _groups(self, model: Model) -> list[Any]:
        """Return the trained tensors, in groups by their weight decay where that differs."""
        if not isinstance(self.description, models.AdamW):
            return self.trained
        described = model.parameters
        decaying = {
            id(tensor)
            for name, (tensor, _) in self.tensors.items()
            if self.description.weight_decay_of(described[name])
        }
        others = [tensor for tensor in self.trained if id(tensor) not in decaying]
        return [
            {"params": [tensor for tensor in self.trained if id(tensor) in decaying]},
            {"params": others, "weight_decay": 0.0},
        ]

    def load_weights(self, weights: Weights) -> None:
        with self.torch.no_grad():
            for name, (tensor, rows) in self.tensors.items():
                tensor[rows].copy_(self.torch.from_numpy(weights[name]))
        self.optimizer = self.new_optimizer()
        self.schedule = schedule(self.description, self.optimizer)
        self.torch.manual_seed(SEED)

    def new_optimizer(self) -> torch.optim.Optimizer:
        """Build the optimizer, with no state."""
        return optimizer(self.description, self.groups)

    def place(self, batches: Batches) -> None:
        to_device = partial(self._to_device, streamed=batches.streamed)
        self.batches = batches_on_device(batches, to_device)

    def train_epoch(self) -> np.ndarray:
        losses = [self.step(*batch) for batch in self.batches]
        epoch = self.torch.stack(losses).double().cpu()
        self._synchronize()  # the losses are there before the last update has ended
        return epoch.numpy()

    def step(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> torch.Tensor:
        """Train on one batch, which is on the device, and return its loss, also there."""
        self.optimizer.zero_grad()
        loss = self.loss(inputs, labels, masks)
        loss.backward()
        self.update()
        return loss.detach()

    def update(self) -> None:
        """Change the weights by their gradients."""
        if self.description.clip_norm is not None:
            clip(self.trained, self.description.clip_norm)
        self.optimizer.step()
        if self.schedule:
            self.schedule.step()

    def predict_epoch(self) -> np.ndarray:
        with self._inference():
            logits = self.torch.stack([self.infer(inputs) for inputs, *_ in self.batches])
            return logits.cpu().numpy()

    def predict_batches(self) -> Iterator[np.ndarray]:
        for inputs, *_ in self.batches:
            with self._inference():
                logits = self.infer(inputs).cpu().numpy()
            yield logits

    def infer(self, inputs: Any) -> torch.Tensor:
        """Return the logits of inputs on the device, inside of `_inference`."""
        return self.module(inputs)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        inputs, labels, masks = self._to_device(batch)
        with self._restored():
            loss = self.loss(inputs, labels, masks)
            gradients = self.torch.autograd.grad(loss, self.trained)
        by_tensor = dict(zip(map(id, self.trained), gradients, strict=True))
        return loss.item(), {
            name: by_tensor[id(tensor)][rows].cpu().numpy().copy()
            for name, (tensor, rows) in self.tensors.items()
            if id(tensor) in by_tensor
        }

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        with self._inference():
            return self.module(self._tensor(inputs)).cpu().numpy()

    def weights(self) -> Weights:
        return {n: t.detach()[rows].cpu().numpy().copy() for n, (t, rows) in self.tensors.items()}

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

    def arrays(self) -> TorchArrays:
        return TorchArrays(self.device)

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

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def loss(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> torch.Tensor:
        """Return the loss of a batch in training."""
        return self.criterion(self._logits(inputs, masks), labels)

    def _logits(self, inputs: torch.Tensor, masks: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the logits in training; without masks each dropout draws its own."""
        if not masks:
            return self.module(inputs)
        from .layers import apply_mask

        with ExitStack() as hooks:
            for name, mask in masks.items():
                hooks.enter_context(self.dropouts[name].register_forward_hook(apply_mask(mask)))
            return self.module(inputs)

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Have the module predict, and train again afterwards."""
        self.module.eval()
        try:
            with self.torch.inference_mode():
                yield
        finally:
            self.module.train()

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Restore running statistics and random number generators after a training pass."""
        before = [buffer.clone() for buffer in self.module.buffers()]
        with self.torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            yield
        with self.torch.no_grad():
            for buffer, values in zip(self.module.buffers(), before, strict=True):
                buffer.copy_(values)

    def _to_device(self, batch: Batch, streamed: bool = False) -> tuple[Any, Any, dict[str, Any]]:
        """Return the inputs, labels and dropout masks of a batch on the device."""
        move = partial(self._tensor, streamed=streamed)
        masks = {name: move(mask) for name, mask in (batch.masks or {}).items()}
        return move(batch.inputs), move(batch.labels), masks

    def _tensor(self, array: np.ndarray, streamed: bool = False) -> torch.Tensor:
        """Move an array to the device.

        streamed: through pinned memory, so that a GPU trains on while the array is copied.
        """
        tensor = self.torch.from_numpy(array)
        if streamed and self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


class TorchAdapter(Adapter):
    """Build models in PyTorch as its tutorials do; a base for adapters of a loop of one's own."""

    title = "PyTorch"

    def available(self, device: str) -> str | None:
        if reason := missing("torch", "torch"):
            return reason
        version = self.installed()["torch"]
        if device == "gpu" and version.endswith("+cpu"):
            return f"torch {version} is built without CUDA: install a CUDA build of torch"
        return None

    def installed(self) -> dict[str, str]:
        return versions("torch")

    def build(self, job: Job) -> TorchWorkload:
        return TorchWorkload(job)


VARIANTS = {
    IDIOMATIC: Variant("an nn.Sequential in an ordinary eager loop"),
    MALLOC: MALLOC_VARIANT,
    "compile": Variant("torch.compile of the model with its loss"),
    "channels_last": Variant("pictures and kernels with their channels last in memory"),
    "tuned": Variant(
        "as fast as PyTorch can be made; adapters/torch/tuned.py says how",
        environment=KEEP_FREED_MEMORY,
    ),
    "graphs": Variant("torch.compile with CUDA graphs (mode reduce-overhead)", ("gpu",)),
}


class TorchVariants(VariantModules, TorchAdapter):
    """Build models in PyTorch in any of its variants."""

    variants = VARIANTS


ADAPTER = TorchVariants()
