"""Faults that the proof cannot see, since they are in the timed run alone: an ordinary run does."""

import pytest
from samples import write_cifar
from small_models import DROPPED, PLAIN

import crossbench
from crossbench import adapters

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


def run(directory, frameworks, model=PLAIN):
    asked = {"model": model, "data": directory, "rounds": 1, "batch_size": 100, "threads": 1}
    comparison = crossbench.run(frameworks, "cpu", **asked)
    return comparison, {r.cell.framework: r for r in comparison.results}


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


def test_dropouts_hide_no_fault(directory):
    """Their losses differ by chance, but not those with given masks, after the round."""
    faulty = [f"reference_{fault}" for fault in ("takes_less", "keeps_weights")]
    comparison, results = run(directory, ["reference", *faulty], DROPPED)
    assert len(results["reference"].masked_losses) == 3
    assert comparison.doubt(results["reference"]) is None
    for name in faulty:
        assert "(given dropout masks) is" in comparison.doubt(results[name])
