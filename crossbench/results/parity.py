"""Define how far a cell's tensors are from the reference's, and whether that is near enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from ..inputs.names import BFLOAT16, FLOAT32, TF32, Compute

FLOAT64_BOUND = 1e-9
"""The largest deviation of a tensor from the reference's in float64, ‖a - b‖ / ‖b‖."""
FLOAT32_FACTOR, NORMALIZATION_FACTOR = 10.0, 40.0
"""The largest deviation of a float32 tensor, as a multiple of that of the NumPy reference's own
float32; and of the gradient of a normalization's scale, where the gradients of the examples nearly
cancel: in resnet_small that of Flux.jl was 13 times, for a batch of 32 even 31 times as far off as
the reference's on an Intel Xeon, and 1.4 times on an AMD EPYC."""
MIN_FLOAT32_BOUND, MIN_LOSS_BOUND = 2e-5, 2e-6
"""Deviations that are always allowed to a tensor, and to a loss, which is a mean. bfloat16 and
TensorFloat-32 deviate by more than 1e-4."""
FLOAT64_LEVEL = 1e-9
"""A smaller deviation from float64 shows that a float32 run did not compute in float32."""
GRADIENT_PREFIX = "gradient of "
TENSOR_KINDS = {"logits": "logits", GRADIENT_PREFIX: "gradients", "losses of the steps": "losses"}
"""How the names of the computed tensors begin, and what they are called in messages. The weights
after the steps are not among them: float32 may hold them exactly."""
FULL_FLOAT32_BOUND = 1e-5
"""The largest deviation of a float32 convolution or matrix multiplication from float64.
It is ‖a - b‖ / ‖b‖. With a mantissa of 10 bits (TensorFloat-32) it is some 3e-4, which
float32_bound() may allow."""

Deviation = Annotated[float, Meta(ge=0)] | None
Deviations = Annotated[dict[str, Deviation], Meta(min_length=1)]


PRODUCT_PREFIX = "output of a "
"""How the names of a single convolution and a single matrix multiplication begin."""
PRECISION_FACTOR, PRODUCT_FACTOR = 10.0, 2.0
"""The largest deviation of a tensor in bfloat16 or TensorFloat-32, as a multiple of the larger one
of the NumPy reference's two forms of that precision; and that of a single product of many terms,
which shows a sum that is rounded on the way."""
NOTED_BIAS_DEVIATION = 0.05
"""The deviation of a bias' gradient in such a precision from which a remark tells of it, where it
is also more than PRECISION_FACTOR times the reference's. It is no product but a sum over the
examples, which JAX and TensorFlow may add up in bfloat16 on a CPU: one of JAX's in vit_cifar is off
by 130 %."""
LAST_PLACE = {BFLOAT16: 2.0**-7, TF32: 2.0**-10}
"""The unit in the last place of numbers from 1 to 2: a deviation that is always allowed."""
MIN_PRECISION_SHARE = 0.1
"""The smallest deviation of the logits, and of the gradients, as a share of the smaller one of the
two forms: what lies below was computed in a higher precision."""
MIN_GRADIENT_SHARE = 0.4
"""The same for the gradient of each parameter but biases: in honest rows it was 0.67 at least."""
MIN_GRADIENT_BOUND = 1e-4
"""The deviation that is always allowed to a float32 gradient of a whole batch of the data."""
OPTIMIZER_BOUND = 2.5e-4
"""The largest deviation of a step of the optimizer from the reference's, of the same gradients:
honest rows of all models lie below 1.7e-4, a momentum in bfloat16 is off by 1e-3, and RMSprop's
mean of squares by 4e-4."""


