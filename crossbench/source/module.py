"""Imports the module that an adapter writes."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any


def imported(text: str) -> Any:
    """Return the module of a text, in a file of its own: so a traceback has its lines."""
    folder = tempfile.mkdtemp(prefix="crossbench_")
    file = Path(folder) / "training.py"
    file.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    weakref.finalize(module, shutil.rmtree, folder, ignore_errors=True)
    spec.loader.exec_module(module)
    return module
