"""Every figure of docs/findings.md is recomputed from the published results files."""

import re
import shlex
from functools import cache
from math import ceil
from pathlib import Path

import pytest

import crossbench
from crossbench import cli, models
from crossbench.commands import run
from crossbench.data.sources import Synthetic
from crossbench.report.formatting import integer, mebibytes, number, percent, with_interval
from crossbench.results.breakdown import total_share
from crossbench.results.statistics import mean_over_models, round_ratios

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "findings.md").read_text()
TAGGED = re.compile(
    r"(?P<figure>\d[\d.,]*(?: [(\[][\d.,]+–[\d.,]+[)\]])?%?)<!-- (?P<recipe>.*?) -->"
)
"""A figure, and behind it how it is computed: the kind, the digest of its file, and the row. Those
of several files are joined by commas."""
NO_FIGURES = (r"^```.*?^```", r"<!--.*?-->", r"`[^`]*`", r"\]\([^)]*\)", r"^>.*?$", r"^#.*?$")
"""What may hold other numbers: code, comments, addresses, quotations of a source, headings."""
LOOSE = re.compile(r"(?<![\w.,-])\d[\d.,]*(?![\w-])")
"""A number that is not a part of a name, such as LeNet-5 or float32."""
FINDINGS = {found.partition("\n")[0]: found for found in re.split(r"(?m)^## ", PAGE)[1:]}


@cache
def published(digest):
    """Return the results whose file's name ends in a digest."""
    paths = (ROOT / "results").rglob("*.json.gz")
    (path,) = (path for path in paths if str(path).endswith(f"{digest}.json.gz"))
    return crossbench.load(path).frozen()


def ratio(comparison, rows):
    """Return the ratio of two rows that are significantly different."""
    found = comparison.paired(*pair(comparison, rows))
    assert found.excludes(1), f"{rows} are not significantly different: cite an even"
    return with_interval(found)


def even(comparison, rows):
    """Return the ratio of two rows that are not significantly different."""
    found = comparison.paired(*pair(comparison, rows))
    assert not found.excludes(1), f"{rows} are significantly different: cite a ratio"
    return with_interval(found)


def mean(*arguments):
    """Return the geometric mean of a ratio over several comparisons, each of another model, that
    differs from 1: by its interval or, of few models, in every one of them.
    """
    *comparisons, rows = arguments
    assert len({c.model["name"] for c in comparisons}) == len(comparisons) > 1
    ratios = [[round_ratios(*map(c.seconds_by_round, pair(c, rows)))] for c in comparisons]
    found = mean_over_models(ratios)
    differs = found.excludes(1) if found.low else found.maximum < 1 or found.minimum > 1
    assert differs, f"{rows} are not significantly different over these models"
    return with_interval(found)


def pair(comparison, rows):
    return [row(comparison, name) for name in rows.split(" / ")]


def row(comparison, name):
    (found,) = (result for result in comparison.results if result.name == name)
    assert comparison.is_ranked(found), f"{name} is not ranked"
    return found


def certain(estimate):
    """Return an estimate that enough rounds give an interval."""
    assert estimate.low is not None, "too few rounds measured it"
    return estimate


def ahead(comparison, rows):
    """Return after how many epochs the first row, whose first epoch is slower and whose others are
    faster, has made up for it.
    """
    assert comparison.paired(*pair(comparison, rows)).high < 1, f"{rows}: the first is not faster"
    compiled, other = pair(comparison, rows)
    firsts = [certain(comparison.first_epoch(result)) for result in (compiled, other)]
    assert firsts[0].low > firsts[1].high, f"{rows}: the first epochs are not told apart"
    lost = firsts[0].median - firsts[1].median
    return integer(
        ceil(lost / (comparison.steady(other).median - comparison.steady(compiled).median))
    )


