"""Build a model in PyTorch from the lines that source.py writes: layers, loss and optimizer; and
name its parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ... import models
from ...models.model import NamedLayer
from ...models.parameters import Shape
from ...source.statements import Call
from .source import layer_source, loss_source, optimizer_source, schedule_source

if TYPE_CHECKING:
    import torch


def sequential(layers: Iterable[NamedLayer]) -> torch.nn.Sequential:
    """Build the layers, in order, as submodules with their names."""
    from torch import nn

    return nn.Sequential(OrderedDict((named.name, module(named)) for named in layers))


def module(named: NamedLayer) -> torch.nn.Module:
    """Build a layer as a torch.nn.Module; its parameters have the canonical axes."""
    if not isinstance(named.layer, models.Residual):
        return evaluated(layer_source(named).call)
    from .layers import Residual

    shortcut = sequential(named.shortcut) if named.shortcut else None
    return Residual(sequential(named.body), shortcut)


def evaluated(line: Call) -> Any:
    """Return what a line of source.py makes: so a row is built as its program is written."""
    return eval(str(line), namespace())


def namespace() -> dict[str, Any]:
    """Return what the lines of source.py find by name."""
    import numpy as np
    import torch

    from . import layers

    return vars(layers) | {"torch": torch, "np": np}


def tie(network: torch.nn.Module, layers: Iterable[NamedLayer]) -> torch.nn.Module:
    """Have each Unembedding of the layers share the weight of its Embedding."""
    for named in layers:
        if isinstance(named.layer, models.Unembedding):
            network.get_submodule(named.name).weight = network.embedding1.weight
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


def criterion(loss: models.Loss, output_shape: Shape) -> torch.nn.Module:
    """Build the loss as a module of (logits, labels)."""
    if isinstance(loss, models.GivenGradient):
        from .layers import GivenGradient

        return GivenGradient.apply
    return evaluated(loss_source(loss, output_shape))


def optimizer(
    description: models.Optimizer, parameters: Iterable[Any], **options: Any
) -> torch.optim.Optimizer:
    """Build the optimizer of these parameters, without its schedule.

    options: further ones, which do not change what it computes, such as fused.
    """
    names = namespace() | {"parameters": parameters}
    exec("\n".join(optimizer_source(description, **options)), names)
    return names["optimizer"]


def schedule(
    description: models.Optimizer, optimizer: torch.optim.Optimizer
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """Build the schedule of the learning rate by step; None if the rate is constant."""
    names = namespace() | {"optimizer": optimizer}
    definitions, statements = schedule_source(description)
    exec("\n".join([*definitions, *statements]), names)
    return names.get("schedule")
