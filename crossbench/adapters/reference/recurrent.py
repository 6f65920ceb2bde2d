"""Compute the recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .activations import sigmoid
from .passes import Outcome, Pass, forward


@forward.register
def _(layer: models.LSTM | models.GRU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    """Run the cell along the sequence, and a second cell along the reversed sequence if asked."""
    run_cell = _lstm if isinstance(layer, models.LSTM) else _gru
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)
    names = ("weight_ih", "weight_hh", "bias", "bias_hh")[: 4 if layer.both_biases else 3]
    parameters = run.parameters(named)
    outputs, backs = [], []
    for suffix in suffixes:
        weights = [parameters[f"{name}{suffix}"] for name in names]
        y, back = run_cell(run, _turned(x, suffix), *weights)
        outputs.append(_turned(y, suffix) if layer.sequences else y[:, -1])
        backs.append(back)

    def backward(dy: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        for suffix, back, part in zip(suffixes, backs, np.split(dy, len(backs), -1), strict=True):
            if layer.sequences:
                dy_of_cell = _turned(part, suffix)
            else:
                dy_of_cell = np.zeros((*x.shape[:2], layer.features), dy.dtype)
                dy_of_cell[:, -1] = part
            dsequence, *gradients = back(dy_of_cell)
            dx += _turned(dsequence, suffix)
            full = (f"{name}{suffix}" for name in names)
            run.add_gradients(named, **dict(zip(full, gradients, strict=False)))
        return dx

    return np.concatenate(outputs, -1), backward


def _turned(sequence: np.ndarray, suffix: str) -> np.ndarray:
    """Return a sequence in the order of the cell whose parameters' names end so."""
    return sequence[:, ::-1] if suffix else sequence


RecurrentBackward = Callable[[np.ndarray], tuple[np.ndarray, ...]]
"""Maps the gradient of all outputs to those of x, weight_ih, weight_hh and both biases."""


def _lstm(
    run: Pass, x: np.ndarray, ih: np.ndarray, hh: np.ndarray, bias: np.ndarray, bias_hh: Any = 0.0
) -> tuple[np.ndarray, RecurrentBackward]:
    xs, ih, hh = run.operands(x, ih, hh)
    y = np.zeros((*x.shape[:2], hh.shape[1]), x.dtype)
    h = c = np.zeros_like(y[:, 0])
    steps = []
    for t in range(x.shape[1]):
        (operand,) = run.operands(h)
        i, f, g, o = np.split(xs[:, t] @ ih.T + operand @ hh.T + (bias + bias_hh), 4, 1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        before, c = (operand, c), f * c + i * g
        h = o * np.tanh(c)
        steps.append((before, (i, f, g, o), c))
        y[:, t] = h

    def backward(dy: np.ndarray) -> tuple[np.ndarray, ...]:
        dx, dih, dhh, dbias = (np.zeros_like(a) for a in (x, ih, hh, bias))
        dh = dc = np.zeros_like(dy[:, 0])
        for t in reversed(range(len(steps))):
            (h_before, c_before), (i, f, g, o), c = steps[t]
            tanh_c, dh = np.tanh(c), dh + dy[:, t]
            dc = dc + dh * o * (1 - tanh_c**2)
            gates = (
                dc * g * i * (1 - i),
                dc * c_before * f * (1 - f),
                dc * i * (1 - g**2),
                dh * tanh_c * o * (1 - o),
            )
            dgates = np.concatenate(gates, 1)
            dbias += dgates.sum(0)
            (dgates,) = run.operands(dgates)
            dx[:, t] = dgates @ ih
            dih += dgates.T @ xs[:, t]
            dhh += dgates.T @ h_before
            dh, dc = dgates @ hh, dc * f
        return dx, dih, dhh, dbias, dbias

    return y, backward


def _gru(
    run: Pass, x: np.ndarray, ih: np.ndarray, hh: np.ndarray, bias: np.ndarray, bias_hh: Any = 0.0
) -> tuple[np.ndarray, RecurrentBackward]:
    xs, ih, hh = run.operands(x, ih, hh)
    y = np.zeros((*x.shape[:2], hh.shape[1]), x.dtype)
    h = np.zeros_like(y[:, 0])
    steps = []
    for t in range(x.shape[1]):
        (operand,) = run.operands(h)
        from_x = np.split(xs[:, t] @ ih.T + bias, 3, 1)
        from_h = np.split(operand @ hh.T + bias_hh, 3, 1)
        r, z = (sigmoid(a + b) for a, b in zip(from_x[:2], from_h[:2], strict=True))
        n = np.tanh(from_x[2] + r * from_h[2])
        steps.append((h, r, z, n, from_h[2]))
        y[:, t] = h = (1 - z) * n + z * h

    def backward(dy: np.ndarray) -> tuple[np.ndarray, ...]:
        dx, dih, dhh, dbias, dbias_hh = (np.zeros_like(a) for a in (x, ih, hh, bias, bias))
        dh = np.zeros_like(dy[:, 0])
        for t in reversed(range(len(steps))):
            before, r, z, n, new_from_h = steps[t]
            dh = dh + dy[:, t]
            dn = dh * (1 - z) * (1 - n**2)
            dz = dh * (before - n) * z * (1 - z)
            dr = dn * new_from_h * r * (1 - r)
            dgates = np.concatenate((dr, dz, dn), 1)
            dfrom_h = np.concatenate((dr, dz, dn * r), 1)
            dbias += dgates.sum(0)
            dbias_hh += dfrom_h.sum(0)
            dgates, dfrom_h, before_operand = run.operands(dgates, dfrom_h, before)
            dx[:, t] = dgates @ ih
            dih += dgates.T @ xs[:, t]
            dhh += dfrom_h.T @ before_operand
            dh = dh * z + dfrom_h @ hh
        return dx, dih, dhh, dbias, dbias_hh

    return y, backward
