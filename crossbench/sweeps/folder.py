"""Reads and writes the folder of a sweep: its results files, and its state for `status`.

A folder is a path, or a URL of any file system that fsspec knows, such as s3://bucket/sweep.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..inputs.errors import ResultsError
from ..results import file
from ..workload import missing
from .jobs import SweepJob

STATE_FILE = "sweep.state"  # no .json: `merge DIR/*.json` must not meet it
LOCK_FILE = ".sweep.lock"
ENDINGS = (".json", ".json.gz")
"""Endings of a results file, and of one that gzip packed."""
NAME = re.compile(r"(?:[^@]*-)?([0-9a-f]{8})(?:@(.*))?")
"""The name of a results file: words, the digest of its job, and the machine of one for each."""

ResultKey = tuple[str | None, str]
"""Digest of the job and machine in the name of a results file: (None, "") for another file's, and
no machine in that of a job that is run once.
"""
State = Literal["done", "incomplete", "failed", "runs", "waits", "queued"]
ENDED = ("done", "incomplete", "failed")


@dataclass
class Task:
    """Hold what became of one job, on one machine.

    name: of its results file. machine: the host that runs or ran it, or is to run it. since: when
    the state began, UTC. seconds: that the job took. reason: why it failed or is incomplete.
    sha256: of its data.
    """

    name: str
    state: State = "queued"
    machine: str | None = None
    since: str = ""
    seconds: float | None = None
    reason: str | None = None
    sha256: str | None = None


class Folder:
    """Reads and writes the folder of one sweep; ResultsError where it cannot."""

    def __init__(self, name: str | Path) -> None:
        self.name = str(name)
        is_url = re.match(r"[a-z0-9+]+://", self.name)
        self.path: Any = _url_path(self.name) if is_url else Path(self.name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder, and hold it for one sweep; ResultsError if another one holds it.

        Object stores have no locks: there the user sees to it.
        """
        with self._errors("written"):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._open_lock(os.O_RDWR | os.O_CREAT)
        try:
            if lock is not None and not file.try_lock_if_possible(lock):
                raise ResultsError(f"another sweep writes to {self.name}: wait for it, or stop it")
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def is_held(self) -> bool | None:
        """Return whether a sweep writes to the folder now; None where that cannot be known."""
        try:
            lock = self._open_lock(os.O_RDONLY)
        except OSError:
            return False
        if lock is None:
            return None
        try:
            return not file.try_lock_if_possible(lock)
        finally:
            os.close(lock)

    def _open_lock(self, flags: int) -> int | None:
        """Open the file that a sweep locks; None where the file system is not this machine's."""
        return os.open(self.path / LOCK_FILE, flags, 0o666) if isinstance(self.path, Path) else None

    def results(self) -> list[str]:
        """Return the names of the results files, without their ending."""
        with self._errors("read"):
            return sorted({stem(p.name) for p in self.path.iterdir() if p.name.endswith(ENDINGS)})

    def result_files(self) -> list[str]:
        """Return the names of the results files, of those in its folders too, and of those that
        gzip packed.
        """
        with self._errors("read"):
            if not self.path.is_dir():
                next(self.path.iterdir())  # raises what is wrong
            paths = [path.relative_to(self.path).as_posix() for path in self.path.rglob("*.json*")]
        return sorted(path for path in paths if path.endswith(ENDINGS))

    def check(self, jobs: Iterable[SweepJob]) -> None:
        """Raise ResultsError if the folder holds results of other jobs."""
        digests = {job.digest for job in jobs}
        for name in self.results():
            if result_key(name)[0] not in digests:
                raise ResultsError(
                    f"{self.name} holds results that are not of this sweep, such as {name}: "
                    "name another folder"
                )

    def read(self, name: str) -> bytes:
        """Return the content of a results file."""
        if isinstance(self.path, Path):
            return file.read(self.path / name)
        with self._errors("read"):
            content: bytes = (self.path / name).read_bytes()
            return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file; where the file system is this machine's at once, or not at all."""
        with self._errors("written"):
            if isinstance(self.path, Path):
                file.replace(self.path / name, content)
            else:
                (self.path / name).write_bytes(content)

    def write_state(self, tasks: Iterable[Task]) -> None:
        """Write what became of each job."""
        self.write(STATE_FILE, msgspec.json.encode(list(tasks)))

    def read_state(self) -> list[Task] | None:
        """Return what became of each job; None if the file that says it is missing or damaged."""
        with (
            self._errors("read"),
            suppress(FileNotFoundError, NotADirectoryError, msgspec.MsgspecError),
        ):
            return msgspec.json.decode((self.path / STATE_FILE).read_bytes(), type=list[Task])
        return None

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Turn whatever a file system raises into a line."""
        try:
            yield
        except ResultsError:
            raise
        except Exception as error:  # fsspec's file systems raise what their libraries do
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            raise ResultsError(f"{self.name} cannot be {action}: {why}") from None


def stem(file_name: str) -> str:
    """Return the name of a results file without its ending."""
    return file_name.removesuffix(".gz").removesuffix(".json")


def result_key(name: str) -> ResultKey:
    """Return the key of a results file; its name may have an ending, and folders before it."""
    found = NAME.fullmatch(stem(name.rpartition("/")[2]))
    return (found[1], found[2] or "") if found else (None, "")


def _url_path(url: str) -> Any:
    """Return the path of a URL; a Path for file://, so that files are replaced at once."""
    try:
        from upath import UPath

        path = UPath(url)
    except ImportError as error:
        reason = missing("dask", "universal-pathlib") or error  # error: of s3fs and the like
        raise ResultsError(f"{url} needs a package: {reason}") from None
    except ValueError as error:
        raise ResultsError(f"{url}: {error}") from None
    return Path(path.path) if path.protocol in ("file", "local") else path
