"""What a terminal shows of a run, and the lines of a log."""

import threading

from samples import comparison, epochs, result

from crossbench.results.reference import Reference
from crossbench.terminal.progress import Display

REFERENCE = Reference([], False)


def with_rounds(number, **settings):
    c = comparison(result("torch", [], status="pending"), **settings)
    c.reference = REFERENCE
    c.results[0].epochs = epochs([9.0, *[2.0] * number]) if number else []
    return c


def test_no_thread_draws(monkeypatch, capsys):
    """It would take CPU time while an epoch is timed."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    before = threading.active_count()
    with Display() as display:
        assert display.live is not None
        display.begin("parity")
        display.update(with_rounds(1, rounds=6))
        assert threading.active_count() == before


def test_a_log_has_a_line_for_each_piece_of_work(capsys):
    with Display() as display:
        display.begin("parity")
        display.update(with_rounds(1, rounds=6))
        display.begin("torch cpu: round\n2 of 6")
    _, err = capsys.readouterr()
    assert err == "crossbench: parity\ncrossbench: torch cpu: round 2 of 6\n"
