"""Every timing of README.md and docs/ is computed from the published results, and stands where
timings may: see docs/figures.py.
"""

import re
import shlex

import pytest
from test_docs import DOCS, PAGES, ROOT, module, prose

from crossbench import models
from crossbench.commands import run
from crossbench.data.sources import Synthetic

figures = module("figures")
TIMING = re.compile(
    r"\d[\d.,]* ?[(\[]\d[\d.,]*–\d[\d.,]*[)\]]|times as (?:long|fast|slow)|× as fast"
)
"""What a measured figure looks like: with an interval, or as a ratio in words."""
NO_FIGURES = (r"`[^`]*`", r"^#.*?$", r"\]\([^)]*\)", r"<!-- answers -->.*?<!-- end -->")
"""What may hold other numbers: code, headings, addresses, the table of answers."""
LOOSE = re.compile(r"(?<![\w.,-])\d[\d.,]*(?![\w-])")
"""A number that is not a part of a name, such as LeNet-5 or float32."""
SECTIONS = {
    found.partition("\n")[0]: found
    for found in re.split(r"(?m)^## ", (DOCS / "choose.md").read_text())[1:]
}
FINDINGS = {title: text for title, text in SECTIONS.items() if "**See**" in text}


def without(text, patterns):
    for pattern in patterns:
        text = re.sub(pattern, "", text, flags=re.MULTILINE | re.DOTALL * ("answers" in pattern))
    return text


@pytest.mark.parametrize("page", figures.PAGES, ids=lambda page: page.name)
def test_the_figures_of_a_page_are_those_of_the_results(page):
    assert figures.refreshed(page) == page.read_text(), "run python docs/figures.py"


@pytest.mark.parametrize("theme", figures.PICTURES)
def test_the_picture_is_of_the_results(theme):
    assert figures.digest() in figures.svg_file(theme).read_text(), "run python docs/figures.py"


@pytest.mark.parametrize("page", [p for p in PAGES if p not in figures.PAGES], ids=lambda p: p.name)
def test_a_timing_stands_only_where_timings_may(page):
    assert TIMING.findall(without(prose(page), [r"`[^`]*`"])) == []


@pytest.mark.parametrize("title", FINDINGS)
def test_a_finding_has_no_figure_that_is_not_computed(title):
    text = without(figures.FIGURE.sub("", FINDINGS[title]), NO_FIGURES)
    assert LOOSE.findall(text.partition("\n")[2]) == []


@pytest.mark.parametrize("title", FINDINGS)
def test_its_command_measures_what_it_cites(title):
    commands = re.findall(r"`python -m crossbench (--[^`]*)`", FINDINGS[title])
    files = {file for found in figures.FIGURE.finditer(FINDINGS[title]) for file in cited(found)}
    assert commands, "a finding needs a command"
    assert files, "a finding needs a figure"
    for command in commands:
        given = vars(run._parser().parse_args(shlex.split(command)))
        assert any(measures(given, figures.published(file)) for file in files), command


def cited(found):
    """Return the results files of a figure."""
    target = (DOCS / found["path"]).resolve()
    if target.is_file():
        return [target]
    return [figures.of_digest(digest) for digest in found["recipe"].split()[1].split(",")]


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


def test_the_pages_are_short():
    assert sum(len(page.read_text().split()) for page in PAGES) <= 20_000
    assert len((ROOT / "README.md").read_text().splitlines()) <= 70
