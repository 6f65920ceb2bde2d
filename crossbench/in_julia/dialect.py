"""Say how a framework in Julia writes what is its own. Needs no Julia.

That is the row, of which the Julia side builds a workload, and what of it is in programs too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import models
from ..models.model import Model
from ..source.statements import indented
from .chain import Chain
from .source import Imports, LossSource, Place, code, schedule_source


@dataclass(frozen=True)
class EpochSource:
    """Says how a framework's users train on every batch once.

    summary: what the function does. function: its name. given: its arguments before the batches.
    adjust: the statement that sets the learning rate to {rate}. step: statements that train on
    (x, y), and find its `loss`. results: what the function returns, `losses` first.
    """

    summary: str
    function: str
    given: tuple[str, ...]
    adjust: str
    step: tuple[str, ...]
    results: str


class Dialect(ABC):
    """Says how a framework in Julia writes the training of a model on a device."""

    title: ClassVar[str]
    package: ClassVar[str]
    """The framework's package, whose version a program prints. That of crossbench, CrossBench with
    this name, has the structs and functions of layers that the framework has not got."""
    data_loader: ClassVar[str]
    """The function that returns batches of examples."""
    onecold: ClassVar[str]
    """The function that returns the classes with the largest outputs."""
    state_of: ClassVar[tuple[str, ...]]
    """The variables that the statements of `state` take."""
    given_gradient: ClassVar[str]
    """The loss of a row whose labels are the gradient of the outputs."""
    setup: ClassVar[tuple[str, ...]] = ()
    """Statements behind those that make the model, which give it weights of its own."""

    def __init__(self, model: Model, device: str) -> None:
        self.model, self.is_on_gpu = model, device == "gpu"
        dropouts = (named.name for named in model.all_layers() if self.has_masks(named.layer))
        self.dropouts = sorted(dropouts)
        """Their names, in the order of their seeds."""

    def has_masks(self, layer: models.Layer) -> bool:
        """Return whether a layer draws masks in the framework."""
        return isinstance(layer, models.Dropout)

    @property
    def loss(self) -> LossSource:
        return self.loss_source()

    @abstractmethod
    def loss_source(self, first: int = 0) -> LossSource:
        """Return the loss of the model. first: the first class."""

    @abstractmethod
    def places(self) -> list[Place]:
        """Return the arrays of the model, in the framework's order."""

    @abstractmethod
    def imports(self) -> Imports:
        """Return what a program may import."""

    @abstractmethod
    def chain(self) -> Chain:
        """Return what writes the model."""

    @abstractmethod
    def clip(self, norm: str) -> str:
        """Return the function `clip`, which scales a gradient down to a norm."""

    @abstractmethod
    def epoch(self) -> EpochSource:
        """Return how an epoch is written."""

    @abstractmethod
    def load_weights(self) -> list[str]:
        """Return the statements that load the weights, and move them to the device."""

    @abstractmethod
    def state(self) -> list[str]:
        """Return the statements that make the optimizer's `state`."""

    def seeds(self) -> list[str]:
        """Return the statements that seed the dropout masks, where the layers do not."""
        return []

    @abstractmethod
    def gradients(self) -> tuple[str, str]:
        """Return the function of a batch's gradients, without an update, and its call."""

    @abstractmethod
    def outputs(self) -> tuple[list[str], str]:
        """Return statements before a prediction, and the expression of the outputs of x."""

    def made(self) -> tuple[list[str], list[str]]:
        """Return the functions of blocks that repeat, and the statements that make the model."""
        chain = self.chain()
        statements = chain.statements(list(self.model.named_layers()))
        return chain.functions, statements

    def rate_and_clip(self) -> list[str]:
        """Return the functions of the schedule and the clipping."""
        optimizer = self.model.optimizer
        functions = [schedule_source(optimizer)] if optimizer.schedule else []
        if optimizer.clip_norm is not None:
            functions.append(self.clip(code(optimizer.clip_norm)))
        return functions

    def row(self) -> dict[str, Any]:
        """Return what the package of the framework builds a workload of, as JSON takes it.

        text: statements, whose last one is the model, its loss, the targets of labels from 0, the
        learning rate of a step from 0, what clips gradients, and what makes the optimizer's state;
        the package has the structs and functions that they name, and T. arrays: the model's, in the
        framework's order; a name is empty for one that stays zero. dropouts: their names, in the
        order of the layers.
        """
        arrays = [
            {
                "name": place.full_name,
                "size": place.shape[::-1],
                "change": place.change,
                "is_trained": place.is_trained,
            }
            for place in self.places()
        ]
        dropouts = [n.name for n in self.model.all_layers() if n.name in self.dropouts]
        return {"text": self._text(), "arrays": arrays, "dropouts": dropouts}

    def _text(self) -> str:
        functions, model = self.made()
        loss, optimizer = self.loss, self.model.optimizer
        lines = [
            *(function.strip() for function in [*functions, *self.rate_and_clip()]),
            *model,
            f"loss = {loss.made or loss.function or self.given_gradient}",
            f"targets(labels) = {loss.targets}",
            f"function set_up({', '.join(self.state_of)})",
            *indented([*self.state(), "return state"]),
            "end",
            *([] if optimizer.schedule else ["rate = nothing"]),
            *(["clip = nothing"] if optimizer.clip_norm is None else []),
            "(; model, loss, targets, rate, clip, set_up)",
        ]
        return "\n".join(lines)