@dataclass(frozen=True)
class PrecisionParity:
    """Hold the deviations of each tensor, in a row's precision, from the NumPy float64
    reference's: ‖a - b‖ / ‖b‖ by name; None for what is not finite.
    """

    observed: Deviations
    """Deviations of the row."""
    operands: Deviations
    """Deviations of the reference itself, where it rounds the operands of matrix
    multiplications and convolutions."""
    everywhere: Deviations
    """Deviations of the reference itself, where it also rounds activations and gradients."""
    optimizer: Deviations
    """Deviation of the optimizer's steps from the reference's, of the row's own gradients."""
    rounded: list[str]
    """Weights after the steps, and "losses", all of whose values are numbers of the precision;
    there must be none."""

    def disagreement(self, compute: Compute) -> str | None:
        """Return in what it differs from the precision's rules, in a line, or None."""
        if self.rounded:
            more = f" and {len(self.rounded) - 1} more" if self.rounded[1:] else ""
            return f"{self.rounded[0]}{more} are kept in {compute}, not in float32"
        return (
            _over(
                compute, self.observed, {name: self.bound(name, compute) for name in self.observed}
            )
            or self._too_exact(compute)
            or too_exact(compute, self._gradients(self.observed), self._forms)
            or _over(
                f"float32, with the row's own gradients in {compute}",
                {f"the optimizer's step of {n}": v for n, v in self.optimizer.items()},
                {f"the optimizer's step of {n}": OPTIMIZER_BOUND for n in self.optimizer},
            )
        )

    def bound(self, name: str, compute: Compute) -> float:
        """Return the largest deviation that a tensor may have.

        A loss is one number, or a few, whose errors may cancel by chance: the logits' count there.
        A bias' gradient may have any: see NOTED_BIAS_DEVIATION.
        """
        if name.endswith("bias"):
            return math.inf
        largest = self._expected(name)
        if name.startswith("loss"):
            largest = max(largest, self._expected("logits"))
        if name.startswith(PRODUCT_PREFIX):
            return PRODUCT_FACTOR * largest
        return max(LAST_PLACE[compute], PRECISION_FACTOR * largest)

    @property
    def logits(self) -> tuple[float, float]:
        """Return the deviation of the logits, and the larger one of the reference's two forms."""
        return self.observed.get("logits") or 0.0, self._expected("logits")

    @property
    def rough_biases(self) -> dict[str, float]:
        """Return the deviations of the biases' gradients that are worth a remark, by tensor."""
        return {
            name: value
            for name, value in self.observed.items()
            if name.endswith("bias")
            and value is not None
            and value > max(NOTED_BIAS_DEVIATION, PRECISION_FACTOR * self._expected(name))
        }

    @property
    def _forms(self) -> list[Deviations]:
        """Return the deviations of the reference's two forms."""
        return [self.operands, self.everywhere]

    def _gradients(self, deviations: Deviations) -> Deviations:
        return {n: v for n, v in deviations.items() if n.startswith(GRADIENT_PREFIX)}

    def _expected(self, name: str) -> float:
        """Return the larger deviation of the reference's two forms."""
        return max(form.get(name) or 0.0 for form in self._forms)

    def _too_exact(self, compute: Compute) -> str | None:
        """Return which tensors were computed in a higher precision, or None."""
        for start, kind in (
            *TENSOR_KINDS.items(),
            (PRODUCT_PREFIX, "single matrix multiplications and convolutions"),
        ):
            if start.startswith("loss"):
                continue
            largest, *forms = (
                max((v or 0.0 for n, v in found.items() if n.startswith(start)), default=0.0)
                for found in (self.observed, self.operands, self.everywhere)
            )
            if largest < MIN_PRECISION_SHARE * min(forms):
                return f"the {kind} are computed in a higher precision than {compute}"
        return None


@dataclass(frozen=True)
class GradientParity:
    """Hold the deviations of each parameter's gradient, of a training step with a whole batch, from
    the NumPy float64 reference's: ‖a - b‖ / ‖b‖ by name; None for what is not finite.
    """

    observed: Deviations
    """Deviations of the row."""
    forms: dict[str, Deviations]
    """Deviations of the reference itself: in "float32" and where inputs near a step in an
    activation's slope are on the other side; in another precision where it rounds "operands", and
    "everywhere"."""

    def disagreement(self, compute: Compute) -> str | None:
        """Return in what it differs from the reference, in a line, or None."""
        bounds = {name: self._bound(name, compute) for name in self.observed}
        wrong = _over(compute, self.observed, bounds)
        if wrong or compute == FLOAT32:
            return wrong
        return too_exact(compute, self.observed, list(self.forms.values()))

    def _bound(self, name: str, compute: Compute) -> float:
        """Return the largest deviation that a gradient may have."""
        largest = max((form.get(name) or 0.0 for form in self.forms.values()), default=0.0)
        if compute == FLOAT32:
            return max(MIN_GRADIENT_BOUND, _float32_factor(name) * largest)
        if name.endswith("bias"):  # see NOTED_BIAS_DEVIATION
            return math.inf
        return max(LAST_PLACE[compute], PRECISION_FACTOR * largest)


def _float32_factor(name: str) -> float:
    """Return how far a tensor may deviate, as a multiple of the reference's own float32."""
    is_scale = "norm" in name and name.endswith(".weight") and name.startswith(GRADIENT_PREFIX)
    return NORMALIZATION_FACTOR if is_scale else FLOAT32_FACTOR


