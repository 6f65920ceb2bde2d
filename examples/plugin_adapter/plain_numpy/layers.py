"""The translation: each of crossbench's layers as an object with a forward and a backward pass.

`parameters` and `gradients` hold arrays by their canonical names, such as "dense1.weight".
"""

from __future__ import annotations

import numpy as np

from crossbench.models import Dense, Flatten, NamedLayer, ReLU, Weights


class FlattenPass:
    def forward(self, x: np.ndarray, parameters: Weights) -> np.ndarray:
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy: np.ndarray, gradients: Weights) -> np.ndarray:
        return dy.reshape(self.shape)


class ReLUPass:
    def forward(self, x: np.ndarray, parameters: Weights) -> np.ndarray:
        self.positive = x > 0
        return np.where(self.positive, x, 0)

    def backward(self, dy: np.ndarray, gradients: Weights) -> np.ndarray:
        return np.where(self.positive, dy, 0)


class DensePass:
    def __init__(self, name: str) -> None:
        self.names = f"{name}.weight", f"{name}.bias"

    def forward(self, x: np.ndarray, parameters: Weights) -> np.ndarray:
        self.x = x
        self.weight, bias = (parameters[name] for name in self.names)
        return x @ self.weight.T + bias

    def backward(self, dy: np.ndarray, gradients: Weights) -> np.ndarray:
        weight, bias = self.names
        gradients[weight], gradients[bias] = dy.T @ self.x, dy.sum(0)
        return dy @ self.weight


def translate(named: NamedLayer) -> FlattenPass | ReLUPass | DensePass:
    """Return the layer in this framework; NotImplementedError names one that it lacks."""
    match named.layer:
        case Flatten():
            return FlattenPass()
        case ReLU():
            return ReLUPass()
        case Dense():
            return DensePass(named.name)
    raise NotImplementedError(f"plain NumPy does not support the layer {named.layer}")
