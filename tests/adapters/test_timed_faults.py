"""Faults that the proof cannot see, since they are in the timed run alone: an ordinary run does."""

import pytest
from samples import write_cifar
from small_models import DROPPED, PLAIN

import crossbench
from crossbench import adapters
from crossbench.engine import round_steps

pytestmark = pytest.mark.usefixtures("faulty")

FAULTS = {
    "remembers": "the loss of step 1 (steady epoch) is",
    "stops_early": "an epoch changed",
    "takes_less": "the loss of step 1 (first epoch) is",
    "keeps_weights": "the loss of step 1 (steady epoch) is",
    "returns_early": "the loss of step 1 (steady epoch) is",
    "goes_on": "the device went on for 0.",
    "changes_nothing": "an epoch changed",
}
HONEST = ["reference", "torch", "jax"]
"""Most must be honest: what an epoch changes is compared among the rows."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """1,000 pictures to train on."""
    return write_cifar(tmp_path_factory.mktemp("data") / "cifar", per_file=200)


def run(directory, frameworks, model=PLAIN, rounds=1):
    asked = {"model": model, "data": directory, "batch_size": 100, "threads": 1}
    asked["rounds"] = rounds
    comparison = crossbench.run(frameworks, "cpu", **asked)
    return comparison, {r.cell.framework: r for r in comparison.results}


@pytest.mark.long
@pytest.mark.idiomatic
def test_a_fault_of_the_timed_run_is_not_ranked(directory, adapter_name, pytestconfig):
    if adapter_name == adapters.REFERENCE:
        pytest.skip("the reference is what the others are compared with")
    named = [n for n in pytestconfig.getoption("adapters").split(",") if n != adapters.REFERENCE]
    if adapter_name != named[0]:
        pytest.skip(f"it takes minutes for each adapter: --adapters {adapter_name}")
    honest = list(dict.fromkeys([*HONEST, adapter_name]))
    for name in honest:
        if reason := adapters.get(name).available("cpu"):
            pytest.skip(reason)
    faulty = {f"{adapter_name}_{fault}": words for fault, words in FAULTS.items()}
    comparison, results = run(directory, [*honest, *faulty])
    assert {r.cell.framework for r in comparison.ranked(comparison.results[0].cell.group)} == set(
        honest
    )
    text = crossbench.table(comparison, details=True)
    for name, words in faulty.items():
        assert results[name].status == "ran", results[name].reason
        assert results[name].parity.agrees  # the proof sees nothing
        (line,) = [li for li in text.splitlines() if li.startswith(f"{name} cpu: not ranked")]
        assert words in line


@pytest.fixture
def five_batches(monkeypatch):
    """Let the epochs of all rounds but the second one take the first five of ten batches."""
    monkeypatch.setattr(round_steps, "PART_SECONDS", 1e-9)
    monkeypatch.setattr(round_steps, "MAX_STEPS", 5)
    monkeypatch.setattr(round_steps, "LEAST_FLOPS", 1)


@pytest.mark.long
@pytest.mark.usefixtures("five_batches")
def test_a_fault_is_found_where_epochs_are_not_whole(directory):
    """One of them, in place of two that change other weights, has its fault there alone."""
    faults = FAULTS | {"stops_parts_early": "an epoch changed"}
    del faults["changes_nothing"], faults["stops_early"]
    faulty = {f"reference_{fault}": words for fault, words in faults.items()}
    honest = HONEST[:2]  # most of those that may change other weights
    comparison, results = run(directory, [*honest, *faulty], rounds=2)
    epochs = results["reference"].steady
    assert [epoch.steps for epoch in epochs] == [5, 10]
    for name in honest:
        assert comparison.is_ranked(results[name]), comparison.doubt(results[name])
    for name, words in faulty.items():
        assert results[name].parity.agrees
        assert words in (results[name].reason or comparison.doubt(results[name]))


def test_a_fault_of_a_later_round_is_found(directory, tmp_path, monkeypatch):
    monkeypatch.setenv("STOPS_LATER_MARKER", str(tmp_path / "marker"))
    _, results = run(directory, ["reference", "reference_stops_later"], rounds=2)
    assert results["reference"].status == "ran"
    assert results["reference_stops_later"].status == "failed"
    assert "than in an earlier round (in round 2)" in results["reference_stops_later"].reason
    assert {epoch.round for epoch in results["reference_stops_later"].epochs} == {1}


@pytest.mark.long
def test_dropouts_hide_no_fault(directory):
    """Their losses differ by chance, but not those with given masks, after the round."""
    faulty = [f"reference_{fault}" for fault in ("takes_less", "keeps_weights")]
    comparison, results = run(directory, ["reference", *faulty], DROPPED)
    assert len(results["reference"].masked_losses) == 3
    assert comparison.doubt(results["reference"]) is None
    for name in faulty:
        assert "(given dropout masks) is" in comparison.doubt(results[name])
