"""Download published data once, check its SHA-256 digests, and keep it in the cache."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

CONNECT_SECONDS = 8.0  # to wait for the server's first answer, with or without a network
STALL_SECONDS = 30.0  # to wait for the next byte in the middle of a download
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
    """Describe the published files of a data set, and download them if necessary.

    title: the data set's name. folder: its folder in the cache.
    sha256: the digest of each URL's file, in hexadecimal digits.
    megabytes: the size of the download, in 10^6 bytes.
    unpack: writes the files that are kept, instead of the downloaded ones, beside these; None if
        the downloaded files are kept.
    unpacked: the names of these files, and their sizes in bytes.
    """

    title: str
    folder: str
    sha256: Mapping[str, str]
    megabytes: float
    unpack: Callable[[Path], None] | None = None
    unpacked: Mapping[str, int] = field(default_factory=dict)

    def directory(self) -> Path:
        """Return the folder of the files, even if missing; raise as cache_directory() does."""
        return cache_directory() / self.folder

    def is_cached(self) -> bool:
        """Return whether all files exist, unpacked ones in their sizes; the contents are not
        checked.
        """
        sizes = {name: _size(self.directory() / name) for name in self._names}
        return None not in sizes.values() and sizes == {**sizes, **self.unpacked}

    def fetch(self) -> Path:
        """Return the folder of the files, or of one alone its path, after downloading those that
        are missing or, by their digests, damaged.

        Raise DataUnavailable if they are not available. Several processes may do so at once: a file
        gets its name when it is complete.
        """
        directory = self.directory()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if self.unpack is None:
                self._retrieve(directory)
            elif not self.is_cached():
                with TemporaryDirectory(prefix="download-", dir=directory) as temporary:
                    self._retrieve(Path(temporary))
                    self.unpack(Path(temporary))
                    for name in self.unpacked:
                        Path(temporary, name).replace(directory / name)
        except OSError as error:
            raise DataUnavailable(
                f"{directory} cannot be written: {_reason(error)}; {CACHE_ADVICE}"
            ) from None
        return directory / self._names[0] if len(self._names) == 1 else directory

    @property
    def _names(self) -> list[str]:
        return list(self.unpacked or map(file_name, self.sha256))

    def _retrieve(self, directory: Path) -> None:
        """Have each file in the directory; raise OSError if it cannot be written."""
        import pooch

        for url, sha256 in self.sha256.items():
            digest = f"sha256:{sha256}"
            try:
                pooch.retrieve(url, digest, file_name(url), directory, downloader=_download)
            except ValueError:
                message = f"what {url} sent is not the official file (SHA-256)"
                raise DataUnavailable(message) from None


def file_name(url: str) -> str:
    """Return the last part of the URL."""
    return url.rpartition("/")[2]


def _size(path: Path) -> int | None:
    """Return the bytes of a file; None if it is missing, or the system refuses to say."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def _reason(error: OSError) -> str:
    if isinstance(error, FileExistsError):  # mkdir(exist_ok=True) raises it for a file
        return f"{error.filename} is not a directory"
    return error.strerror or type(error).__name__


def _download(url: str, file: str, _: object) -> None:
    """Download a file, called by pooch.

    Raise OSError if it cannot be written, and DataUnavailable for every other failure.
    """
    import pooch
    import requests

    _require_answer(url)
    timeout = (CONNECT_SECONDS, STALL_SECONDS)
    try:
        pooch.HTTPDownloader(progressbar=True, timeout=timeout)(url, file, None)
    except requests.RequestException as error:  # first, because it is an OSError too
        raise DataUnavailable(f"{url}: {type(error).__name__}") from None
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
