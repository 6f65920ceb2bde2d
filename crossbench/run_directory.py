"""The temporary directory of a run: its data, mapped by all workers, and their temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .errors import DataError
from .locked_directory import locked_directory, remove_abandoned

PREFIX = "crossbench-run-"


@contextmanager
def run_directory() -> Iterator[Path]:
    """Make a directory for a run and remove it at the end; remove those of killed runs before.

    Raises DataError, in a line that names the folder, where it cannot be made.
    """
    folder = temporary_folder()
    with ExitStack() as stack:
        try:
            remove_abandoned(folder, PREFIX)
            directory = stack.enter_context(locked_directory(folder, PREFIX))
        except OSError as error:
            raise no_room(folder, error) from None
        yield directory


def temporary_folder() -> Path:
    """Return the folder that TMPDIR names, else Python's choice; DataError where there is none."""
    try:
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    except FileNotFoundError as error:
        raise DataError(f"there is no folder for temporary files: set TMPDIR ({error})") from None


def no_room(folder: Path, error: OSError) -> DataError:
    """Return the error for a folder that the run's data cannot be written to."""
    why = error.strerror or "only a part of it was written"  # NumPy's errors have no strerror
    return DataError(
        f"the data cannot be written to the temporary folder {folder}: {why}: "
        "set TMPDIR to a folder with room for it"
    )
