"""Define the jobs of a sweep: a job is the arguments of one `crossbench.run`.

No framework is imported here.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..arguments import ARGUMENTS
from ..inputs import toml_file
from ..inputs.checks import LINE, OVER_0, shown
from ..inputs.errors import SpecError
from ..spec import make_spec

MACHINES = ("any", "each")
NAME_CHARACTERS = 120
"""Characters of a job's name: those of the model first, the digest last."""
OPTIONS = ("machines", "workers", "resources")
"""The words of a sweep's file that are not arguments of `crossbench.run`."""
TABLES = "jobs"
"""The word of the tables that add words of their own: [[jobs]]."""
TABLE_LINE = re.compile(rf"\s*\[\[\s*{TABLES}\s*\]\]")
WORD_LINE = re.compile(r"""\s*(?:\[\s*)?["']?([\w-]+)["']?\s*[=.\]]""")
"""The first line of a table, and of a word's value, in a TOML text."""


@dataclass(frozen=True)
class SweepJob:
    """Hold the arguments of one `crossbench.run`.

    name: of its results file, without the ending: the values that differ among the jobs, and the
    digest. digest: eight hexadecimal digits of the arguments, so that a job is known again when
    others join its sweep.
    """

    name: str
    digest: str
    arguments: dict[str, Any]

    @property
    def data_key(self) -> str:
        """Return what the examples depend on: two jobs with the same key have the same data."""
        return canonical({k: v for k, v in self.arguments.items() if ARGUMENTS[k].changes_data})


@dataclass(frozen=True)
class SweepFile:
    """Hold what a sweep's file asks for.

    machines: "any" to have each job run once, "each" to have every machine run every job. workers:
    patterns of the Dask workers' names, such as "gpu-*"; None for all. resources: what a Dask
    worker must offer, such as {"GPU": 1}.
    """

    jobs: list[SweepJob]
    machines: str = "any"
    workers: tuple[str, ...] | None = None
    resources: Mapping[str, float] | None = None


def read(path: str | Path) -> SweepFile:
    """Return what a TOML file asks for; SpecError, with the line, for the first wrong word.

    Its words are arguments of `crossbench.run`, and those of OPTIONS. A list means each of its
    values, and the jobs are the product. With tables [[jobs]] the jobs are the products of each,
    with the words above them where a table does not have its own.
    """
    try:
        table, text = toml_file.read(Path(path))
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SpecError(f"{path} is not TOML: {error}") from None
    tables = table.pop(TABLES, [{}])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise SpecError(f"{path}: {TABLES} must be tables, each below a line [[{TABLES}]]")
    arguments = {word: value for word, value in table.items() if word not in OPTIONS}
    try:
        options = {word: check_option(word, table[word]) for word in OPTIONS if word in table}
        jobs = [job for each in tables for job in product(arguments | each)]
        return SweepFile(jobs=make_jobs(jobs), **options)
    except SpecError as error:
        line = _line_at_fault(text, [table, *tables], str(error))
        place = f"{path}, line {line}" if line else path
        raise SpecError(f"{place}: {error}") from None


