"""Makes the pages of a site from its runs, by the templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import programs
from ..report import formats, page
from ..report.formatting import (
    EMPTY_CELL,
    count,
    device_words,
    joined,
    number,
    with_interval,
)
from ..results.cells import Place
from ..results.comparison import Comparison
from ..results.rows import Value, as_dict
from ..results.statistics import Estimate
from .answers import (
    Answer,
    Step,
    answers,
    histories,
    machines,
    main_places,
    place_words,
    places,
    units,
)
from .runs import KINDS, Measured, Run, page_name

if TYPE_CHECKING:
    from ..report.charts.drawing import Chart  # altair may not be installed

FOLDERS = {"model": "models", "machine": "machines", "framework": "frameworks", "run": "runs"}
MAX_LISTED = 300
"""Runs, or rows, that a page lists: the table of everything has the others."""
TABLE_COLUMNS = {
    "model": "model",
    "kind": "kind",
    "machine": "machine",
    "framework": "framework",
    "device": "device",
    "threads": "threads",
    "compute": "compute",
    "task": "task",
    "batches": "batches",
    "version": "versions",
    "created": "measured",
    "seconds": "steady epoch s",
    "ratio": "× fastest",
    "examples_per_second": "examples per s",
    "first_epoch": "first epoch s",
    "state": "state",
}
"""The columns of the table of everything, with their headers."""
FILTERS = ("model", "kind", "machine", "framework", "device", "compute", "task", "version", "state")
"""Columns that the table of everything can be filtered by."""


def address(kind: str, name: str) -> str:
    """Return the address of a page, from the root of the site. name: as `page_name` returns it."""
    return f"{FOLDERS[kind]}/{name}.html"


def charted(newest: Sequence[Run], most: int) -> set[str]:
    """Return the names of the runs whose charts are on their model's page: of each machine the
    newest, then the others, at most `most` of a model.
    """
    found: set[str] = set()
    for model in dict.fromkeys(run.model for run in newest):
        of_model = [run for run in newest if run.model == model]
        machines_seen: list[str] = []
        ranks = []
        for run in of_model:
            ranks.append(machines_seen.count(run.machine))
            machines_seen.append(run.machine)
        order = sorted(range(len(of_model)), key=lambda index: ranks[index])
        found |= {of_model[index].name for index in order[:most]}
    return found


def run_page(run: Run, comparison: Comparison) -> tuple[str, list[Chart]]:
    """Return the page of a run, and its charts."""
    parts = page.run_parts(comparison, 1)
    content = _render(
        "run_page.html",
        title=run.summary.heading.partition(":")[0],
        depth=1,
        run=parts,
        of=run,
        ran=[(row.cell.name, row.source_code) for row in comparison.results if row.source_code],
        sources=[(p.title, str(p.path), p.source) for p in programs.of_comparison(comparison)],
        charts=page.as_script(page.drawn(parts)),
    )
    return content, parts["charts"]


def site_pages(
    found: Sequence[Run],
    newest: Sequence[Run],
    charts: Mapping[str, Sequence[Chart]],
    unread: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield the address and the content of each page but those of the runs, and of what they load.

    found: all runs. newest: those that no later one replaces, the newest first. charts: by the
    run's name. unread: why a file is not among the runs, by its name.
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
    by_machine = {m: [run for run in newest if run.machine == m] for m in machines(newest)}
    of_machines = {m: _machine_answers(runs) for m, runs in by_machine.items()}
    links = _links(newest)
    yield (
        "index.html",
        _render(
            "index.html",
            title="Which framework is fastest?",
            depth=0,
            facts=_facts(found),
            machines=[_front(m, by_machine[m], of_machines[m]) for m in by_machine],
            links=links,
            unread=len(unread),
        ),
    )
    for model in links["model"]:
        runs = [run for run in newest if run.model == model]
        yield address("model", page_name(model)), _model_page(model, runs, charts)
    for machine, runs in by_machine.items():
        yield address("machine", page_name(machine)), _machine_page(machine, runs, of_machines)
    for label in links["framework"]:
        yield address("framework", page_name(label)), _framework_page(label, found, newest)
    headers = list(TABLE_COLUMNS.values())
    filters = {name: TABLE_COLUMNS[name] for name in FILTERS}
    yield (
        "everything.html",
        _render(
            "everything.html",
            title="Everything that was measured",
            depth=0,
            headers=headers,
            filters=filters,
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
    """Return what has a page, by kind; a framework with each of its variants."""
    order = {kind: index for index, kind in enumerate(KINDS)}
    models = {run.model: run.kind for run in newest}
    labels = dict.fromkeys(m.label for run in newest for m in run.measured if m.seconds)
    return {
        "model": sorted(models, key=lambda name: (order[models[name]], name)),
        "machine": machines(newest),
        "framework": sorted(labels, key=str.lower),
    }


def _machine_answers(runs: Sequence[Run]) -> list[Answer]:
    return [answer for place in main_places(runs) for answer in answers(runs, place)]


def _front(machine: str, runs: Sequence[Run], found: Sequence[Answer]) -> dict[str, Any]:
    """Return what the front page shows of a machine."""
    labels = list(dict.fromkeys(label for answer in found for label in answer.ratios))
    return {
        "name": machine,
        "measured": max(run.date for run in runs),
        "versions": _versions(runs),
        "places": joined(dict.fromkeys(place_words(answer.place) for answer in found)),
        "headers": ["models", "fastest", *labels],
        "rows": [_answer_row(answer, labels) for answer in found],
        "lacking": _lacking(found),
    }


def _lacking(found: Sequence[Answer]) -> list[str]:
    """Say which rows lack too many models of a kind to stand in its line."""
    return [
        f"{answer.kind.capitalize()} models: too few were measured in {joined(answer.lacking)}."
        for answer in found
        if answer.lacking
    ]


def _sentence(answer: Answer) -> str:
    """Say who is fastest with models of a kind, and by how much."""
    (fastest, _), (second, ratio), *_ = answer.ratios.items()
    where = f"{answer.kind.capitalize()} models on {device_words(answer.place.device)}"
    if not ratio.is_over(1):
        return f"{where}: {fastest} and {second} without a significant difference."
    return f"{where}: {fastest}, {with_interval(ratio)} times as fast as {second}."


def _answer_row(answer: Answer, labels: Sequence[str]) -> list[str]:
    models = (
        f"{answer.kind}, {device_words(answer.place.device)} ({count(len(answer.models), 'model')})"
    )
    fastest = _fastest(answer.ratios)
    return [models, fastest, *(with_interval(answer.ratios.get(label)) for label in labels)]


def _fastest(ratios: Mapping[str, Estimate]) -> str:
    """Return the fastest, with those that are not significantly slower."""
    first, *others = ratios
    return joined([first, *(other for other in others if not ratios[other].is_over(1))])


def _versions(runs: Sequence[Run]) -> str:
    """Return the versions of each row's packages, each once."""
    found = {m.label: m.versions for run in reversed(runs) for m in run.measured if m.versions}
    return ", ".join(dict.fromkeys(found.values()))


