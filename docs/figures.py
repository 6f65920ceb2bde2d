"""Write the figures of README.md and docs/ from the published results: python docs/figures.py.

A figure is the text of a link to its results file, whose title says how it is computed:
`[1.68 (1.61–1.75)](../results/NAME/FILE.json.gz "ratio jax cpu / torch cpu")`. One of several files
links to their folder, and its title has the digests in their names: `"mean b658,c1a4 jax cpu /
torch cpu"`. The tables of answers and README's picture are of the newest edition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import crossbench
from crossbench.report.formatting import integer, mebibytes, number, percent, with_interval
from crossbench.results.breakdown import total_share
from crossbench.results.cells import CellResult
from crossbench.results.comparison import Comparison
from crossbench.results.statistics import Estimate, mean_over_models, round_ratios
from crossbench.sites import answers, picture
from crossbench.sites.runs import Run, current, of_comparison

ROOT = Path(__file__).resolve().parents[1]
EDITION = ROOT / "results" / "2026-11-epyc"
PAGES = (ROOT / "README.md", ROOT / "docs" / "choose.md", ROOT / "docs" / "check-us.md")
"""The pages that may have timings, beside those of results/."""
FIGURE = re.compile(r'\[(?P<text>[^\]]+)\]\((?P<path>\S*results/\S+) "(?P<recipe>[^"]+)"\)')
ANSWERS = re.compile(r"(?s)(<!-- answers -->\n).*?(<!-- end -->)")
"""Where a page's table of answers stands."""
PICTURES = {"light": "#1f2328", "dark": "#e6edf3"}
"""Of README's picture: the theme, and the colour of its text and lines."""


def main() -> None:
    for page in PAGES:
        page.write_text(refreshed(page))
    for theme in PICTURES:
        svg_file(theme).parent.mkdir(exist_ok=True)
        svg_file(theme).write_text(drawn(theme))


def refreshed(page: Path) -> str:
    """Return the page with its figures and its table as the published results have them."""
    text = FIGURE.sub(lambda found: _figure(found, page), page.read_text())
    return ANSWERS.sub(lambda found: f"{found[1]}{answer_table()}\n{found[2]}", text)


def _figure(found: re.Match[str], page: Path) -> str:
    target = (page.parent / found["path"]).resolve()
    kind, *words = found["recipe"].split(maxsplit=1 if target.is_file() else 2)
    files = [target] if target.is_file() else [of_digest(d) for d in words[0].split(",")]
    computed = RECIPES[kind](*map(published, files), words[-1])
    return f'[{computed}]({found["path"]} "{found["recipe"]}")'


def of_digest(digest: str) -> Path:
    (path,) = (ROOT / "results").rglob(f"*-{digest}.json.gz")
    return path


@cache
def published(path: Path) -> Comparison:
    return crossbench.load(path).frozen()


def ratio(comparison: Comparison, rows: str) -> str:
    """Return the ratio of two rows that are significantly different."""
    found = _paired(comparison, rows)
    assert found.excludes(1), f"{rows} are not significantly different: cite an even"
    return with_interval(found)


def even(comparison: Comparison, rows: str) -> str:
    """Return the ratio of two rows that are not significantly different."""
    found = _paired(comparison, rows)
    assert not found.excludes(1), f"{rows} are significantly different: cite a ratio"
    return with_interval(found)


def mean(*arguments: Any) -> str:
    """Return the geometric mean of a ratio over several comparisons, each of another model, that
    differs from 1: by its interval or, of few models, in every one of them.
    """
    *comparisons, rows = arguments
    assert len({c.model["name"] for c in comparisons}) == len(comparisons) > 1
    ratios = [[round_ratios(*map(c.seconds_by_round, _pair(c, rows)))] for c in comparisons]
    found = mean_over_models(ratios)
    assert found, f"{rows} have no rounds"
    differs = found.excludes(1) if found.low else found.maximum < 1 or found.minimum > 1
    assert differs, f"{rows} are not significantly different over these models"
    return with_interval(found)


def _paired(comparison: Comparison, rows: str) -> Estimate:
    found = comparison.paired(*_pair(comparison, rows))
    assert found, f"{rows} have no round in common"
    return found


def _pair(comparison: Comparison, rows: str) -> list[CellResult]:
    return [_row(comparison, name) for name in rows.split(" / ")]


def _row(comparison: Comparison, name: str) -> CellResult:
    (found,) = (result for result in comparison.results if result.name == name)
    assert comparison.is_ranked(found), f"{name} is not ranked"
    return found


