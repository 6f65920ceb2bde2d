"""Reads a module of PyTorch as a description with its weights, and proves that it is the module."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from ....data.sources import Source, Synthetic
from ....inputs.checks import SHAPE, short_error, shown
from ....inputs.errors import SpecError
from ....models import Flatten, Loss, Model, Optimizer, Weights
from ....models.model import Path, common_path
from ....models.parameters import Shape
from ....models.training import Regression
from .graph import BATCH, Graph, called, line_of, recorded
from .operations import Reader, describe, logits_of
from .proof import prove
from .steps import Chain, Link, all_links
from .training import read_loss, read_optimizer
from .wholes import whole


def from_torch(
    module: nn.Module,
    input_shape: Shape,
    *,
    loss: Loss | nn.Module | None = None,
    optimizer: Optimizer | torch.optim.Optimizer | None = None,
    batch_size: int = 32,
    data: Source | None = None,
    name: str | None = None,
) -> Model:
    """Return the description of a module, whose initial weights are the module's.

    input_shape: of one example; that of token ids, (length,), for a module that begins with an
    embedding. loss: a description, or a module of torch.nn; by default squared error for one output
    or for outputs of the input's shape, softmax cross-entropy for others; a log_softmax at the end
    is part of that loss, not of the description, and outputs with several axes that are numbers are
    flattened. optimizer: a description, or one of torch.optim
    over the module's parameters; by default SGD at 0.01 with a momentum of 0.9. The description is
    proved to be the module: its outputs, gradients and running statistics in float64 are within
    1e-9 of those of the NumPy reference. Raises SpecError, with the line of the module's code, for
    what has no description.
    """
    shape: Shape = SHAPE.check("input_shape", input_shape)
    module = _plain(module)
    graph = _recorded(_copied(module).train(), shape)
    reader = Reader(graph, shape, whole)
    logits = logits_of(graph.output)
    output = reader.value(logits)
    if not output.is_plain and output.shape != (1,):  # which may be a number without an axis
        raise SpecError(
            f"{line_of(graph.output)}: the module returns {describe(output)}, which has no "
            "description"
        )
    read = read_loss(loss, output.shape, shape, has_softmax=logits is not graph.output)
    if len(output.shape) > 1 and isinstance(read, Regression):
        output = reader.add(graph.output, output, Flatten())
    links = Chain().links(None, output.step)
    if not links:
        raise SpecError("the module has no layers")
    try:
        model = Model(
            name=name or type(module).__name__.lower(),
            input_shape=shape,
            layers=tuple(link.layer for link in links),
            loss=read,
            optimizer=read_optimizer(optimizer, module),
            batch_size=batch_size,
            source=f"The PyTorch module {type(module).__name__}",
            data=data or Synthetic(),
        )
    except ValueError as error:  # the loss takes another output
        raise SpecError(str(error)) from error
    weights = _weights(module, model, graph, links)
    model = replace(model, weights=weights, own_paths=_own_paths(model, graph, links))
    prove(module, model, reader, links)
    return model


def _own_paths(model: Model, graph: Graph, links: tuple[Link, ...]) -> dict[str, Path]:
    """Return what leads to the modules that hold the layers' parameters, by the layers' names."""
    paths = {
        graph.constants[node].untyped_storage().data_ptr(): name
        for node, name in reversed(list(graph.names.items()))
    }
    found = {}
    for named, link in zip(model.all_layers(), all_links(links), strict=True):
        tensors = link.step.weights.values()
        held = [tuple(paths[t.untyped_storage().data_ptr()].split(".")) for t in tensors]
        is_own = len(held) == 1 and held[0][-1] not in ("weight", "bias")
        found[named.name] = held[0] if is_own else common_path(path[:-1] for path in held)
    return found


def _plain(module: Any) -> nn.Module:
    """Return the module in what torch.compile or DataParallel has made of it; raise SpecError for
    what is no module, or has no graph.
    """
    while True:
        if isinstance(module, nn.DataParallel):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), nn.Module):
            module = module._orig_mod
        else:
            break
    if isinstance(module, torch.jit.ScriptModule):
        raise SpecError("the module is compiled by torch.jit: give the one that it was made of")
    if not isinstance(module, nn.Module):
        raise SpecError(f"module must be an nn.Module, not {shown(module)}")
    if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
        raise SpecError("the module has lazy layers: call it once, so that they have their weights")
    return module


def _copied(module: nn.Module) -> nn.Module:
    """Return a copy in float32 on the CPU."""
    try:
        return copy.deepcopy(module).cpu().float()
    except Exception as error:
        raise SpecError(
            f"{type(module).__name__} cannot be copied: {short_error(error)}"
        ) from error


def _recorded(module: nn.Module, shape: Shape) -> Graph:
    """Return the module's graph: of token ids where it may begin with an embedding."""
    may_take_tokens = len(shape) == 1 and any(isinstance(m, nn.Embedding) for m in module.modules())
    if may_take_tokens:
        return recorded(module, torch.zeros(BATCH, *shape, dtype=torch.long))
    return recorded(module, torch.zeros(BATCH, *shape))


def _weights(module: nn.Module, model: Model, graph: Graph, links: tuple[Link, ...]) -> Weights:
    """Return the module's arrays by their names in the description.

    Raises SpecError for one that is in no layer, in two, or that does not train.
    """
    found: Weights = {}
    for named, link in zip(model.all_layers(), all_links(links), strict=True):
        tensors: Mapping[str, Any] = link.step.weights
        for full_name in named.parameters:
            tensor = tensors[full_name.removeprefix(f"{named.name}.")]
            found[full_name] = np.ascontiguousarray(tensor.detach().numpy())
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    if frozen:
        raise SpecError(
            f"{frozen[0]} does not train (requires_grad=False), which has no description"
        )
    used = {
        tensor.untyped_storage().data_ptr()
        for link in all_links(links)
        for tensor in link.step.weights.values()
    }
    for node, name in graph.names.items():
        held = graph.constants[node]
        if isinstance(held, nn.Parameter) and held.untyped_storage().data_ptr() not in used:
            users = next(one for one in graph.nodes if one.name == node).users
            if users:
                first = next(iter(users))
                raise SpecError(
                    f"{line_of(first)}: {called(first)} of the parameter {name} has no description"
                )
            raise SpecError(f"{name} takes no part in the forward pass, which has no description")
    own = sum(parameter.numel() for parameter in module.parameters())
    if model.trained_parameter_count != own:
        raise SpecError(
            f"the module has {own:,} parameters, its description "
            f"{model.trained_parameter_count:,}: a layer is called twice, a part of one is used, "
            "or its weights are computed"
        )
    return found
