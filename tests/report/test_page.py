"""The page: one file without a network, charts that are data, and the results inside."""

import json
import re
from dataclasses import replace
from functools import partial

import altair
import pytest
from browsing import WIDTH, opened
from samples import DISAGREES, FAST, PRECISION, SLOW, STEPS, comparison, epoch, result, two

import crossbench
from crossbench import models
from crossbench.inputs.errors import ReportError
from crossbench.report import page
from crossbench.report.charts import charts, several
from crossbench.report.commands import run_command, script_command
from crossbench.report.row_names import row_name
from crossbench.results.epochs import TargetEpoch, Usage
from crossbench.results.machine import Peak
from crossbench.results.roofline import intensity, training_bytes
from crossbench.results.several_runs import run_labels

USAGE = Usage(1, 3, 0.001, 2.0, 2**30, None, None, None, None, None, [])
MARKS = "svg .mark-symbol path, svg .mark-rect path, svg .mark-line path"
MAX_BYTES = 2_000_000
HOSTILE = "<script>alert(1)</script> & \"'</script>"


def everything():
    """Return a run that has figures for every chart."""
    cells = [
        result(name, seconds, threads=threads, name=f"{name} cpu, {threads}")
        for name, seconds in (("torch", FAST), ("jax", SLOW))
        for threads in (1, 2)
    ]
    cells[1].epochs = result("torch", [9, *[1.2, 1.1] * 4]).epochs
    cells[0].to_target = [TargetEpoch(2.0, 4.0, a) for a in (0.3, 0.6)]
    for cell in cells:
        cell.peak = Peak(100.0, 10.0)
        cell.usage = [replace(USAGE, seconds=[0.1, 0.2], cores=[1.0, 2.0], gpu_shares=[])]
    model = models.get("lenet").description()
    return comparison(*cells, model=model, target_accuracy=0.5)


def hostile():
    c = two()
    c.results[0].cell = replace(c.results[0].cell, title=HOSTILE, name=HOSTILE)
    c.results[0].details = {HOSTILE: HOSTILE}
    c.machine = replace(c.machine, label=HOSTILE)
    c.model["name"] = HOSTILE
    return c


def missing_figures():
    cell = result("torch", FAST)
    cell.epochs = [replace(e, losses=[None] * STEPS) for e in cell.epochs]
    return comparison(cell)


RUNS = {
    "everything": everything,
    "one row": lambda: comparison(result("torch", FAST)),
    "all failed": lambda: comparison(result("torch", [], status="failed", parity=None)),
    "thirty rows": lambda: comparison(*(result(f"f{i}", [9, *[i + 1.0] * 6]) for i in range(30))),
    "a gpu": lambda: comparison(
        *(result(f, FAST, d) for f in ("torch", "jax") for d in ("cpu", "gpu"))
    ),
    "missing figures": missing_figures,
    "hostile names": hostile,
}


@pytest.mark.short(kind=("everything", "all failed", "missing figures"))
@pytest.mark.parametrize("kind", RUNS)
def test_a_page_is_small_and_its_charts_are_data_with_a_title_that_answers(kind):
    run = RUNS[kind]()
    drawn = page.page([run])
    assert len(drawn.encode()) < MAX_BYTES
    without_vega = drawn.replace(page.vega(), "")
    assert not re.search(r"(src|href)=\"(?!data:)", without_vega)
    addresses = set(re.findall(r"https?://[^\s\"\\]+", without_vega))
    assert all(a.startswith("https://vega.github.io/schema/") for a in addresses)
    assert f"<code>{run_command(run)}</code>" in drawn
    if program := script_command(run):
        assert f"<code>{program}</code>" in drawn
        assert f"alone: {program}" in drawn
    for chart in charts(run):
        assert chart.question.endswith("?")
        assert chart.answer.endswith((".", "?"))
        assert {len(row) for row in chart.cells} == {len(chart.headers)}
        assert chart.specification["width"] == "container"
        assert json.loads(json.dumps(chart.specification)) == chart.specification
        altair.Chart.from_dict(chart.specification, validate=True)


def test_the_results_are_read_from_the_page_and_none_of_their_text_becomes_a_tag(tmp_path):
    page.write([hostile()], tmp_path / "page.html")
    assert crossbench.load(tmp_path / "page.html") == hostile()
    drawn = (tmp_path / "page.html").read_text().replace(page.vega(), "")
    assert "alert(1)</script" not in drawn
    assert "<script>alert" not in drawn
    assert drawn.count("</script>") == 4


def names(run):
    return [chart.name for chart in charts(run)]


def test_each_chart_appears_where_it_has_figures():
    assert names(two()) == ["ratios", "rounds", "losses"]
    added = {"accuracy", "roofline", "activity", "threads"}
    assert {*names(everything())} - {*names(two())} == added
    assert names(RUNS["all failed"]()) == []
    assert names(missing_figures()) == ["rounds"]