def too_exact(compute: Compute, observed: Deviations, forms: list[Deviations]) -> str | None:
    """Return which gradient was computed in a higher precision, in a line, or None.

    forms: the deviations of the reference itself, where it rounds. A bias' gradient is a sum over
    the examples, which may be in any precision.
    """
    for name, value in observed.items():
        least = min((form.get(name) or 0.0 for form in forms), default=0.0)
        if not name.endswith("bias") and (value or 0.0) < MIN_GRADIENT_SHARE * least:
            return (
                f"the {name} is computed in a higher precision than {compute}: it differs by "
                f"{value or 0.0:.1e} from float64, the reference's by {least:.1e}"
            )
    return None


@dataclass(frozen=True)
class Parity:
    """Hold the deviation of each tensor from the NumPy float64 reference's: ‖a - b‖ / ‖b‖ by name.

    For a gradient that is only rounding it is ‖a - b‖ / ‖all gradients‖. A value that is not finite
    is kept as None.
    """

    float64: Deviations
    """Deviations of the framework in float64."""
    float32: Deviations
    """Deviations of the framework in float32."""
    reference_float32: Deviations
    """Deviations of the NumPy reference itself, run in float32."""
    full_float32: dict[str, float | None] = field(default_factory=dict)
    """Deviations of one float32 convolution and one matrix multiplication; empty on the CPU."""
    dropout: dict[str, float | None] = field(default_factory=dict)
    """Errors of the dropout masks that the framework draws, by property of the masks; 1 is the
    largest error allowed. Empty where the model has no dropout."""
    near_zero: dict[str, float | None] = field(default_factory=dict)
    """Deviations of the reference's gradients where the inputs of activations that are so near a
    step in the slope (a ReLU's at 0) that float32 may have them on the other side are there; empty
    without such activations."""

    @property
    def agrees(self) -> bool:
        """Return whether every deviation is within its bound."""
        return self.disagreement is None

    @property
    def disagreement(self) -> str | None:
        """Return where it differs and by how much, or None: float64 first, then float32."""
        return (
            _over("float64", self.float64, dict.fromkeys(self.float64, FLOAT64_BOUND))
            or self._reduced_precision
            or _over("float32", self.float32, {n: self.float32_bound(n) for n in self.float32})
            or self._float64_in_disguise
            or self._wrong_dropout
        )

    def float32_bound(self, name: str) -> float:
        """Return the largest deviation that a tensor may have in float32."""
        minimum = MIN_LOSS_BOUND if name.startswith("loss") else MIN_FLOAT32_BOUND
        own = _float32_factor(name) * (self.reference_float32.get(name) or 0.0)
        return max(minimum, own, self.near_zero.get(name) or 0.0)

    @property
    def _float64_in_disguise(self) -> str | None:
        """Return which tensors of the float32 run were computed in float64, or None."""
        for start, kind in TENSOR_KINDS.items():
            values = [value for name, value in self.float32.items() if name.startswith(start)]
            if values and max(value or 0.0 for value in values) < FLOAT64_LEVEL:
                return f"the {kind} are computed in float64, not in float32"
        return None

    @property
    def _reduced_precision(self) -> str | None:
        """Return which float32 operation is less precise than float32, or None."""
        if not self.full_float32:
            return None
        name, value = worst(self.full_float32)
        if value is not None and value <= FULL_FLOAT32_BOUND:
            return None
        verdict = "is not finite" if value is None else f"is off by {value:.1e}"
        return (
            f"a float32 {name} {verdict} (at most {FULL_FLOAT32_BOUND:.0e} is allowed): "
            "it computes in TensorFloat-32 or a lower precision"
        )

    @property
    def _wrong_dropout(self) -> str | None:
        """Return which property of the dropout masks is wrong, or None."""
        if not self.dropout:
            return None
        name, value = worst(self.dropout)
        if value is not None and value <= 1:
            return None
        verdict = "not finite" if value is None else f"off by {value:.1f} times what chance allows"
        return f"the dropout masks that it draws are wrong: {name} is {verdict}"


def _over(
    precision: str, deviations: dict[str, float | None], bounds: dict[str, float]
) -> str | None:
    """Return the tensor that exceeds its bound most, in a line, or None."""
    shares = {n: None if v is None else v / bounds[n] for n, v in deviations.items()}
    name, share = worst(shares)
    if share is not None and share <= 1:
        return None
    value = deviations[name]
    verdict = "is not finite" if value is None else f"differs by {value:.1e}"
    return f"{name} {verdict} in {precision} (at most {bounds[name]:.0e} is allowed)"


def worst(deviations: dict[str, float | None]) -> tuple[str, float | None]:
    """Return the tensor with the largest deviation, and that deviation; None is the largest."""
    return max(deviations.items(), key=lambda item: float("inf") if item[1] is None else item[1])
