import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from samples import comparison, result
from small_models import TINY
from threadpoolctl import threadpool_info

import crossbench
from crossbench.engine import evidence, round_steps as steps_module, rounds as rounds_module
from crossbench.engine.cell_round import CellRound
from crossbench.engine.process import WorkerFailure
from crossbench.engine.round_steps import first_steps, steady_steps
from crossbench.engine.rounds import Measurement


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def spied(monkeypatch):
    """Keep what runs beside what: `losses` has the rows' processes, the computations and the BLAS
    threads whenever losses of the reference are computed, `training` the processes in each epoch.
    """
    alive, computing, found = set[str](), [0], SimpleNamespace(losses=[], training=[])
    worker, train = Measurement.worker, Measurement.train
    reference_losses = evidence.reference_losses

    @contextmanager
    def counted(self, result, *arguments):
        with worker(self, result, *arguments) as process:
            alive.add(result.name)
            yield process
        alive.remove(result.name)

    def trained(self, cells, epoch):
        train(self, cells, epoch)
        found.training.append(len(alive))

    def looked_at(*arguments):
        computing[0] += 1
        time.sleep(0.1)
        found.losses.append((len(alive), computing[0], blas_threads()))
        losses = reference_losses(*arguments)
        computing[0] -= 1
        return losses

    monkeypatch.setattr(Measurement, "worker", counted)
    monkeypatch.setattr(Measurement, "train", trained)
    monkeypatch.setattr(evidence, "reference_losses", looked_at)
    return found


def test_rows_that_fit_into_memory_run_beside_one_another(monkeypatch, run, spied):
    """The reference's losses are computed while their processes wait. Each of its threads has one
    BLAS thread: more would wait for one another busily, and the proof took three times as long.
    """
    monkeypatch.setattr(steps_module, "LEAST_FLOPS", 1)
    before = blas_threads()
    found = run("reference", model=TINY, threads=[1, 2])
    assert found.complete
    assert (max(spied.training), found.most_turns) == (2, 1)
    assert {(processes, *threads) for processes, _, threads in spied.losses} == {(2, 1)}
    assert blas_threads() == before
    for row in found.results:  # the only round is whole
        assert [epoch.steps for epoch in row.epochs] == [5, 5]


def test_rows_that_do_not_fit_into_memory_run_in_turns(monkeypatch, run, spied):
    """Each row has its rounds, and all ratios are paired, whichever rows ran beside one another.

    Beside the processes of a large model there may be no memory for the reference: its losses are
    computed before, by one thread at a time.
    """
    monkeypatch.setattr(rounds_module, "available_bytes", lambda: 0)
    monkeypatch.setattr(rounds_module, "LARGE_MODEL", 1)
    found = run("reference", model=TINY, threads=[1, 2], rounds=2)
    assert found.complete
    assert (max(spied.training), found.most_turns) == (1, 2)
    assert [len(row.epochs) for row in found.results] == [4] * 2
    assert list(found.round_ratios(*found.results)) == [1, 2]
    assert "in up to 2 turns" in " ".join(str(found).split())
    assert [(processes, computing) for processes, computing, _ in spied.losses] == [(0, 1)] * 2


def test_only_the_second_rounds_first_epoch_is_whole(monkeypatch, run):
    """The small data has five batches of 20."""
    monkeypatch.setattr(steps_module, "PART_SECONDS", 1e-9)
    monkeypatch.setattr(steps_module, "LEAST_FLOPS", 1)
    said = []
    work = {"rounds": 3, "task": "train,predict"}
    found = run("reference", model=TINY, **work, progress=said.append)
    assert found.complete
    training, prediction = found.results
    for row in found.results:
        assert [epoch.steps for epoch in row.epochs] == [3, 3, 5, 3, 3, 3]
        assert len({tuple(epoch.losses) for epoch in row.steady}) == 1
        short, whole, _ = row.cold
        assert whole.losses[:3] == pytest.approx(short.losses)
        assert found.first_epoch(row).count == 1
        (first,) = [e for e in row.cold if e.round == 2]
        assert found.first_epoch(row).median == first.wall_seconds
    assert (set(training.changes), set(training.other_changes[0])) == ({3}, {5})
    assert prediction.predictions is not None
    assert training.test_accuracy is not None
    assert found.accuracy(prediction) <= 1
    assert "reference cpu, train: first epoch (3 of 5 batches) took" in "\n".join(said)
    text = " ".join(str(found).split())
    assert "In 1 round the first epoch is whole, all others take the first 3 batches." in text


