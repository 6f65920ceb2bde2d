"""Write the program in PyTorch that trains a model, and its initial weights. Imports no PyTorch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ... import models
from ...inputs.names import IDIOMATIC, MALLOC
from ...models.model import Model, NamedLayer, Weights
from ...source.data import example_arrays, python_data
from ...source.statements import WIDTH, Call, indented, unsupported
from ...source.training_programs import (
    Block,
    PythonProgram,
    Training,
    batches_of_epoch,
    check_variant,
    environment_note,
    grouped,
    predicted,
    prepared,
    python_training_program,
    shared_blocks,
)
from ...workload import MALLOC_VARIANT
from .channels_last import is_unsafe_for_onednn
from .source import (
    definitions,
    import_nn,
    layer_source,
    loss_source,
    optimizer_source,
    schedule_source,
    update_source,
)
from .workload import SEED

__all__ = ["example_arrays", "initial_arrays", "training_program"]

COMPILED = """
@torch.compile{mode}
def compute_loss(inputs, labels):
    return loss_function(model(inputs), labels)
"""
COMPILED_MODES = {"compile": "", "graphs": '(mode="reduce-overhead")'}
"""The arguments of torch.compile by variant."""
VARIANTS = (IDIOMATIC, MALLOC, "channels_last", *COMPILED_MODES)
FLOAT32_ALONE = (
    "torch.backends.cudnn.allow_tf32 = False  # float32 means float32",
    "torch.backends.cudnn.benchmark = True",
)


def training_program(training: Training) -> str:
    """Return the program that trains a model.

    Raises NotImplementedError for a variant or a part that it cannot have.
    """
    check_variant(training, VARIANTS, "torch", "crossbench/adapters/torch/{variant}.py")
    chain = Chain(list(training.model.named_layers()))
    loss = loss_source(training.model.loss, training.model.output_shape)
    factor, schedule = schedule_source(training.model.optimizer)
    update = update_source(training.model.optimizer)
    used = definitions("\n".join([*chain.lines, *chain.functions, str(loss), *update]))
    own = [*used, *chain.functions, *factor, _to_device(training)]
    program = PythonProgram(
        title="PyTorch",
        imports=["import torch", import_nn(own)],
        setup=[
            f"torch.set_num_threads({training.threads})",
            *(FLOAT32_ALONE if training.device == "gpu" else ()),
            "dtype = getattr(torch, options.dtype)",
        ],
        definitions=own,
        model=[
            *prepared(training),
            "",
            *chain.lines,
            f"model.to({_place(training)})",
            *LOAD_WEIGHTS,
            loss.assigned_to("loss_function"),
            *_optimizer(training.model),
            *schedule,
            *([f"torch.manual_seed({SEED})  # of the dropout masks"] * training.has_dropout),
        ],
        functions=_compiled(training.variant),
        epoch=_epoch(training, update),
        evaluation=_evaluation(training),
        notes=[environment_note(MALLOC_VARIANT.environment)] * (training.variant == MALLOC),
    )
    return python_training_program(training, python_data(training), program)


class Chain:
    """Writes an nn.Sequential of layers.

    lines: the statements that make the `model`. functions: those that make equal blocks of it.
    paths: of each layer in the model, with the layer.
    """

    def __init__(self, layers: Sequence[NamedLayer]) -> None:
        self.blocks: dict[str, tuple[str, int]] = {}
        self.paths: list[tuple[str, NamedLayer]] = []
        made = Call("nn.Sequential", self._items(layers, "")).assigned_to("model")
        self.functions, self.lines = shared_blocks(self.blocks, [made])
        for path, named in self.paths:
            if isinstance(named.layer, models.Unembedding):
                is_last = named.name == layers[-1].name
                self.lines.append(f"model[{-1 if is_last else path}].weight = model[0].weight")

    def _items(self, layers: Sequence[NamedLayer], start: str) -> tuple[str | Call, ...]:
        """Return the arguments of an nn.Sequential, whose layers' paths begin so."""
        items: list[str | Call] = []
        place = 0
        for part in grouped(layers):
            if isinstance(part, Block):
                items.append(f"*({self._block(part, start, place)}() for _ in range({part.count}))")
                place += part.count
            else:
                items.append(self._layer(part, f"{start}{place}"))
                place += 1
        return tuple(items)

    def _layer(self, named: NamedLayer, path: str) -> Call:
        if isinstance(named.layer, models.Residual):
            branches = [("body", named.body), ("shortcut", named.shortcut)]
            chains = [
                Call("nn.Sequential", self._items(branch, f"{path}.{name}."))
                for name, branch in branches
                if branch
            ]
            return Call("Residual", tuple(chains))
        self.paths.append((path, named))
        return layer_source(named).call

    def _block(self, block: Block, start: str, place: int) -> str:
        """Write the function that makes a block, and return its name."""
        name = f"block{len(self.blocks) + 1}" if self.blocks else "block"
        for number, layers in enumerate((block.layers, *block.repeated), start=place):
            items = self._items(layers, f"{start}{number}.")
        made = "\n".join(indented([Call("nn.Sequential", items).after("return ", WIDTH - 4)]))
        width = block.layers[0].output_shape
        self.blocks[name] = f"def {name}():\n{made}", width[0 if len(width) == 3 else -1]
        return name


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return canonical weights as a state_dict of the program's model has them."""
    found: dict[str, np.ndarray] = {}
    for path, named in Chain(list(training.model.named_layers())).paths:
        parts = defaultdict(list)
        for name, source in layer_source(named).parameters.items():
            full_name = f"{named.name}.{name}"
            if isinstance(named.layer, models.Unembedding):
                full_name = "embedding1.weight"
            parts[f"{path}.{source.path}"].append(weights[full_name])
        found |= {name: np.concatenate(arrays) for name, arrays in parts.items()}
        match named.layer:
            case models.BatchNorm():
                for name in ("running_mean", "running_var"):
                    found[f"{path}.{name}"] = weights[f"{named.name}.{name}"]
                found[f"{path}.num_batches_tracked"] = np.zeros((), np.int64)
            case models.LSTM() | models.GRU():
                for name in list(found):
                    if name.startswith(f"{path}.bias_ih"):
                        found[name.replace("bias_ih", "bias_hh")] = np.zeros_like(found[name])
    return found


