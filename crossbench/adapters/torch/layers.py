"""Add the modules and functions that PyTorch lacks, each on top of its own.

The programs that source.py writes hold those that they need, word for word.
"""

# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False
from __future__ import annotations

from typing import Any

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
        one_hot = nn.functional.one_hot(numbers.long(), self.vocabulary)
        return one_hot.to(self.like.dtype)


class Rescaling(nn.Module):
    """Multiply by a number, and add one."""

    def __init__(self, scale: float, offset: float = 0.0) -> None:
        super().__init__()
        self.scale, self.offset = scale, offset

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + self.offset


class SequenceMean(nn.Module):
    """Average (batch, length, features) over the length."""

    def forward(self, sequences: Tensor) -> Tensor:
        return sequences.mean(1)


class SequenceMax(nn.Module):
    """Take the maximum of (batch, length, features) over the length."""

    def forward(self, sequences: Tensor) -> Tensor:
        return sequences.max(1).values


class SequenceConv(nn.Conv1d):
    """Convolve (batch, length, features) along the length."""

    def forward(self, sequences: Tensor) -> Tensor:
        return super().forward(sequences.transpose(1, 2)).transpose(1, 2)


class SequenceMaxPool(nn.MaxPool1d):
    """Take the maximum of windows of (batch, length, features)."""

    def forward(self, sequences: Tensor) -> Tensor:
        return super().forward(sequences.transpose(1, 2)).transpose(1, 2)


class SequenceAvgPool(nn.AvgPool1d):
    """Average windows of (batch, length, features)."""

    def forward(self, sequences: Tensor) -> Tensor:
        return super().forward(sequences.transpose(1, 2)).transpose(1, 2)


class SequenceBatchNorm(nn.BatchNorm1d):
    """Normalize each feature of (batch, length, features)."""

    def forward(self, sequences: Tensor) -> Tensor:
        return super().forward(sequences.transpose(1, 2)).transpose(1, 2)


class Transpose(nn.Module):
    """Turn (batch, length, features) into (batch, features, length)."""

    def forward(self, sequences: Tensor) -> Tensor:
        return sequences.transpose(1, 2)


class ToSequence(nn.Module):
    """Turn images (batch, channels, height, width) into (batch, height * width, channels)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(2).transpose(1, 2)


class LayerNorm2d(nn.LayerNorm):
    """Normalize the channels of images (batch, channels, height, width) at each place."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm2d(nn.RMSNorm):
    """Normalize the channels of images (batch, channels, height, width) at each place."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Scale(nn.Module):
    """Multiply each channel of images, or each feature, by a weight."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.weight[:, None, None] if x.ndim == 4 else self.weight)


class PositionEmbedding(nn.Module):
    """Add a weight for each place of a sequence."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self, sequences: Tensor) -> Tensor:
        return sequences + self.weight


class SinusoidalPositions(nn.Module):
    """Add sines and cosines of the place, in turn (Vaswani et al., 2017)."""

    def __init__(self, length: int, features: int) -> None:
        super().__init__()
        angles = place_angles(length, features, 10000.0)
        table = torch.stack((angles.sin(), angles.cos()), 2).flatten(1)
        self.register_buffer("table", table, persistent=False)

    def forward(self, sequences: Tensor) -> Tensor:
        return sequences + self.table.to(sequences.dtype)


def place_angles(length: int, features: int, base: float) -> Tensor:
    """Return the angle of each place and pair of features, (length, features / 2), in float64."""
    powers = torch.arange(0, features, 2, dtype=torch.float64) / features
    return torch.arange(length)[:, None] * base**-powers


class ClassToken(nn.Module):
    """Put the same weight before each sequence."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))

    def forward(self, sequences: Tensor) -> Tensor:
        token = self.weight.expand(len(sequences), 1, -1)
        return torch.cat((token, sequences), 1)


class FirstOfSequence(nn.Module):
    """Take the first place of (batch, length, features)."""

    def forward(self, sequences: Tensor) -> Tensor:
        return sequences[:, 0]


class SelfAttention(nn.Module):
    """Attend by one projection to queries, keys and values, as nanoGPT does, and by PyTorch's fused
    attention.
    """

    def __init__(self, features: int, heads: int, causal: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.projection = nn.Linear(features, 3 * features, bias)
        self.output = nn.Linear(features, features, bias)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.projection(x).chunk(3, 2)
        )
        joined = nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=self.causal
        )
        return self.output(joined.transpose(1, 2).flatten(2))


