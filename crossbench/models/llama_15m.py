"""Describe stories15M of karpathy/llama2.c, its "OG" model."""

from .stories import Llama, make_model

LLAMA = Llama(32_000, length=256, width=288, blocks=6, heads=6, multiple=32)
MODEL = make_model("llama_15m", LLAMA, rate=5e-4, beta2=0.95, decay=0.1)
