"""Describe the "7 Layer MLP (relu) with Batch Normalization" of SciMLBenchmarks.jl (2026).

It is one of the "Simple Neural Networks". There the Lux and Flux rows minimise the sum of the
squared errors, and the others the mean; here all minimise the mean. There is no JAX row there.
"""

from . import BatchNorm, ReLU
from .simple_networks import make_mlp7

MODEL = make_mlp7("mlp7_bn", BatchNorm(epsilon=1e-5, momentum=0.9), ReLU())
