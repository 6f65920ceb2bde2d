"""The table of a step's parts, and the sentences on which of them make a row slower."""

from dataclasses import replace

import pytest
from samples import DISAGREES, comparison, result

from crossbench.report import layers
from crossbench.report.charts import charts
from crossbench.report.formatting import number
from crossbench.results.machine import Peak
from crossbench.results.parts import PartCost, PartResult, PartTime
from crossbench.results.reference import Reference

CONV, POOL = PartCost("conv1", 2, 1000, 4.0, 8.0), PartCost("maxpool1", 1, 0, 4.0, 0.0)


def timed(*seconds, deviation=1e-15, norm=2.0):
    """Return the result of a part that took so many seconds in the rounds."""
    times = [PartTime(number, s, 1.0, norm) for number, s in enumerate(seconds, 1)]
    return PartResult(deviation, times)


def compared(**parts):
    """Return a comparison of a torch whose step takes 0.1 s, and a jax whose takes 0.2 s."""
    fast = result("torch", [9.0, 1.0, 1.0, 1.0])
    slow = result("jax", [9.0, 2.0, 2.0, 2.0])
    fast.parts = {"conv1": timed(0.03, 0.03, 0.03), "maxpool1": timed(0.04, 0.04, 0.04)}
    slow.parts = {"conv1": timed(0.03, 0.03, 0.03), "maxpool1": timed(0.13, 0.13, 0.15)}
    slow.parts |= parts
    fast.peak = Peak(1.0, 1.0, 1.0)
    found = comparison(fast, slow)
    found.parts, found.reference = [CONV, POOL], Reference([], False, [])
    return found


def figures(found, part):
    """Return what a part takes in each row, in their order."""
    return list(found.part_figures(part).values())


def test_a_row_for_each_part_and_framework():
    _, columns, _, *lines = layers.layers(compared()).splitlines()
    assert columns.split() == ["per", "step", "step", "×", "fastest", "peak", "GFLOP", "MB"]
    cells = [line.split() for line in lines]
    of_conv, of_pool = ["0.3%", "0.0002", "0.0008"], ["0.0%", "–", "0.0004"]
    assert cells == [
        ["conv1", "(×2)", "Torch", "60.00", "60.0%", "1.00", *of_conv],
        ["Jax", "60.00", "30.0%", "1.00", *of_conv],
        ["maxpool1", "Torch", "40.00", "40.0%", "1.00", *of_pool],
        ["Jax", "130", "[130–150]", "65.0%", "3.25", "[3.25–3.75]", *of_pool],
    ]


def test_a_narrow_terminal_leaves_out_the_last_columns():
    found = compared()
    whole = layers.layers(found)
    widest = max(map(len, whole.splitlines()))
    assert layers.layers(found, width=widest) == whole
    narrow = layers.layers(found, width=widest - 1)
    assert "GFLOP" in narrow
    assert "MB" not in narrow
    assert "per step" in layers.layers(found, width=10)


def test_a_negative_number_is_as_long_as_a_positive_one():
    values = (-0.00001, -0.142, -9.1, -682.4, -2e15)
    assert [*map(number, values)] == [">-0.0001", "-0.142", "-9.10", "-682", "-2.00e+15"]


def test_the_peak_is_the_roofline():
    """The FLOPs decide for the convolution, the bytes for the pool, which has no FLOPs."""
    found = compared()
    found.results[0].peak = Peak(1e-3, 1e-4, None)
    assert figures(found, CONV)[0].peak_share == pytest.approx(200_000 / 1e6 / 0.06)
    assert figures(found, POOL)[0].peak_share == pytest.approx(400 / 1e5 / 0.04)


def test_the_part_that_makes_a_row_slower_is_named():
    assert layers.explanations(compared()) == [
        "Of Torch's seconds Jax takes 2.00×: of what its parts take longer, 100% is maxpool1 "
        "(130 ms against 40.00 ms)."
    ]
    (sentence,) = layers.explanations(compared(maxpool1=timed(0.04, 0.04, 0.04)))
    assert sentence.endswith("no part of its step stands out.")
    # a negative time is not taken for a faster part
    found = compared(conv1=timed(0.03, 0.03, 0.03), maxpool1=timed(0.13, 0.13, 0.13))
    found.results[0].parts["conv1"] = timed(-1.0, -1.0, -1.0)
    (sentence,) = layers.explanations(found)
    assert "40% is conv1 (60.00 ms against 0.00 ms)" in sentence


