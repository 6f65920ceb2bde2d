"""Data that is downloaded once, checked by its SHA-256, and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch

from ..errors import DataError
from ..locked_directory import locked_directory, remove_abandoned
from . import files
from .dataset import Dataset
from .files import DamagedFile

CONNECT_SECONDS = 8.0  # for the server's first answer; nothing waits longer without a network
STALL_SECONDS = 30.0  # without a byte in the middle of the download
TEMPORARY = "download-"  # begins the name of the folder of a download that goes on
ADVICE = "set CROSSBENCH_CACHE to a folder that can be written"


class Unreachable(Exception):
    """The data cannot be had; str() says why."""


def cache() -> Path:
    """Return where downloaded data is kept; CROSSBENCH_CACHE moves it. Else Unreachable."""
    if named := os.environ.get("CROSSBENCH_CACHE"):
        return Path(named)
    try:
        return Path(pooch.os_cache("crossbench"))
    except RuntimeError:
        raise Unreachable(f"there is no home directory for the cache; {ADVICE}") from None


@dataclass(frozen=True)
class Official:
    """The published files of a data set.

    title: its name, in words. folder: its place in the cache.
    sha256: of each URL's file, in hexadecimal digits.
    megabytes: how much is downloaded, in 10^6 bytes.
    files: what the folder holds when all is there.
    unpack: takes the downloaded files out of one folder into another, new one; None where they
        are kept as they are.
    """

    title: str
    folder: str
    sha256: Mapping[str, str]
    megabytes: float
    files: tuple[str, ...]
    unpack: Callable[[Path, Path], None] | None = None

    def directory(self) -> Path:
        """Return the folder of the files, there or not; Unreachable without a home directory."""
        return cache() / self.folder

    def is_cached(self) -> bool:
        """Return whether all files are there; their contents are not looked at."""
        directory = self.directory()
        return all(files.is_file(directory / name) for name in self.files)

    def load(self, read: Callable[[Path], Dataset]) -> Dataset:
        """Return what `read` makes of the files' directory, after a download where they lack.

        Unreachable where they are not available. DataError where a file is damaged: it is then
        removed, so that the next run downloads it again.
        """
        try:
            directory = self.fetch()
            self._check_digests(directory)
            return read(directory)
        except DamagedFile as error:
            raise DataError(f"{error}; {_remove(error.path)}") from None

    def fetch(self) -> Path:
        """Return the directory of the files, downloaded where they are not there; else Unreachable.

        Several processes may do so at once: each downloads, and the first one's files stay.
        """
        directory = self.directory()
        try:
            remove_abandoned(directory.parent, TEMPORARY)
            if not self.is_cached():
                self._download(directory)
        except OSError as error:
            raise Unreachable(f"{directory} cannot be written: {_why(error)}; {ADVICE}") from None
        return directory

    def _download(self, directory: Path) -> None:
        """Fetch and check all files, and only then put them where they are looked for."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        if directory.exists() or directory.is_symlink():
            directory.mkdir(exist_ok=True)  # raises, before the download, unless it is a directory
        with locked_directory(directory.parent, TEMPORARY) as temporary:
            _probe(next(iter(self.sha256)))
            ready = temporary / "downloaded"
            for url, sha256 in self.sha256.items():
                _retrieve(url, sha256, ready)
            if self.unpack is not None:
                downloaded, ready = ready, temporary / "unpacked"
                self.unpack(downloaded, ready)
            directory.mkdir(exist_ok=True)
            if not self.is_cached():  # another process may have been first
                for name in self.files:
                    (ready / name).replace(directory / name)

    def _check_digests(self, directory: Path) -> None:
        """Raise DamagedFile for a file, kept as downloaded, that is not the official one."""
        if self.unpack is not None:
            return
        limit = int(2 * 1e6 * self.megabytes)  # of all files together, rounded
        for url, sha256 in self.sha256.items():
            path = directory / file_name(url)
            with files.opened(path, limit, "it was in the cache") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    raise DamagedFile(path, "is damaged: it is not the official file (SHA-256)")


def file_name(url: str) -> str:
    return url.rpartition("/")[2]


def _why(error: OSError) -> str:
    if isinstance(error, FileExistsError):  # of mkdir(exist_ok=True)
        return f"{error.filename} is not a directory"
    return error.strerror or type(error).__name__


def _remove(path: Path) -> str:
    """Remove a damaged file; return in words what the next run does."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"remove it ({error.strerror}), and the next run downloads it again"
    return "it was removed, and the next run downloads it again"


def _retrieve(url: str, sha256: str, directory: Path) -> None:
    """Download a file into the directory; OSError where it cannot be written, else Unreachable."""
    import requests

    downloader = pooch.HTTPDownloader(progressbar=True, timeout=(CONNECT_SECONDS, STALL_SECONDS))
    try:
        pooch.retrieve(url, f"sha256:{sha256}", file_name(url), directory, downloader=downloader)
    except requests.RequestException as error:  # an OSError too
        raise Unreachable(f"{url}: {type(error).__name__}") from None
    except ValueError:
        raise Unreachable(f"what {url} sent is not the official file (SHA-256)") from None
    except OSError:
        raise
    except Exception as error:
        raise Unreachable(f"{url}: {type(error).__name__}") from None


def _probe(url: str) -> None:
    """Raise Unreachable unless the server answers in time, however the network is broken."""
    import requests

    answers: list[str | None] = []

    def ask() -> None:
        try:
            requests.head(url, timeout=CONNECT_SECONDS).raise_for_status()
            answers.append(None)
        except Exception as error:
            answers.append(type(error).__name__)

    # a thread, because looking a name up obeys no timeout
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    reason = answers[0] if answers else f"no answer within {CONNECT_SECONDS:.0f} s"
    if reason:
        raise Unreachable(f"{url}: {reason}")