LOAD_WEIGHTS = (
    "weights = np.load(options.initial)",
    "model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights})",
)


def _optimizer(model: Model) -> list[str]:
    """Return the statements that make the optimizer of the model's trained parameters."""
    rule = model.optimizer
    frozen = any(isinstance(named.layer, models.LSTM | models.GRU) for named in model.all_layers())
    has_groups = isinstance(rule, models.AdamW) and rule.matrices_only
    if not (frozen or has_groups or rule.clip_norm is not None):
        return optimizer_source(rule, "model.parameters()")
    trained = " if p.requires_grad" if frozen else ""
    return [f"parameters = [p for p in model.parameters(){trained}]", *optimizer_source(rule)]


def _place(training: Training) -> str:
    """Return the arguments of a `to` that moves a module, in its dtype and memory format."""
    device = '"cuda", ' if training.device == "gpu" else ""
    if training.variant != "channels_last":
        return f"{device}dtype"
    for named in training.model.all_layers():
        match named.layer:
            case models.Conv(_, kernel, stride):
                if is_unsafe_for_onednn(kernel, stride, named.input_shape[0]):
                    raise unsupported("layer of torch:channels_last", named.layer, "PyTorch")
    return f"{device}dtype, memory_format=torch.channels_last"


def _to_device(training: Training) -> str:
    """Return the function that makes tensors of a batch."""
    tensors = "torch.from_numpy(inputs), torch.from_numpy(labels)"
    if training.device == "gpu":
        tensors = ", ".join(f"{tensor}.cuda()" for tensor in tensors.split(", "))
    lines = ["def to_device(batch):", "    inputs, labels = batch"]
    if training.variant == "channels_last" and len(training.model.input_shape) == 3:
        lines.append(f"    inputs, labels = {tensors}")
        lines.append("    return inputs.contiguous(memory_format=torch.channels_last), labels")
    else:
        lines.append(f"    return {tensors}")
    return "\n".join(lines)


def _compiled(variant: str) -> list[str]:
    """Return the function that is compiled, the model with its loss, if the variant compiles."""
    if variant not in COMPILED_MODES:
        return []
    return [COMPILED.format(mode=COMPILED_MODES[variant])]


def _epoch(training: Training, update: Sequence[str]) -> list[str]:
    is_compiled = training.variant in COMPILED_MODES
    loss = "compute_loss(inputs, labels)" if is_compiled else "loss_function(model(inputs), labels)"
    kept = "loss.detach().clone()" if training.variant == "graphs" else "loss.detach()"
    return [
        "losses = []",
        f"for inputs, labels in {batches_of_epoch(training)}:",
        *indented(
            [
                "optimizer.zero_grad()",
                f"loss = {loss}",
                "loss.backward()",
                *update,
                f"losses.append({kept})",
            ]
        ),
        "losses = torch.stack(losses).tolist()",
    ]


def _evaluation(training: Training) -> list[str]:
    """Return the statements that find the share of the test examples that are right."""
    return [
        "model.eval()",
        "right = 0",
        "with torch.inference_mode():",
        "    for inputs, labels in map(to_device, batches(*test, TEST)):",
        f"        right += ({predicted(training.model, 'model(inputs)')} == labels).sum().item()",
    ]