def chart_of(run, name):
    """Return the chart of a run with a name, or None."""
    return {chart.name: chart for chart in charts(run)}.get(name)


def values(chart, layer=None):
    """Return the figures that a chart, or a layer of it, draws."""
    part = chart.specification if layer is None else chart.specification["layer"][layer]
    return chart.specification["datasets"][part["data"]["name"]]


def test_the_ratios_are_those_of_the_table():
    c = two()
    chart = chart_of(c, "ratios")
    assert (
        chart.answer == "Torch is fastest on the CPU: of its seconds Jax takes 2.00× (1.90–2.10)."
    )
    ratio = c.ratio(c.results[1])
    drawn = values(chart, 1)[1]
    assert (drawn["median"], drawn["low"], drawn["high"]) == (ratio.median, ratio.low, ratio.high)
    assert chart.cells == [["Torch", "1.00"], ["Jax", "2.00 (1.90–2.10)"]]


def test_the_bytes_of_a_step_are_counted_from_the_description():
    """Of the LeNet by hand: inputs of all layers but Flatten, five times; weights six times."""
    lenet = models.get("lenet").description()
    inputs = 3 * 32**2 + 2 * 16 * 28**2 + 16 * 14**2 + 2 * 8 * 10**2 + 200 + 120 + 84
    for compute, moved in (("float32", 4), ("tf32", 4), ("bfloat16", 2)):
        expected = moved * 5 * inputs + 4 * 6 * 39.558
        assert training_bytes(lenet, 1000, compute) == expected
        assert intensity(lenet, 1000, compute) == lenet["training_flops"] / expected
    resnet = models.get("resnet63").description()
    assert training_bytes(resnet, 64) > training_bytes(lenet, 1000)


def test_the_roofline_has_the_measured_edges():
    chart = chart_of(everything(), "roofline")
    edges = values(chart, 0)
    assert {edge["GFLOP/s"] for edge in edges if edge["FLOP per byte"] >= 10} == {100.0}
    left = min(edges, key=lambda edge: edge["FLOP per byte"])
    assert left["GFLOP/s"] == pytest.approx(10 * left["FLOP per byte"])
    assert len(values(chart, 1)) == 4


def test_several_runs_are_drawn_with_their_geometric_means():
    fast = comparison(result("torch", FAST), result("jax", [9, *[8.4, 8.0] * 4]))
    fast.model["name"] = "other"
    chart = several([two(), fast])
    answer = "Relative to Jax, the geometric means are: Torch 0.354 [0.250–0.501] (over 2)."
    assert chart.answer == answer
    assert [row[0] for row in chart.cells] == ["m, cpu, 2 threads", "other, cpu, 2 threads"]
    assert [value["median"] for value in values(chart, 1)] == pytest.approx([0.5, 0.25], abs=0.01)
    assert several([two()]) is None
    assert several([RUNS["all failed"](), RUNS["all failed"]()]) is None


@pytest.mark.parametrize(
    ("label", "day", "labels"),
    [
        ("b", "01", ["cpu", "b"]),
        (None, "02", ["m, cpu, 2026-01-01 00:00", "m, cpu, 2026-01-02 00:00"]),
        (None, "01", ["run 1", "run 2"]),
    ],
)
def test_the_runs_are_named_by_what_differs(label, day, labels):
    other = two()
    other.machine, other.created = replace(other.machine, label=label), f"2026-01-{day}T00:00+00:00"
    assert run_labels([replace(two(), created="2026-01-01T00:00+00:00"), other]) == labels


def test_the_batch_sizes_are_drawn_on_two_logarithmic_axes():
    cells = [
        result(name, [9, *[seconds] * 6], batch_size=size, task=task, name=f"{name} {size} {task}")
        for task in ("train", "predict")
        for size in (10, 100)
        for name, seconds in (("torch", 2.1), ("jax", 4.2))
    ]
    chart = chart_of(comparison(*cells), "batch-sizes")
    layer = chart.specification["layer"][0]["encoding"]
    assert [layer[axis]["scale"]["type"] for axis in "xy"] == ["log", "log"]
    assert chart.cells[0] == ["Torch, train, batches of 10", "20.00"]  # 105 steps in 2.1 s
    assert [value["ms median"] for value in values(chart)][:2] == pytest.approx([20, 210])
    assert "Torch is fastest with every batch size" in chart.answer
    assert chart_of(two(), "batch-sizes") is None


def test_a_line_of_threads_joins_rows_that_differ_in_them_alone():
    cells = [
        result(
            framework,
            [9, *[seconds / threads] * 6],
            threads=threads,
            compute=compute,
            name=f"{framework} cpu, {threads} threads, {compute}",
        )
        for compute in ("float32", "bfloat16")
        for threads in (2, 1)
        for framework, seconds in (("torch", 2.0), ("jax", 4.0))
    ]
    for cell in cells[4:]:
        cell.precision = PRECISION
    gpu = result("torch", FAST, "gpu", threads=4)
    chart = chart_of(comparison(*cells, gpu), "threads")
    assert [(v["line"], v["threads"], v["ms median"]) for v in values(chart)][:4] == [
        ("Torch, cpu, float32", 1, 200.0),
        ("Torch, cpu, float32", 2, 100.0),
        ("Jax, cpu, float32", 1, 400.0),
        ("Jax, cpu, float32", 2, 200.0),
    ]
    assert len(values(chart)) == 8
    assert chart.answer.endswith(" gains most: 2.00 times.")
    assert chart_of(two(), "threads") is None


