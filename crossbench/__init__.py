"""Train the same model in several frameworks, and compare: `crossbench.run(...)`.

Each public name is imported when it is first used, so that `import crossbench` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .adapters.torch.reading import from_torch
    from .benchmark import Interrupted, Unsaved, resume, run
    from .inputs.errors import CrossbenchError
    from .programs import script
    from .report.formats import html as html, merge, table
    from .results.comparison import Comparison, load
    from .results.several_runs import mean_ratios
    from .sites.build import site
    from .sweeps.run import sweep

__all__ = [
    "Comparison",
    "CrossbenchError",
    "Interrupted",
    "Unsaved",
    "from_torch",
    "load",
    "mean_ratios",
    "merge",
    "resume",
    "run",
    "script",
    "site",
    "sweep",
    "table",
]

_MODULES = {
    "Interrupted": "benchmark",
    "Unsaved": "benchmark",
    "resume": "benchmark",
    "run": "benchmark",
    "CrossbenchError": "inputs.errors",
    "from_torch": "adapters.torch.reading",
    "script": "programs",
    "html": "report.formats",
    "merge": "report.formats",
    "site": "sites.build",
    "sweep": "sweeps.run",
    "table": "report.formats",
    "Comparison": "results.comparison",
    "load": "results.comparison",
    "mean_ratios": "results.several_runs",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
