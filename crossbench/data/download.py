"""Download published data once, check its SHA-256 digests, and keep it in the cache."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..inputs.errors import DataError
from . import files
from .dataset import Dataset
from .files import DamagedFile
from .locked_directory import locked_directory, remove_abandoned_directories

CONNECT_SECONDS = 8.0  # to wait for the server's first answer, with or without a network
STALL_SECONDS = 30.0  # to wait for the next byte in the middle of a download
TEMPORARY_PREFIX = "download-"  # of the folder that an unfinished download writes into
CACHE_ADVICE = "set CROSSBENCH_CACHE to a folder that can be written"


class DataUnavailable(Exception):
    """The published data is not available; str() says why."""


def cache_directory() -> Path:
    """Return CROSSBENCH_CACHE, else the user's cache folder; the folder for downloaded data.

    Raise DataUnavailable if there is no home directory to hold it.
    """
    if named := os.environ.get("CROSSBENCH_CACHE"):
        return Path(named)
    import pooch  # a worker process, which needs no cache, starts without it

    try:
        return Path(pooch.os_cache("crossbench"))
    except RuntimeError:
        raise DataUnavailable(f"there is no home directory for the cache; {CACHE_ADVICE}") from None


@dataclass(frozen=True)
class OfficialFiles:
    """Describe the published files of a data set, and load them, downloaded if necessary.

    title: the data set's name. folder: its folder in the cache.
    sha256: the digest of each URL's file, in hexadecimal digits.
    megabytes: the size of the download, in 10^6 bytes.
    files: the names of the files that the folder must hold.
    unpack: writes these files into a new folder, its second argument, from the folder of the
        downloaded ones, its first; None if the downloaded files are kept as they are.
    """

    title: str
    folder: str
    sha256: Mapping[str, str]
    megabytes: float
    files: tuple[str, ...]
    unpack: Callable[[Path, Path], None] | None = None

    def directory(self) -> Path:
        """Return the folder of the files, even if missing; raise as cache_directory() does."""
        return cache_directory() / self.folder

    def is_cached(self) -> bool:
        """Return whether all files exist; their contents are not checked."""
        directory = self.directory()
        # Path.is_file raises for a name that is too long, or in a folder that is not readable
        return all(os.path.isfile(directory / name) for name in self.files)  # noqa: PTH113

    def load(self, read: Callable[[Path], Dataset]) -> Dataset:
        """Return `read` of the files' directory, downloaded first if files are missing.

        Raise DataUnavailable if they are not available, and DataError if a file is damaged: it is
        removed, so that the next run downloads it again.
        """
        try:
            directory = self.fetch()
            self._check_digests(directory)
            return read(directory)
        except DamagedFile as error:
            raise DataError(f"{error}; {_remove_damaged(error.path)}") from None

    def fetch(self) -> Path:
        """Return the directory of the files, downloaded first if files are missing.

        Raise DataUnavailable if they are not available. Several processes may do so at once: each
        downloads, and the files of the first one to finish stay.
        """
        directory = self.directory()
        try:
            remove_abandoned_directories(directory.parent, TEMPORARY_PREFIX)
            if not self.is_cached():
                self._download(directory)
        except OSError as error:
            raise DataUnavailable(
                f"{directory} cannot be written: {_reason(error)}; {CACHE_ADVICE}"
            ) from None
        return directory

    def _download(self, directory: Path) -> None:
        """Download and check all files, and only then move them into the directory."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        if directory.exists() or directory.is_symlink():
            directory.mkdir(exist_ok=True)  # raises, before the download, unless it is a directory
        with locked_directory(directory.parent, TEMPORARY_PREFIX) as temporary:
            _require_answer(next(iter(self.sha256)))
            ready = temporary / "downloaded"
            for url, sha256 in self.sha256.items():
                _download_file(url, sha256, ready)
            if self.unpack is not None:
                downloaded, ready = ready, temporary / "unpacked"
                self.unpack(downloaded, ready)
            directory.mkdir(exist_ok=True)
            if not self.is_cached():  # because another process may have been first
                for name in self.files:
                    (ready / name).replace(directory / name)

    def _check_digests(self, directory: Path) -> None:
        """Raise DamagedFile if a file that is kept as downloaded is not the official one."""
        if self.unpack is not None:
            return
        limit = int(2 * 1e6 * self.megabytes)  # `megabytes` is rounded, and of all files together
        for url, sha256 in self.sha256.items():
            path = directory / file_name(url)
            with files.open_regular_file(path, limit, "it was in the cache") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    raise DamagedFile(path, "is damaged: it is not the official file (SHA-256)")


def file_name(url: str) -> str:
    """Return the last part of the URL."""
    return url.rpartition("/")[2]


def _reason(error: OSError) -> str:
    if isinstance(error, FileExistsError):  # mkdir(exist_ok=True) raises it for a file
        return f"{error.filename} is not a directory"
    return error.strerror or type(error).__name__


def _remove_damaged(path: Path) -> str:
    """Remove a damaged file; return the end of the message, which says what the next run does."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"remove it ({error.strerror}), and the next run downloads it again"
    return "it was removed, and the next run downloads it again"


def _download_file(url: str, sha256: str, directory: Path) -> None:
    """Download a file into the directory and check its digest.

    Raise OSError if it cannot be written, and DataUnavailable for every other failure.
    """
    import pooch
    import requests

    downloader = pooch.HTTPDownloader(progressbar=True, timeout=(CONNECT_SECONDS, STALL_SECONDS))
    try:
        pooch.retrieve(url, f"sha256:{sha256}", file_name(url), directory, downloader=downloader)
    except requests.RequestException as error:  # first, because it is an OSError too
        raise DataUnavailable(f"{url}: {type(error).__name__}") from None
    except ValueError:
        raise DataUnavailable(f"what {url} sent is not the official file (SHA-256)") from None
    except OSError:
        raise
    except Exception as error:  # such as urllib3's own, where a server redirects to a wrong address
        raise DataUnavailable(f"{url}: {type(error).__name__}") from None


def _require_answer(url: str) -> None:
    """Raise DataUnavailable unless the server answers within CONNECT_SECONDS."""
    import requests

    answers: list[str | None] = []

    def ask() -> None:
        try:
            requests.head(url, timeout=CONNECT_SECONDS).raise_for_status()
            answers.append(None)
        except Exception as error:
            answers.append(type(error).__name__)

    # a thread, because requests' timeout does not limit the look-up of the host's name
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    reason = answers[0] if answers else f"no answer within {CONNECT_SECONDS:.0f} s"
    if reason:
        raise DataUnavailable(f"{url}: {reason}")
