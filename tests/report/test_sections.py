"""Check the tables that follow the main one."""

from dataclasses import replace

from samples import QUIET, STEPS, comparison, epoch, result, rows

from crossbench.report.details import all_details as table
from crossbench.report.formatting import target_name
from crossbench.report.sections import cost, threads, to_target, usage
from crossbench.results.epochs import TargetEpoch, Usage
from crossbench.results.machine import Peak
from crossbench.results.settings import Target


def scaled(*seconds):
    """Return results of torch with 1, 2, 4, … threads. seconds: of a steady epoch of each."""
    return [
        result("torch", [9, s, s], threads=2**i, name=f"torch cpu, {2**i} threads")
        for i, s in enumerate(seconds)
    ]


def test_speedup_and_efficiency_by_threads():
    c = comparison(*scaled(8, 5, 4))
    one, *more = c.results
    assert c.thread_speedup(one) is None
    assert [c.thread_speedup(r).median for r in more] == [1.6, 2.0]
    assert [c.efficiency(r).median for r in more] == [0.8, 0.5]
    assert "0.800" in threads(c)
    assert "slower" not in threads(c)
    assert threads(c) in table(c)
    slower = threads(comparison(*scaled(8, 5, 6)))
    assert slower.splitlines()[-1] == "Torch: 4 threads are slower than 2"


def test_sections_without_data_are_left_out():
    c = comparison(result("torch", [9, 2]))
    assert (threads(c), cost(c), to_target(c)) == (None, None, None)


def test_cost_and_its_ratio():
    cpu, gpu = result("torch", [9, 10, 10]), result("torch", [9, 1, 1], device="gpu")
    c = comparison(cpu, gpu, prices={"cpu": 0.36, "gpu": 7.2})
    assert c.cost(cpu).median == 0.001
    assert c.cost(gpu).median == 0.002
    assert c.cost_ratio(cpu).median == 1.0
    assert c.cost_ratio(gpu).median == 2.0
    assert "× cheapest" in cost(c)
    assert "× jax" in cost(comparison(cpu, prices={"cpu": 1.0}, baseline="jax"))
    c = comparison(cpu, gpu, prices={"cpu": 0.36})
    assert c.cost(gpu) is c.cost_ratio(gpu) is None


def test_time_to_a_loss_or_an_accuracy_of_rows_that_reach_it_or_not():
    there, not_there = result("torch", [9, 2]), result("jax", [9, 2])
    there.to_target = [TargetEpoch(2.0, 3.0, 2.5), TargetEpoch(1.0, 1.5, 1.625)]
    not_there.to_target = [TargetEpoch(2.0, 3.0, None)]
    text = to_target(comparison(there, not_there, result("flux", [9, 2]), target_loss=1.7))
    assert "seconds to a loss of 1.7" in text
    torch, jax, flux = (line.split() for line in text.splitlines()[-3:])
    assert torch == ["Torch", "3.00", "4.50", "2", "20", "1.62"]
    assert jax == ["Jax", "–", "–", "1", "10", "–", "given", "up", "after", "2.00", "s"]
    assert flux == ["Flux", *["–"] * 5]
    header, *_ = to_target(comparison(there, target_loss=1.7)).splitlines()
    assert header.split()[-1] == "loss"  # no column for the words that no row has
    there.to_target = [TargetEpoch(2.0, 3.0, 0.3), TargetEpoch(1.0, 1.5, 0.6)]
    text = to_target(comparison(there, target_accuracy=0.5))
    assert text.splitlines()[-1].split() == ["Torch", "3.00", "4.50", "2", "20", "60.0%"]


def test_usage_is_shown_with_a_gpu_or_an_energy_meter():
    cpu, gpu = result("torch", [9, 2, 2]), result("torch", [9, 1, 1], device="gpu")
    gpu.usage = [
        Usage(i, 9, 0.001, 1.5, 2**30, 0.8, 2**31, 200.0, 1500.0, 1450.0, []) for i in (1, 2, 3)
    ]
    metered = [
        epoch(i, 1.0, replace(QUIET, cpu_joules=50.0, gpu_joules=100.0 * i)) for i in (1, 2, 3)
    ]
    gpu.epochs = metered
    text = usage(comparison(cpu, gpu))
    assert text in table(comparison(cpu, gpu))
    assert "GPU busy" not in table(comparison(cpu))
    first, second = text.splitlines()[-2:]
    assert first.split() == ["Torch", "cpu", "2.00", *["–"] * 8]
    figures = ["2.00", "1.50", "1,024", "80.0%", "2,048", "1,500", "200", "50.00", "200"]
    assert second.split()[2:] == figures
    gpu.epochs = [replace(e, repeats=4) for e in metered]  # joules are of one epoch
    assert usage(comparison(gpu)).split()[-2:] == ["12.50", "50.00"]
    part = STEPS // 5
    gpu.epochs = [replace(e, losses=e.losses[:part]) for e in metered]
    assert usage(comparison(gpu)).split()[-2:] == ["250", "1,000"]  # of all steps, not of a part
    cpu.epochs = metered
    assert usage(comparison(cpu)) in table(comparison(cpu))  # the energy


def test_rows_that_differ_in_their_threads_are_told_apart_in_the_usage():
    cells = scaled(8, 5)
    assert [line.split("  ")[0] for line in usage(comparison(*cells)).splitlines()[2:]] == [
        "Torch, 1 thread",
        "Torch, 2 threads",
    ]


def test_a_target_accuracy_is_written_as_it_was_asked_for():
    assert [target_name(Target("accuracy", share)) for share in (0.999, 0.985, 0.5)] == [
        "99.9%",
        "98.5%",
        "50%",
    ]


def test_the_peak_is_the_fastest_matrix_multiplication_on_the_device():
    torch, jax = result("torch", [9, 2]), result("jax", [9, 4])
    torch.peak, jax.peak = Peak(1.0, 20.0, 18.0), Peak(0.5, 30.0, 25.0)
    c = comparison(torch, jax)
    assert c.gflops(torch) == 0.5  # 1,000 images of 1 MFLOP in 2 s
    assert c.peak(jax) == Peak(1.0, 30.0, 25.0)
    cells = rows(table(c))
    assert cells["Torch"]["of peak"] == "50.0%"
    assert cells["Jax"]["of peak"] == "25.0%"
    assert cells["Jax"]["own peak"] == "0.500"
    assert cells["Jax"]["copy GB/s"] == "30.00"
    assert "the memory itself reaches 25.00 GB/s (cpu)" in table(c)