class GroupedQueryAttention(nn.Module):
    """Attend as SelfAttention does, with heads of queries that share keys and values.

    width: features of a head. mask: which places (columns) each place attends to. query_norm,
    key_norm: of each head, before the rotary embedding.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        kv_heads: int,
        width: int,
        causal: bool = False,
        mask: Tensor | None = None,
        bias: bool = True,
        output_bias: bool = True,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        rotary: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.width, self.causal = (heads, kv_heads, kv_heads), width, causal
        self.projection = nn.Linear(features, sum(self.heads) * width, bias)
        self.output = nn.Linear(heads * width, features, output_bias)
        self.query_norm = query_norm or nn.Identity()
        self.key_norm = key_norm or nn.Identity()
        self.rotary = rotary or nn.Identity()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.projection(x).unflatten(2, (-1, self.width)).transpose(1, 2)
        queries, keys, values = heads.split(self.heads, 1)
        queries = self.rotary(self.query_norm(queries))
        keys = self.rotary(self.key_norm(keys))
        joined = nn.functional.scaled_dot_product_attention(
            queries, keys, values, self.mask, is_causal=self.causal, enable_gqa=True
        )
        return self.output(joined.transpose(1, 2).flatten(2))


class Rotary(nn.Module):
    """Rotate pairs of the features (batch, heads, length, width) by angles that grow with the
    place: the i-th of both halves, as Llama does, or neighbours, as GPT-J does.
    """

    def __init__(
        self,
        length: int,
        width: int,
        base: float,
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        self.axis, self.pairs = (-1, (-1, 2)) if interleaved else (-2, (2, -1))
        angles = place_angles(length, width, base)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        a, b = x.unflatten(-1, self.pairs).unbind(self.axis)
        turned = a * cos - b * sin, b * cos + a * sin
        return torch.stack(turned, self.axis).flatten(-2)


def window_mask(length: int, window: int, causal: bool) -> Tensor:
    """Return which places are fewer than `window` away, and with causal not behind."""
    near = torch.ones(length, length, dtype=torch.bool).triu(1 - window)
    return near.tril(0 if causal else window - 1)


class Residual(nn.Module):
    """Add the outputs of the body and of the shortcut, which may be the input itself."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)


class Branches(nn.ModuleList):
    """Apply modules to the same input."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__(branches)

    def outputs(self, x: Tensor) -> list[Tensor]:
        return [branch(x) for branch in self]


class Add(Branches):
    def forward(self, x: Tensor) -> Tensor:
        y, *others = self.outputs(x)
        for other in others:
            y = y + other
        return y


class Multiply(Branches):
    def forward(self, x: Tensor) -> Tensor:
        y, *others = self.outputs(x)
        for other in others:
            y = y * other
        return y


class Concatenate(Branches):
    """Put channels of pictures, or features, behind one another."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.outputs(x), 1 if x.ndim == 4 else -1)


# TorchDynamo of PyTorch 2.15 fails at super().forward of a recurrent layer: torch.compile needs the
# class by its name.
class LSTMLastOutput(nn.LSTM):
    """Return the last output of each direction, concatenated."""

    def forward(self, sequences: Tensor) -> Tensor:
        _, (last, _) = nn.LSTM.forward(self, sequences)
        return torch.cat(tuple(last), 1)


class GRULastOutput(nn.GRU):
    """Return the last output of each direction, concatenated."""

    def forward(self, sequences: Tensor) -> Tensor:
        _, last = nn.GRU.forward(self, sequences)
        return torch.cat(tuple(last), 1)


class LSTMSequence(nn.LSTM):
    """Return all outputs of both directions, concatenated."""

    def forward(self, sequences: Tensor) -> Tensor:
        outputs, _ = nn.LSTM.forward(self, sequences)
        return outputs


class GRUSequence(nn.GRU):
    """Return all outputs of both directions, concatenated."""

    def forward(self, sequences: Tensor) -> Tensor:
        outputs, _ = nn.GRU.forward(self, sequences)
        return outputs


def one_bias(recurrent: nn.RNNBase) -> nn.RNNBase:
    """Keep the second bias, which only cuDNN's formula has, at 0."""
    for name, parameter in recurrent.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter).requires_grad_(False)
    return recurrent


class CrossEntropy(nn.CrossEntropyLoss):
    """Take logits (batch, classes) or, of each place of a sequence, (batch, length, classes)."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return super().forward(logits.flatten(0, -2), labels.flatten())


class BinaryCrossEntropy(nn.BCEWithLogitsLoss):
    """Take logits (batch, 1) and integer labels (batch,)."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return super().forward(logits.squeeze(1), labels.to(logits.dtype))


class GivenGradient(torch.autograd.Function):
    """Return 0, and in the backward pass the labels as the gradient of the outputs."""

    @staticmethod
    def forward(outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs.new_zeros(())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0], None


class Lion(torch.optim.Optimizer):
    """Step by the sign of a momentum (Chen et al., 2023), all parameters at once."""

    def __init__(
        self,
        params: list[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            parameters = [p for p in group["params"] if p.grad is not None]
            for p in parameters:
                if not self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
            momenta = [self.state[p]["momentum"] for p in parameters]
            gradients = [p.grad for p in parameters]
            if group["weight_decay"]:
                torch._foreach_mul_(parameters, 1 - lr * group["weight_decay"])
            mixed = torch._foreach_lerp(momenta, gradients, 1 - beta1)
            torch._foreach_add_(parameters, torch._foreach_sign(mixed), alpha=-lr)
            torch._foreach_lerp_(momenta, gradients, 1 - beta2)


def clip(parameters: list[nn.Parameter], max_norm: float) -> None:
    """Scale the gradients down where the norm of them all is over max_norm.

    As nn.utils.clip_grad_norm_ does, but for the 1e-6 that it adds to the norm.
    """
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters])
    nn.utils.clip_grads_with_norm_(parameters, max_norm, norm - 1e-6)
