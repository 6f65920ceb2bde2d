"""Describe stories260K of karpathy/llama2.c (doc/stories260K.md).

Two heads of queries share one of keys and values. The original drops 5 % of the attention's weights
and of the outputs; here nothing.
"""

from .stories import Llama, make_model

LLAMA = Llama(512, length=512, width=64, blocks=5, heads=8, multiple=4, key_heads=4)
MODEL = make_model("llama_260k", LLAMA, rate=1e-3, beta2=0.99, decay=0.01)
