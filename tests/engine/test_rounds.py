import pytest
from threadpoolctl import threadpool_info

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
