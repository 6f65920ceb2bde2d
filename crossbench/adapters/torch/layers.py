"""Add the modules that torch.nn lacks, each on top of torch's own."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class OneHot(nn.Module):
    """Encode integers from 0 as one-hot vectors of the model's dtype."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        # an empty buffer takes the dtype of the model when that is moved
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        return nn.functional.one_hot(numbers.long(), self.vocabulary).to(self.like.dtype)


class SequenceMean(nn.Module):
    """Average (batch, length, features) over the length."""

    def forward(self, sequences: Tensor) -> Tensor:
        return sequences.mean(1)


class Residual(nn.Module):
    """Add the outputs of the body and of the shortcut."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)


class LSTMLastOutput(nn.LSTM):
    """Return the last output of each direction, concatenated."""

    def forward(self, sequences: Tensor) -> Tensor:
        _, (last, _) = super().forward(sequences)
        return torch.cat(tuple(last), 1)


class GRULastOutput(nn.GRU):
    """Return the last output of each direction, concatenated."""

    def forward(self, sequences: Tensor) -> Tensor:
        _, last = super().forward(sequences)
        return torch.cat(tuple(last), 1)


def one_bias(recurrent: nn.RNNBase) -> nn.RNNBase:
    """Keep the second bias, which only cuDNN's formula has, at 0."""
    for name, parameter in recurrent.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter).requires_grad_(False)
    return recurrent


class BinaryCrossEntropy(nn.BCEWithLogitsLoss):
    """Take logits (batch, 1) and integer labels (batch,)."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return super().forward(logits.squeeze(1), labels.to(logits.dtype))


def apply_mask(mask: Tensor) -> Callable[[nn.Dropout, tuple[Tensor], Tensor], Tensor]:
    """Return a forward hook that has a dropout apply this mask and scale the kept values."""
    return lambda dropout, inputs, _: inputs[0] * mask / (1 - dropout.p)
