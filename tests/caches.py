"""A cache of made-up files for the tests."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from crossbench.data.download import file_name


def trust(monkeypatch, module, directory):
    """Make the files in the directory the official ones of a source's module, by their digests."""
    digests = {
        url: hashlib.sha256((directory / file_name(url)).read_bytes()).hexdigest()
        for url in module.OFFICIAL.sha256
    }
    monkeypatch.setattr(module, "OFFICIAL", replace(module.OFFICIAL, sha256=digests))
