import re
from dataclasses import replace

import pytest
from samples import DISAGREES, QUIET, comparison, epoch, result, rows

from crossbench.report.details import all_details as table
from crossbench.report.remarks import KERNEL, remarks
from crossbench.results.epochs import SystemActivity, Usage
from crossbench.results.machine import Peak


def test_a_row_shows_every_figure():
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
        "OS kernel": "0.0%",
        "page faults": "0",
        "examples/s": "250",
        "× fastest": "2.00",
        "GFLOP/s": "0.250",
        "of peak": "–",
        "own peak": "–",
        "copy GB/s": "–",
        "loss": "2.300 → not finite",
        "accuracy": "25.0%",
        "test loss": "–",
        "deviation": "1.0e-07",
        "peak MiB": "1,024",
    }


def test_a_row_without_figures_or_rank_has_a_remark():
    absent = result("flux", [], status="unavailable", parity=None)
    died = result("jax", [1.0], status="failed")
    wrong = result("wrong", [1.0, 1.0], parity=DISAGREES)
    text = table(comparison(result("torch", [2, 2]), absent, died, wrong))
    assert "flux cpu: did not run: why" in text
    assert "jax cpu: failed: why" in text
    assert "wrong cpu: not ranked, it does not do the same work: gradient of conv1.weight" in text
    assert rows(text)["Wrong"]["× fastest"] == "–"
    assert rows(text)["Wrong"]["deviation"] == "differs"
    assert rows(text)["Torch"]["× fastest"] == "1.00"
    assert "Parity with the NumPy reference in float64 was proved for torch cpu, jax cpu:" in text


def test_the_minimum_is_of_single_epochs_not_of_medians():
    cell = result("torch", [9, 2])
    cell.epochs = [epoch(1, 9, at=0), *(epoch(1, s, at=i) for i, s in enumerate((9, 1, 2), 1))]
    assert rows(table(comparison(cell)))["Torch"]["min s"] == "1.00"
    assert rows(table(comparison(cell)))["Torch"]["steady epoch s"] == "2.00"


def test_the_notes_on_the_data_and_the_dropout_masks():
    c = comparison(result("torch", [9, 2, 1, 3]))
    c.data = replace(c.data, most_batches=3, test_examples=300)
    text = table(c)
    assert "to the first 3 batches of 10, of 100 examples each; the test set has 300." in text
    assert not re.search("are not used|augmented|dropout masks", text)
    dropout = {"type": "Dropout", "input_shape": [4]}
    c.model["layers"] = [dropout | {"type": "Branches", "join": "add", "branches": [[dropout], []]}]
    assert "Each framework draws its own dropout masks" in table(c)
    c.model["data"] = {"type": "CIFAR10", "augmentation": {"shift": 0.1, "flip": True}}
    assert "All frameworks get the same augmented pictures" in table(c)
    c.data = replace(c.data, most_batches=None, note="CIFAR-10 is not available (no network)")
    assert "Data: CIFAR-10 is not available (no network)." in table(c)
    assert "50 training examples, less than a batch of 100, are not used." in table(c)


def remarks_on(cell, *others):
    """Return the remarks on a cell in a comparison with the others."""
    return remarks(comparison(cell, *others), cell)


def test_other_threads_than_requested_have_a_remark():
    cell = result("torch", [2, 2])
    cell.threads_reported, cell.cpus_allowed = 2, 2
    assert remarks_on(cell) == []
    cell.threads_reported, cell.cpus_allowed = 1, 4
    assert remarks_on(cell) == [
        "it reports 1 thread instead of the 2 requested",
        "its threads may run on 4 CPUs instead of the 2 requested",
    ]


def test_a_ratio_whose_interval_contains_1_is_not_significant():
    torch = result("torch", [9, *[2.0] * 8])
    same, slower = result("jax", [9, *[1.95, 2.1] * 4]), result("jax", [9, *[2.3, 2.2] * 4])
    assert remarks_on(same, torch) == ["not significantly different from torch cpu"]
    assert remarks_on(slower, torch) == []
    assert remarks_on(torch, same) == []
    few = result("jax", [9, 1.9, 2.2])
    assert remarks_on(few, torch) == []  # too few rounds for an interval


@pytest.mark.parametrize(
    ("disturbance", "words"),
    [
        ({"other_processes_cpu_seconds": 1.0}, "other processes used 0.5 CPUs during its epochs"),
        ({"stolen_cpu_seconds": 1.0}, "the hypervisor took 0.5 CPUs"),
        ({"throttled_seconds": 2.0}, "a CPU quota throttled its threads for 50% of the time"),
        ({"thermal_throttle_events": 1}, "the CPU throttled 8 times because of heat"),
    ],
)
def test_a_disturbance_has_a_remark_with_what_to_do(disturbance, words):
    cell = result("torch", [2.0] * 9)
    cell.epochs = [epoch(i, 2.0, replace(QUIET, **disturbance)) for i in range(1, 9)]
    (line,) = remarks_on(cell)
    assert line.startswith(words)
    assert ":" in line
    unknown = SystemActivity(None, None, None, None, None, None)
    cell.epochs = [epoch(i, 2.0, unknown) for i in range(1, 9)]
    assert remarks_on(cell) == []
    # the counters of Linux' kernel say nothing of an epoch of milliseconds
    noisy = replace(QUIET, other_processes_cpu_seconds=0.02, stolen_cpu_seconds=0.02)
    cell.epochs = [epoch(i, 0.02, noisy) for i in range(1, 9)]
    assert remarks_on(cell) == []


