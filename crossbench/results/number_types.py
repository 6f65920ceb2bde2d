"""Define numbers and lists with bounds: msgspec checks them when it reads a results file."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Positive = Annotated[int, Meta(gt=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Over0 = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0, le=1e18)]
Share = Annotated[float, Meta(ge=0, le=1)]
Round = Annotated[int, Meta(gt=0, le=20_000)]
"""A number of rounds, or of one of them: the intervals of 20,000 rounds take seconds to compute."""
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
"""Seconds of an epoch, which takes thirty years at most."""
MAX_STEPS = 1_000_000
"""Steps of an epoch: the longest published epoch has some thousand."""
Losses = Annotated[list[float | None], Meta(max_length=MAX_STEPS)]
"""The loss of each step; None where it was not finite."""