def _model_page(model: str, runs: Sequence[Run], charts: Mapping[str, Sequence[Chart]]) -> str:
    """Return the page of a model: who is fastest where, then each run with its charts."""
    labels = list(dict.fromkeys(m.label for run in runs for m in run.measured if m.seconds))
    rows = []
    for run in runs:
        groups = dict.fromkeys(m.group for m in run.measured if m.seconds)
        for group in groups:
            of_group = [m for m in run.measured if m.group == group]
            if ratios := _ratios(of_group):
                cells = [with_interval(ratios.get(label)) for label in labels]
                place = [run.machine, place_words(group.place), of_group[0].epoch]
                rows.append(([*place, _fastest(ratios), *cells], run))
    shown = [run for run in runs if charts.get(run.name)]
    sections = list(enumerate(shown, 1))
    specifications = [
        {"id": f"run-{number}-{chart.name}", "specification": chart.specification}
        for number, run in sections
        for chart in charts[run.name]
    ]
    return _render(
        "model.html",
        title=model,
        depth=1,
        kind=runs[0].kind,
        source=runs[0].source,
        headers=["machine", "what", "batches", "fastest", *labels, "run"],
        rows=rows[:MAX_LISTED],
        left_out=max(0, len(rows) - MAX_LISTED),
        sections=[(number, run, charts[run.name]) for number, run in sections],
        others=[run for run in runs if run not in shown][:MAX_LISTED],
        charts=page.as_script(specifications),
    )


def _ratios(rows: Iterable[Measured]) -> dict[str, Estimate]:
    """Return the ratios of rows of a group to its fastest, the fastest first; {} for one alone."""
    found = {m.label: m.ratio for m in rows if m.ratio}
    order = sorted(found, key=lambda label: found[label].median)
    return {label: found[label] for label in order} if len(order) > 1 else {}


def _machine_page(
    machine: str, runs: Sequence[Run], of_machines: Mapping[str, Sequence[Answer]]
) -> str:
    main = main_places(runs)
    tables = []
    for place in places(runs):
        for idiomatic in (True, False):
            found = answers(runs, place, idiomatic)
            if found and (idiomatic or found != answers(runs, place)):
                tables.append(_place_table(place, found, idiomatic))
    return _render(
        "machine.html",
        title=machine,
        depth=1,
        facts=runs[0].machine_facts,
        sentences=[_sentence(answer) for answer in of_machines[machine]],
        tables=tables,
        models=[_model_table(runs, place) for place in main],
        runs=runs[:MAX_LISTED],
        left_out=max(0, len(runs) - MAX_LISTED),
    )


