"""Train a model in PyTorch by the module that program.py writes, in an ordinary eager loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import models
from ...inputs.names import IDIOMATIC, TF32
from ...models.model import Weights
from ...source.module import imported
from ...workload import Batch, Batches, DeviceArrays, Job, Workload, batches_on_device
from .program import AUTOCAST, SEED, training_source

if TYPE_CHECKING:
    import torch


class TorchArrays(DeviceArrays):
    def __init__(self, device: torch.device, is_mixed: bool) -> None:
        import torch

        self.torch, self.device = torch, device
        self.dtype = torch.bfloat16 if is_mixed else torch.float32

    def put(self, array: np.ndarray) -> torch.Tensor:
        return self._waited_for(self.torch.tensor(array, device=self.device))

    def operand(self, array: np.ndarray) -> torch.Tensor:
        return self._waited_for(self.put(array).to(self.dtype))

    def fetch(self, array: torch.Tensor, step: int = 1) -> np.ndarray:
        return array[::step].float().cpu().numpy()

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


class TorchRuntime(Workload):
    """Set PyTorch up for a job, and answer for it and its device: for Keras' workload on it too."""

    def prepare(self, job: Job) -> None:
        """Import PyTorch, and set what holds for the process, which uses one workload at a time."""
        import torch

        torch.set_num_threads(job.threads)
        for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
            backend.allow_tf32 = job.compute == TF32
        # have cuDNN try its convolutions and take the fastest, as XLA and CUDA.jl do
        torch.backends.cudnn.benchmark = True
        self.torch, self.is_mixed = torch, job.is_mixed
        self.device = torch.device("cuda" if job.device == "gpu" else "cpu")

    def wait(self) -> None:
        """Wait until the device has done all work."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def peak_memory(self) -> int | None:
        return self.torch.cuda.max_memory_allocated() if self.device.type == "cuda" else None

    def free_memory(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

    def threads(self) -> int | None:
        return self.torch.get_num_threads()

    def arrays(self) -> TorchArrays:
        return TorchArrays(self.device, self.is_mixed)

    def gpu_details(self) -> dict[str, str]:
        """Return the GPU's name and the versions of CUDA and cuDNN; nothing on a CPU."""
        if self.device.type == "cpu":
            return {}
        cuda, cudnn = self.torch.version.cuda, self.torch.backends.cudnn.version()
        return {"GPU": self.torch.cuda.get_device_name(), "CUDA": f"{cuda}, cuDNN {cudnn}"}


