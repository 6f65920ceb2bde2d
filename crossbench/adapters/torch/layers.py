"""What torch.nn has no module for, each on top of torch's own."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class OneHot(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        # empty, but of the floats that the module is moved to
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        return nn.functional.one_hot(numbers.long(), self.vocabulary).to(self.like.dtype)


class SequenceMean(nn.Module):
    def forward(self, sequences: Tensor) -> Tensor:
        return sequences.mean(1)


class Residual(nn.Module):
    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)


class LastOfLSTM(nn.LSTM):
    def forward(self, sequences: Tensor) -> Tensor:
        _, (last, _) = super().forward(sequences)
        return torch.cat(tuple(last), 1)  # of each direction


class LastOfGRU(nn.GRU):
    def forward(self, sequences: Tensor) -> Tensor:
        _, last = super().forward(sequences)
        return torch.cat(tuple(last), 1)


def one_bias(recurrent: nn.RNNBase) -> nn.RNNBase:
    """Without the second bias, that cuDNN's form has: it stays 0."""
    for name, parameter in recurrent.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter).requires_grad_(False)
    return recurrent


class BinaryCrossEntropy(nn.BCEWithLogitsLoss):
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return super().forward(logits.squeeze(1), labels.to(logits.dtype))


def keep(mask: Tensor) -> Callable[[nn.Dropout, tuple[Tensor], Tensor], Tensor]:
    """A forward hook of a dropout: what it gives where it keeps what the mask says."""
    return lambda dropout, inputs, _: inputs[0] * mask / (1 - dropout.p)
