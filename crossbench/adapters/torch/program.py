"""Write the training of a model in PyTorch, without importing it.

It makes the module that a row runs, and the programs that are this module with examples and a loop
around it.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ... import models
from ...inputs.names import BFLOAT16, IDIOMATIC, MALLOC
from ...models.model import Model, Weights
from ...source.data import example_arrays, python_data
from ...source.part_programs import PartTraining, python_part_program
from ...source.statements import code, indented, unsupported
from ...source.training_programs import (
    PythonProgram,
    Training,
    batches_of_epoch,
    check_variant,
    environment_note,
    predicted,
    prepared,
    python_training_program,
)
from ...source.training_source import TrainingSource
from ...workload import MALLOC_VARIANT
from .network import Network
from .source import (
    definitions,
    import_nn,
    imports,
    is_unsafe_for_onednn,
    loss_source,
    optimizer_source,
    schedule_source,
)

__all__ = ["example_arrays", "initial_arrays", "part_program", "training_program"]

SEED = 0
"""Seed of the dropout masks."""
COMPILED_MODES = {"compile": "", "graphs": '(mode="reduce-overhead")'}
"""The arguments of torch.compile by variant."""
VARIANTS = (IDIOMATIC, MALLOC, "channels_last", *COMPILED_MODES)


def training_source(
    model: Model,
    variant: str = IDIOMATIC,
    autocast: str | None = None,
    is_fused: bool = False,
    trains: bool = True,
) -> TrainingSource[Network]:
    """Return the source code of a model's training: the functions compute_loss, train_step and
    compute_gradients, or those that the gradients need.

    autocast: the type of the device on which it computes in bfloat16, beside float32 weights.
    is_fused: whether an optimizer that PyTorch has a fused kernel of takes that. trains: whether it
    is for more than the gradients.
    """
    network, rule = Network(list(model.named_layers())), model.optimizer
    is_given = isinstance(model.loss, models.GivenGradient)
    loss = "GivenGradient.apply" if is_given else str(loss_source(model.loss, model.output_shape))
    compute_loss, gradients = _functions(variant, autocast, is_given)
    factor, schedule = schedule_source(rule) if trains else ([], [])
    step = _train_step(rule, variant) if trains else ""
    compiled = [f"loss_function = {loss}"]
    if is_given and not trains:  # the gradients need no loss
        compiled, compute_loss = [], ""
    optimizer = _optimizer(model, is_fused) if trains else []
    used = [*network.lines, *network.functions, *compiled, *optimizer, compute_loss, step]
    functions = {"compute_loss": compute_loss, "train_step": step, "compute_gradients": gradients}
    return TrainingSource(
        network=network,
        imports=imports,
        definitions=[
            text.strip() for text in (*definitions("\n".join(used)), *network.functions, *factor)
        ],
        made=network.lines,
        compiled=[*compiled, *optimizer, *schedule],
        functions={name: text for name, text in functions.items() if text},
    )


def _functions(variant: str, autocast: str | None, is_given: bool) -> tuple[str, str]:
    """Return the functions of a batch's loss, which a variant has compiled, and of its gradients.

    is_given: whether the labels are the gradient of the outputs, and the loss is 0: a compiler
    leaves out what does not change a loss, so it compiles the model alone.
    """
    compiled = [f"@torch.compile{COMPILED_MODES[variant]}"] if variant in COMPILED_MODES else []
    before, outputs = [], "model(inputs)"
    if compiled and is_given:
        before = [*compiled, "def predict(inputs):", "    return model(inputs)", "", ""]
        compiled, outputs = [], "predict(inputs)"

    def computed(line: str) -> list[str]:
        if autocast is None:
            return [line]
        return [f'with torch.autocast("{autocast}", torch.bfloat16):', *indented([line])]

    loss = computed(f"return loss_function({outputs}, labels)")
    gradients = ["loss = compute_loss(inputs, labels)", "loss.backward()", "return loss.detach()"]
    if is_given:
        backward = ["outputs.backward(labels)", "return outputs.detach()"]
        gradients = [*computed(f"outputs = {outputs}"), *backward]
    start = ["def compute_gradients(inputs, labels):", "    model.zero_grad()"]
    return (
        "\n".join([*before, *compiled, "def compute_loss(inputs, labels):", *indented(loss)]),
        "\n".join([*start, *indented(gradients)]),
    )


def _train_step(rule: models.Optimizer, variant: str) -> str:
    """Return the function of a step."""
    norm, kept = rule.clip_norm, "loss.detach().clone()  # the next replay overwrites it"
    body = [
        "optimizer.zero_grad()",
        "loss = compute_loss(inputs, labels)",
        "loss.backward()",
        *([f"clip(parameters, {code(norm)})"] if norm is not None else []),
        "optimizer.step()",
        *(["schedule.step()"] if rule.schedule else []),
        f"return {kept if variant == 'graphs' else 'loss.detach()'}",
    ]
    return "\n".join(["def train_step(inputs, labels):", *indented(body)])


def training_program(training: Training) -> str:
    """Return the program that trains a model."""
    check_variant(training, VARIANTS, "torch", "crossbench/adapters/torch/{variant}.py")
    autocast = AUTOCAST[training.device] if training.compute == BFLOAT16 else None
    written = training_source(training.model, training.variant, autocast)
    functions = written.functions
    program = PythonProgram(
        title="PyTorch",
        imports=["import torch", import_nn("\n".join(written.definitions))],
        setup=setup(training),
        definitions=[*written.definitions, _to_device(training)],
        model=[
            *prepared(training),
            "",
            *written.made,
            *_placed(training),
            *LOAD_WEIGHTS,
            *written.compiled,
            *([f"torch.manual_seed({SEED})  # of the dropout masks"] * training.has_dropout),
        ],
        functions=[functions["compute_loss"], functions["train_step"]],
        epoch=[
            "losses = []",
            f"for inputs, labels in {batches_of_epoch(training)}:",
            "    losses.append(train_step(inputs, labels))",
            "losses = torch.stack(losses).tolist()",
        ],
        evaluation=_evaluation(training),
        notes=[environment_note(MALLOC_VARIANT.environment)] * (training.variant == MALLOC),
    )
    return python_training_program(training, python_data(training), program)


def part_program(training: PartTraining) -> str:
    """Return the program that times a piece of work."""
    written = training_source(training.model, trains=training.trains)
    called = "train_step" if training.trains else "compute_gradients"
    functions = [written.functions.get(name, "") for name in ("compute_loss", called)]
    program = PythonProgram(
        title="PyTorch",
        imports=["import torch", import_nn("\n".join(written.definitions))],
        setup=setup(training),
        definitions=written.definitions,
        model=[*written.made, *written.compiled],
        functions=functions,
        epoch=[f"{called}(inputs, labels)"],
    )
    placed = "inputs, labels = torch.from_numpy(inputs), torch.from_numpy(labels)"
    return python_part_program(training, program, placed, version="torch {torch.__version__}")


def setup(training: Training) -> list[str]:
    """Return the statements that set the threads and, on a GPU, the precision."""
    return [
        f"torch.set_num_threads({training.threads})",
        *(FLOAT32_ALONE if training.device == "gpu" else ()),
    ]


FLOAT32_ALONE = (
    "torch.backends.cudnn.allow_tf32 = False  # float32 means float32",
    "torch.backends.cudnn.benchmark = True",
)
AUTOCAST = {"cpu": "cpu", "gpu": "cuda"}
"""What torch.autocast calls a device, by our name."""


def initial_arrays(training: Training, weights: Weights) -> dict[str, np.ndarray]:
    """Return canonical weights as a state_dict of the program's model has them."""
    network, parts = Network(list(training.model.named_layers())), defaultdict(list)
    for name, place in network.places():
        parts[place.path].append(weights[name])
    found = {path: np.concatenate(arrays) for path, arrays in parts.items()}
    for path, named in network.paths:
        match named.layer:
            case models.Unembedding():
                found[f"{path}.weight"] = weights["embedding1.weight"]
            case models.BatchNorm():
                found[f"{path}.num_batches_tracked"] = np.zeros((), np.int64)
            case models.LSTM(both_biases=False) | models.GRU(both_biases=False):
                for name in list(found):
                    if name.startswith(f"{path}.bias_ih"):
                        found[name.replace("bias_ih", "bias_hh")] = np.zeros_like(found[name])
    return found


