"""Translate a model's description into PyTorch: its layers, loss, optimizer and names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ... import models
from ...models.model import NamedLayer

if TYPE_CHECKING:
    import torch


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
        case models.GivenGradient():
            return layers.GivenGradient.apply
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
