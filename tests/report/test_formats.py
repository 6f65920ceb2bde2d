"""CSV and JSON hold plain figures; Markdown and HTML are drawn from the same rows."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from samples import DISAGREES, FAST, SLOW, comparison, result

import crossbench
from crossbench.report import formats
from crossbench.report.charts import charts
from crossbench.results.comparison import SCHEMA

KEPT = Path(__file__).parents[1] / "results" / "lenet.json"


def three():
    return comparison(
        result("jax", SLOW), result("torch", FAST), result("flux", [], status="failed", parity=None)
    )


def test_rows_hold_plain_figures_with_their_units():
    fast, slow, failed = three().rows()
    assert (fast["framework"], slow["framework"], failed["framework"]) == ("torch", "jax", "flux")
    assert slow["steady_epoch_seconds"] == pytest.approx(4.1)
    assert slow["steady_epoch_seconds_low"] == 4.0
    assert slow["steady_epoch_seconds_maximum"] == 4.2
    assert slow["ratio"] == pytest.approx(2.0, abs=0.01)
    assert slow["relative_to"] == "torch cpu"
    assert slow["peak_memory_bytes"] == 2**30
    assert slow["examples_per_second"] == pytest.approx(1000 / 4.1)
    assert slow["ranked"] is True
    assert (failed["ranked"], failed["reason"]) == (False, "why")
    assert failed["steady_epoch_seconds"] is failed["ratio_low"] is None


def test_csv_is_read_back_as_it_was():
    c = three()
    c.results[0].cell = replace(c.results[0].cell, title='a,"b"\nc')
    read = list(csv.DictReader(io.StringIO(crossbench.table(c, format="csv"))))
    expected = [{k: "" if v is None else str(v) for k, v in row.items()} for row in c.rows()]
    assert read == expected


def test_json_is_read_back_as_it_was_and_of_several_comparisons_is_one_list():
    assert json.loads(crossbench.table(three(), format="json")) == three().rows()
    assert json.loads(formats.tables([three(), three()], False, "json")) == 2 * three().rows()
    text = formats.tables([three(), three()], False, "csv")
    assert len(list(csv.DictReader(io.StringIO(text)))) == 6


def test_markdown_has_the_table_and_the_sentences():
    drawn = crossbench.table(three(), format="markdown")
    header, rule, first, *_ = [line for line in drawn.splitlines() if line.startswith("|")]
    assert header.replace(" ", "").startswith("|framework|steadyepochs|×fastest|")
    assert set(rule) <= set("|:-")
    assert "| Torch " in first
    assert "Torch is fastest on the CPU: of its seconds Jax takes 2.00× (1.90–2.10)." in drawn
    assert drawn.endswith("- Flux: failed: why.")
    details = crossbench.table(three(), details=True, format="markdown")
    assert sum(line.startswith("|") for line in details.splitlines()) == 2 * (2 + 3)


def test_a_notebook_shows_the_summary():
    shown = three()._repr_html_()
    assert "<table>" in shown
    assert "Torch is fastest on the CPU" in shown
    assert str(three()) == crossbench.table(three())


def test_changes_and_merged_runs_are_plain_figures():
    base, other = three(), three()
    other.machine = replace(other.machine, label="the other")
    change, *_ = json.loads(formats.changes([base, other], "json"))
    assert (change["cell"], change["ratio_to_run_1"]) == ("jax cpu", 1.0)
    merged = json.loads(formats.merge([base, other], "json"))
    assert [row["run"] for row in merged] == [1, 1, 1, 2, 2, 2]
    assert [row["machine"] for row in merged] == ["cpu"] * 3 + ["the other"] * 3
    assert merged[0]["ratio"] == pytest.approx(2.0, abs=0.01)


def test_a_row_that_is_not_ranked_has_no_ratio_in_a_merged_file():
    wrong = comparison(result("torch", FAST, parity=DISAGREES), result("jax", SLOW))
    rows = json.loads(formats.merge([wrong, three()], "json"))
    assert (rows[0]["ratio"], rows[0]["relative_to"]) == (None, None)
    assert rows[1]["ratio"] is not None


def test_a_file_of_the_present_schema_is_read_and_shown():
    kept = crossbench.load(KEPT)
    assert kept.schema == SCHEMA, "make the file anew, as tests/results/README.md says"
    rows = kept.rows()
    assert [row["framework"] for row in rows] == ["torch", "jax", "reference"]
    assert all(row["ranked"] and row["rounds"] == 6 for row in rows)
    drawn = str(kept)
    assert "PyTorch is fastest on the CPU: " in drawn
    for row in rows:  # each figure of the table
        assert f"{row['examples_per_second']:,.0f}" in drawn
        assert f"{row['test_accuracy']:.1%}" in drawn
    first = ["ratios", "rounds", "losses", "roofline", "activity"]
    assert [chart.name for chart in charts(kept)][: len(first)] == first