def test_what_the_parts_add_up_to_is_said():
    found = compared()
    assert layers.sums(found) == ["The parts add up to 100% of Torch's and 95% of Jax's step."]
    assert layers.warnings(found) == []
    (line,) = layers.warnings(compared(maxpool1=timed(0.2, 0.2, 0.2)))
    assert line.startswith("Jax: the parts add up to 130% of the step: in the step more of them")
    (line,) = layers.warnings(compared(maxpool1=timed(0.02, 0.02, 0.02)))
    assert line.startswith("Jax: the parts add up to 40% of the step: the rest, such as making")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (timed(0.1, deviation=1e-3), "its gradients are off by 1.0e-03 in float64"),
        (timed(0.1, deviation=None), "its gradients are not finite in float64"),
        (PartResult(1e-15, [], "OutOfMemory: 9 GB"), "OutOfMemory: 9 GB"),
        (None, "it was not measured"),
    ],
)
def test_a_part_with_a_problem_has_no_figures(wrong, words):
    found = compared(maxpool1=wrong)
    torch, jax = figures(found, POOL)
    assert torch.seconds
    assert jax.seconds is None
    assert [line for line in layers.warnings(found) if words in line]
    assert layers.explanations(found) == []  # the part without figures may be what matters


def test_gradients_that_differ_where_they_are_timed_are_a_problem():
    found = compared()
    other = result("flux", [9.0, 3.0, 3.0, 3.0])
    other.parts = {"conv1": timed(0.01), "maxpool1": timed(0.01, norm=2.1)}
    found.results.append(other)
    torch, _, flux = figures(found, POOL)
    assert "is 2.1, not 2" in flux.problem
    assert torch.problem is figures(found, CONV)[2].problem is None
    found.reference = replace(found.reference, masked=True)
    assert figures(found, POOL)[2].problem is None


def test_gradients_and_bytes_are_those_of_the_batch_size_and_the_precision():
    """Their norm grows with the batch, and an activation of bfloat16 has half the bytes."""
    found = compared()
    large = result("torch", [9.0, 3.0, 3.0, 3.0], batch_size=200, name="torch cpu, 200")
    mixed = result("torch", [9.0, 3.0, 3.0, 3.0], compute="bfloat16", name="torch cpu, bfloat16")
    for row, norm in ((large, 2.9), (mixed, 2.1)):
        row.parts = {"conv1": timed(0.03, norm=norm), "maxpool1": timed(0.04, norm=norm)}
        found.results.append(row)
    assert [each.problem for each in figures(found, POOL)] == [None] * 4
    assert [each.bytes for each in figures(found, CONV)] == [816, 816, 1616, 416]


def test_a_part_that_noise_hides_has_no_ratio():
    _, jax = figures(compared(conv1=timed(0.03, -0.001, 0.02)), CONV)
    assert (jax.ratio, jax.peak_share) == (None, None)
    assert jax.seconds.median == pytest.approx(0.04)


def test_without_times_of_parts_nothing_is_drawn_or_explained():
    found = compared()
    for part in found.results[0].parts.values():
        part.times.clear()
    assert layers.explanations(found) == []
    assert "Torch" not in layers.layers(found)
    found = comparison(result("torch", [9.0, 1.0]))
    assert layers.layers(found) is None
    assert [*layers.explanations(found), *layers.sums(found), *layers.warnings(found)] == []


def parts_chart(found):
    return {chart.name: chart for chart in charts(found)}.get("parts")


def values_of(chart):
    return chart.specification["datasets"][chart.specification["data"]["name"]]


def test_the_page_has_a_bar_of_parts_for_each_row_that_is_ranked():
    chart = parts_chart(compared())
    assert chart.answer.startswith("Of Torch's seconds Jax takes 2.00×")
    assert [cells[:3] for cells in chart.cells] == [
        ["conv1 (×2)", "Torch", "60.00"],
        ["conv1 (×2)", "Jax", "60.00"],
        ["maxpool1", "Torch", "40.00"],
        ["maxpool1", "Jax", "130 [130–150]"],
    ]
    values = values_of(chart)
    assert [value["milliseconds"] for value in values] == pytest.approx([60, 60, 40, 130])
    assert parts_chart(comparison(result("torch", [9.0, 1.0]))) is None
    found = compared()
    found.results[1].parity = DISAGREES
    assert {cells[1] for cells in parts_chart(found).cells} == {"Torch"}


def test_small_parts_share_a_colour_and_negative_ones_have_no_length():
    chart = parts_chart(compared(conv1=timed(-0.001, -0.001, 0.0001), maxpool1=timed(0.001)))
    values = [v for v in values_of(chart) if v["row"] == "Jax"]
    assert [value["milliseconds"] for value in values] == [0.0, pytest.approx(1.0)]
    found = compared(maxpool1=timed(0.001))
    found.results[0].parts["maxpool1"] = timed(0.001)
    values = values_of(parts_chart(found))
    assert {value["part"] for value in values} == {"conv1 (×2)", "the others"}
