"""Provide jobs that take a second or two, for tests of sweeps."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import pytest
from small_models import named

QUICK = {
    "frameworks": "reference",
    "model": named("FITTED"),
    "data": "synthetic",
    "rounds": 1,
    "batches": 1,
}
SLOW = QUICK | {"rounds": 10}
"""It takes long enough to be disturbed, and then ends."""
LONG = QUICK | {"rounds": 500}
QUICK_TOML = "".join(f"{word} = {value!r}\n" for word, value in QUICK.items())
SLOW_TOML = "".join(f"{word} = {value!r}\n" for word, value in SLOW.items())
LONG_TOML = "".join(f"{word} = {value!r}\n" for word, value in LONG.items())


STARTED = []
"""The sweeps of the test that runs: one that is left would hold the host's lock."""


def other_host():
    """Return the words before a command that give it another host name, or skip the test."""
    words = ("unshare", "--user", "--map-root-user", "--uts")
    words += ("sh", "-c", 'hostname other; exec "$@"', "-")
    if not shutil.which("unshare") or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("no second host name: unshare is not allowed here")
    return words


def sweep_command(*arguments, before=()):
    """Start `python -m crossbench sweep` with these arguments, and with words before it."""
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "crossbench", "sweep", *map(str, arguments)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_end_by_ctrl_c,
    )
    STARTED.append(process)
    return process


def _end_by_ctrl_c():
    """Undo what a shell does to the jobs that it starts in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def stop_sweeps():
    """Kill the sweeps that a test left."""
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()


def wait_for_line(process, words):
    """Return the line of the standard error that has the words, and those before it."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"{words!r} was not said: {lines} {process.stdout.read()}")


def wait_until(condition, seconds=60.0):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def span(comparison):
    """Return when the first epoch of a comparison began, and when the last one ended."""
    epochs = [epoch for result in comparison.results for epoch in result.epochs]
    return min(e.started for e in epochs), max(e.started + e.wall_seconds for e in epochs)
