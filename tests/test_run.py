"""crossbench.run from end to end, in process and from a script, with real workers."""

import subprocess
import sys

import pytest

import crossbench
from crossbench.errors import DataError, SpecError


@pytest.fixture
def run(cifar_directory, small_model):
    def run(frameworks, **asked):
        asked = {"rounds": 2, "batch_size": 20, "model": small_model, "threads": 1} | asked
        return crossbench.run(frameworks, data=cifar_directory, **asked)

    return run


@pytest.mark.usefixtures("plugin")
def test_one_failure_takes_down_its_own_row_only(run):
    comparison = run("dies,raises,well,absent,vanished,wrong,reference", devices="cpu")
    by_name = {r.cell.framework: r for r in comparison.results}
    assert {name: r.status for name, r in by_name.items()} == {
        "dies": "failed",
        "raises": "failed",
        "well": "ran",
        "absent": "unavailable",
        "vanished": "unavailable",
        "wrong": "ran",
        "reference": "ran",
    }
    assert by_name["raises"].reason == "RuntimeError: out of luck (in its first round)"
    assert "in raise_error" in by_name["raises"].traceback
    assert by_name["absent"].reason == "absent is not installed: pip install absent"
    assert by_name["vanished"].reason == "it cannot be had: no network"
    assert {r.cell.framework for r in comparison.ranked("cpu")} == {"well", "reference"}
    assert "conv1.weight" in by_name["wrong"].parity.disagreement
    assert not comparison.complete


@pytest.mark.usefixtures("plugin")
def test_a_hang_ends_at_the_timeout(run):
    comparison = run("hangs,reference", devices="cpu", timeout=20)
    hangs, reference = comparison.results
    assert hangs.reason == "no answer within 20 s (timeout) (in its first round)"
    assert reference.status == "ran"


def test_rounds_and_epochs(run):
    progress = []
    comparison = run("reference", devices="cpu", rounds=2, epochs=3, progress=progress.append)
    (result,) = comparison.results
    assert [(e.round, e.epoch) for e in result.epochs] == [
        (r, e) for r in range(3) for e in range(3)
    ]
    assert result.status == "ran"
    assert comparison.complete
    assert result.start_seconds > 0
    assert comparison.data.batches == 5
    assert "reference cpu: round 2 of 2" in progress


def test_the_rounds_are_interleaved(run, plugin):
    progress = []
    run("reference,well", devices="cpu", rounds=3, progress=progress.append)
    for number in (1, 2, 3):
        of_round = [what for what in progress if f"round {number} of 3" in what]
        first = progress.index(of_round[0])
        assert progress[first : first + 2] == of_round
        assert len(of_round) == 2


def test_the_seed_makes_the_weights(run):
    losses = [
        run("reference", devices="cpu", rounds=1, seed=seed).results[0].epochs[0].losses
        for seed in (0, 0, 1)
    ]
    assert losses[0] == losses[1] != losses[2]


def test_a_batch_that_is_larger_than_the_data(run):
    with pytest.raises(SpecError, match="batch_size is 101, but there are only 100 images"):
        run("reference", batch_size=101)


def test_a_damaged_file_stops_the_run(run, cifar_directory):
    (cifar_directory / "data_batch_2.bin").write_bytes(b"short")
    with pytest.raises(DataError, match=r"data_batch_2\.bin is damaged: 5 bytes"):
        run("reference")


def test_a_plain_script_without_a_main_guard(tmp_path, cifar_directory):
    script = tmp_path / "script.py"
    script.write_text(
        "import crossbench\n"
        f"c = crossbench.run(['reference'], ['cpu'], data={str(cifar_directory)!r}, rounds=1,\n"
        "                   batch_size=50, threads=1)\n"
        "print(crossbench.table(c))\n"
        f"c.save({str(tmp_path / 'r.json')!r})\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "NumPy reference  cpu" in done.stdout
    assert crossbench.table(crossbench.load(tmp_path / "r.json")) == done.stdout.strip()
