"""Finds the jobs of a sweep that earlier results are still right for: nothing timed has changed."""

from __future__ import annotations

from collections.abc import Iterable

from .. import adapters
from ..inputs.errors import SpecError
from ..results.comparison import Comparison, decode
from ..version import __version__
from .folder import Folder, ResultKey, result_key
from .jobs import SweepJob


def unchanged(earlier: Folder, jobs: Iterable[SweepJob]) -> dict[ResultKey, str]:
    """Return the jobs whose results in a folder are complete, and of the versions that are
    installed here: the results file by its `result_key`.

    Raises ResultsError where the folder or one of these files cannot be read.
    """
    digests = {job.digest for job in jobs}
    found = {}
    for name in earlier.result_files():
        if result_key(name)[0] in digests and change(decode(earlier.read(name), name)) is None:
            found[result_key(name)] = name
    return found


def change(comparison: Comparison) -> str | None:
    """Return what has changed since a comparison was measured, in words; None for nothing.

    That is crossbench, whose version stands for the code that it times, or a package of a framework
    that ran. A framework that is not installed here has changed, and so has one that was not. What
    failed, or was interrupted, is to run again.
    """
    if not comparison.complete:
        return "not every row ran"
    if comparison.crossbench != __version__:
        return f"crossbench {comparison.crossbench}, {__version__} here"
    for result in comparison.results:
        try:
            adapter = adapters.get(result.cell.framework, result.cell.variant)
        except SpecError as error:
            return str(error)
        if result.status == "unavailable":
            if adapter.available(result.cell.device_type) is None:
                return f"{result.cell.label} is installed here"
            continue
        here = adapter.installed()
        for name, version in here.items():
            version = version.partition(" ")[0]  # a path or a remark may follow
            if not _is_same(result.details.get(name, version), version):
                return f"{name} {result.details[name]}, {version} here"
    return None


def _is_same(version: str, other: str) -> bool:
    """Return whether two versions are the same: a build (+cu130) that only one of them names tells
    nothing.
    """
    (plain, _, build), (other_plain, _, other_build) = version.partition("+"), other.partition("+")
    return plain == other_plain and (not build or not other_build or build == other_build)
