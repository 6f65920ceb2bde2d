"""Test what is said of a sweep's tasks."""

from __future__ import annotations

from crossbench.sweeps.display import SweepDisplay, seconds_left, status
from crossbench.sweeps.folder import Task

TASKS = [
    Task("slow", "runs", "node1", since="2026-01-02T03:04:05+00:00"),
    Task("first", "done", "node1", seconds=90.0),
    Task("second", "failed", "node2", seconds=30.0, reason="the disk is full"),
    Task("third"),
    Task("fourth"),
]


def test_the_time_left_follows_from_what_jobs_took():
    assert seconds_left(TASKS) == 3 * 60.0  # one runs at a time
    assert seconds_left([*TASKS, Task("other", "runs")]) == 4 * 60.0 / 2
    assert seconds_left(TASKS[3:]) is None
    assert seconds_left(TASKS[1:3]) is None


def test_status_has_a_row_for_each_task_that_began_and_says_who_runs_the_rest():
    shown = status(TASKS, goes_on=True)
    rows = [line.split()[0] for line in shown.splitlines()[2:5]]
    assert rows == ["first", "second", "slow"]
    assert "the disk is full" in shown
    assert "2026-01-02 03:04:05" in shown
    assert shown.endswith("5 jobs: 1 done, 1 failed, 1 running, 2 queued; about 3 min left.")
    assert status(TASKS, goes_on=False).endswith("the same command goes on with it.")
    assert "No sweep" not in status(TASKS[1:3], goes_on=False)
    assert status(TASKS[3:], goes_on=None) == "2 jobs: 2 queued"
    assert status(TASKS[3:4], goes_on=None) == "1 job: 1 queued"


def test_without_a_terminal_each_event_gets_a_line(capsys):
    with SweepDisplay() as display:
        display.begin("first done\non node1")
        display.update(TASKS)
    assert capsys.readouterr().err == "crossbench: first done on node1\n"


def test_a_terminal_shows_what_runs_and_keeps_the_failures(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the standard error for a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with SweepDisplay() as display:
        display.begin("first done on node1")
        display.begin("second failed on node2: the disk is full")
        display.update(TASKS)
    shown = capsys.readouterr().err
    assert "second failed on node2: the disk is full" in shown
    assert "first done on node1" not in shown
    assert "node1  slow" in shown
    assert "1 running" in shown
