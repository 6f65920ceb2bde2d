import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from samples import comparison, result
from threadpoolctl import threadpool_info

import crossbench
from crossbench.engine import round_steps as steps_module, rounds as rounds_module
from crossbench.engine.cell_round import CellRound
from crossbench.engine.round_steps import first_steps, steady_steps
from crossbench.engine.rounds import Measurement


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_the_references_threads_have_one_blas_thread_each(monkeypatch, run):
    """More would wait for one another in a busy loop: the proof took three times as long."""
    seen, before = [], blas_threads()
    reference_losses = Measurement.reference_losses

    def looked_at(*arguments):
        seen.append(blas_threads())
        return reference_losses(*arguments)

    monkeypatch.setattr(Measurement, "reference_losses", looked_at)
    assert run("reference", rounds=1).complete
    assert seen == [{1}, {1}]
    assert blas_threads() == before
    if before == {1}:
        pytest.skip("one BLAS thread is all there is")


def test_only_the_second_rounds_first_epoch_is_whole(monkeypatch, run, small_model):
    """The small data has five batches of 20."""
    monkeypatch.setattr(steps_module, "PART_SECONDS", 1e-9)
    monkeypatch.setattr(steps_module, "LEAST_FLOPS", 1)
    said = []
    found = run("reference", rounds=3, task="train,predict", progress=said.append)
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


def test_the_only_round_is_whole(monkeypatch, run):
    monkeypatch.setattr(steps_module, "LEAST_FLOPS", 1)
    (row,) = run("reference", rounds=1).results
    assert [epoch.steps for epoch in row.epochs] == [5, 5]


def test_the_batches_of_a_round_take_two_seconds_on_average():
    """By the first round of the rows that are compared, 1 and 5 s long here; a GPU is apart."""
    fast, slow = result("torch", [9.0, 1.0, 0.5]), result("jax", [9.0, 5.0, 0.5])
    gpu = result("torch", [0.1, 0.01, 0.02], device="gpu")
    c = comparison(fast, slow, gpu, rounds=None)
    c.model["training_flops"] = 100_000_000
    assert [first_steps(c, fast, number) for number in (1, 2, 3)] == [3, 10, 7]
    assert [steady_steps(c, fast, number) for number in (1, 2, 3)] == [3, 7, 7]
    assert steady_steps(c, slow, 4) == 7
    assert [steady_steps(c, gpu, number) for number in (1, 2, 3)] == [10, 10, 10]
    c.settings = replace(c.settings, epochs=2)  # the accuracy is that after both
    assert [steady_steps(c, fast, number) for number in (1, 2, 3)] == [3, 10, 7]
    c.model["training_flops"] = 1_000_000  # a step is too short for so few of them
    assert steady_steps(c, fast, 1) == steady_steps(c, fast, 3) == 10


def test_no_row_is_kept_before_the_references_losses_are_known(
    monkeypatch, run, small_model, tmp_path
):
    """They are computed when the first round was timed; a run that is stopped there goes on."""
    file, computed = tmp_path / "results.json", []
    reference_losses = Measurement.reference_losses

    def counted(self, assignment, compute):
        computed.append((assignment.task, compute))
        return reference_losses(self, assignment, compute)

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Measurement, "reference_losses", stopped)
        with pytest.raises(crossbench.Interrupted):
            run("reference", json=file)
    before = crossbench.load(file)
    assert before.reference.losses == []
    assert not before.results[0].epochs
    monkeypatch.setattr(Measurement, "reference_losses", counted)
    after = crossbench.resume(file, model=small_model)
    assert after.complete
    assert set(computed) == {("train", "float32"), ("train", None)}
    assert all(after.reference.losses[0].float64.values())
    assert all(after.reference.losses[0].float32.values())


def test_a_large_models_losses_are_computed_before_its_rows_processes_run(monkeypatch, run):
    """Beside them there may be no memory for the reference, and one thread computes at a time."""
    running, seen = [0, 0], []
    worker, reference_losses = Measurement.worker, Measurement.reference_losses

    @contextmanager
    def counted(self, *arguments):
        running[0] += 1
        with worker(self, *arguments) as process:
            yield process
        running[0] -= 1

    def looked_at(*arguments):
        running[1] += 1
        time.sleep(0.1)
        seen.append(tuple(running))
        found = reference_losses(*arguments)
        running[1] -= 1
        return found

    monkeypatch.setattr(Measurement, "worker", counted)
    monkeypatch.setattr(Measurement, "reference_losses", looked_at)
    assert run("reference", rounds=1).complete
    assert {workers for workers, _ in seen} == {1}
    seen.clear()
    monkeypatch.setattr(rounds_module, "LARGE_MODEL", 1)
    assert run("reference", rounds=1).complete
    assert seen == [(0, 1), (0, 1)]


def test_rows_that_do_not_fit_into_memory_run_in_turns(monkeypatch, run):
    """Each row has its rounds, and all ratios are paired, whichever rows ran beside one another."""
    alive, seen, needs = set[str](), [], {}
    worker, train = Measurement.worker, Measurement.train

    @contextmanager
    def counted(self, result, *arguments):
        with worker(self, result, *arguments) as process:
            alive.add(result.name)
            yield process
        alive.remove(result.name)

    def looked_at(self, cells, epoch):
        train(self, cells, epoch)
        seen.append(len(alive))
        needs.update(self.needs)

    monkeypatch.setattr(Measurement, "worker", counted)
    monkeypatch.setattr(Measurement, "train", looked_at)
    assert run("reference", rounds=1, threads=[1, 2]).most_turns == 1
    assert max(seen) == 2
    seen.clear()
    room = 1.5 * max(peak for peak, _ in needs.values()) / rounds_module.MEMORY_SHARE
    monkeypatch.setattr(rounds_module, "available_bytes", lambda: room)
    found = run("reference", threads=[1, 2], rounds=2)
    assert found.complete
    assert (max(seen), found.most_turns) == (1, 2)
    assert [len(row.epochs) for row in found.results] == [4] * 2
    assert list(found.round_ratios(*found.results)) == [1, 2]
    assert "in up to 2 turns" in " ".join(str(found).split())


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
