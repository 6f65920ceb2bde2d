"""Describe layers without a framework: what they compute, their shapes, parameters and FLOPs.

Shapes leave out the batch axis. Images are (channels, height, width), sequences (length, features),
token ids (length,) from 0. Parameters have one canonical form, torch's axis order: a convolution's
kernel is (out, in, height, width) and is not flipped; a dense weight is (out, in). A std is the
standard deviation of a weight's normal initial values, with the mean 0; None leaves its default.

To add a layer, write a frozen dataclass in the file of its family, name it in `crossbench.models`,
and translate it in each adapter. Its annotations name the rules that check its fields
(crossbench/inputs/checks.py).
"""
