"""Makes the temporary directory of a run, for the data that all workers map and their own files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..data.locked_directory import locked_directory, remove_abandoned_directories
from ..inputs.errors import DataError

PREFIX = "crossbench-run-"


@contextmanager
def run_directory() -> Iterator[Path]:
    """Make a directory for a run and remove it on exit; first remove those of killed runs.

    Raises DataError, which names the folder, if the directory cannot be made.
    """
    folder = temporary_folder()
    with ExitStack() as stack:
        try:
            remove_abandoned_directories(folder, PREFIX)
            directory = stack.enter_context(locked_directory(folder, PREFIX))
        except OSError as error:
            raise no_space_error(folder, error) from None
        yield directory


def temporary_folder() -> Path:
    """Return the folder that TMPDIR names, or else Python's choice; DataError if there is none."""
    try:
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    except FileNotFoundError as error:
        raise DataError(f"there is no folder for temporary files: set TMPDIR ({error})") from None


def no_space_error(folder: Path, error: OSError) -> DataError:
    """Return the error to raise if the run's data cannot be written to the folder."""
    why = error.strerror or "only a part of it was written"  # NumPy's OSErrors have no strerror
    return DataError(
        f"cannot write the data to the temporary folder {folder}: {why}: "
        "set TMPDIR to a folder with enough space"
    )
