"""Holds a program, tells the names of several apart, and writes them to files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..inputs.errors import ProgramError


@dataclass(frozen=True)
class Program:
    """Hold a program that trains a model, or that times a part of a training step.

    framework: its name, and title: as its users write it. part: None for the whole model.
    without_part: whether it times what is subtracted from the program with the part. batches: those
    of an epoch; None for a part. seconds: what the part took in the run of the results file; None
    where that is not known. reads: the files beside it with weights and examples.
    """

    framework: str
    variant: str
    title: str
    model: str
    part: str | None
    batch_size: int
    batches: int | None
    threads: int
    seconds: float | None
    source: str
    path: Path
    reads: tuple[Path, ...] = ()
    without_part: bool = False


WriteFile = Callable[[Path], None]
"""Writes a new file; raises OSError where that is not possible."""


def file_words(framework: str) -> str:
    """Return the framework's name for a file, which for an adapter in a file is "FILE.py:NAME"."""
    return "_".join(re.findall(r"\w+", framework))


def told_apart(programs: list[Program]) -> list[Program]:
    """Return the programs with their batch size and threads in the name, if they have several."""
    found = []
    for program in programs:
        name = program.path.stem
        if len({other.batch_size for other in programs}) > 1:
            name += f"_batch{program.batch_size}"
        if len({other.threads for other in programs}) > 1:
            name += f"_threads{program.threads}"
        found.append(replace(program, path=Path(f"{name}{program.path.suffix}")))
    return found


def write_files(files: Mapping[Path, WriteFile], directory: Path, force: bool) -> None:
    """Write files into a directory, which is made where it does not exist.

    force: overwrite those that exist. Raise ProgramError where one exists, before any of them is
    written, or cannot be written; a part of a file is removed.
    """
    for path in files:
        with _reported(path):
            if os.path.lexists(path) and not force:
                raise ProgramError(f"{path} exists already: choose another folder, or --force")
    with _reported(directory):
        directory.mkdir(parents=True, exist_ok=True)
    for path, write in files.items():
        with _reported(path):
            if force:
                path.unlink(missing_ok=True)
            try:
                write(path)
            except FileExistsError:
                raise  # somebody else's
            except OSError:
                path.unlink(missing_ok=True)
                raise


def write_text(path: Path, text: str) -> None:
    """Write a new file in UTF-8."""
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Raise ProgramError for what the file system says."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ProgramError(f"{path} cannot be written: {why}") from None
