"""An epoch's batches: arrays that are there before, or pictures augmented when their turn comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..workload import Batch


@dataclass(frozen=True)
class ArrayBatches:
    """inputs: (steps, batch, *input_shape); labels: (steps, batch), int64; kept: for each dropout
    (steps, batch, *shape), bool. See Batch.
    """

    streamed: ClassVar[bool] = False

    inputs: np.ndarray
    labels: np.ndarray
    kept: Mapping[str, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Batch]:
        for step in range(len(self)):
            kept = self.kept and {name: array[step] for name, array in self.kept.items()}
            yield Batch(self.inputs[step], self.labels[step], kept)
