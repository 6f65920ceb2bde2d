"""Write layers, losses and optimizers in PyTorch, as its users do. Imports no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ... import models
from ...models.layers.convolutions import Window
from ...models.layers.layer import channels
from ...models.model import NamedLayer
from ...models.parameters import Shape
from ...models.training import Optimizer
from ...source.definitions import definitions_in
from ...source.statements import Call, call, code, one_or_both, unless, unsupported

UNSAFE_BELOW = 8
"""With fewer input channels than this oneDNN's gradients were wrong on a CPU with AVX2."""
LAYERS = Path(__file__).with_name("layers.py")
ACTIVATIONS: Mapping[models.Layer, Call] = MappingProxyType(
    {
        models.GELU(): call("nn.GELU"),
        models.GELU(tanh=True): call("nn.GELU", '"tanh"'),
        models.HardSwish(): call("nn.Hardswish"),
        models.ReLU(): call("nn.ReLU"),
        models.ReLU6(): call("nn.ReLU6"),
        models.Sigmoid(): call("nn.Sigmoid"),
        models.SiLU(): call("nn.SiLU"),
        models.Softplus(): call("nn.Softplus"),
        models.Tanh(): call("nn.Tanh"),
    }
)
"""How those are made that have no number or parameter."""


def imports(text: str) -> list[str]:
    """Return the statements that import what a module needs."""
    return [
        *["from typing import Any", ""] * ("Any" in text),
        *["import numpy as np"] * ("np." in text),
        "import torch",
        import_nn(text),
    ]


def import_nn(text: str) -> str:
    """Return the import of torch.nn, and of the type that a text names."""
    return f"from torch import {'Tensor, ' * ('Tensor' in text)}nn"


def layer_source(named: NamedLayer) -> Call:
    """Return how a layer is made."""
    shape, name = named.input_shape, type(named.layer).__name__
    features = shape[-1]
    match named.layer:
        case models.Convolution():
            return convolution(named.layer, shape)
        case models.Pool(is_max=is_max, sizes=sizes, strides=strides, paddings=paddings):
            kind = f"{'Max' if is_max else 'Avg'}Pool"
            given = {
                "stride": unless(one_or_both(sizes), one_or_both(strides)),
                "padding": unless(0, one_or_both(paddings)),
            }
            kind = f"nn.{kind}2d" if len(sizes) == 2 else f"Sequence{kind}"
            return call(kind, one_or_both(sizes), **given)
        case models.Upsample(factor, mode):
            given = {"scale_factor": factor, "mode": f'"{mode}"' if mode != "nearest" else None}
            return call("nn.Upsample", **given)
        case models.Pad(mode=mode):
            kind = "nn.ReflectionPad2d" if mode == "reflect" else "nn.ZeroPad2d"
            return call(kind, sides(named.layer.windows))
        case layer if layer in ACTIVATIONS:
            return ACTIVATIONS[layer]
        case models.LeakyReLU(slope):
            return call("nn.LeakyReLU", slope)
        case models.PReLU(per_channel):
            return call("nn.PReLU", *((channels(shape),) if per_channel else ()))
        case models.ELU(alpha):
            return call("nn.ELU", *((alpha,) if alpha != 1 else ()))
        case models.Rescaling(scale, offset):
            return call("Rescaling", scale, *((offset,) if offset else ()))
        case models.Flatten():
            return call("nn.Flatten")
        case models.Reshape(to) if len(shape) == 1:
            return call("nn.Unflatten", 1, to)
        case models.Reshape(to):
            return call("nn.Sequential", call("nn.Flatten"), call("nn.Unflatten", 1, to))
        case models.ToSequence() | models.Transpose() | models.FirstOfSequence():
            return call(name)
        case models.Dense(outputs, bias):
            return call("nn.Linear", features, outputs, bias=unless(True, bias))
        case models.BatchNorm(epsilon, momentum, affine):
            norm = {3: "nn.BatchNorm2d", 2: "SequenceBatchNorm"}.get(len(shape), "nn.BatchNorm1d")
            # PyTorch's momentum is the weight of the new value, the description's of the old one
            given = {"eps": unless(1e-5, epsilon), "momentum": unless("0.1", code(1 - momentum))}
            return call(norm, channels(shape), **given, affine=unless(True, affine))
        case models.GroupNorm(groups, epsilon, affine):
            given = {"eps": unless(1e-5, epsilon), "affine": unless(True, affine)}
            return call("nn.GroupNorm", groups, shape[0], **given)
        case models.LayerNorm(epsilon, bias, affine):
            norm = "LayerNorm2d" if len(shape) == 3 else "nn.LayerNorm"
            given = {"eps": unless(1e-5, epsilon), "elementwise_affine": unless(True, affine)}
            return call(norm, channels(shape), **given, bias=unless(True, bias))
        case models.RMSNorm(epsilon, affine):
            norm = "RMSNorm2d" if len(shape) == 3 else "nn.RMSNorm"
            given = {"elementwise_affine": unless(True, affine)}
            return call(norm, channels(shape), eps=epsilon, **given)
        case models.Scale() | models.ClassToken():
            return call(name, channels(shape))
        case models.Dropout(rate):
            return call("nn.Dropout", rate)
        case models.GlobalAveragePool() | models.GlobalMaxPool():
            is_mean = isinstance(named.layer, models.GlobalAveragePool)
            if len(shape) == 2:
                return call("SequenceMean" if is_mean else "SequenceMax")
            pool = call("nn.AdaptiveAvgPool2d" if is_mean else "nn.AdaptiveMaxPool2d", 1)
            return call("nn.Sequential", pool, call("nn.Flatten"))
        case models.Embedding(vocabulary, width):
            return call("nn.Embedding", vocabulary, width)
        case models.OneHot(vocabulary):
            return call("OneHot", vocabulary)
        case models.Unembedding(vocabulary):
            return call("nn.Linear", features, vocabulary, bias=False)
        case models.PositionEmbedding() | models.SinusoidalPositions():
            return call(name, *shape)
        case models.MultiHeadAttention(is_plain=False):
            return grouped_attention(named, named.layer)
        case models.MultiHeadAttention(heads, causal, bias):
            return call("SelfAttention", features, heads, causal=causal, bias=bias)
        case models.LSTM() | models.GRU():
            return recurrent(named.layer, features)
    raise unsupported("layer", named.layer, "PyTorch")


