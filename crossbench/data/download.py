"""Data that is downloaded once, checked by its SHA-256, and kept in the cache."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch

CONNECT_SECONDS = 8.0  # for the server's first answer; nothing waits longer without a network
STALL_SECONDS = 30.0  # without a byte in the middle of the download


class Unreachable(Exception):
    """The data cannot be had; str() says why."""


def cache() -> Path:
    """Where downloaded data is kept; CROSSBENCH_CACHE moves it."""
    return Path(os.environ.get("CROSSBENCH_CACHE") or pooch.os_cache("crossbench"))


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
        return cache() / self.folder

    def is_cached(self) -> bool:
        return all((self.directory() / name).is_file() for name in self.files)

    def fetch(self) -> Path:
        """The directory of the files, downloaded where they are not there; else Unreachable."""
        if not self.is_cached():
            self._download()
        return self.directory()

    def _download(self) -> None:
        """Fetch and check all files, and only then put them where they are looked for."""
        directory = self.directory()
        _probe(next(iter(self.sha256)))
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
            ready = Path(temporary) / "downloaded"
            for url, sha256 in self.sha256.items():
                _retrieve(url, sha256, ready)
            if self.unpack is not None:
                downloaded, ready = ready, Path(temporary) / "unpacked"
                self.unpack(downloaded, ready)
            shutil.rmtree(directory, ignore_errors=True)
            ready.rename(directory)


def file_name(url: str) -> str:
    return url.rpartition("/")[2]


def _retrieve(url: str, sha256: str, directory: Path) -> None:
    downloader = pooch.HTTPDownloader(progressbar=True, timeout=(CONNECT_SECONDS, STALL_SECONDS))
    try:
        pooch.retrieve(url, f"sha256:{sha256}", file_name(url), directory, downloader=downloader)
    except ValueError:
        raise Unreachable(f"what {url} sent is not the official file (SHA-256)") from None
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
