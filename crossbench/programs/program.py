"""Holds a program, tells the names of several apart, and writes them to files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from ..inputs.errors import ProgramError

WriteFile = Callable[[Path], None]
"""Writes a new file; raises OSError where that is not possible."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """Hold a program that trains a model, or that times a part of a training step.

    framework: its name, and title: as its users write it. part: None for the whole model.
    without_part: whether it times what is subtracted from the program with the part. batches: those
    of an epoch; None for a part. seconds: what the part took in the run of the results file; None
    where that is not known. reads: the files beside it with weights and examples. arrays: what
    writes these, by name.
    """

    framework: str
    variant: str
    title: str
    model: str
    part: str | None = None
    batch_size: int
    batches: int | None = None
    threads: int
    seconds: float | None = None
    source: str
    path: Path
    reads: tuple[Path, ...] = ()
    without_part: bool = False
    arrays: Mapping[str, WriteFile] = field(default_factory=dict, repr=False, compare=False)


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


def write(programs: Iterable[Program], directory: Path, force: bool) -> list[Program]:
    """Write programs and the arrays that they read into a directory, which is made where it does
    not exist, and return the programs with their paths.

    force: overwrite files that exist. Raise ProgramError where one exists, before any of them is
    written, or cannot be written; a part of a file is removed.
    """
    files: dict[Path, WriteFile] = {}
    arrays: dict[Path, WriteFile] = {}
    placed = []
    for program in programs:
        path, reads = directory / program.path, (directory / path for path in program.reads)
        placed.append(replace(program, path=path, reads=tuple(reads)))
        files[path] = partial(_write_text, text=program.source)
        arrays |= {directory / name: write for name, write in program.arrays.items()}
    _write_files(files | arrays, directory, force)
    return placed


def _write_files(files: Mapping[Path, WriteFile], directory: Path, force: bool) -> None:
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


def _write_text(path: Path, text: str) -> None:
    """Write a new file in UTF-8."""
    with open(path, "x", encoding="utf-8") as file:
        file.write(text)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a new file, .npz by their names, or .bin one after the other.

    A .bin file holds the values alone, each array's in C order and its own dtype.
    """
    with open(path, "xb") as file:
        if path.suffix == ".npz":
            np.savez(file, **arrays)  # type: ignore[arg-type]  # a word of its own is bool
            return
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Raise ProgramError for what the file system says."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ProgramError(f"{path} cannot be written: {why}") from None