def test_every_round_is_drawn_in_its_order():
    c = two()
    chart = chart_of(c, "rounds")
    torch = [v for v in values(chart, 1) if v["row"] == "Torch"]
    assert [v["round"] for v in torch] == list(range(1, 9))
    assert [v["position"] for v in torch] == sorted({v["position"] for v in torch})
    assert {round(v["percent"], 2) for v in torch} == {-2.44, 2.44}


def test_long_epochs_are_thinned():
    cell = result("torch", FAST)
    cell.epochs = [replace(epoch(1, 2.0, at=0), losses=[1.0] * 799), *cell.epochs[1:]]
    chart = chart_of(comparison(cell), "losses")
    assert len(values(chart)) <= 400


def test_a_page_of_several_runs_says_which_to_name(tmp_path):
    page.write([two(), two()], tmp_path / "page.html")
    with pytest.raises(crossbench.CrossbenchError, match="the page holds 2 runs: name the results"):
        crossbench.load(tmp_path / "page.html")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("mine.html", "exists already: choose another name"),
        ("none/page.html", "cannot be written: No such file or directory"),
        ("x" * 300, "cannot be written: File name too long"),
        ("a\0b", "cannot be written: "),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, name, why):
    (tmp_path / "mine.html").write_text("mine")
    for attempt in (page.check, partial(page.write, [])):
        with pytest.raises(ReportError, match=why):
            attempt(tmp_path / name)
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_no_answer_is_drawn_from_a_row_that_is_not_ranked():
    c = everything()
    for wrong in c.results[2:]:
        wrong.parity = DISAGREES
        wrong.epochs = [replace(e, wall_seconds=0.01) for e in wrong.epochs]
    answers = {chart.name: chart.answer for chart in charts(c)}
    for name in ("roofline", "activity", "threads"):
        assert "Jax" not in answers[name]
        assert "Torch" in answers[name]


def test_rows_are_named_as_in_the_table_and_never_alike():
    """By what differs between them; where that is not enough by the cell's own name."""
    torch = result("torch", FAST)
    for other, expected in (
        (result("jax", SLOW), ["Torch", "Jax"]),
        (result("jax", SLOW, device="gpu"), ["Torch, cpu", "Jax, gpu"]),
        (result("torch", SLOW, threads=1), ["Torch, 2 threads", "Torch, 1 thread"]),
        (result("torch", SLOW, name="other"), ["torch cpu", "other"]),
    ):
        c = comparison(torch, other)
        assert [row_name(c, r) for r in c.results] == expected


def test_losses_that_are_not_finite_are_the_answer():
    c = two()
    finite = [2.0] * (STEPS - 1)
    for row, last in zip(c.results, (None, 1.0), strict=True):
        row.epochs = [replace(epoch, losses=[*finite, last]) for epoch in row.epochs]
    assert chart_of(c, "losses").answer == "Losses that are not finite: Torch."
    c.results[0].epochs = c.results[1].epochs
    answer = "The losses of step {} lie within 0.0% of one another."
    assert chart_of(c, "losses").answer == answer.format(STEPS)
    row = c.results[0]
    row.epochs = [replace(e, losses=[2.0] * 4) for e in row.epochs]
    assert chart_of(c, "losses").answer == answer.format(4)
    c.results[1].epochs = [replace(e, losses=[*[None] * 4, 2.0]) for e in row.epochs]
    assert chart_of(c, "losses").answer == "Losses that are not finite: Jax."


@pytest.mark.long
@pytest.mark.parametrize("kind", RUNS)
def test_chromium_draws_every_chart_and_scrolls_down_alone(tmp_path, kind):
    run, path = RUNS[kind](), tmp_path / "page.html"
    page.write([run], path)
    with opened(path) as tab:
        assert tab.locator("figure").count() == len(names(run))
        for name in names(run):
            figure = tab.locator(f"figure:has(#run-1-{name})")
            assert figure.get_by_role("img").first.get_attribute("aria-label").startswith("Chart: ")
            assert figure.locator(MARKS).count()
            assert figure.locator("details table tr").count() > 1
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH


@pytest.mark.long
def test_chromium_draws_a_page_of_several_runs(tmp_path):
    path = tmp_path / "page.html"
    page.write([two(), everything()], path)
    with opened(path) as tab:
        assert tab.locator("figure:has(#several)").locator(MARKS).count()
        assert tab.locator("figure:has(#run-2-ratios)").locator(MARKS).count()
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH
