from dataclasses import replace
from itertools import pairwise

from samples import OTHER, comparison, result

from crossbench.report.table import remarks, table


def rows(text):
    """The table's cells, by its first column."""
    lines = text.splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("---"))
    ends = [0]
    for word in lines[rule].split():
        ends.append(ends[-1] + len(word) + 2)
    cut = [[line[a:b].strip() for a, b in pairwise(ends)] for line in lines]
    return {cells[0]: dict(zip(cut[rule - 1], cells, strict=True)) for cells in cut[rule + 1 :]}


def test_every_figure_of_a_row():
    c = comparison(result("torch", [9, 2, 1, 3]), result("jax", [9, 4, 2, 6]))
    jax = rows(table(c))["Jax"]
    assert jax == {
        "framework": "Jax",
        "device": "cpu",
        "first epoch s": "9.00",
        "steady epoch s": "4.00 (2.00–6.00)",
        "CPU s": "8.00",
        "images/s": "250",
        "× fastest": "2.00",
        "loss": "2.300 → not finite",
        "accuracy": "25.0%",
        "deviation": "1.0e-07",
        "peak MiB": "1,024",
    }


def test_the_speedup_has_a_column_where_there_is_a_gpu():
    c = comparison(result("torch", [9, 10, 10]), result("torch", [9, 2, 2], device="gpu"))
    lines = [line for line in table(c).splitlines() if line.startswith("Torch")]
    assert "5.00" in lines[1]
    assert "GPU speed-up" in table(c)
    assert "GPU speed-up" not in table(comparison(result("torch", [9, 10])))


def test_a_row_without_figures_has_its_reason_below():
    absent = result("flux", [], status="unavailable", parity=None)
    died = result("jax", [1.0], status="failed")
    wrong = result("wrong", [1.0, 1.0], parity=OTHER)
    text = table(comparison(result("torch", [2, 2]), absent, died, wrong))
    assert "flux cpu: did not run: why" in text
    assert "jax cpu: failed: why" in text
    assert "wrong cpu: not ranked, it does not do the same work: gradient of conv1.weight" in text
    assert rows(text)["Wrong"]["× fastest"] == "–"
    assert rows(text)["Wrong"]["deviation"] == "differs"
    assert rows(text)["Torch"]["× fastest"] == "1.00"
    assert "Parity: torch cpu, jax cpu proved" in text


def test_what_the_reader_must_know():
    c = comparison(result("torch", [2, 2]))
    c.data = replace(c.data, note="CIFAR-10 cannot be had (no network)")
    text = table(c)
    assert "Data: CIFAR-10 cannot be had (no network)." in text
    assert "50 images, less than a batch, were left over." in text


def test_threads_that_were_not_held_are_told():
    cell = result("torch", [2, 2])
    cell.threads_reported, cell.cpus_allowed = 2, 2
    assert remarks(cell) == []
    cell.threads_reported, cell.cpus_allowed = 1, 4
    assert remarks(cell) == [
        "2 threads asked for, but it uses 1",
        "its threads may run on 4 CPUs: 2 asked for",
    ]
