"""Reads losses of torch.nn and optimizers of torch.optim for their numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .... import models
from ....inputs.errors import SpecError
from ....models import Loss, Optimizer
from ....models.parameters import Shape


def read_loss(
    loss: Loss | nn.Module | None, output: Shape, given: Shape, *, has_softmax: bool
) -> Loss:
    """Return the description of a loss.

    None: squared error for one output or for outputs of the input's shape, else softmax
    cross-entropy. has_softmax: whether the module ends with a log_softmax, which that loss has too;
    raise SpecError for another loss behind it.
    """
    found = _read_loss(loss, output in ((1,), given) and not has_softmax, has_softmax)
    if has_softmax and not isinstance(found, models.SoftmaxCrossEntropy):
        raise SpecError(f"the loss {found} of a log_softmax has no description: return the logits")
    return found


def _read_loss(loss: Loss | nn.Module | None, is_numbers: bool, has_softmax: bool) -> Loss:
    match loss:
        case Loss():
            return loss
        case None:
            return models.MeanSquaredError() if is_numbers else models.SoftmaxCrossEntropy()
        case nn.NLLLoss(weight=None, ignore_index=-100) if has_softmax:
            found: Loss = models.SoftmaxCrossEntropy()
        case nn.CrossEntropyLoss(weight=None, ignore_index=-100):
            found = models.SoftmaxCrossEntropy(loss.label_smoothing)
        case nn.BCEWithLogitsLoss(weight=None, pos_weight=None):
            found = models.BinaryCrossEntropy()
        case nn.MSELoss():
            found = models.MeanSquaredError()
        case nn.L1Loss():
            found = models.AbsoluteError()
        case nn.HuberLoss(delta=delta) | nn.SmoothL1Loss(beta=1.0 as delta):
            found = models.Huber(delta)
        case nn.CrossEntropyLoss() | nn.BCEWithLogitsLoss():
            raise SpecError(f"the loss {loss} with weights or ignored classes has no description")
        case _:
            raise SpecError(f"the loss {loss} has no description")
    if loss.reduction != "mean":
        raise SpecError(f"the loss {loss} with reduction={loss.reduction!r} has no description")
    return found


OPTIONS: dict[type, dict[str, Any]] = {
    torch.optim.SGD: {"dampening": 0, "maximize": False},
    torch.optim.Adam: {"weight_decay": 0, "amsgrad": False, "maximize": False},
    torch.optim.AdamW: {"amsgrad": False, "maximize": False},
    torch.optim.RMSprop: {"weight_decay": 0, "momentum": 0, "centered": False, "maximize": False},
    torch.optim.Adadelta: {"weight_decay": 0, "maximize": False},
    torch.optim.Adagrad: {"weight_decay": 0, "lr_decay": 0, "maximize": False},
}
"""The values that an optimizer's options must have to be described."""


def read_optimizer(
    optimizer: Optimizer | torch.optim.Optimizer | None, module: nn.Module
) -> Optimizer:
    """Return the description of an optimizer of a module's parameters; SGD at 0.01 with a momentum
    of 0.9 for None.
    """
    if optimizer is None:
        return models.SGD(0.01, momentum=0.9)
    if isinstance(optimizer, Optimizer):
        return optimizer
    kind = type(optimizer)
    if kind not in OPTIONS:
        raise SpecError(f"the optimizer {kind.__name__} has no description")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if held != {id(parameter) for parameter in module.parameters()}:
        raise SpecError(f"{kind.__name__} trains other parameters: make it of module.parameters()")
    first, *others = optimizer.param_groups
    for name, value in OPTIONS[kind].items():
        if any(group.get(name, value) != value for group in optimizer.param_groups):
            raise SpecError(f"{kind.__name__} with {name}={first[name]} has no description")
    for group in others:
        for name, value in group.items():
            if name not in ("params", "weight_decay") and first[name] != value:
                raise SpecError(f"{kind.__name__} whose groups differ in {name} has no description")
    rate = first["lr"]
    match optimizer:
        case torch.optim.AdamW():
            decay, matrices = _decay(optimizer)
            beta1, beta2 = first["betas"]
            return models.AdamW(rate, beta1, beta2, first["eps"], decay, matrices)
        case torch.optim.Adam():
            beta1, beta2 = first["betas"]
            return models.Adam(rate, beta1, beta2, first["eps"])
        case torch.optim.RMSprop():
            return models.RMSprop(rate, first["alpha"], first["eps"])
        case torch.optim.Adadelta():
            return models.Adadelta(rate, first["rho"], first["eps"])
        case torch.optim.Adagrad():
            return models.Adagrad(rate, first["initial_accumulator_value"], first["eps"])
    decay, matrices = _decay(optimizer)
    return models.SGD(rate, first["momentum"], first["nesterov"], decay, matrices)


def _decay(optimizer: torch.optim.Optimizer) -> tuple[float, bool]:
    """Return the weight decay, and whether only parameters of two axes or more have it."""
    by_axes: dict[bool, set[float]] = {True: set(), False: set()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            by_axes[parameter.ndim > 1].add(group["weight_decay"])
    matrices, others = by_axes[True], by_axes[False]
    if len(matrices | others) <= 1:
        return (matrices | others or {0.0}).pop(), False
    if len(matrices) == 1 and others == {0.0}:
        return matrices.pop(), True
    raise SpecError(
        f"{type(optimizer).__name__} has a weight decay that is neither for all parameters nor for "
        "those of two axes or more, which has no description"
    )