def part(comparison, rows):
    """Return the milliseconds of a part of a step: "conv1 of torch cpu"."""
    wanted, _, name = rows.partition(" of ")
    (found,) = (part for part in comparison.parts if part.name == wanted)
    measured = comparison.part_figures(found)[name].seconds
    assert measured.excludes(0), f"{rows} cannot be told from noise"
    return with_interval(measured, 1000)


RECIPES = {
    "ratio": ratio,
    "even": even,
    "mean": mean,
    "seconds": lambda c, name: with_interval(certain(c.steady(row(c, name)))),
    "first": lambda c, name: with_interval(certain(c.first_epoch(row(c, name)))),
    "kernel": lambda c, name: percent(c.system_share(row(c, name))),
    "cpu": lambda c, name: with_interval(certain(c.steady(row(c, name), "cpu_seconds"))),
    "ahead": ahead,
    "cores": lambda c, name: number(c.cores(row(c, name))),
    "product": lambda c, name: number(c.own_peak(row(c, name)).gflops / 1000),
    "part": part,
    "together": lambda c, name: percent(total_share(c, row(c, name))),
    "memory": lambda c, name: mebibytes(row(c, name).peak_memory),
}
"""By kind, what a figure must be. product: TFLOP/s of the framework's own best. together: the share
of a step that its parts, timed alone, add up to. memory: MiB of a worker process at its peak."""


@pytest.mark.parametrize("title", FINDINGS)
def test_each_figure_is_that_of_the_results(title):
    found = list(TAGGED.finditer(FINDINGS[title]))
    assert found, "a finding needs a figure"
    for match in found:
        kind, digests, rows = match["recipe"].split(maxsplit=2)
        computed = RECIPES[kind](*map(published, digests.split(",")), rows)
        assert match["figure"] == computed, match["recipe"]


def test_no_figure_stands_there_that_is_not_computed():
    text = TAGGED.sub("", PAGE)
    for pattern in NO_FIGURES:
        dot = re.DOTALL if "```" in pattern else 0
        text = re.sub(pattern, "", text, flags=re.MULTILINE | dot)
    assert LOOSE.findall(text) == []


@pytest.mark.parametrize("title", FINDINGS)
def test_its_command_measures_what_it_cites(title):
    commands = re.findall(r"`python -m crossbench (--[^`]*)`", FINDINGS[title])
    recipes = [match["recipe"].split() for match in TAGGED.finditer(FINDINGS[title])]
    cited = {digest for _, digests, *_ in recipes for digest in digests.split(",")}
    assert commands, "a finding needs a command"
    for command in commands:
        given = vars(run._parser().parse_args(shlex.split(command)))
        assert any(measures(given, published(digest)) for digest in cited), command


def measures(given, comparison):
    """Return whether the arguments of a run are those of a comparison, as far as a command has them
    all: which model, on synthetic data or not, how long an epoch, whether by layers.
    """
    settings, data = comparison.settings, comparison.data
    asked = (given.get("model", "lenet"), given.get("layers", False))
    batches = data.most_batches or data.batches(comparison.results[0].cell.batch_size)
    is_made = isinstance(models.get(settings.model).data, Synthetic)
    same_data = (given.get("data") == "synthetic") == (settings.data == "synthetic")
    return (
        asked == (settings.model, settings.layers)
        and given.get("batches") == batches
        and (same_data or is_made)
    )


def test_the_first_table_of_the_readme_is_of_the_published_results(capsys):
    (path,) = (ROOT / "results").rglob("*-b6587885.json.gz")
    assert cli.main(["show", str(path)]) == 0
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    table = re.search(r"(?s)```text\n(.*?)\n```", (ROOT / "README.md").read_text())[1]
    rows = [line.strip() for line in table.splitlines()]
    assert len(rows) > 8
    assert [line for line in shown if line in rows] == rows


def test_the_gpu_figure_of_the_readme_is_of_the_published_results():
    figure = ratio(published("h200/lenet"), "torch gpu, float32 / jax gpu, float32")
    assert f"is {figure} times as fast as PyTorch" in (ROOT / "README.md").read_text()
