"""Write programs in PyTorch, as its users do: the line of each layer, loss and optimizer, and the
program of a part of a training step. Imports no PyTorch.
"""

from __future__ import annotations

from ... import models
from ...models.model import Model, NamedLayer
from ...models.parameters import Shape
from ...models.parts import LOSS, OPTIMIZER, Part
from ...models.training import Optimizer
from ...source import (
    GRADIENT_PHASE,
    SCALE,
    Call,
    LayerLines,
    LayerSource,
    ParameterSource,
    Timed,
    batch_inputs,
    bracketed,
    call,
    code,
    gradients,
    heading,
    indented,
    labels,
    one_or_both,
    output_lines,
    outputs,
    python_program,
    shapes_statement,
    takes_token_ids,
    unless,
    unsupported,
    values,
)

IMPORTS = "import time\n\nimport numpy as np\nimport torch\nfrom torch import nn"
VALUES = (
    "numbers = np.sin(np.arange(np.prod(shape)) ** 2 + phase)",
    "return torch.from_numpy(numbers.reshape(shape).astype(DTYPE))",
)
TOTAL = "{array}.abs().sum(dtype=torch.double)"
SETUP = ("torch.set_num_threads(THREADS)", "torch.set_default_dtype(getattr(torch, DTYPE))")