def convolution(layer: models.Convolution, shape: Shape) -> Call:
    """Return how a convolution is made, behind its padding where that is not symmetric."""
    kinds = {models.Conv: "nn.Conv2d", models.TransposedConv: "nn.ConvTranspose2d"}
    windows = layer.windows
    padding = tuple(w.before for w in windows) if layer.is_symmetric else (0,)
    options = {
        "stride": unless(1, one_or_both(layer.strides)),
        "padding": unless(0, one_or_both(padding)),
        "dilation": unless(1, one_or_both(layer.dilations)),
        "groups": unless(1, layer.groups),
        "bias": unless(True, layer.bias),
    }
    if isinstance(layer, models.TransposedConv):
        options["output_padding"] = unless(0, one_or_both(layer.output_padding))
    given = (layer.channels(shape), layer.features, one_or_both(layer.kernel_size))
    made = call(kinds.get(type(layer), "SequenceConv"), *given, **options)
    if layer.is_symmetric:
        return made
    return call("nn.Sequential", call("nn.ZeroPad2d", sides(windows)), made)


def sides(windows: tuple[Window, ...]) -> tuple[int, ...]:
    """Return the padding of the last two axes, the last one's first; of a sequence that is none."""
    last_first = [(w.before, w.after) for w in reversed(windows)]
    return tuple(side for pair in [(0, 0), *last_first][-2:] for side in pair)


def is_unsafe_for_onednn(kernel: tuple[int, ...], stride: tuple[int, ...], channels: int) -> bool:
    """Return whether oneDNN may compute a convolution's gradients wrongly in this format."""
    return kernel == (1, 1) and max(stride) > 1 and channels < UNSAFE_BELOW


def definitions(line: str) -> tuple[str, ...]:
    """Return the classes and functions of layers.py that a line of source code names."""
    return definitions_in(line, LAYERS)


def recurrent(layer: models.Recurrent, features: int) -> Call:
    """Return how an LSTM or a GRU is written."""
    kind = f"{type(layer).__name__}{'Sequence' if layer.sequences else 'LastOutput'}"
    options = {"batch_first": True, "bidirectional": unless(False, layer.bidirectional)}
    made = call(kind, features, layer.features, **options)
    return made if layer.both_biases else call("one_bias", made)


def grouped_attention(named: NamedLayer, layer: models.MultiHeadAttention) -> Call:
    """Return how an attention with later options is made."""
    length, features = shape = named.input_shape
    width, norm, rotary, mask = layer.width(shape), None, None, None
    if layer.norm:
        norm = str(call("nn.RMSNorm", width, eps=layer.norm.epsilon))
    if layer.rotary:
        given = (length, width, layer.rotary.base)
        rotary = str(call("Rotary", *given, interleaved=layer.rotary.interleaved or None))
    if layer.window:
        mask = str(call("window_mask", length, layer.window, causal=layer.causal))
    return call(
        "GroupedQueryAttention",
        *(features, layer.heads, layer.key_heads, width),
        causal=(layer.causal and not layer.window) or None,
        mask=mask,
        bias=unless(True, layer.bias),
        output_bias=unless(True, layer.has_output_bias),
        query_norm=norm,
        key_norm=norm,
        rotary=rotary,
    )


