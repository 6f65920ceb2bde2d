"""Describe the "7 Layer MLP (gelu)" of SciMLBenchmarks.jl's "Simple Neural Networks" (2026).

There the GELU of Julia's rows and of JAX is the approximation by tanh, and PyTorch's the exact one;
here all are exact. There the Lux and Flux rows minimise the sum of the squared errors, and the
others the mean; here all minimise the mean. There the JAX rows take each step with Adam's initial
state.
"""

from . import GELU
from .simple_networks import make_mlp7

MODEL = make_mlp7("mlp7_gelu", GELU())