def test_the_batches_of_a_round_take_a_second_on_average():
    """By the first round of the rows that are compared, 1 and 5 s long here; a GPU is apart."""
    fast, slow = result("torch", [9.0, 1.0, 0.5]), result("jax", [9.0, 5.0, 0.5])
    gpu = result("torch", [0.1, 0.01, 0.02], device="gpu")
    c = comparison(fast, slow, gpu, rounds=None)
    c.model["training_flops"] = 100_000_000
    assert [first_steps(c, fast, number) for number in (1, 2, 3)] == [3, 10, 4]
    assert [steady_steps(c, fast, number) for number in (1, 2, 3)] == [3, 4, 4]
    assert steady_steps(c, slow, 4) == 4
    assert [steady_steps(c, gpu, number) for number in (1, 2, 3)] == [10, 10, 10]
    c.settings = replace(c.settings, epochs=2)  # the accuracy is that after both
    assert [steady_steps(c, fast, number) for number in (1, 2, 3)] == [3, 10, 4]
    c.model["training_flops"] = 1_000_000  # a step is too short for so few of them
    assert (steady_steps(c, fast, 1), steady_steps(c, fast, 3)) == (10, 4)
    c.model["trained_parameters"] = 60_000_000  # but not where it updates so many
    assert steady_steps(c, fast, 1) == 3
    c.settings = replace(c.settings, epochs=1, rounds=1)  # whichever turn is run first
    assert steady_steps(c, fast, 1) == first_steps(c, fast, 1) == 10


def test_rounds_take_different_numbers_of_batches_where_a_runtime_collects_garbage():
    """Its collections may keep step with epochs of one length."""
    row = result("flux", [9.0, 3.0])
    row.epochs = [replace(epoch, figures={"GC s": 0.1}) for epoch in row.epochs]
    other = result("torch", [9.0, 3.0])
    c = comparison(row, other, rounds=None)
    c.model["training_flops"] = 100_000_000
    assert [steady_steps(c, row, number) for number in range(2, 8)] == [6, 4, 5, 6, 4, 5]
    assert steady_steps(c, other, 5) == 6
    row.epochs = [replace(epoch, figures={"allocated MiB": 9.0}) for epoch in row.epochs]
    assert [steady_steps(c, row, number) for number in range(2, 8)] == [4] * 6


def test_no_row_is_kept_before_the_references_losses_are_known(monkeypatch, run, spied, tmp_path):
    """They are computed when the first round was timed; a run that is stopped there goes on."""
    file = tmp_path / "results.json"

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(evidence, "reference_losses", stopped)
        with pytest.raises(crossbench.Interrupted):
            run("reference", model=TINY, json=file)
    before = crossbench.load(file)
    assert before.reference.losses == []
    assert not before.results[0].epochs
    after = crossbench.resume(file, model=TINY)
    assert after.complete
    assert len(spied.losses) == 2  # in float64 and in float32
    assert all(after.reference.losses[0].float64.values())
    assert all(after.reference.losses[0].float32.values())


def test_a_process_needs_more_memory_in_a_round_of_more_batches(small_model):
    """A batch of 20 pictures of 3 x 32 x 32 takes 245,760 bytes; up to three copies of it exist."""
    cells = [
        CellRound(result(name, [1.0], batch_size=20), 2, 50, 9, 50) for name in ("torch", "jax")
    ]
    known = SimpleNamespace(model=small_model, needs={"torch cpu": (10**9, 10)})
    of_torch, of_jax = (Measurement.need(known, cell) for cell in cells)
    assert of_torch == of_jax == 10**9 + 245_760 * (50 + 3 * 40)
    known.needs["jax cpu"] = (2 * 10**9, 50)
    assert Measurement.need(known, cells[1]) == 2 * 10**9 + 245_760 * 50


def test_a_worker_that_cannot_be_started_costs_its_row_alone(monkeypatch, run):
    """In a later round too, whose processes start side by side."""
    worker = Measurement.worker

    def refuse(self, result, *arguments):
        if result.cell.threads == 2 and result.epochs:
            raise WorkerFailure("its process cannot be started: no more processes")
        return worker(self, result, *arguments)

    monkeypatch.setattr(Measurement, "worker", refuse)
    one, two = run("reference", model=TINY, threads=[1, 2], rounds=2).results
    assert (one.status, two.status) == ("ran", "failed")
    assert two.reason == "its process cannot be started: no more processes (in round 2)"


def test_an_epoch_that_is_known_to_take_long_has_more_time():
    row = result("torch", [9.0, 2.0, 1.0])
    cell = CellRound(row, 3, 10, 5, 10)
    assert cell.known_seconds(0) == pytest.approx(4 * 2.0)  # by the slowest steady one so far
    assert cell.known_seconds(2) == pytest.approx(4 * 3 * 5 * 0.2)
    row.epochs[1:] = []
    assert cell.known_seconds(0) == pytest.approx(4 * 9.0)
    row.epochs.clear()
    assert cell.known_seconds(0) == 0.0
