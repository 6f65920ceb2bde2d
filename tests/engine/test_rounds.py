import pytest
from threadpoolctl import threadpool_info

import crossbench
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


def test_no_row_is_kept_before_the_references_losses_are_known(
    monkeypatch, run, small_model, tmp_path
):
    """They are computed when the first round was timed; a run that is stopped there goes on."""
    file, computed = tmp_path / "results.json", []
    reference_losses = Measurement.reference_losses

    def counted(self, assignment, dtype):
        computed.append((assignment.task, dtype))
        return reference_losses(self, assignment, dtype)

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
    assert sorted(computed) == [("train", "float32"), ("train", "float64")]
    assert all(after.reference.losses[0].float64.values())
    assert all(after.reference.losses[0].float32.values())
