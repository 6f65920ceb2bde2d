"""Describe timm's ConvNeXt Atto (Ross Wightman, 2022: convnext.py, convnext_atto).

It is the smallest of timm's models of Liu et al., 2022. Deviations: pictures of 64 by 64 pixels,
where timm's weights are for 224, so that a CPU can prove it; no stochastic depth; the initial
weights are not cut off at two standard deviations. The training is the paper's, with its batch of
4,096 cut to 32.
"""

from . import (
    GELU,
    AdamW,
    Conv,
    Dense,
    GlobalAveragePool,
    Layer,
    LayerNorm,
    Model,
    Residual,
    Scale,
    SoftmaxCrossEntropy,
    WarmupCosine,
)

WIDTHS, DEPTHS = (40, 80, 160, 320), (2, 2, 6, 2)
NORM = LayerNorm(1e-6)
STD = 0.02
STEPS = 312  # of an epoch of ImageNet, in batches of 4,096


def conv(features: int, size: int, stride: int = 1, groups: int = 1) -> Conv:
    sides = (size // 2, size // 2) if stride == 1 else (0, 0)
    return Conv(features, (size, size), (stride, stride), sides, std=STD, groups=groups)


def block(width: int) -> Layer:
    body = (
        conv(width, 7, groups=width),
        NORM,
        conv(4 * width, 1),
        GELU(),
        conv(width, 1),
        Scale(1e-6),
    )
    return Residual(body)


def stages() -> tuple[Layer, ...]:
    """Return the blocks, with a norm and a convolution with a stride of 2 between two stages."""
    found: tuple[Layer, ...] = (conv(WIDTHS[0], 4, stride=4), NORM)
    for number, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
        found += (NORM, conv(width, 2, stride=2)) if number else ()
        found += depth * (block(width),)
    return found


MODEL = Model(
    name="convnext_atto",
    input_shape=(3, 64, 64),
    layers=(*stages(), GlobalAveragePool(), NORM, Dense(1_000, std=STD)),
    loss=SoftmaxCrossEntropy(label_smoothing=0.1),
    optimizer=AdamW(
        4e-3,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        weight_decay=0.05,
        matrices_only=True,
        schedule=WarmupCosine(warmup=20 * STEPS, steps=300 * STEPS, minimum=0.0),
    ),
    batch_size=32,
    source="timm's convnext_atto, 2022, trained as in Liu et al., 2022",
)