def _certain(estimate: Estimate | None) -> Estimate:
    """Return an estimate that enough rounds give an interval."""
    if estimate is None or estimate.low is None:
        raise ValueError("too few rounds measured it")
    return estimate


def ahead(comparison: Comparison, rows: str) -> str:
    """Return after how many epochs the first row, whose first epoch is slower and whose others are
    faster, has made up for it.
    """
    is_faster = (_paired(comparison, rows).high or 1.0) < 1
    assert is_faster, f"{rows}: the first is not faster"
    compiled, other = _pair(comparison, rows)
    firsts = [_certain(comparison.first_epoch(result)) for result in (compiled, other)]
    assert firsts[0].low > firsts[1].high, f"{rows}: the first epochs are not told apart"
    lost = firsts[0].median - firsts[1].median
    saved = comparison.steady(other).median - comparison.steady(compiled).median
    return integer(ceil(lost / saved))


def part(comparison: Comparison, rows: str) -> str:
    """Return the milliseconds of a part of a step: "conv1 of torch cpu"."""
    wanted, _, name = rows.partition(" of ")
    (found,) = (part for part in comparison.parts if part.name == wanted)
    measured = comparison.part_figures(found)[name].seconds
    is_certain = measured is not None and measured.excludes(0)
    assert is_certain, f"{rows} cannot be told from noise"
    return with_interval(measured, 1000)


RECIPES: dict[str, Callable[..., str]] = {
    "ratio": ratio,
    "even": even,
    "mean": mean,
    "seconds": lambda c, name: with_interval(_certain(c.steady(_row(c, name)))),
    "first": lambda c, name: with_interval(_certain(c.first_epoch(_row(c, name)))),
    "kernel": lambda c, name: percent(c.system_share(_row(c, name))),
    "cpu": lambda c, name: with_interval(_certain(c.steady(_row(c, name), "cpu_seconds"))),
    "ahead": ahead,
    "cores": lambda c, name: number(c.cores(_row(c, name))),
    "product": lambda c, name: number(c.own_peak(_row(c, name)).gflops / 1000),
    "part": part,
    "together": lambda c, name: percent(total_share(c, _row(c, name))),
    "memory": lambda c, name: mebibytes(_row(c, name).peak_memory),
}
"""By kind, what a figure must be. kernel: the share of the CPU time in which Linux' kernel works.
product: TFLOP/s of the framework's own best. together: the share of a step that its parts, timed
alone, add up to. memory: MiB of a worker process at its peak."""


@cache
def runs() -> tuple[Run, ...]:
    """Return the runs of the newest edition, the newest first."""
    files = EDITION.rglob("*.json.gz")
    return tuple(current([of_comparison(published(file), file.name) for file in files]))


def answer_table() -> str:
    """Return who is fastest with each kind of model, as Markdown: seconds relative to a base."""
    (place,) = answers.main_places(runs())
    base = answers.base(runs()) or ""
    found = answers.answers(runs(), place, relative_to=base)
    fastest = {a.kind: answers.fastest(a.ratios) for a in answers.answers(runs(), place)}
    labels = list(dict.fromkeys(label for answer in found for label in answer.ratios))
    labels.sort(key=lambda label: label != base)
    lines = [["models", *labels], ["---"] * (len(labels) + 1)]
    for answer in found:
        firsts = fastest[answer.kind]
        cells = [_cell(answer.ratios.get(label), label in firsts) for label in labels]
        lines.append([f"{len(answer.models)} {answer.kind}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(ratio: Estimate | None, is_fastest: bool) -> str:
    text = with_interval(ratio)
    return f"**{text}**" if is_fastest else text


def svg_file(theme: str) -> Path:
    return ROOT / "docs" / "pictures" / f"answers-{theme}.svg"


def drawn(theme: str) -> str:
    """Return README's picture as SVG, with the digest of what it draws: vl-convert's versions write
    the same picture in other words.
    """
    return f"{picture.svg(specification(), PICTURES[theme])}\n<!-- {digest()} -->\n"


def digest() -> str:
    return sha256(json.dumps(specification(), sort_keys=True).encode()).hexdigest()


@cache
def specification() -> dict[str, Any]:
    """Return README's picture as Vega-Lite."""
    (place,) = answers.main_places(runs())
    found = picture.picture(runs(), place)
    assert found, "the edition compares nothing"
    return found


if __name__ == "__main__":
    main()
