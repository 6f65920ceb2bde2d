"""Write programs in PyTorch, as its users do: the line of each layer, loss and optimizer, and the
program of a part of a training step. Imports no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ... import models
from ...models.model import Model, NamedLayer
from ...models.parameters import Shape
from ...models.parts import LOSS, OPTIMIZER, Part
from ...models.training import Optimizer
from ...source.definitions import definitions_in
from ...source.layers import LayerLines, LayerSource, ParameterSource, output_lines
from ...source.part_programs import (
    GRADIENT_PHASE,
    SCALE,
    Timed,
    batch_inputs,
    gradients,
    heading,
    labels,
    outputs,
    python_program,
    shapes_statement,
    takes_token_ids,
    values,
)
from ...source.statements import (
    Call,
    bracketed,
    call,
    code,
    indented,
    one_or_both,
    unless,
    unsupported,
)

UNSAFE_BELOW = 8
"""With fewer input channels than this oneDNN's gradients were wrong on a CPU with AVX2."""
LAYERS = Path(__file__).with_name("layers.py")
IMPORTS = "import time\n\nimport numpy as np\nimport torch"
VALUES = (
    "numbers = np.sin(np.arange(np.prod(shape)) ** 2 + phase)",
    "return torch.from_numpy(numbers.reshape(shape).astype(DTYPE))",
)
TOTAL = "{array}.abs().sum(dtype=torch.double)"
SETUP = ("torch.set_num_threads(THREADS)", "torch.set_default_dtype(getattr(torch, DTYPE))")


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    timed = {LOSS: _loss, OPTIMIZER: _optimizer}.get(part.name, _layers)(part, batch_size)
    return python_program(
        heading(part, model, "PyTorch", batch_size),
        f"{IMPORTS}\n{import_nn(timed.definitions)}",
        VALUES,
        timed,
        version="torch {torch.__version__}",
        total=TOTAL,
        THREADS=threads,
    )


def _layers(part: Part, batch_size: int) -> Timed:
    layers = [LayerLines(named, layer_source(named)) for named in part.layers]
    inputs = batch_inputs(part, batch_size, channels_last=False)
    x = f"x = {inputs}"
    if takes_token_ids(part):
        x = bracketed("x = torch.from_numpy(", [inputs], ")")
    gradient = values(batch_size, *part.layers[-1].output_shape, phase=GRADIENT_PHASE)
    trained = [layer.name for layer in layers if layer.source.parameters]
    return Timed(
        definitions=[text for layer in layers for text in layer.source.definitions],
        setup=[
            *SETUP,
            *(line for layer in layers for line in built(layer)),
            f"{x}{'.requires_grad_()' if part.before else ''}",
            f"output_grad = {gradient}",
        ],
        reset=[
            *(f"{name}.zero_grad()" for name in trained),
            *["x.grad = None"] * bool(part.before),
        ],
        call=[*output_lines(layers, "output = "), "output.backward(output_grad)"],
        numbers=outputs(part, TOTAL.format(array="output"), "(output == 0).double().mean()"),
        gradients=gradients(part, layers, "{layer}.{path}.grad{index}", of_input="x.grad"),
    )


def import_nn(definitions: Iterable[str]) -> str:
    """Return the import of torch.nn, and of the type that definitions name."""
    is_typed = any("Tensor" in definition for definition in definitions)
    return f"from torch import {'Tensor, ' if is_typed else ''}nn"


def built(layer: LayerLines) -> list[str]:
    """Return the statements that make a layer and set its parameters."""
    source = layer.source
    lines = [source.build.assigned_to(layer.name)] if source.build else []
    for parameter in source.parameters.values():
        lines.append(f"{layer.name}.{parameter.path}.data{parameter.index} = {parameter.value}")
    return lines