def _place_table(place: Place, found: Sequence[Answer], idiomatic: bool) -> dict[str, Any]:
    labels = list(dict.fromkeys(label for answer in found for label in answer.ratios))
    return {
        "title": f"{place_words(place)}{'' if idiomatic else ', with the variants'}",
        "headers": ["models", "fastest", *labels],
        "rows": [_answer_row(answer, labels) for answer in found],
        "over": [f"{a.kind}: {'; '.join(unit.label for unit in a.units)}" for a in found],
        "lacking": _lacking(found),
    }


def _model_table(runs: Sequence[Run], place: Place) -> dict[str, Any]:
    """Return each model's ratios to the fastest in a place."""
    measured = units(runs, place, idiomatic=False)
    labels = list(dict.fromkeys(label for rows in measured.values() for label in rows))
    rows = []
    for unit, found in sorted(measured.items()):
        if ratios := _ratios(found.values()):
            cells = [with_interval(ratios.get(label)) for label in labels]
            rows.append([unit.label, _fastest(ratios), *cells])
    return {"title": place_words(place), "headers": ["model", "fastest", *labels], "rows": rows}


def _framework_page(label: str, found: Sequence[Run], newest: Sequence[Run]) -> str:
    """Return the page of a framework, or of its variant."""
    rows = [(run, m) for run in newest for m in run.measured if m.label == label and m.ratio]
    rows.sort(key=lambda entry: entry[1].ratio.median)  # type: ignore[union-attr]
    compared = [(run, m) for run, m in rows if _compared(run, m)]
    other = base(newest, label)
    steps = histories(found, label, other) if other else []
    return _render(
        "framework.html",
        title=label,
        depth=1,
        best=[_where(*entry) for entry in compared[:3]],
        worst=[_where(*entry) for entry in reversed(compared[3:][-3:])],
        headers=["model", "× fastest", "steady epoch s", "batches", "what", "machine", "versions"],
        rows=[(_framework_row(run, m), run) for run, m in rows[:MAX_LISTED]],
        left_out=max(0, len(rows) - MAX_LISTED),
        base=other,
        history=[(what, [_step_row(step) for step in each]) for what, each in steps],
    )


def _compared(run: Run, measured: Measured) -> bool:
    """Return whether another row was ranked in the same group."""
    return sum(m.group == measured.group and bool(m.seconds) for m in run.measured) > 1


def _where(run: Run, measured: Measured) -> str:
    group, ratio = measured.group, with_interval(measured.ratio)
    what = f"{run.model}, {place_words(group.place)}, batches of {group.batch_size:,}"
    return f"{ratio} times the fastest's seconds: {what}; {run.machine}"


def _framework_row(run: Run, m: Measured) -> list[str]:
    return [
        run.model,
        with_interval(m.ratio),
        with_interval(m.row.steady_epoch_seconds),
        m.epoch,
        place_words(m.group.place),
        run.machine,
        m.versions,
    ]


def base(newest: Sequence[Run], label: str) -> str | None:
    """Return the row that a framework's history is relative to: another one that most runs have, of
    several the one that the runs were asked for first.
    """
    runs = Counter(
        other
        for run in newest
        for other in dict.fromkeys(m.label for m in run.measured if m.seconds)
        if other != label
    )
    return next((name for name, _ in runs.most_common(1)), None)


def _step_row(step: Step) -> list[str]:
    return [step.run.date, step.measured.versions, with_interval(step.ratio)]


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


def _table_cells(run: Run, m: Measured, is_current: bool) -> list[str]:
    first = m.row.first_epoch_seconds
    state = "ranked" if m.seconds else "not ranked"
    found = {
        "model": run.model,
        "kind": run.kind,
        "machine": run.machine,
        "framework": m.label,
        "device": m.row.device,
        "threads": str(m.row.threads),
        "compute": m.row.compute,
        "task": m.row.task,
        "batches": m.epoch,
        "version": m.versions or EMPTY_CELL,
        "created": run.date,
        "seconds": with_interval(m.row.steady_epoch_seconds),
        "ratio": with_interval(m.ratio),
        "examples_per_second": number(m.row.examples_per_second),
        "first_epoch": number(first.median if first else None),
        "state": state if is_current else f"{state}, measured again later",
    }
    return [found[name] for name in TABLE_COLUMNS]


def _plain(found: Sequence[Run]) -> list[dict[str, Value]]:
    """Return all rows as plain figures, with their results file."""
    rows = []
    for run in found:
        for m in run.measured:
            named: dict[str, Value] = {"results_file": run.file, "versions": m.versions}
            rows.append(named | as_dict(m.row))
    return rows


__all__ = ["address", "charted", "run_page", "site_pages"]
