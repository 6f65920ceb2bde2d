"""Measure how long a site of many results files takes, its memory, and its largest page.

    python benchmarks/site_scale.py [FILES]

FILES: 1,000 results files of 19 models on 10 machines, each measured several times with other
versions: copies of a small file, with seconds that vary by some per cent.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import crossbench
from crossbench import models

MACHINES = 10
FILE = Path(__file__).parents[1] / "tests" / "results" / "lenet.json"


def write_results(folder: Path, files: int) -> None:
    """Write the files; those of one model and machine differ in their date and versions."""
    base = crossbench.load(FILE)
    descriptions = [models.get(name).description() for name in models.names()]
    drawn = random.Random(0)
    for number in range(files):
        comparison = crossbench.load(FILE)
        model = descriptions[number % len(descriptions)]
        machine, version = divmod(number // len(descriptions), 1 + files // (MACHINES * 19))
        comparison.model = model
        comparison.settings = replace(base.settings, model=model["name"])
        comparison.machine = replace(base.machine, label=f"machine {machine}")
        comparison.created = f"2026-{1 + version % 12:02}-{1 + machine % 28:02}T00:00:00+00:00"
        for result in comparison.results:
            result.details = dict.fromkeys(result.details, f"{version}.0")
            scale = drawn.uniform(0.3, 0.9)
            result.epochs = [
                replace(epoch, wall_seconds=epoch.wall_seconds * scale * drawn.uniform(0.97, 1.03))
                for epoch in result.epochs
            ]
        comparison.save(folder / f"{model['name']}-{number:05}.json")


def main() -> None:
    files = int([*sys.argv, 1000][1])
    with tempfile.TemporaryDirectory() as directory:
        results, out = Path(directory, "results"), Path(directory, "site")
        results.mkdir()
        write_results(results, files)
        from crossbench.sites.build import site

        start = time.perf_counter()
        made = site(results, out)
        seconds = time.perf_counter() - start
        usage = (
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        memory = [each.ru_maxrss / 2**10 for each in usage]
        pages = {page: page.stat().st_size for page in out.rglob("*.html")}
        largest = max(pages, key=lambda page: pages[page])
        print(
            f"{made.runs:,} runs, {made.pages:,} pages, {len(made.unread)} unread: {seconds:.1f} s"
        )
        print(f"peak memory {memory[0]:,.0f} MiB, of the largest worker {memory[1]:,.0f} MiB")
        print(f"largest page {largest.relative_to(out)}: {pages[largest] / 1e6:.2f} MB")
        for name in ("rows.js", "everything.json", "everything.csv"):
            print(f"{name}: {(out / name).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