LOAD_WEIGHTS = (
    "weights = np.load(options.initial)",
    "model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights})",
)


def _optimizer(model: Model, is_fused: bool) -> list[str]:
    """Return the statements that make the optimizer of the model's trained parameters."""
    rule = model.optimizer
    has_fused = isinstance(rule, models.SGD | models.Adam | models.AdamW)
    fused = True if is_fused and has_fused else None
    frozen = any(
        isinstance(named.layer, models.Recurrent) and not named.layer.both_biases
        for named in model.all_layers()
    )
    has_groups = isinstance(rule, models.Decaying) and rule.matrices_only
    if not (frozen or has_groups or rule.clip_norm is not None):
        return optimizer_source(rule, "model.parameters()", fused=fused)
    trained = "[p for p in model.parameters() if p.requires_grad]"
    made = optimizer_source(rule, fused=fused)
    return [f"parameters = {trained if frozen else 'list(model.parameters())'}", *made]


def _placed(training: Training) -> list[str]:
    """Return the statement that moves the model to its device, in its memory format."""
    given = ['"cuda"'] * (training.device == "gpu")
    if training.variant == "channels_last":
        given.append("memory_format=torch.channels_last")
        for named in training.model.all_layers():
            match named.layer:
                case models.Conv(_, kernel, stride):
                    if is_unsafe_for_onednn(kernel, stride, named.input_shape[0]):
                        raise unsupported("layer of torch:channels_last", named.layer, "PyTorch")
    return [f"model.to({', '.join(given)})"] if given else []


def _to_device(training: Training) -> str:
    """Return the function that makes tensors of a batch."""
    tensors = "torch.from_numpy(inputs), torch.from_numpy(labels)"
    if training.device == "gpu":
        # a batch that is made just before its step is copied while the GPU trains on
        moved = "pin_memory().cuda(non_blocking=True)" if training.is_augmented else "cuda()"
        tensors = ", ".join(f"{tensor}.{moved}" for tensor in tensors.split(", "))
    lines = ["def to_device(batch):", "    inputs, labels = batch"]
    if training.variant == "channels_last" and len(training.model.input_shape) == 3:
        lines.append(f"    inputs, labels = {tensors}")
        lines.append("    return inputs.contiguous(memory_format=torch.channels_last), labels")
    else:
        lines.append(f"    return {tensors}")
    return "\n".join(lines)


def _evaluation(training: Training) -> list[str]:
    """Return the statements that find the share of the test examples that are right."""
    is_mixed = training.compute == BFLOAT16
    autocast = f', torch.autocast("{AUTOCAST[training.device]}", torch.bfloat16)' * is_mixed
    return [
        "model.eval()",
        "right = 0",
        f"with torch.inference_mode(){autocast}:",
        "    for inputs, labels in map(to_device, batches(*test, TEST)):",
        f"        right += ({predicted(training.model, 'model(inputs)')} == labels).sum().item()",
    ]