class TorchWorkload(TorchRuntime):
    """Drive the module of a model's training.

    module: the model, an nn.Module. training: the Python module with `train_step`.
    """

    variant = IDIOMATIC
    """Which code is written, as `training_source` has it."""
    is_fused = False
    """Whether an optimizer that PyTorch has a fused kernel of takes that."""

    def __init__(self, job: Job) -> None:
        self.prepare(job)
        torch = self.torch
        self.dtype = getattr(torch, job.dtype)
        autocast = AUTOCAST[job.device] if job.is_mixed else None
        written = training_source(job.model, self.variant, autocast, self.is_fused)
        self.source_code = written.module
        self.training = imported(self.source_code)
        del self.training.__name__  # torch.compile would import by it what is not in sys.modules
        self.module = self.training.model
        self.module.to(self.device, self.dtype).train()
        self.optimizer = self.training.optimizer
        for parameter, state in self.optimizer.state.items():
            if "sum" in state:  # Adagrad has made it already
                state["sum"] = state["sum"].to(parameter)
        self.schedule = getattr(self.training, "schedule", None)
        self.new_groups = [  # their values, such as the learning rate
            {name: value for name, value in group.items() if name != "params"}
            for group in deepcopy(self.optimizer.param_groups)
        ]
        self.new_schedule = deepcopy(self.schedule.state_dict()) if self.schedule else None
        self.dropouts = {
            named.name: self.module.get_submodule(path)
            for path, named in written.network.paths
            if isinstance(named.layer, models.Dropout)
        }
        state = self.module.state_dict(keep_vars=True)
        places = dict(written.network.places())
        self.tensors = {
            name: (state[places[name].path], places[name].rows) for name in job.model.parameters
        }
        tensors = {id(t): t for t, _ in self.tensors.values() if t.requires_grad}
        self.trained = list(tensors.values())
        self.description = job.model.optimizer

    def load_weights(self, weights: Weights) -> None:
        with self.torch.no_grad():
            for name, (tensor, rows) in self.tensors.items():
                tensor[rows].copy_(self.torch.from_numpy(weights[name]))
        self._reset()
        self.torch.manual_seed(SEED)

    def _reset(self) -> None:
        """Bring the optimizer's state and the schedule back to where they began.

        State is set in the memory that it has: it would be allocated anew in the next step, which
        is timed. It begins with zeros, but for Adagrad's sum.
        """
        starts = {"sum": getattr(self.description, "initial_accumulator", 0.0)}
        for state in self.optimizer.state.values():
            for name, value in state.items():
                if self.torch.is_tensor(value):
                    value.fill_(starts.get(name, 0.0))
        for group, values in zip(self.optimizer.param_groups, self.new_groups, strict=True):
            group.update(values)
        if self.schedule:
            self.schedule.load_state_dict(self.new_schedule)

    def place(self, batches: Batches) -> None:
        to_device = partial(self._to_device, streamed=batches.streamed)
        self.batches = batches_on_device(batches, to_device)

    def train_epoch(self) -> np.ndarray:
        losses = [self.step(*batch) for batch in self.batches]
        epoch = self.torch.stack(losses).double().cpu()
        self.wait()  # the losses are there before the last update has ended
        return epoch.numpy()

    def step(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> torch.Tensor:
        """Train on one batch, which is on the device, and return its loss, also there."""
        with self._masked(masks):
            return self.training.train_step(inputs, labels)

    def backward_epoch(self) -> Callable[[], Weights]:
        for batch in self.batches:
            self.backward(*batch)
        self.wait()
        return lambda: self._canonical([tensor.grad for tensor in self.trained])

    def backward(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> torch.Tensor:
        """Set the gradients of a batch, which is on the device, and return its loss, also there."""
        with self._masked(masks):
            return self.training.compute_gradients(inputs, labels)

    def predict_epoch(self) -> np.ndarray:
        with self._inference():
            logits = self.torch.stack([self.infer(inputs) for inputs, *_ in self.batches])
            return logits.to(self.dtype).cpu().numpy()

    def predict_batches(self) -> Iterator[np.ndarray]:
        self.module.eval()  # once: it takes longer than a batch of a small model
        try:
            for inputs, *_ in self.batches:
                with self.torch.inference_mode(), self.autocast():
                    logits = self.infer(inputs).to(self.dtype).cpu().numpy()
                yield logits
        finally:
            self.module.train()

    def infer(self, inputs: Any) -> torch.Tensor:
        """Return the logits of inputs on the device, inside of `_inference`."""
        return self.module(inputs)

    def loss_and_gradients(self, batch: Batch) -> tuple[float, Weights]:
        inputs, labels, masks = self._to_device(batch)
        with self._restored():
            loss = self.loss(inputs, labels, masks)
            gradients = self.torch.autograd.grad(loss, self.trained)
        return loss.item(), self._canonical(gradients)

    def _canonical(self, gradients: Iterable[torch.Tensor]) -> Weights:
        """Return the gradients of the trained tensors by canonical name, on the host."""
        by_tensor = dict(zip(map(id, self.trained), gradients, strict=True))
        return {
            name: by_tensor[id(tensor)][rows].cpu().numpy().copy()
            for name, (tensor, rows) in self.tensors.items()
            if id(tensor) in by_tensor
        }

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        with self._inference():
            return self.module(self._tensor(inputs)).to(self.dtype).cpu().numpy()

    def weights(self) -> Weights:
        return {n: t.detach()[rows].cpu().numpy().copy() for n, (t, rows) in self.tensors.items()}

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

    def details(self) -> dict[str, str]:
        blas = re.search(
            r"(Math Kernel Library Version \S+|BLAS_INFO=\w+)", self.torch.__config__.show()
        )
        details = {"torch": str(self.torch.__version__), "BLAS": blas[0] if blas else "unknown"}
        return details | self.gpu_details()

    def loss(self, inputs: Any, labels: Any, masks: Mapping[str, Any]) -> torch.Tensor:
        """Return the loss of a batch in training; without masks each dropout draws its own."""
        with self._masked(masks):
            return self.training.compute_loss(inputs, labels)

    @contextmanager
    def _masked(self, masks: Mapping[str, Any]) -> Iterator[None]:
        """Have the dropouts apply these masks; without masks each draws its own."""
        with ExitStack() as hooks:
            for name, mask in masks.items():
                hooks.enter_context(self.dropouts[name].register_forward_hook(apply_mask(mask)))
            yield

    def autocast(self) -> AbstractContextManager[Any]:
        """Return torch.autocast to bfloat16, if the job asks for it; else no context."""
        if not self.is_mixed:
            return nullcontext()
        return self.torch.autocast(self.device.type, self.torch.bfloat16)

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Have the module predict, and train again afterwards."""
        self.module.eval()
        try:
            with self.torch.inference_mode(), self.autocast():
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


def apply_mask(mask: Any) -> Callable[[Any, Any, Any], Any]:
    """Return a forward hook that has a dropout apply this mask and scale the kept values."""
    return lambda dropout, inputs, _: inputs[0] * mask / (1 - dropout.p)
