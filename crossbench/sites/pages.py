"""Makes the pages of a site from its runs, by the templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from .. import programs
from ..report import columns, formats, page
from ..report.formatting import EMPTY_CELL, count, device_words, joined, with_interval
from ..results.comparison import Comparison
from ..results.rows import Value, as_dict
from ..results.statistics import Estimate
from .answers import (
    Answer,
    Ranking,
    answers,
    base,
    fastest,
    histories,
    main_places,
    place_words,
    places,
    rankings,
)
from .runs import KINDS, Measured, Run, page_name

FOLDERS = {"model": "models", "machine": "machines", "framework": "frameworks", "run": "runs"}
MAX_LISTED = 300
"""Runs, or rows, that a page lists: the table of everything has the others."""
TEXT_COLUMNS = ("model", "machine", "what", "batches")
"""The first columns of who is fastest, on the page of a model or a machine without its own."""
OF_RUNS = {"version": "versions", "created": "measured"}
"""Headers of columns of the table of everything that are no figures of a row, where they differ
from their names."""
TABLE_COLUMNS = (
    *("model", "kind", "machine", "framework", "device", "threads", "compute", "task", "batches"),
    *("version", "created", "steady_epoch_seconds", "ratio", "examples_per_second"),
    *("first_epoch_seconds", "state"),
)
"""The columns of the table of everything."""
FILTERS = ("model", "kind", "machine", "framework", "device", "compute", "task", "version", "state")
"""Columns that the table of everything can be filtered by."""


def address(kind: str, name: str) -> str:
    """Return the address of a page, from the root of the site. name: as `page_name` returns it."""
    return f"{FOLDERS[kind]}/{name}.html"


def run_page(run: Run, comparison: Comparison) -> str:
    """Return the page of a run."""
    parts = page.run_parts(comparison, 1)
    return _render(
        "run_page.html",
        title=run.summary.heading.partition(":")[0],
        depth=1,
        run=parts,
        of=run,
        ran=[(row.cell.name, row.source_code) for row in comparison.results if row.source_code],
        sources=[(p.title, str(p.path), p.source) for p in programs.of_comparison(comparison)],
        charts=page.as_script(page.drawn(parts)),
    )


def site_pages(
    found: Sequence[Run], newest: Sequence[Run], unread: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the address and the content of each page but those of the runs, and of what they load.

    found: all runs. newest: those that no later one replaces, the newest first. unread: why a file
    is not among the runs, by its name.
    """
    yield "style.css", _text("style.css") + _text("site.css")
    yield "vega.js", f"(() => {{\n{page.vega()}\n}})();\n"
    yield "charts.js", _text("charts.js")
    yield "everything.js", _text("everything.js")
    table = _table(found, newest)
    yield "rows.js", f"window.crossbenchRows = {page.as_script(table)};\n"
    rows = _plain(found)
    yield "everything.csv", formats.plain(rows, "csv") + "\n"
    yield "everything.json", formats.plain(rows, "json") + "\n"
    links = _links(newest)
    yield (
        "index.html",
        _render(
            "index.html",
            title="Which framework is fastest?",
            depth=0,
            facts=_facts(found),
            machines=[_front(machine, newest) for machine in links["machine"]],
            links=links,
            kinds=_models_by_kind(newest),
            unread=len(unread),
        ),
    )
    for kind, names in links.items():
        for name in names:
            yield address(kind, page_name(name)), _subject_page(kind, name, found, newest)
    headers = {name: _header(name) for name in TABLE_COLUMNS}
    yield (
        "everything.html",
        _render(
            "everything.html",
            title="Everything that was measured",
            depth=0,
            headers=headers.values(),
            filters={name: headers[name] for name in FILTERS},
            total=len(table["rows"]),
        ),
    )
    if unread:
        yield (
            "unread.html",
            _render(
                "unread.html", title="Files that could not be read", depth=0, unread=unread.items()
            ),
        )


def _render(template: str, **context: Any) -> str:
    names = {"root": "../" * context["depth"], "address": address, "page_name": page_name}
    text: str = _environment().get_template(template).render(names | context)
    return text


@cache
def _environment() -> Any:
    return page.environment(__package__, page.__package__)


def _text(name: str) -> str:
    """Return a template that has nothing to fill in."""
    text: str = _environment().get_template(name).render()
    return text + "\n"


def _facts(found: Sequence[Run]) -> list[str]:
    """Return what the site is made of, in a few words each."""
    dates = sorted(run.date for run in found)
    versions = sorted({run.crossbench for run in found})
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return [
        count(len(found), "run"),
        count(len({run.model for run in found}), "model"),
        count(len({run.machine for run in found}), "machine"),
        f"measured {when}",
        f"crossbench {joined(versions)}",
    ]