def product(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of each job: a list means each of its values."""
    values = {word: value if isinstance(value, list) else [value] for word, value in table.items()}
    for word, each in values.items():
        if not each:
            raise SpecError(f"{word} is an empty list: there is no job to run")
        if repeated := [v for n, v in enumerate(each) if v in each[:n]]:
            raise SpecError(f"{word} has {shown(repeated[0])} more than once")
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def make_jobs(jobs: Iterable[Mapping[str, Any]]) -> list[SweepJob]:
    """Return the jobs with their names; SpecError for the first wrong argument, or for no job.

    What only the machine that runs the job can check (depends_on_machine) is left to it.
    """
    arguments = [_check(job) for job in jobs]
    if not arguments:
        raise SpecError("a sweep needs at least one job")
    texts = list(map(canonical, arguments))
    digests = [sha256(text.encode()).hexdigest()[:8] for text in texts]
    repeated, times = Counter(digests).most_common(1)[0]
    if times > 1:
        first, second, *_ = (t for t, d in zip(texts, digests, strict=True) if d == repeated)
        if first == second:
            raise SpecError(f"{times} jobs are the same: {first}")
        raise SpecError(  # by chance: of 10,000 jobs in one of a hundred sweeps
            f"the names of {first} and {second} would be the same: put them into two sweeps"
        )
    words = dict.fromkeys(word for job in arguments for word in job)
    differing = [w for w in words if len({canonical(job.get(w)) for job in arguments}) > 1]
    return [
        SweepJob(_name(job, differing, digest), digest, job)
        for job, digest in zip(arguments, digests, strict=True)
    ]


def check_option(word: str, value: Any) -> Any:
    """Return the value of one of OPTIONS; SpecError where it is wrong."""
    if word == "machines":
        if value not in MACHINES:
            raise SpecError(f"machines must be any or each, not {shown(value)}")
        return value
    if word == "workers":
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not names:
            raise SpecError(f"workers must be names such as 'gpu-*', not {shown(value)}")
        return tuple(LINE.check("workers", name) for name in names)
    if not isinstance(value, Mapping):
        raise SpecError(f"resources must be amounts by name, as {{GPU = 1}}, not {shown(value)}")
    return {
        LINE.check("resources", name): OVER_0.check(f"resources: {name}", amount)
        for name, amount in value.items()
    }


def canonical(value: Any) -> str:
    """Return the JSON of a value, the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(", ", ": "))


def _check(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's arguments; SpecError for one that is unknown, wrong or not plain values."""
    if not isinstance(job, Mapping):
        raise SpecError(f"a job must be a mapping of crossbench.run's arguments, not {shown(job)}")
    for word in job:
        if word not in ARGUMENTS:
            raise SpecError(_unknown(word))
    try:
        plain: dict[str, Any] = json.loads(canonical(dict(job)))
    except (TypeError, ValueError):
        raise SpecError(
            "a job's arguments must be text, numbers, lists and mappings, because it runs in "
            f"another process; name a model as FILE.py:NAME: {shown(dict(job))}"
        ) from None
    make_spec(
        **{word: value for word, value in plain.items() if not ARGUMENTS[word].depends_on_machine}
    )
    return plain


def _name(arguments: Mapping[str, Any], differing: Sequence[str], digest: str) -> str:
    """Return a name for files: the model, the other values that differ, and the digest."""
    parts = [_text(arguments.get("model", ARGUMENTS["model"].default))]
    parts += [f"{w}-{_text(arguments[w])}" for w in differing if w != "model" and w in arguments]
    words = (re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-.") for part in parts)
    text = "-".join(filter(None, words))[: NAME_CHARACTERS - len(digest) - 1].strip("-.")
    return f"{text}-{digest}" if text else digest


def _text(value: Any) -> str:
    return value.rpartition("/")[2] if isinstance(value, str) else canonical(value)


def _unknown(word: str) -> str:
    if word in OPTIONS:
        return f"{word} is of the whole sweep: write it above the tables [[{TABLES}]]"
    known = [*ARGUMENTS, *OPTIONS]
    near = difflib.get_close_matches(word, known, 1)
    hint = f"write {near[0]}" if near else f"choose from {', '.join(known)}"
    return f"there is no argument {shown(word)}: {hint}"


def _line_at_fault(text: str, tables: Sequence[Mapping[str, Any]], message: str) -> int | None:
    """Return the number of the line whose word raises the same error alone; None if that is due to
    several.

    tables: the words above the tables of the text, and those of each table.
    """
    left = iter(tables)
    table = next(left)
    for number, line in enumerate(text.splitlines(), 1):
        if TABLE_LINE.match(line):
            table = next(left, {})
        match = WORD_LINE.match(line)
        word = match[1] if match else ""
        if word in table and message in (_unknown(word), _error(word, table[word])):
            return number
    return None


def _error(word: str, value: Any) -> str | None:
    """Return the error that a word of a sweep's file raises alone; None if it raises none."""
    try:
        if word in OPTIONS:
            check_option(word, value)
        else:
            make_jobs(product({word: value}))
    except SpecError as error:
        return str(error)
    return None
