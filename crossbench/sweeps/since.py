"""Finds the jobs of a sweep that earlier results are still right for: nothing timed has changed."""

from __future__ import annotations

from collections.abc import Iterable

from .. import __version__, adapters
from ..inputs.errors import SpecError
from ..results.comparison import Comparison, decode
from .folder import Folder, digest_of, stem
from .jobs import Job


def unchanged(earlier: Folder, jobs: Iterable[Job]) -> dict[str, str]:
    """Return the jobs whose results in a folder are of the versions that are installed here: by the
    job's digest the results file.

    Raises ResultsError where the folder or one of these files cannot be read.
    """
    digests = {job.digest for job in jobs}
    found = {}
    for name in earlier.result_files():
        digest = digest_of(stem(name))
        if digest in digests and change(decode(earlier.read(name), name)) is None:
            found[digest] = name
    return found


def change(comparison: Comparison) -> str | None:
    """Return what has changed since a comparison was measured, in words; None for nothing.

    That is crossbench, whose version stands for the code that it times, or a package of a framework
    that ran. A framework that is not installed here has changed.
    """
    if comparison.crossbench != __version__:
        return f"crossbench {comparison.crossbench}, {__version__} here"
    for result in comparison.results:
        if result.status == "unavailable":
            continue
        try:
            here = adapters.get(result.cell.framework, result.cell.variant).installed()
        except SpecError as error:
            return str(error)
        for name, version in here.items():
            version = version.partition(" ")[0]  # a path or a remark may follow
            if result.details.get(name, version) != version:
                return f"{name} {result.details[name]}, {version} here"
    return None
