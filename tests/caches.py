"""Let tests use made-up files as if they were the official downloads."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from crossbench.data.download import file_name


def trust(monkeypatch, module, directory):
    """Make the digests of the files in the directory the official ones of a source's module."""
    digests = {
        url: hashlib.sha256((directory / file_name(url)).read_bytes()).hexdigest()
        for url in module.OFFICIAL_FILES.sha256
    }
    monkeypatch.setattr(module, "OFFICIAL_FILES", replace(module.OFFICIAL_FILES, sha256=digests))