def _links(newest: Sequence[Run]) -> dict[str, list[str]]:
    """Return what has a page, by kind: a framework with each of its variants, and the machine that
    was measured last first.
    """
    order = {kind: index for index, kind in enumerate(KINDS)}
    models = {run.model: run.kind for run in newest}
    labels = {label for run in newest for label in run.labels}
    return {
        "model": sorted(models, key=lambda name: (order[models[name]], name)),
        "machine": list(dict.fromkeys(run.machine for run in newest)),
        "framework": sorted(labels, key=lambda label: (label.lower(), label)),
    }


def _models_by_kind(newest: Sequence[Run]) -> dict[str, list[str]]:
    found = {kind: sorted({run.model for run in newest if run.kind == kind}) for kind in KINDS}
    return {kind: names for kind, names in found.items() if names}


def _front(machine: str, newest: Sequence[Run]) -> dict[str, Any]:
    """Return what the front page shows of a machine."""
    from . import picture  # needs Altair

    runs = [run for run in newest if run.machine == machine]
    shown = main_places(runs)
    found = [answer for place in shown for answer in answers(runs, place)]
    drawn = [picture.picture(runs, place) for place in shown]
    return {
        "name": machine,
        "pictures": [(p.device, picture.svg(d)) for p, d in zip(shown, drawn, strict=True) if d],
        "measured": max(run.date for run in runs),
        "versions": _versions(runs),
        "places": joined(dict.fromkeys(place_words(answer.place) for answer in found)),
        "answers": _answer_table(found),
    }


def _versions(runs: Sequence[Run]) -> str:
    """Return the versions of each row's packages, each once. runs: the newest first."""
    found = {m.label: m.versions for run in reversed(runs) for m in run.measured if m.versions}
    return ", ".join(dict.fromkeys(found.values()))


def _answer_table(found: Sequence[Answer]) -> dict[str, Any]:
    """Return the table of answers, and which rows lack too many models to stand in a line of it."""
    labels = list(dict.fromkeys(label for answer in found for label in answer.ratios))
    return {
        "headers": ["models", "fastest", *labels],
        "rows": [
            [
                f"{answer.kind}, {device_words(answer.place.device)} "
                f"({count(len(answer.models), 'model')})",
                *_ratio_cells(answer.ratios, labels),
            ]
            for answer in found
        ],
        "lacking": [
            f"{answer.kind.capitalize()} models: too few were measured in {joined(answer.lacking)}."
            for answer in found
            if answer.lacking
        ],
    }


def _ratio_cells(ratios: Mapping[str, Estimate], labels: Sequence[str]) -> list[str]:
    return [joined(fastest(ratios)), *(with_interval(ratios.get(label)) for label in labels)]


def _subject_page(kind: str, name: str, found: Sequence[Run], newest: Sequence[Run]) -> str:
    """Return the page of a model, a machine or a framework: who is fastest in its runs.

    The rows are by place and model; of a framework from where it is best to where it is worst.
    """
    runs = [run for run in newest if name in run.subjects[kind]]
    ranked = rankings(runs)
    label = name if kind == "framework" else None
    if label:
        ranked = [ranking for ranking in ranked if label in ranking.ratios]
        ranked.sort(key=lambda ranking: ranking.ratios[label].median)
    else:
        order = places(runs)
        ranked.sort(key=lambda ranking: (order.index(ranking.place), ranking.run.model))
    texts = [header for header in TEXT_COLUMNS if header != kind]
    return _render(
        "subject.html",
        title=name,
        depth=1,
        kind=kind,
        facts=_subject_facts(kind, name, runs),
        leads=_leads(runs) if kind == "model" else [],
        answers=_place_answers(runs) if kind == "machine" else [],
        texts=len(texts) + 1,
        headers=[*texts, *(["fastest", label] if label else ["× fastest"]), "run"],
        rows=[(_ranking_cells(one, texts, label), one.run) for one in ranked[:MAX_LISTED]],
        rows_left_out=max(0, len(ranked) - MAX_LISTED),
        history=_history(name, found, newest) if kind == "framework" else None,
        runs=runs[:MAX_LISTED],
        runs_left_out=max(0, len(runs) - MAX_LISTED),
    )


