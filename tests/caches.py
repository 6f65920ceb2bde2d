"""Write files in the formats of published data, let tests use them as if they were the official
downloads, and return what is said of damaged ones.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace

import pytest

from crossbench.data.download import file_name
from crossbench.data.imdb import REVIEW_FOLDERS
from crossbench.inputs.errors import DataError

REVIEWS = {folder: ["a film"] for folder in REVIEW_FOLDERS}


def write_reviews(directory, texts=REVIEWS):
    """Write a directory of IMDB's reviews, by folder, and return it."""
    for folder, reviews in texts.items():
        (directory / folder).mkdir(parents=True)
        for number, text in enumerate(reviews):
            (directory / folder / f"{number}_7.txt").write_text(text, "utf-8", "surrogateescape")
    return directory


def pack(directory, path):
    """Pack a directory as the published archives are, and return the archive."""
    with tarfile.open(path, "w:gz") as tar:
        tar.add(directory, directory.name)
    return path


def write_archive(path, *members):
    """Write a tar.gz of members that are (name, content) or a TarInfo, and return it."""
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def compress(directory):
    """Compress each file of a directory by gzip, as MNIST's are published, and return it."""
    for path in list(directory.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return directory


def trust(monkeypatch, module, name, directory):
    """Make the digests, or the sizes, of the files in the directory the official ones.

    name: of the description of the official files in a source's module.
    """
    official = getattr(module, name)
    if official.unpacked:
        sizes = {name: (directory / name).stat().st_size for name in official.unpacked}
        changed = replace(official, unpacked=sizes)
    else:
        digests = {
            url: hashlib.sha256((directory / file_name(url)).read_bytes()).hexdigest()
            for url in official.sha256
        }
        changed = replace(official, sha256=digests)
    monkeypatch.setattr(module, name, changed)


def error_line(load, *arguments):
    """Return the line with which `load` refuses its arguments."""
    with pytest.raises(DataError) as caught:
        load(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)
