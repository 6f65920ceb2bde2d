"""Cut a training step into parts: the layers, the loss and the optimizer.

Each part is what one piece of work takes longer than another. A layer's time is what it adds to the
layers before it, down to the nearest one with weights: so its input needs a gradient, as in the
model, and what a framework fuses counts where it is fused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..data.sources import Synthetic
from ..inputs.checks import shown
from ..inputs.errors import SpecError
from .layers.branches import Branches
from .layers.sequences import Unembedding
from .model import Model, NamedLayer, with_inner_layers
from .training import GivenGradient, Loss

OPTIMIZER_EXAMPLES = 4
"""Examples of the batch on which the optimizer is timed: few, so that it is most of the step."""
LOSS, OPTIMIZER = "loss", "optimizer"


@dataclass(frozen=True)
class Work:
    """Describes what is timed: the gradients of a batch, or, where it trains, a whole step.

    examples: of the batch; None for as many as the run's batches have.
    """

    model: Model
    trains: bool = False
    examples: int | None = None


@dataclass(frozen=True)
class Part:
    """Describes one part of a training step: what `whole` takes longer than `before`.

    name: the layer's, or LOSS or OPTIMIZER; of equal layers the first one's. before: None where
    nothing is before it. count: how many equal layers the model has. names: those of all layers
    that belong to the part, the equal ones included.
    """

    name: str
    whole: Work
    before: Work | None
    count: int = 1
    names: tuple[str, ...] = ()

    @property
    def works(self) -> list[Work]:
        return [self.whole] if self.before is None else [self.before, self.whole]


def parts(model: Model) -> list[Part]:
    """Return the parts of a step, in the order of the layers; equal layers are one part.

    A layer before the first one with weights is timed with that: "flatten1, dense1". Branches'
    own part is the join, of as many copies of the output of the largest branch.
    """
    cut = _Cut(model)
    end = cut.through(model.named_layers(), ())
    cut.add(end, end, model.loss)
    few = Work(model, examples=OPTIMIZER_EXAMPLES)
    return [*cut.found.values(), Part(OPTIMIZER, replace(few, trains=True), few)]


def groups(parts: Iterable[Part]) -> list[list[Part]]:
    """Return the parts in groups, in each of which the next one is compared with the one before."""
    found: list[list[Part]] = []
    for part in parts:
        if found and part.before == found[-1][-1].whole:
            found[-1].append(part)
        else:
            found.append([part])
    return found


def find_part(model: Model, name: str) -> Part:
    """Return the part of this name, or the one that a layer of this name belongs to.

    Raises SpecError if there is none.
    """
    found = parts(model)
    wanted = ", ".join(word.strip() for word in name.split(","))
    for part in found:
        if wanted in (part.name, *part.names):
            return part
    known = "; ".join(part.name for part in found)
    raise SpecError(f"{model.name} has no layer {shown(name)}: choose from {known}")


Chain = tuple[NamedLayer, ...]
"""Layers that follow one another: the nearest one with weights, and those behind it."""


class _Cut:
    """Collects the parts of a model, by what is timed for them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.found: dict[tuple[Work, Work | None], Part] = {}

    def through(self, layers: Iterable[NamedLayer], before: Chain) -> Chain:
        """Add the parts of the layers that follow those before; return the chain at their end."""
        for named in layers:
            if isinstance(named.layer, Branches):
                before = self._join(named, named.layer, before)
                continue
            if isinstance(named.layer, Unembedding):  # it shares the weight of the first layer
                before = (next(self.model.named_layers()),)
            chain, base = (*before, named), before if _trains(before) else ()
            if _trains(chain):
                self.add(chain, base)
            before = (named,) if _trains((named,)) else chain
        return before

    def _join(self, named: NamedLayer, layer: Branches, before: Chain) -> Chain:
        """Add the parts of branches and their join; return the chain at their end."""
        branches = named.branches
        ends = [self.through(branch, before) for branch in branches]
        shapes = [branch[-1].output_shape if branch else named.input_shape for branch in branches]
        pairs = zip(ends, shapes, strict=True)
        end, shape = max(pairs, key=lambda pair: (math.prod(pair[1]), _trains(pair[0])))
        copies = replace(layer, branches=((),) * len(branches))
        joined = NamedLayer(named.name, copies, shape, copies.output_shape(shape))
        if _trains(end):
            self.add((*end, joined), end)
        if shape == named.output_shape:  # what follows is timed behind that branch alone
            return end
        return (named,) if _trains((named,)) else (*before, named)

    def add(self, chain: Chain, before: Chain, loss: Loss | None = None) -> None:
        """Add what a chain takes longer than the one before, or than itself without its loss."""
        key = (self.work(chain, loss), self.work(before) if before else None)
        names = tuple(named.name for named in chain[len(before) :])
        part = self.found.get(key) or Part(", ".join(names) or LOSS, *key, count=0)
        self.found[key] = replace(part, count=part.count + 1, names=part.names + names)

    def work(self, chain: Chain, loss: Loss | None = None) -> Work:
        """Return the gradients of a chain, by the loss or by that of its output."""
        layers = tuple(named.layer for named in chain)
        shape, loss = chain[0].input_shape, loss or GivenGradient()
        part = replace(
            self.model,
            name="part",
            input_shape=shape,
            layers=layers,
            loss=loss,
            data=Synthetic(),
            weights=None,
            own_paths=None,
        )
        return Work(part)


def _trains(chain: Chain) -> bool:
    return any(p.trained for n in with_inner_layers(chain) for p in n.parameters.values())