def _leads(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what a model's page says first, of each machine: who is fastest, by the run with most
    frameworks and rows, and why, by the newest run that timed the parts of a step.
    """
    leads = []
    for machine in dict.fromkeys(run.machine for run in runs):
        own = [run for run in runs if run.machine == machine]
        main = max(own, key=lambda run: (len(run.frameworks), len(run.labels)))
        why = next((run for run in own if run.explanations), main)
        if main.summary.verdicts:
            leads.append(
                {
                    "machine": machine,
                    "answer": main.summary.verdicts[0],
                    "why": why.explanations,
                    "versions": _versions([main]),
                    "runs": {"the run": main} | ({"its parts": why} if why.explanations else {}),
                }
            )
    return leads


def _subject_facts(kind: str, name: str, runs: Sequence[Run]) -> dict[str, str]:
    """Return what is known of a model, a machine or a framework beside its figures, by its name."""
    newest = runs[0]
    if kind == "machine":
        return newest.machine_facts
    if kind == "model":
        return {"kind": newest.kind} | ({"source": newest.source} if newest.source else {})
    versions = (m.versions for run in runs for m in run.measured if m.label == name and m.versions)
    return {"versions": "; ".join(dict.fromkeys(versions)) or EMPTY_CELL}


def _place_answers(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return a table of the answers for each place of a machine, and one with the variants where
    they change something.
    """
    tables = []
    for place in places(runs):
        idiomatic, with_variants = answers(runs, place), answers(runs, place, idiomatic=False)
        tables.append(_place_table(place_words(place), idiomatic))
        if with_variants != idiomatic:
            tables.append(_place_table(f"{place_words(place)}, with the variants", with_variants))
    return [table for table in tables if table["rows"]]


def _place_table(title: str, found: Sequence[Answer]) -> dict[str, Any]:
    over = [f"{a.kind}: {'; '.join(unit.label for unit in a.units)}" for a in found]
    return _answer_table(found) | {"title": title, "over": over}


def _ranking_cells(ranking: Ranking, texts: Sequence[str], label: str | None) -> list[str]:
    """Return a line of a page. label: the row whose ratio it has; without one those of all rows."""
    known = {
        "model": ranking.run.model,
        "machine": ranking.run.machine,
        "what": place_words(ranking.place),
        "batches": ranking.epoch,
    }
    ratios = ranking.ratios
    all_of_them = "; ".join(f"{name} {with_interval(ratio)}" for name, ratio in ratios.items())
    figures = _ratio_cells(ratios, [label]) if label else [all_of_them]
    return [*(known[header] for header in texts), *figures]


def _history(label: str, found: Sequence[Run], newest: Sequence[Run]) -> dict[str, Any]:
    """Return how a framework's ratio to another one changed with its versions."""
    other = base(newest, label)
    steps = histories(found, label, other) if other else []
    rows = [
        (what, [[s.run.date, s.measured.versions, with_interval(s.ratio)] for s in each])
        for what, each in steps
    ]
    return {"base": other, "rows": rows}


def _table(found: Sequence[Run], newest: Sequence[Run]) -> dict[str, Any]:
    """Return the table of everything: each column's different texts once, and rows of their indices
    and the index of their run.

    The runs are the addresses of their page, "" for one that was replaced, and of their file.
    """
    have_pages = {run.name for run in newest}
    texts: list[dict[str, int]] = [{} for _ in TABLE_COLUMNS]
    rows: list[list[int]] = []
    runs: list[list[str]] = []
    for run in sorted(found, key=lambda run: (run.model, run.machine, run.created)):
        is_current = run.name in have_pages
        for m in run.measured:
            cells = _table_cells(run, m, is_current)
            indices = [texts[i].setdefault(text, len(texts[i])) for i, text in enumerate(cells)]
            rows.append([*indices, len(runs)])
        runs.append([address("run", run.name) if is_current else "", f"results/{run.file}"])
    names = list(TABLE_COLUMNS)
    return {"columns": names, "texts": [list(each) for each in texts], "rows": rows, "runs": runs}


def _header(name: str) -> str:
    """Return the header of a column of the table of everything, in one line."""
    return " ".join((OF_RUNS.get(name) or columns.header(name, brief=True) or name).split())


def _table_cells(run: Run, m: Measured, is_current: bool) -> list[str]:
    state = "ranked" if m.seconds else "not ranked"
    of_runs = {
        "model": run.model,
        "kind": run.kind,
        "machine": run.machine,
        "framework": m.label,
        "batches": m.epoch,
        "version": m.versions or EMPTY_CELL,
        "created": run.date,
        "ratio": with_interval(m.ratio),
        "state": state if is_current else f"{state}, measured again later",
    }
    return [
        of_runs[name] if name in of_runs else columns.text(m.row, name, brief=True)
        for name in TABLE_COLUMNS
    ]


def _plain(found: Sequence[Run]) -> list[dict[str, Value]]:
    """Return all rows as plain figures, with their results file."""
    rows = []
    for run in found:
        for m in run.measured:
            named: dict[str, Value] = {"results_file": run.file, "versions": m.versions}
            rows.append(named | as_dict(m.row))
    return rows