def part_program(part: Part, model: Model, batch_size: int, threads: int) -> str:
    """Return the program of a part of a training step."""
    timed = {LOSS: _loss, OPTIMIZER: _optimizer}.get(part.name, _layers)
    return python_program(
        heading(part, model, "PyTorch", batch_size),
        IMPORTS,
        VALUES,
        timed(part, batch_size),
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


def built(layer: LayerLines) -> list[str]:
    """Return the statements that make a layer and set its parameters."""
    source = layer.source
    lines = [source.build.assigned_to(layer.name)] if source.build else []
    lines += [setting.format(layer=layer.name) for setting in source.settings]
    for parameter in source.parameters.values():
        lines.append(f"{layer.name}.{parameter.path}.data{parameter.index} = {parameter.value}")
    return lines


def _loss(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    build, value = loss_source(model.loss, model.output_shape)
    of_labels = labels(model, batch_size)
    return Timed(
        setup=[
            *SETUP,
            build.assigned_to("loss"),
            f"outputs = {values(batch_size, *model.output_shape)}.requires_grad_()",
            f"labels = {f'torch.from_numpy({of_labels})' if model.classes else of_labels}",
        ],
        reset=["outputs.grad = None"],
        call=[f"value = {value}", "value.backward()"],
        numbers={"loss": "value"},
        gradients={"outputs": "outputs.grad"},
    )


def _optimizer(part: Part, batch_size: int) -> Timed:
    model = part.whole.model
    optimizer = model.optimizer
    definitions, schedule = schedule_source(optimizer)
    return Timed(
        definitions=[*definitions, "\n".join(["def update():", *indented(_update(optimizer))])],
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


def _update(optimizer: Optimizer) -> list[str]:
    """Return the statements of an update: the clipping, the step and the schedule."""
    clip = optimizer.clip_norm
    return [
        *([f"nn.utils.clip_grad_norm_(parameters, {code(clip)})"] if clip is not None else []),
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
            build = call("nn.Conv2d", shape[0], channels, one_or_both(kernel), **options)
            return LayerSource(build, parameters=own)
        case models.MaxPool(window, stride):
            stride_option = unless(one_or_both(window), one_or_both(stride))
            return LayerSource(call("nn.MaxPool2d", one_or_both(window), stride=stride_option))
        case models.ReLU():
            return LayerSource(call("nn.ReLU"))
        case models.GELU(tanh):
            return LayerSource(call("nn.GELU", *(('"tanh"',) if tanh else ())))
        case models.Flatten():
            return LayerSource(call("nn.Flatten"))
        case models.ToSequence():
            return LayerSource(None, "{x}.flatten(2).transpose(1, 2)")
        case models.Dense(outputs, bias):
            build = call("nn.Linear", features, outputs, bias=unless(True, bias))
            return LayerSource(build, parameters=own)
        case models.BatchNorm(epsilon, momentum):
            norm = "nn.BatchNorm2d" if len(shape) == 3 else "nn.BatchNorm1d"
            # PyTorch's momentum is the weight of the new value, the description's of the old one
            build = call(norm, shape[0], eps=epsilon, momentum=1 - momentum)
            return LayerSource(build, parameters=own)
        case models.LayerNorm(epsilon, bias):
            build = call("nn.LayerNorm", features, eps=epsilon, bias=unless(True, bias))
            return LayerSource(build, parameters=own)
        case models.RMSNorm(epsilon):
            return LayerSource(call("nn.RMSNorm", features, eps=epsilon), parameters=own)
        case models.Dropout(rate):
            return LayerSource(call("nn.Dropout", rate))
        case models.GlobalAveragePool() if len(shape) == 3:
            return LayerSource(call("nn.AdaptiveAvgPool2d", 1), "{layer}({x}).flatten(1)")
        case models.GlobalAveragePool():
            return LayerSource(None, "{x}.mean(1)")
        case models.Embedding(vocabulary, width):
            return LayerSource(call("nn.Embedding", vocabulary, width), parameters=own)
        case models.OneHot(vocabulary):
            one_hot = f"nn.functional.one_hot({{x}}.long(), {vocabulary})"
            return LayerSource(None, f"{one_hot}.to(torch.get_default_dtype())")
        case models.Unembedding(vocabulary):
            weight = ParameterSource("weight", values(vocabulary, features, scale=SCALE))
            build = call("nn.Linear", features, vocabulary, bias=False)
            return LayerSource(build, parameters={"weight": weight})
        case models.PositionEmbedding():
            build = call("PositionEmbedding", *shape)
            return LayerSource(build, parameters=own, definitions=(POSITION_EMBEDDING,))
        case models.ClassToken():
            build = call("ClassToken", features)
            return LayerSource(build, parameters=own, definitions=(CLASS_TOKEN,))
        case models.Residual(()):  # of equal branches
            return LayerSource(None, "{x} + {x}")
        case models.FirstOfSequence():
            return LayerSource(None, "{x}[:, 0]")
        case models.MultiHeadAttention(heads, causal, bias):
            build = call("SelfAttention", features, heads, causal=causal, bias=bias)
            definitions = (SELF_ATTENTION,)
            return LayerSource(build, parameters=attention(named), definitions=definitions)
        case models.LSTM(width, bidirectional) | models.GRU(width, bidirectional):
            return recurrent(named, width, bidirectional)
    raise unsupported("layer", named.layer, "PyTorch")


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
    kind = type(named.layer).__name__
    options = {"batch_first": True, "bidirectional": unless(False, bidirectional)}
    own = {}
    for name, parameter in parameters(named).items():
        array = name.removesuffix("_reverse")
        path = f"{array.replace('bias', 'bias_ih')}_l0{name.removeprefix(array)}"
        own[name] = ParameterSource(path, parameter.value)
    # the second bias, which only cuDNN's formula has, stays at 0
    ends = ("", "_reverse") if bidirectional else ("",)
    settings = tuple(f"{{layer}}.bias_hh_l0{end}.requires_grad_(False).zero_()" for end in ends)
    return LayerSource(
        call("LastOutput", named.input_shape[-1], width, **options),
        parameters=own,
        definitions=(LAST_OUTPUT.format(kind=kind, last=LAST[kind]),),
        settings=settings,
    )


def loss_source(loss: models.Loss, output_shape: Shape) -> tuple[Call, str]:
    """Return how a loss is made, and the expression of its value, of `outputs` and `labels`."""
    match loss:
        case models.SoftmaxCrossEntropy(smoothing):
            build = call("nn.CrossEntropyLoss", label_smoothing=unless(0, smoothing))
            if len(output_shape) == 1:
                return build, "loss(outputs, labels)"
            return build, "loss(outputs.flatten(0, 1), labels.flatten())"
        case models.BinaryCrossEntropy():
            build = call("nn.BCEWithLogitsLoss")
            return build, "loss(outputs.squeeze(1), labels.to(outputs.dtype))"
        case models.MeanSquaredError():
            return call("nn.MSELoss"), "loss(outputs, labels)"
    raise unsupported("loss", loss, "PyTorch")


def optimizer_source(optimizer: Optimizer) -> list[str]:
    """Return the statements that make the `optimizer` of the `parameters`, without its schedule."""
    rate, updated, groups = optimizer.learning_rate, "parameters", []
    if isinstance(optimizer, models.AdamW) and optimizer.matrices_only:
        updated, groups = "groups", [DECAYING_GROUPS.strip()]
    match optimizer:
        case models.SGD(_, momentum):
            made = call("torch.optim.SGD", updated, lr=rate, momentum=unless(0, momentum))
        case models.Adam(_, beta1, beta2, epsilon):
            options = {"betas": (beta1, beta2), "eps": epsilon}
            made = call("torch.optim.Adam", updated, lr=rate, **options)
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            options = {"betas": (beta1, beta2), "eps": epsilon, "weight_decay": decay}
            made = call("torch.optim.AdamW", updated, lr=rate, **options)
        case models.RMSprop(_, rho, epsilon):
            made = call("torch.optim.RMSprop", updated, lr=rate, alpha=rho, eps=epsilon)
        case models.Adadelta(_, rho, epsilon):
            made = call("torch.optim.Adadelta", updated, lr=rate, rho=rho, eps=epsilon)
        case _:
            raise unsupported("optimizer", optimizer, "PyTorch")
    return [*groups, made.assigned_to("optimizer")]


def schedule_source(optimizer: Optimizer) -> tuple[list[str], list[str]]:
    """Return the function that a schedule needs, and the statement that makes the `schedule`, each
    in a list; nothing for a constant learning rate.
    """
    match optimizer.schedule:
        case None:
            return [], []
        case models.InverseTimeDecay(decay):
            definitions, factor = [], f"lambda step: 1 / (1 + {code(decay)} * step)"
        case models.WarmupCosine(warmup, steps, minimum):
            given = {"warmup": warmup, "steps": steps, "minimum": code(minimum)}
            definitions, factor = [WARMUP_COSINE.format(**given)], "factor"
        case other:
            raise unsupported("schedule", other, "PyTorch")
    made = call("torch.optim.lr_scheduler.LambdaLR", "optimizer", factor)
    return definitions, [made.assigned_to("schedule")]


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
POSITION_EMBEDDING = '''
class PositionEmbedding(nn.Module):
    """Adds a weight for each place of a sequence."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, sequences):
        return sequences + self.weight
'''
CLASS_TOKEN = '''
class ClassToken(nn.Module):
    """Puts the same weight before each sequence."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))

    def forward(self, sequences):
        token = self.weight.expand(len(sequences), 1, -1)
        return torch.cat((token, sequences), 1)
'''
SELF_ATTENTION = '''
class SelfAttention(nn.Module):
    """Attends by one projection to queries, keys and values."""

    def __init__(self, features, heads, causal, bias):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.projection = nn.Linear(features, 3 * features, bias)
        self.output = nn.Linear(features, features, bias)

    def forward(self, x):
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.projection(x).chunk(3, 2)
        )
        joined = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.causal
        )
        return self.output(joined.transpose(1, 2).flatten(2))
'''
LAST_OUTPUT = '''
class LastOutput(nn.{kind}):
    """Returns the last output of each direction, concatenated."""

    def forward(self, sequences):
        _, {last} = super().forward(sequences)
        return torch.cat(tuple(last), 1)
'''
LAST = {"LSTM": "(last, _)", "GRU": "last"}
