"""The recurrent layers, which return their last output."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import models
from ...models.model import NamedLayer
from .activations import sigmoid
from .passes import Outcome, Pass, forward


@forward.register(models.LSTM)
@forward.register(models.GRU)
def _(layer: models.LSTM | models.GRU, named: NamedLayer, x: np.ndarray, run: Pass) -> Outcome:
    """Run the cell along the sequence, and a second cell along the reversed sequence if asked."""
    run_cell = _lstm if isinstance(layer, models.LSTM) else _gru
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)
    parameters = run.parameters(named)
    directions = []
    for suffix in suffixes:
        weights = [parameters[f"{name}{suffix}"] for name in ("weight_ih", "weight_hh", "bias")]
        directions.append(run_cell(run, x[:, ::-1] if suffix else x, *weights))

    def backward(dy: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        halves = np.split(dy, len(directions), 1)
        for suffix, (_, back), half in zip(suffixes, directions, halves, strict=True):
            dsequence, dih, dhh, dbias = back(half)
            dx += dsequence[:, ::-1] if suffix else dsequence
            names = [f"{name}{suffix}" for name in ("weight_ih", "weight_hh", "bias")]
            run.add_gradients(named, **dict(zip(names, (dih, dhh, dbias), strict=True)))
        return dx

    return np.concatenate([h for h, _ in directions], 1), backward


RecurrentBackward = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
"""Maps the gradient of the last output to those of x, weight_ih, weight_hh and bias."""


def _lstm(
    run: Pass, x: np.ndarray, ih: np.ndarray, hh: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, RecurrentBackward]:
    xs, ih, hh = run.operands(x, ih, hh)
    h = c = np.zeros((len(x), hh.shape[1]), x.dtype)
    steps = []
    for t in range(x.shape[1]):
        (operand,) = run.operands(h)
        i, f, g, o = np.split(xs[:, t] @ ih.T + operand @ hh.T + bias, 4, 1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        before, c = (operand, c), f * c + i * g
        h = o * np.tanh(c)
        steps.append((before, (i, f, g, o), c))

    def backward(dh: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        dx, dih, dhh, dbias = (np.zeros_like(a) for a in (x, ih, hh, bias))
        dc = np.zeros_like(dh)
        for t in reversed(range(len(steps))):
            (h_before, c_before), (i, f, g, o), c = steps[t]
            tanh_c = np.tanh(c)
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
        return dx, dih, dhh, dbias

    return h, backward


def _gru(
    run: Pass, x: np.ndarray, ih: np.ndarray, hh: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, RecurrentBackward]:
    xs, ih, hh = run.operands(x, ih, hh)
    h = np.zeros((len(x), hh.shape[1]), x.dtype)
    steps = []
    for t in range(x.shape[1]):
        (operand,) = run.operands(h)
        from_x = np.split(xs[:, t] @ ih.T + bias, 3, 1)
        from_h = np.split(operand @ hh.T, 3, 1)
        r, z = (sigmoid(a + b) for a, b in zip(from_x[:2], from_h[:2], strict=True))
        n = np.tanh(from_x[2] + r * from_h[2])
        steps.append((h, r, z, n, from_h[2]))
        h = (1 - z) * n + z * h

    def backward(dh: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        dx, dih, dhh, dbias = (np.zeros_like(a) for a in (x, ih, hh, bias))
        for t in reversed(range(len(steps))):
            before, r, z, n, new_from_h = steps[t]
            dn = dh * (1 - z) * (1 - n**2)
            dz = dh * (before - n) * z * (1 - z)
            dr = dn * new_from_h * r * (1 - r)
            dgates = np.concatenate((dr, dz, dn), 1)
            dfrom_h = np.concatenate((dr, dz, dn * r), 1)
            dbias += dgates.sum(0)
            dgates, dfrom_h, before_operand = run.operands(dgates, dfrom_h, before)
            dx[:, t] = dgates @ ih
            dih += dgates.T @ xs[:, t]
            dhh += dfrom_h.T @ before_operand
            dh = dh * z + dfrom_h @ hh
        return dx, dih, dhh, dbias

    return h, backward
