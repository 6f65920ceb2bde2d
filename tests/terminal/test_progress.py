"""What a terminal shows of a run, and the lines of a log."""

import threading

import pytest
from samples import comparison, epochs, result

from crossbench.results.reference import Reference
from crossbench.terminal.progress import Display


@pytest.fixture
def after_one_round():
    found = comparison(result("torch", [], status="pending"), rounds=6)
    found.reference, found.results[0].epochs = Reference([], False), epochs([9.0, 2.0])
    return found


def test_no_thread_draws(monkeypatch, after_one_round):
    """It would take CPU time while an epoch is timed."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    before = threading.active_count()
    with Display() as display:
        assert display.live is not None
        display.begin("parity")
        display.update(after_one_round)
        assert threading.active_count() == before


def test_a_log_has_a_line_for_each_piece_of_work(capsys, after_one_round):
    with Display() as display:
        display.begin("parity")
        display.update(after_one_round)
        display.begin("torch cpu: round\n2 of 6")
    _, err = capsys.readouterr()
    assert err == "crossbench: parity\ncrossbench: torch cpu: round 2 of 6\n"