def test_a_stopped_process_has_a_remark():
    cell = result("torch", [9, *[2.0] * 8])
    cell.usage = [Usage(i, 9, 0.001, 1.5, 2**30, *[None] * 5, [], 0.5 * (i > 2)) for i in (1, 3, 4)]
    assert remarks_on(cell) == ["its process was stopped for 1.0 s during its epochs: run again"]


@pytest.mark.parametrize(
    ("name", "some", "more", "remark"),
    [
        (
            "figures",
            {"GC s": 0.1},
            {"GC s": 0.5},
            "GC took 5% of one steady epoch and 25% of anoth",
        ),
        ("system_cpu_seconds", 0.1, 1.2, "the operating system's kernel took 2% of one steady epo"),
    ],
)
def test_what_takes_more_of_some_steady_epochs_has_a_remark(name, some, more, remark):
    cell = result("flux", [9.0, *[2.0] * 8])
    cell.epochs = [replace(e, **{name: some}) for e in cell.epochs]
    assert remarks_on(cell) == []
    cell.epochs[-1] = replace(cell.epochs[-1], **{name: more})
    assert any(line.startswith(remark) for line in remarks_on(cell))


def test_cells_without_a_round_in_common_have_no_ratio():
    torch, jax, gpu = result("torch", [9, 2]), result("jax", [9, 4]), result("jax", [9, 1], "gpu")
    one = result("torch", [9, 2], threads=1, name="torch cpu, 1 thread")
    one.epochs = jax.epochs = [replace(epoch, round=2) for epoch in jax.epochs]
    c = comparison(torch, jax, gpu, one, prices={"cpu": 1.0, "gpu": 2.0})
    assert rows(table(c))["Jax"]["GPU speed-up"] == "–"
    assert (
        c.ratio(jax) is c.gpu_speedup(gpu) is c.thread_speedup(torch) is c.cost_ratio(jax) is None
    )


def test_a_figure_that_only_some_epochs_have():
    cell = result("torch", [9, 2, 2])
    some = [{"GC s": 1.0}, {}, {}, {"GC s": 2.0}]
    cell.epochs = [replace(e, figures=f) for e, f in zip(cell.epochs, some, strict=True)]
    assert "GC s 1.00 in the first epoch, 2.00 in a steady one" in table(comparison(cell))


def with_kernel_time(name, system, faults, cpu=2.0):
    """Return a row whose steady epochs have these CPU seconds, also in the kernel, and faults."""
    made = result(name, [9, 1, 1, 1])
    made.epochs = [
        replace(e, cpu_seconds=cpu, system_cpu_seconds=system, page_faults=faults)
        for e in made.epochs
    ]
    return made


@pytest.mark.parametrize(
    ("system", "faults", "remark"),
    [
        (0.9, 800_000, f"in each step {KERNEL} clears 0.33 GB of pages for it (45% of its CPU"),
        (0.0, 130_000, f"in each step {KERNEL} clears 0.053 GB of pages for it (0% of its CPU"),
        (0.4, 10_000, f"20% of its CPU time is {KERNEL}'s, and not for page faults: `strace -cf`"),
        (0.2, 10_000, None),
        (0.0, 110_000, None),
    ],
)
def test_what_the_kernel_does_for_a_row_is_said(system, faults, remark):
    row = with_kernel_time("torch", system, faults)
    found = [line for line in remarks_on(row) if "kernel" in line]
    assert len(found) == (remark is not None)
    assert all(line.startswith(remark) for line in found)
    cells, (figures,) = rows(table(comparison(row)))["Torch"], comparison(row).rows()
    assert (cells["OS kernel"], cells["page faults"]) == (f"{system / 2:.1%}", f"{faults:,}")
    assert (figures["system_cpu_seconds"], figures["page_faults"]) == (system, faults)
    assert figures["system_share"] == pytest.approx(system / 2)


@pytest.mark.parametrize(
    ("dear", "faults", "is_told"), [(0.3, 1e5, True), (0.12, 1e5, False), (0.3, 9, False)]
)
def test_a_page_fault_that_costs_more_in_another_round_is_told(dear, faults, is_told):
    row = with_kernel_time("torch", 0.1, faults)
    row.epochs[-1] = replace(row.epochs[-1], system_cpu_seconds=dear)
    told = [line for line in remarks_on(row) if line.startswith("a page of new memory took")]
    assert len(told) == is_told
    assert all("kernel 1 µs in one steady epoch and 3 µs in another" in line for line in told)


def test_a_row_whose_own_product_is_far_from_the_best_is_told():
    torch, jax = result("torch", [9, 2]), result("jax", [9, 4])
    torch.peak, jax.peak = Peak(224.0, 20.0), Peak(488.0, 30.0)
    torch.details["BLAS"] = "MKL 2024.2"
    c = comparison(torch, jax)
    assert remarks(c, torch)[-1] == (
        "its own matrix multiplication (MKL 2024.2) reaches 46% of the best one on this processor"
    )
    c.machine = replace(c.machine, environment={"OPENBLAS_CORETYPE": "Haswell"})
    assert remarks(c, torch)[-1].endswith("this processor: unset OPENBLAS_CORETYPE, and run again")
    torch.peak = Peak(326.0, 20.0)
    assert remarks(c, torch) == []


def test_a_row_above_every_product_says_that_the_peak_is_not_the_devices():
    row = result("torch", [9, 1.0])
    c = comparison(row)
    row.peak = Peak(c.gflops(row) / 1.25, 20.0)
    (remark,) = remarks(c, row)
    assert remark.startswith("its layers reach 125% of the best matrix multiplication of this run")
    row.peak = Peak(c.gflops(row) * 1.01, 20.0)
    assert remarks(c, row) == []
