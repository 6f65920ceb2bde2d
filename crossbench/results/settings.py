"""Define what a run was asked for: its settings, its target and its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from .number_types import Count, Over0, Positive, Round


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a run that are not in the model, the data and the cells."""

    model: str
    """Model as the user named it: a name of the catalogue, or FILE.py:NAME."""
    rounds: Round | None
    """Number of rounds; None: until the ratios are as precise as asked for, or max_seconds
    passed."""
    precision: Over0 | None
    """The largest width of a ratio's interval, relative to the ratio; None: until it is decided who
    is faster."""
    max_seconds: Over0 | None
    """Limit where rounds is None, and for the training to a target; None for the defaults of
    each."""
    epochs: Positive
    """Steady epochs per round."""
    seed: Count
    """Seed of the initial weights, synthetic data and augmentation."""
    timeout: Over0
    """Seconds that one answer of a worker process may take."""
    data: str
    """Data as the user named it: auto, synthetic, or a directory."""
    baseline: str | None
    """The framework that the others are compared with; None for the fastest."""
    prices: dict[Annotated[str, Meta(pattern=r"^(cpu|gpu)\Z")], Over0]
    """Price of an hour, by device: cpu and gpu."""
    target_accuracy: Annotated[float, Meta(gt=0, le=1)] | None
    """Accuracy on the test examples to train to, as a fraction; None to train the epochs only."""
    target_loss: Over0 | None
    """Mean loss of the test examples to train to; None to train the epochs only."""
    trace_memory: bool
    """Whether the memory that an epoch allocates was asked for."""
    layers: bool
    """Whether the parts of a training step were asked for."""

    @property
    def target(self) -> Target | None:
        """Return what each cell is trained to after the rounds; None for nothing."""
        if self.target_accuracy is not None:
            return Target("accuracy", self.target_accuracy)
        return None if self.target_loss is None else Target("loss", self.target_loss)


@dataclass(frozen=True)
class Target:
    """Say what the test examples must give for a training to be over."""

    what: Literal["accuracy", "loss"]
    value: float

    def met_by(self, reached: float | None) -> bool:
        """Return whether an accuracy is as large, or a loss as small."""
        if reached is None:
            return False
        return reached >= self.value if self.what == "accuracy" else reached <= self.value


@dataclass(frozen=True)
class Data:
    """Describe the data of a run."""

    name: str
    """The data in a few words."""
    sha256: str
    """Digest of the inputs and labels that are used to train and to test, in order."""
    train_examples: Positive
    """Number of examples to train on."""
    test_examples: Positive
    """Number of examples that the accuracy is measured on."""
    most_batches: Positive | None = None
    """Limit on the batches of an epoch; None for all."""
    most_examples: Positive | None = None
    """Limit on the examples of an epoch; None for all."""
    note: str | None = None
    """Why it is not the data that was asked for, in a line."""

    def batches(self, batch_size: int) -> int:
        """Return the number of batches in an epoch, all full: the remaining examples are not used.

        0 where there are fewer examples than a batch has.
        """
        examples = min(self.train_examples, self.most_examples or self.train_examples)
        full = examples // batch_size
        return min(full, self.most_batches or full)

    def is_cut(self, batch_size: int) -> bool:
        """Return whether the data has more batches than an epoch takes."""
        return self.batches(batch_size) < self.train_examples // batch_size
