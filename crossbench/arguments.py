"""Describes the arguments of a run, each once; imports no framework and no NumPy.

They serve `run`, the command line, a sweep's file, the check in spec.py and the documentation.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from .inputs.checks import LINE, OVER_0, SIZE, TRUE_OR_FALSE, Rule, integer, number, optional
from .inputs.names import FLOAT32, IDIOMATIC
from .inputs.words import number_or_auto, percentage, whole_number, whole_numbers
from .results.epochs import TRAIN

if TYPE_CHECKING:
    from .models import Model

AUTO = "auto"
READ: dict[str, Callable[[str], Any]] = {
    "N": whole_number,
    "N|auto": number_or_auto,
    "N,M": whole_numbers,
    "P%": percentage,
    "L": float,
    "SECONDS": float,
}
"""What reads a word of the command line, by how --help shows it."""
SECONDS = number(
    f"a number over 0 and at most {threading.TIMEOUT_MAX:,.0f}",  # Python's limit for a wait
    lambda value: 0 < value <= threading.TIMEOUT_MAX,
)
FRACTION = number("a number over 0 and at most 1", lambda value: 0 < value <= 1)
ROUNDS = Rule(
    f"{SIZE.words}, or {AUTO}",
    lambda value: None if isinstance(value, str) and value == AUTO else SIZE.accept(value),
)


@dataclass(frozen=True)
class Argument:
    """Describe one argument of a run.

    meaning: in a sentence or two. default: its value where it is not given. otherwise: that value
    in words; None for the value itself. word: what the command line takes, as --help shows it: one
    of READ, or text; None for a switch. rule: checks the value and converts it; None where spec.py
    checks it. changes_data: whether other values use other examples. depends_on_machine: whether
    only the machine that runs the job can check it.
    """

    meaning: str
    default: Any = None
    otherwise: str | None = None
    word: str | None = None
    rule: Rule | None = None
    changes_data: bool = False
    depends_on_machine: bool = False

    @property
    def read(self) -> Callable[[str], Any]:
        """Return what reads a word of the command line."""
        return READ.get(self.word or "", str)

    @property
    def sentence(self) -> str:
        """Return the meaning with the default."""
        default = self.otherwise or (None if self.word is None else self.default)
        return self.meaning if default is None else f"{self.meaning} (default: {default})"


Names = Iterable[str] | None
Numbers = int | Iterable[int] | None


class Options(TypedDict, total=False):
    """Name the arguments of a run but for the frameworks and the devices, with their types."""

    variants: Annotated[
        Names,
        Argument(
            "variants of the frameworks that are named without one: those that `doctor` lists, or "
            "all, of which each framework runs those that it has",
            otherwise=IDIOMATIC,
            word="all|A,B",
        ),
    ]
    task: Annotated[
        Iterable[str],
        Argument(
            "train on the batches, or predict the logits of each from the initial weights, with a "
            "row for each task",
            default=TRAIN,
            word="train|predict|train,predict",
        ),
    ]
    compute: Annotated[
        Iterable[str],
        Argument(
            "what matrix multiplications and convolutions are computed in, with a row for each: "
            "float32, tf32 on a GPU, or bfloat16, the framework's own mixed precision with float32 "
            "weights",
            default=FLOAT32,
            word="float32,tf32,bfloat16",
        ),
    ]
    model: Annotated[
        "str | Model",
        Argument(
            "a name that `models` lists, FILE.py:NAME, or in Python a Model or a framework's own",
            default="lenet",
            word="NAME",
            changes_data=True,
        ),
    ]
    input: Annotated[
        Numbers,
        Argument(
            "shape of one example, such as 3,32,32, where the model is a framework's own, or a "
            "function that gives one",
            otherwise="none",
            word="N,M",
            changes_data=True,
        ),
    ]
    data: Annotated[
        str | Path,
        Argument(
            "auto: the data that the model was published with, or synthetic data if that is not "
            "available; PATH: the data that you have, such as a folder or the downloaded archive",
            default=AUTO,
            word="auto|synthetic|PATH",
            changes_data=True,
            depends_on_machine=True,
        ),
    ]
    rounds: Annotated[
        int | str,
        Argument(
            "number of rounds, each in new processes; auto: six, which an interval needs, or more, "
            "until the ratios are decided",
            default=AUTO,
            word="N|auto",
            rule=ROUNDS,
        ),
    ]
    precision: Annotated[
        float | None,
        Argument(
            "for rounds auto: width of a ratio's interval, relative to the ratio, at which it is "
            "decided",
            otherwise="5%, or clearly on one side of 1",
            word="P%",
            rule=optional(OVER_0),
        ),
    ]
    max_seconds: Annotated[
        float | None,
        Argument(
            "time limit of rounds auto, and of each row's training to a target",
            otherwise="60 a row, and 600",
            word="SECONDS",
            rule=optional(SECONDS),
        ),
    ]
    epochs: Annotated[
        int,
        Argument(
            "steady epochs per round; they alternate with those of the other rows",
            default=1,
            word="N",
            rule=SIZE,
        ),
    ]
    batch_size: Annotated[
        Numbers,
        Argument(
            "examples per step, with a row for each number",
            otherwise="the model's",
            word="N,M",
            changes_data=True,
        ),
    ]
    batches: Annotated[
        int | None,
        Argument(
            "batches per epoch, the first ones of the data, at every batch size; the test examples "
            "are cut to as many",
            otherwise="the model's own, mostly all",
            word="N",
            changes_data=True,
        ),
    ]
    examples: Annotated[
        int | None,
        Argument(
            "examples per epoch, the first ones of the data, at every batch size: in place of "
            "batches",
            word="N",
            changes_data=True,
        ),
    ]
    seed: Annotated[
        int,
        Argument(
            "seed of the initial weights, the synthetic data and the augmentation",
            default=0,
            word="N",
            rule=integer(0, 2**63 - 1),
            changes_data=True,
        ),
    ]
    threads: Annotated[
        Numbers,
        Argument(
            "CPU threads, with a row for each number",
            otherwise="all CPUs that may be used, or a container's quota",
            word="N,M",
            depends_on_machine=True,
        ),
    ]
    baseline: Annotated[
        str | None,
        Argument("framework to compare the others with", otherwise="the fastest", word="A"),
    ]
    price: Annotated[
        float | str | Mapping[str, float] | None,
        Argument(
            "price of an hour, in any currency: 0.745/h, cpu=0.17/h,gpu=0.745/h, or "
            "FILE.toml:MACHINE",
            word="P/h",
        ),
    ]
    target_accuracy: Annotated[
        float | None,
        Argument(
            "after the rounds, measure how long training from the initial weights takes to reach "
            "this accuracy on the test examples",
            word="P%",
            rule=optional(FRACTION),
        ),
    ]
    target_loss: Annotated[
        float | None,
        Argument(
            "the same for the mean loss of the test examples, as for a language model",
            word="L",
            rule=optional(OVER_0),
        ),
    ]
    trace_memory: Annotated[
        bool,
        Argument(
            "after the rounds, measure how much memory an epoch allocates in total, in new "
            "processes",
            default=False,
            rule=TRUE_OR_FALSE,
        ),
    ]
    layers: Annotated[
        bool,
        Argument(
            "in each round, measure too what each layer, the loss and the optimizer take of a "
            "training step",
            default=False,
            rule=TRUE_OR_FALSE,
        ),
    ]
    timeout: Annotated[
        float,
        Argument(
            "seconds that a worker process may take for one answer, to start or to train, beyond "
            "what an epoch is known to take",
            default=600.0,
            otherwise="600",
            word="SECONDS",
            rule=SECONDS,
        ),
    ]
    machine: Annotated[
        str | None,
        Argument(
            "name of this machine in the tables",
            otherwise="its processor's name",
            word="NAME",
            rule=optional(LINE),
        ),
    ]


ARGUMENTS: dict[str, Argument] = {
    "frameworks": Argument(
        "names such as torch,jax,flux; torch:tuned for a variant, FILE.py:NAME for an adapter in a "
        "file",
        otherwise="all installed",
        word="A,B",
    ),
    "devices": Argument(
        "cpu, gpu, or gpu:1 for the second GPU",
        otherwise="cpu, and gpu if there is one",
        word="A,B",
    ),
    **{name: hint.__metadata__[0] for name, hint in Options.__annotations__.items()},
}
"""The arguments by their names."""


def sentences() -> str:
    """Return a line "name: meaning" for each argument."""
    return "\n".join(f"{name}: {argument.sentence}." for name, argument in ARGUMENTS.items())


def fill_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each argument, by the defaults and the rules.

    Raises SpecError for the first value that breaks its rule, and TypeError for an unknown name.
    """
    for name in given:
        if name not in ARGUMENTS:
            raise TypeError(f"there is no argument {name!r}: choose from {', '.join(ARGUMENTS)}")
    values = {name: given.get(name, argument.default) for name, argument in ARGUMENTS.items()}
    return {
        name: argument.rule.check(name, values[name]) if argument.rule else values[name]
        for name, argument in ARGUMENTS.items()
    }
