import time
from dataclasses import replace

import numpy as np
import pytest
from samples import OTHER, QUIET, comparison, epoch, result, rows

from crossbench.report.remarks import remarks
from crossbench.report.table import table
from crossbench.results.records import Surroundings, Usage


def test_every_figure_of_a_row():
    c = comparison(result("torch", [9, 2, 1, 3]), result("jax", [9, 4, 2, 6]))
    jax = rows(table(c))["Jax"]
    assert jax == {
        "framework": "Jax",
        "device": "cpu",
        "first epoch s": "9.00",
        "steady epoch s": "4.00 [2.00–6.00]",
        "min s": "2.00",
        "CPU s": "8.00",
        "cores": "2.00",
        "examples/s": "250",
        "× fastest": "2.00",
        "GFLOP/s": "0.250",
        "of peak": "–",
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


def test_the_fastest_epoch_is_one_epoch_and_no_rounds_median():
    cell = result("torch", [9, 2])
    cell.epochs = [epoch(1, 9, at=0), *(epoch(1, s, at=i) for i, s in enumerate((3, 1, 2), 1))]
    assert rows(table(comparison(cell)))["Torch"]["min s"] == "1.00"
    assert rows(table(comparison(cell)))["Torch"]["steady epoch s"] == "2.00"


def test_an_epoch_that_was_cut_is_told():
    c = comparison(result("torch", [9, 2, 1, 3]))
    c.data = replace(c.data, batches=3, cut=True)
    text = table(c)
    assert "The epoch is cut to the first 3 batches of 10, and the test to as many" in text
    assert "were left over" not in text
    assert "augmented" not in text
    assert "dropouts" not in text
    dropped = {"type": "Residual", "body": [{"type": "Dropout"}], "shortcut": []}
    c.model["layers"] = [dropped]
    assert "Each framework draws what its dropouts keep" in table(c)
    c.model["data"] = {"type": "CIFAR10", "augmentation": {"shift": 0.1, "flip": True}}
    assert "The pictures are augmented, the same for all" in table(c)


def test_what_the_reader_must_know():
    c = comparison(result("torch", [2, 2]))
    c.data = replace(c.data, note="CIFAR-10 cannot be had (no network)")
    text = table(c)
    assert "Data: CIFAR-10 cannot be had (no network)." in text
    assert "50 examples, less than a batch, were left over." in text


def told(cell, *others):
    return remarks(comparison(cell, *others), cell)


def test_threads_that_were_not_held_are_told():
    cell = result("torch", [2, 2])
    cell.threads_reported, cell.cpus_allowed = 2, 2
    assert told(cell) == []
    cell.threads_reported, cell.cpus_allowed = 1, 4
    assert told(cell) == [
        "2 threads asked for, but it uses 1",
        "its threads may run on 4 CPUs: 2 asked for",
    ]


def test_a_range_is_not_shown_as_an_interval():
    """In one table too, where a cell failed after a few rounds."""
    few = result("jax", [9, 2, 1, 3], status="failed")
    text = table(comparison(result("torch", [9, *[2.0, 2.2] * 4]), few))
    assert rows(text)["Jax"]["steady epoch s"] == "2.00 [1.00–3.00]"
    assert rows(text)["Torch"]["steady epoch s"] == "2.10 (2.00–2.20)"
    assert "(its 95 % interval, bootstrap) or, of fewer than 6 rounds, [their range]" in text


def test_no_difference_is_said_where_the_interval_holds_1():
    torch = result("torch", [9, *[2.0] * 8])
    same, slower = result("jax", [9, *[1.95, 2.1] * 4]), result("jax", [9, *[2.3, 2.2] * 4])
    assert told(same, torch) == ["no difference from torch cpu is shown"]
    assert told(slower, torch) == []
    assert told(torch, same) == []
    few = result("jax", [9, 1.9, 2.2])
    assert told(few, torch) == []  # no interval, no judgement


def test_the_baseline_heads_its_column():
    c = comparison(result("torch", [9, 2, 2]), result("jax", [9, 4, 4]), baseline="jax")
    assert rows(table(c))["Torch"]["× jax"] == "0.500"
    assert "× fastest" not in table(c)


def test_several_numbers_of_threads_have_a_column():
    one = result("torch", [9, 4, 4], threads=1, name="torch cpu, 1 thread")
    text = table(comparison(one, result("torch", [9, 2, 2], name="torch cpu, 2 threads")))
    assert "1, 2 threads" in text
    assert rows(text)["Torch"]["threads"] == "2"


@pytest.mark.parametrize(
    ("disturbance", "words"),
    [
        ({"others_cpu_seconds": 1.0}, "other processes used 0.5 of its CPUs meanwhile"),
        ({"stolen_cpu_seconds": 1.0}, "the virtual machine's host took 0.5 of its CPUs"),
        ({"held_back_seconds": 1.0}, "a CPU quota held its threads back for 50% of the time"),
        ({"throttle_events": 1}, "the processor throttled for heat 8 times"),
    ],
)
def test_a_disturbance_is_told_with_what_to_do(disturbance, words):
    cell = result("torch", [2.0] * 9)
    cell.epochs = [epoch(i, 2.0, replace(QUIET, **disturbance)) for i in range(1, 9)]
    (line,) = told(cell)
    assert line.startswith(words)
    assert ":" in line
    unknown = Surroundings(None, None, None, None, None, None)
    cell.epochs = [epoch(i, 2.0, unknown) for i in range(1, 9)]
    assert told(cell) == []


def test_a_process_that_was_stopped_is_told():
    cell = result("torch", [9, *[2.0] * 8])
    cell.usage = [Usage(i, 9, 0.001, 1.5, 2**30, *[None] * 5, [], 0.5 * (i > 2)) for i in (1, 3, 4)]
    assert told(cell) == ["its process was stopped for 1.0 s meanwhile: run again"]


def test_rounds_that_lie_apart_are_told():
    (line,) = told(result("torch", [9, *[2.0, 3.0] * 4]))
    assert line.startswith("the middle half of its rounds lies 40% apart: the machine is noisy")


def test_an_interrupted_cell_has_its_figures_so_far():
    torch = result("torch", [9, 2, 2], status="pending")
    assert told(torch) == ["interrupted before its last round"]
    assert rows(table(comparison(torch)))["Torch"]["steady epoch s"] == "2.00"


def test_ten_thousand_rounds_take_seconds():
    random = np.random.default_rng(0)
    cells = [result(name, [9.0, *random.normal(2, 0.1, 10_000)]) for name in ("torch", "jax")]
    before = time.process_time()
    text = table(comparison(*cells))
    assert time.process_time() - before < 20
    assert "10,000 interleaved rounds" in text


def test_cells_without_a_round_in_common_have_no_ratio():
    torch, jax = result("torch", [9, 2]), result("jax", [9, 4])
    jax.epochs = [replace(epoch, round=2) for epoch in jax.epochs]
    gpu = result("jax", [9, 1], device="gpu")
    one = result("torch", [9, 2], threads=1, name="torch cpu, 1 thread")
    one.epochs = jax.epochs
    c = comparison(torch, jax, gpu, one, prices={"cpu": 1.0, "gpu": 2.0})
    assert rows(table(c))["Jax"]["GPU speed-up"] == "–"
    assert c.ratio(jax) is c.gpu_speedup(gpu) is c.thread_speedup(torch) is None
    assert c.cost_ratio(jax) is None


@pytest.mark.parametrize("outside", ["a\nb\x1b[31m\u202e", "x" * 10**7])
def test_text_from_outside_takes_one_line(outside):
    cell = result("torch", [9, 2, 2], status="failed")
    lines = len(table(comparison(cell, baseline="b")).splitlines())
    cell.cell = replace(cell.cell, name=outside, title=outside)
    cell.reason, cell.no_peak, cell.details = outside, outside, {outside: outside}
    cell.epochs = [replace(e, figures={outside: 1.0}) for e in cell.epochs]
    c = comparison(cell, baseline=outside)
    c.machine = replace(c.machine, cpu=outside, gpu_problem=outside)
    text = table(c)
    assert len(text.splitlines()) == lines + 1  # the peak's
    assert max(map(len, text.splitlines())) < 20_000
    assert text.replace("\n", "").isprintable()
    assert repr(c).isprintable()
    assert len(repr(c)) <= 500


def test_a_figure_that_only_some_epochs_have():
    cell = result("torch", [9, 2, 2])
    some = [{"GC s": 1.0}, {}, {}, {"GC s": 2.0}]
    cell.epochs = [replace(e, figures=f) for e, f in zip(cell.epochs, some, strict=True)]
    assert "GC s 1.00 in the first epoch, 2.00 in a steady one" in table(comparison(cell))


def test_a_clock_without_its_highest_value_is_not_judged():
    cell = result("torch", [9, 2], device="gpu")
    cell.usage = [Usage(1, 9, 0.001, 1.5, 2**30, 0.8, 2**31, 200.0, None, 1450.0, [])]
    assert told(cell) == []
