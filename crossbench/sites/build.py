"""Builds the site: reads the results files, writes the pages, and copies the files beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..host.machine import cpu_count
from ..inputs.errors import ReportError, ResultsError
from ..report import page
from ..results.comparison import decode
from ..sweeps.folder import Folder
from . import pages, runs
from .runs import Run

MIN_FILES = 8
"""Files from which on several processes read them: a process takes a second to start."""
MARK = "crossbench-site.txt"
"""A file of every site: a folder without it is never overwritten."""


@dataclass(frozen=True)
class Site:
    """Say what a site was made of. unread: why a file is not in it, by its name."""

    path: Path
    runs: int
    pages: int
    unread: dict[str, str]


def site(
    results: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Site:
    """Write a site of results files: static pages that need no network and no server.

    results: folder with results files, as a sweep leaves them (*.json or *.json.gz), or its URL.
    out: the new folder of the site; open its index.html.
    force: overwrite a site that is there.
    progress: called with a line for each stage.

    A file that cannot be read is named on a page of its own. Raises ResultsError for a folder
    without a results file that can be read, and ReportError where the site cannot be written.
    """
    page.check_packages()
    out = Path(out)
    _check(out, force)
    folder = Folder(os.fspath(results))
    names = folder.result_files()
    if not names:
        raise ResultsError(f"{folder.name} holds no results file (*.json): name a sweep's folder")
    with _workers(len(names)) as map_all:
        progress(f"reading {len(names):,} results files")
        found, unread = _read(map_all(partial(_run, folder), names), names)
        if not found:
            name, why = next(iter(unread.items()))
            raise ResultsError(f"no file of {folder.name} can be read; the first, {name}: {why}")
        newest = runs.current(found)
        with _new_folder(out, force) as new:
            progress(f"writing the pages of {len(newest):,} runs")
            map_all(partial(_write_run, folder, new), newest)
            progress("writing the other pages")
            for run in found:
                _write(new / "results" / run.file, folder.read(run.file))
            for address, content in pages.site_pages(found, newest, unread):
                _write(new / address, content)
            number = sum(1 for _ in new.rglob("*.html"))
    return Site(out, len(found), number, unread)


def _check(out: Path, force: bool) -> None:
    """Raise ReportError where the folder may not be written."""
    try:
        exists = os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir()))
        if exists and not force:
            raise ReportError(f"{out} exists already: choose another name, or add --force")
        if exists and not (out / MARK).is_file():
            raise ReportError(f"{out} is not a site that crossbench wrote: choose another name")
    except (OSError, ValueError) as error:
        raise page.cannot_write(out, error) from None


@contextmanager
def _new_folder(out: Path, force: bool) -> Iterator[Path]:
    """Yield a folder beside `out` that takes its place at the end; nothing is left of a failure."""
    new = out.parent / f".{out.name}.new"
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            yield new
            _write(new / MARK, "crossbench wrote this folder, and overwrites it with --force.\n")
            _check(out, force)
            if out.exists():
                shutil.rmtree(out)
            new.rename(out)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except (OSError, ValueError) as error:
        raise page.cannot_write(out, error) from None


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content, encoding="utf-8", errors="replace")


@contextmanager
def _workers(files: int) -> Iterator[Callable[[Callable[[Any], Any], list[Any]], list[Any]]]:
    """Yield a function that maps a function over values, in several processes for many files."""
    if files < MIN_FILES:
        yield lambda function, values: list(map(function, values))
        return
    with ProcessPoolExecutor(cpu_count(), get_context("spawn")) as pool:
        yield lambda function, values: list(pool.map(function, values, chunksize=4))


def _read(read: Iterable[Run | str], names: list[str]) -> tuple[list[Run], dict[str, str]]:
    """Return the runs, and why each of the other files is not among them."""
    found: dict[str, Run] = {}
    unread = {}
    for name, run in zip(names, read, strict=True):
        if isinstance(run, str):
            unread[name] = run
        elif run.identity in found:
            unread[name] = f"it is the same run as {found[run.identity].file}"
        else:
            found[run.identity] = run
    return list(found.values()), unread


def _run(folder: Folder, name: str) -> Run | str:
    """Return what the pages need of a results file, or why it cannot be read."""
    try:
        comparison = decode(folder.read(name), name)
    except ResultsError as error:
        return str(error).removeprefix(f"{name} ")
    return runs.of_comparison(comparison, name)


def _write_run(folder: Folder, new: Path, run: Run) -> None:
    comparison = decode(folder.read(run.file), run.file)
    _write(new / pages.address("run", run.name), pages.run_page(run, comparison))