def _loss(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    build = loss_source(model.loss, model.output_shape)
    of_labels = labels(model, batch_size)
    return Timed(
        definitions=definitions(str(build)),
        setup=[
            *SETUP,
            build.assigned_to("loss"),
            f"outputs = {values(batch_size, *model.output_shape)}.requires_grad_()",
            f"labels = {f'torch.from_numpy({of_labels})' if model.classes else of_labels}",
        ],
        reset=["outputs.grad = None"],
        call=["value = loss(outputs, labels)", "value.backward()"],
        numbers={"loss": "value"},
        gradients={"outputs": "outputs.grad"},
    )


def _optimizer(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    optimizer = model.optimizer
    factor, schedule = schedule_source(optimizer)
    update = "\n".join(["def update():", *indented(update_source(optimizer))])
    return Timed(
        definitions=[*definitions(update), *factor, update],
        setup=[
            *SETUP,
            shapes_statement(model),
            f"parameters = [nn.Parameter({SCALE} * values(*shape)) for shape in SHAPES]",
            "for parameter in parameters:",
            f"    parameter.grad = values(*parameter.shape, phase={GRADIENT_PHASE})",
            *optimizer_source(optimizer),
            *schedule,
            "update()",
            f"total = sum({TOTAL.format(array='p')} for p in parameters)",
        ],
        call=["update()"],
        numbers={"parameters after the first update": "total"},
    )


def update_source(optimizer: Optimizer) -> list[str]:
    """Return the statements of an update: the clipping, the step and the schedule."""
    norm = optimizer.clip_norm
    return [
        *([f"clip(parameters, {code(norm)})"] if norm is not None else []),
        "optimizer.step()",
        *(["schedule.step()"] if optimizer.schedule else []),
    ]


def layer_source(named: NamedLayer) -> LayerSource:
    """Return how a layer is written."""
    shape = named.input_shape
    features = shape[-1]
    own = parameters(named)
    match named.layer:
        case models.Conv(channels, kernel, stride, padding, bias):
            options = {
                "stride": unless(1, one_or_both(stride)),
                "padding": unless(0, one_or_both(padding)),
                "bias": unless(True, bias),
            }
            return layer(call("nn.Conv2d", shape[0], channels, one_or_both(kernel), **options), own)
        case models.MaxPool(window, stride):
            stride_option = unless(one_or_both(window), one_or_both(stride))
            return layer(call("nn.MaxPool2d", one_or_both(window), stride=stride_option))
        case models.ReLU():
            return layer(call("nn.ReLU"))
        case models.GELU(tanh):
            return layer(call("nn.GELU", *(('"tanh"',) if tanh else ())))
        case models.Flatten():
            return layer(call("nn.Flatten"))
        case models.ToSequence():
            return layer(call("ToSequence"))
        case models.Dense(outputs, bias):
            return layer(call("nn.Linear", features, outputs, bias=unless(True, bias)), own)
        case models.BatchNorm(epsilon, momentum):
            norm = "nn.BatchNorm2d" if len(shape) == 3 else "nn.BatchNorm1d"
            # PyTorch's momentum is the weight of the new value, the description's of the old one
            given = {"eps": unless(1e-5, epsilon), "momentum": unless("0.1", code(1 - momentum))}
            return layer(call(norm, shape[0], **given), own)
        case models.LayerNorm(epsilon, bias):
            given = {"eps": unless(1e-5, epsilon), "bias": unless(True, bias)}
            return layer(call("nn.LayerNorm", features, **given), own)
        case models.RMSNorm(epsilon):
            return layer(call("nn.RMSNorm", features, eps=epsilon), own)
        case models.Dropout(rate):
            return layer(call("nn.Dropout", rate))
        case models.GlobalAveragePool() if len(shape) == 3:
            pool = call("nn.AdaptiveAvgPool2d", 1)
            return layer(call("nn.Sequential", pool, call("nn.Flatten")))
        case models.GlobalAveragePool():
            return layer(call("SequenceMean"))
        case models.Embedding(vocabulary, width):
            return layer(call("nn.Embedding", vocabulary, width), own)
        case models.OneHot(vocabulary):
            return layer(call("OneHot", vocabulary))
        case models.Unembedding(vocabulary):
            weight = ParameterSource("weight", values(vocabulary, features, scale=SCALE))
            return layer(call("nn.Linear", features, vocabulary, bias=False), {"weight": weight})
        case models.PositionEmbedding():
            return layer(call("PositionEmbedding", *shape), own)
        case models.ClassToken():
            return layer(call("ClassToken", features), own)
        case models.Residual(()):  # of equal branches
            return layer(call("Residual", call("nn.Identity")))
        case models.FirstOfSequence():
            return layer(call("FirstOfSequence"))
        case models.MultiHeadAttention(heads, causal, bias):
            build = call("SelfAttention", features, heads, causal=causal, bias=bias)
            return layer(build, attention(named))
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            return recurrent(named, width, bidirectional)
    raise unsupported("layer", named.layer, "PyTorch")


def is_unsafe_for_onednn(kernel: tuple[int, ...], stride: tuple[int, ...], channels: int) -> bool:
    """Return whether oneDNN may compute a convolution's gradients wrongly in this format."""
    return kernel == (1, 1) and max(stride) > 1 and channels < UNSAFE_BELOW


def layer(build: Call, parameters: Mapping[str, ParameterSource] | None = None) -> LayerSource:
    """Return a layer with the classes and functions of layers.py that it needs."""
    return LayerSource(build, parameters=parameters or {}, definitions=definitions(str(build)))


def definitions(line: str) -> tuple[str, ...]:
    """Return the classes and functions of layers.py that a line of source code names."""
    return definitions_in(line, LAYERS)


def parameters(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return the trained parameters of a layer whose attributes have the canonical names."""
    return {
        name: ParameterSource(name, values(*parameter.shape, scale=SCALE))
        for name, parameter in named.layer.parameters(named.input_shape).items()
        if parameter.trained
    }


def attention(named: NamedLayer) -> dict[str, ParameterSource]:
    """Return the parameters of SelfAttention: a projection has those of three."""
    size = named.input_shape[-1]
    rows = {"query": f"[:{size}]", "key": f"[{size}:{2 * size}]", "value": f"[{2 * size}:]"}
    found = {}
    for name, parameter in parameters(named).items():
        projection, kind = name.split("_")
        index = rows.get(projection, "")
        path = f"projection.{kind}" if index else f"output.{kind}"
        found[name] = ParameterSource(path, parameter.value, index)
    return found


def recurrent(named: NamedLayer, width: int, bidirectional: bool) -> LayerSource:
    """Return how an LSTM or a GRU is written."""
    kind = "LSTMLastOutput" if isinstance(named.layer, models.LSTM) else "GRULastOutput"
    options = {"batch_first": True, "bidirectional": unless(False, bidirectional)}
    own = {}
    for name, parameter in parameters(named).items():
        array = name.removesuffix("_reverse")
        path = f"{array.replace('bias', 'bias_ih')}_l0{name.removeprefix(array)}"
        own[name] = ParameterSource(path, parameter.value)
    return layer(call("one_bias", call(kind, named.input_shape[-1], width, **options)), own)


def loss_source(loss: models.Loss, output_shape: Shape) -> Call:
    """Return how a loss is made, a function of outputs and labels."""
    match loss:
        case models.SoftmaxCrossEntropy(smoothing):
            kind = "nn.CrossEntropyLoss" if len(output_shape) == 1 else "CrossEntropy"
            return call(kind, label_smoothing=unless(0, smoothing))
        case models.BinaryCrossEntropy():
            return call("BinaryCrossEntropy")
        case models.MeanSquaredError():
            return call("nn.MSELoss")
    raise unsupported("loss", loss, "PyTorch")


def optimizer_source(
    optimizer: Optimizer, parameters: str = "parameters", **options: Any
) -> list[str]:
    """Return the statements that make the `optimizer` of the parameters, without its schedule.

    parameters: their expression; a name where they are needed twice. options: further ones, which
    do not change what it computes, such as fused.
    """
    rate, updated, groups = optimizer.learning_rate, parameters, []
    if isinstance(optimizer, models.AdamW) and optimizer.matrices_only:
        updated, groups = "groups", [DECAYING_GROUPS.strip()]
    match optimizer:
        case models.SGD(_, momentum):
            kind, given = "SGD", {"momentum": unless(0, momentum)}
        case models.Adam(_, beta1, beta2, epsilon):
            kind, given = "Adam", {"betas": (beta1, beta2), "eps": epsilon}
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            kind = "AdamW"
            given = {"betas": (beta1, beta2), "eps": epsilon, "weight_decay": decay}
        case models.RMSprop(_, rho, epsilon):
            kind, given = "RMSprop", {"alpha": rho, "eps": epsilon}
        case models.Adadelta(_, rho, epsilon):
            kind, given = "Adadelta", {"rho": rho, "eps": epsilon}
        case _:
            raise unsupported("optimizer", optimizer, "PyTorch")
    made = call(f"torch.optim.{kind}", updated, lr=rate, **given, **options)
    return [*groups, made.assigned_to("optimizer")]


def schedule_source(optimizer: Optimizer) -> tuple[list[str], list[str]]:
    """Return the function that a schedule needs, and the statement that makes the `schedule`, each
    in a list; nothing for a constant learning rate.
    """
    match optimizer.schedule:
        case None:
            return [], []
        case models.InverseTimeDecay(decay):
            defined, factor = [], f"lambda step: 1 / (1 + {code(decay)} * step)"
        case models.WarmupCosine(warmup, steps, minimum):
            given = {"warmup": warmup, "steps": steps, "minimum": code(minimum)}
            defined, factor = [WARMUP_COSINE.format(**given)], "factor"
        case other:
            raise unsupported("schedule", other, "PyTorch")
    made = call("torch.optim.lr_scheduler.LambdaLR", "optimizer", factor)
    return defined, [made.assigned_to("schedule")]


DECAYING_GROUPS = """
groups = [
    {"params": [p for p in parameters if p.ndim > 1]},
    {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
]
"""
WARMUP_COSINE = '''
def factor(step):
    """Rise linearly for {warmup} steps, and fall by a cosine to {minimum}."""
    if step < {warmup}:
        return (step + 1) / ({warmup} + 1)
    part = min(1, (step - {warmup}) / ({steps} - {warmup}))
    return {minimum} + (1 - {minimum}) * (1 + np.cos(np.pi * part)) / 2
'''