def loss_source(loss: models.Loss, output_shape: Shape) -> Call:
    """Return how a loss is made, a function of outputs and labels."""
    match loss:
        case models.SoftmaxCrossEntropy(smoothing):
            kind = "CrossEntropy" if len(output_shape) == 2 else "nn.CrossEntropyLoss"
            return call(kind, label_smoothing=unless(0, smoothing))
        case models.BinaryCrossEntropy():
            return call("BinaryCrossEntropy")
        case models.MeanSquaredError():
            return call("nn.MSELoss")
        case models.AbsoluteError():
            return call("nn.L1Loss")
        case models.Huber(delta):
            return call("nn.HuberLoss", delta=unless(1, delta))
    raise unsupported("loss", loss, "PyTorch")


def optimizer_source(
    optimizer: Optimizer, parameters: str = "parameters", **options: Any
) -> list[str]:
    """Return the statements that make the `optimizer` of the parameters, without its schedule.

    parameters: their expression; a name where they are needed twice. options: further ones, which
    do not change what it computes, such as fused.
    """
    rate, updated, groups = optimizer.learning_rate, parameters, []
    if isinstance(optimizer, models.Decaying) and optimizer.matrices_only:
        updated, groups = "groups", [DECAYING_GROUPS.strip()]
    match optimizer:
        case models.SGD(_, momentum, nesterov, decay):
            kind, given = "torch.optim.SGD", {"momentum": unless(0, momentum)}
            given |= {"weight_decay": unless(0, decay), "nesterov": unless(False, nesterov)}
        case models.Adam(_, beta1, beta2, epsilon):
            kind, given = "torch.optim.Adam", {"betas": (beta1, beta2), "eps": epsilon}
        case models.AdamW(_, beta1, beta2, epsilon, decay):
            kind = "torch.optim.AdamW"
            given = {"betas": (beta1, beta2), "eps": epsilon, "weight_decay": decay}
        case models.Lion(_, beta1, beta2, decay):
            kind, given = "Lion", {"betas": (beta1, beta2), "weight_decay": unless(0, decay)}
        case models.RMSprop(_, rho, epsilon):
            kind, given = "torch.optim.RMSprop", {"alpha": rho, "eps": epsilon}
        case models.Adadelta(_, rho, epsilon):
            kind, given = "torch.optim.Adadelta", {"rho": rho, "eps": epsilon}
        case models.Adagrad(_, initial, epsilon):
            kind = "torch.optim.Adagrad"
            given = {"initial_accumulator_value": unless(0, initial), "eps": epsilon}
        case _:
            raise unsupported("optimizer", optimizer, "PyTorch")
    made = call(kind, updated, lr=rate, **given, **options)
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
        case models.Cosine(steps, minimum):
            # PyTorch's CosineAnnealingLR rises again behind its last step
            defined = [COSINE.format(steps=steps, minimum=code(minimum))]
            factor = "factor"
        case models.Steps(milestones, gamma):
            made = call(f"{SCHEDULERS}.MultiStepLR", "optimizer", list(milestones), gamma=gamma)
            return [], [made.assigned_to("schedule")]
        case models.OneCycle(warmup, steps, start, end, linear):
            # PyTorch's OneCycleLR is an error behind its last step
            ends = {"start": code(start), "end": code(end)}
            way = "part" if linear else "(1 - np.cos(np.pi * part)) / 2"
            defined = [ONE_CYCLE.format(warmup=warmup, steps=steps, **ends, way=way)]
            factor = "factor"
        case other:
            raise unsupported("schedule", other, "PyTorch")
    made = call(f"{SCHEDULERS}.LambdaLR", "optimizer", factor)
    return defined, [made.assigned_to("schedule")]


SCHEDULERS = "torch.optim.lr_scheduler"
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
COSINE = '''
def factor(step):
    """Fall by a cosine to {minimum} in {steps} steps."""
    return {minimum} + (1 - {minimum}) * (1 + np.cos(np.pi * min(1, step / {steps}))) / 2
'''
ONE_CYCLE = '''
def factor(step):
    """Rise from {start} to 1 in {warmup} steps, and fall to {end} in step {steps}."""
    if step < {warmup}:
        part = step / {warmup}
        return {start} + (1 - {start}) * {way}
    part = min(1, (step - {warmup}) / ({steps} - {warmup}))
    return 1 - (1 - {end}) * {way}
'''
