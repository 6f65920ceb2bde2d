"""Write the page: one HTML file with charts, tables and the results themselves, without a network.

It needs Vega-Altair, vl-convert and Jinja2 (the extra `report`).
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..inputs.errors import ReportError
from ..results.comparison import Comparison
from ..results.parity import PrecisionParity, worst
from .commands import run_command, script_command
from .details import all_details
from .formatting import EMPTY_CELL
from .row_names import row_name
from .summary import summarize

NEEDED = {"altair": "altair", "vl_convert": "vl-convert-python", "jinja2": "jinja2"}
"""Modules that the page needs, and what pip installs them by."""


def check(path: str | os.PathLike[str]) -> None:
    """Raise ReportError where the page could not be written: a file exists, or a package lacks."""
    check_packages()
    try:
        with suppress(FileNotFoundError):
            os.lstat(path)
            raise ReportError(f"{path} exists already: choose another name")
        Path(path).absolute().parent.stat()
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from None


def check_packages() -> None:
    """Raise ReportError where a package lacks that pages need."""
    lacking = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if lacking:
        raise ReportError(f"a page needs more packages: pip install {' '.join(lacking)}")


def write(comparisons: list[Comparison], path: str | os.PathLike[str]) -> None:
    """Write a new page of the comparisons; ReportError where that is not possible."""
    check(path)
    content = page(comparisons)
    try:
        with open(path, "x", encoding="utf-8", errors="replace") as file:
            file.write(content)
    except FileExistsError as error:
        raise cannot_write(path, error) from None
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            Path(path).unlink()  # only a part of it was written
        raise cannot_write(path, error) from None


def cannot_write(path: str | os.PathLike[str], error: Exception) -> ReportError:
    """Return the error to raise where a page, or a folder of pages, cannot be written."""
    why = getattr(error, "strerror", None) or error
    return ReportError(f"{path} cannot be written: {why}")


def page(comparisons: list[Comparison]) -> str:
    """Return the page as HTML."""
    from .charts import several

    runs = [run_parts(comparison, index) for index, comparison in enumerate(comparisons, 1)]
    over = several(comparisons)
    charts = [{"id": over.name, "specification": over.specification}] if over else []
    template = environment(__package__).get_template("page.html")
    text: str = template.render(
        title=runs[0]["summary"].heading.partition(":")[0],
        runs=runs,
        over=over,
        charts=as_script(charts + [chart for run in runs for chart in drawn(run)]),
        results=[as_script(json.loads(comparison.encode())) for comparison in comparisons],
        vega=vega(),
    )
    return text


def drawn(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what charts.js draws of the parts of a run: the specifications with their places."""
    return [
        {"id": f"run-{run['number']}-{chart.name}", "specification": chart.specification}
        for chart in run["charts"]
    ]


def run_parts(comparison: Comparison, index: int) -> dict[str, Any]:
    """Return what run.html shows of one comparison: texts and charts. index: told on the page."""
    from .charts import charts

    summary = summarize(comparison)
    return {
        "number": index,
        "summary": summary,
        "charts": charts(comparison),
        "parity": _parity(comparison),
        "everything": all_details(comparison),
        "command": run_command(comparison),
        "programs": script_command(comparison),
    }


def _parity(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the deviations of each proved row, tensor by tensor."""
    found = []
    for result in comparison.results:
        parity = result.parity
        if parity is None:
            continue
        tensors = [
            [name, _deviation(value), _deviation(parity.float32.get(name))]
            for name, value in parity.float64.items()
        ]
        compute, precision = result.cell.compute, result.precision
        found.append(
            {
                "name": row_name(comparison, result),
                "agrees": parity.agrees and not (precision and precision.disagreement(compute)),
                "worst": _deviation(worst(parity.float64)[1]),
                "tensors": tensors,
                "compute": compute,
                "in_precision": _in_precision(precision) if precision else [],
            }
        )
    return found


def _in_precision(precision: PrecisionParity) -> list[list[str]]:
    """Return each tensor's deviation in a precision, and that of the reference's two forms."""
    forms = (precision.observed, precision.operands, precision.everywhere)
    return [[name, *(_deviation(form.get(name)) for form in forms)] for name in precision.observed]


def _deviation(value: float | None) -> str:
    return EMPTY_CELL if value is None else f"{value:.1e}"


def as_script(value: Any) -> str:
    """Return the value as JSON that may stand in a <script>: no tag can begin in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, some 900 kB."""
    vl_convert = import_module("vl_convert")
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def environment(*packages: str) -> Any:
    """Return Jinja's environment with the templates of packages; the first that has one counts."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
