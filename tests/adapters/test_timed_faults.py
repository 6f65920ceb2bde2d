"""Faults that the proof cannot see, since they are in the timed run alone: an ordinary run does."""

import re
from dataclasses import replace

import pytest
from samples import write_cifar
from small_models import DROPPED, PLAIN, TINY

import crossbench
from crossbench import adapters
from crossbench.engine import round_steps
from crossbench.models.training import WarmupCosine

pytestmark = pytest.mark.usefixtures("faulty")

FEW = ("remembers", "returns_early", "halves_late", "uses_middle_twice", "averages")
"""Faults that each adapter has; the reference has all of them."""
EPOCH = "(the first epoch|epoch 1)"
AGAIN = "where a timed epoch was run again"
IN_PIECES = r"in calls of a few batches \(round 1"
FIRST_LOSS, SECOND_LOSS, STEADY_LOSS = (
    rf"the loss of step {step} \({epoch} epoch\) is"
    for step, epoch in ((1, "first"), (2, "first"), (1, "steady"))
)
FAULTS = {
    # patterns of what it must say; several where chance, or the speed of the adapter, decides
    "remembers": (STEADY_LOSS, AGAIN),
    "stops_early": (IN_PIECES,),
    "takes_less": (FIRST_LOSS,),
    "keeps_weights": (STEADY_LOSS, "than in the first one"),
    "returns_early": (AGAIN,),
    "goes_on": ("the device went on for 0.",),
    "changes_nothing": (IN_PIECES,),
    "drops_fourths": (f"step (8|9) of {EPOCH} was .* {IN_PIECES}",),
    "stops_late": (f"step (8|9|10) of {EPOCH} was .* {IN_PIECES}",),
    "halves_late": (f"step (5|6|7) of {EPOCH} was .* {IN_PIECES}",),
    "repeats_first": (SECOND_LOSS,),
    "repeats_middle": (f"step (6|7|8|9) of {EPOCH} was .* {IN_PIECES}",),
    "repeats_last": (f"step 10 of {EPOCH} was .* {IN_PIECES}",),
    "uses_first_twice": (SECOND_LOSS,),
    "uses_middle_twice": (f"step (7|8) of {EPOCH} was .* {IN_PIECES}",),
    "uses_last_but_one_twice": (f"step 10 of {EPOCH} was .* {IN_PIECES}",),
    "averages": (f"the weights at the end of {EPOCH} differ by .* {IN_PIECES}",),
    "trains_while_loading": (AGAIN, IN_PIECES),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """1,000 pictures to train on."""
    return write_cifar(tmp_path_factory.mktemp("data") / "cifar", per_file=200)


def run(directory, frameworks, model=PLAIN, rounds=1, **asked):
    asked = {"batch_size": 100, "threads": 1} | asked
    comparison = crossbench.run(
        frameworks, "cpu", model=model, data=directory, rounds=rounds, **asked
    )
    return comparison, {r.cell.framework: r for r in comparison.results}


def check_refused(comparison, results, faults):
    """Check that each faulty row is not ranked, for one of the reasons that are expected."""
    for name, words in faults.items():
        result = results[name]
        assert result.parity.agrees, name  # the proof sees nothing
        assert not comparison.is_ranked(result), name
        reason = result.reason or comparison.doubt(result)
        assert any(re.search(pattern, reason) for pattern in words), (name, reason)


@pytest.mark.long
@pytest.mark.idiomatic
def test_a_fault_of_the_timed_run_is_not_ranked(directory, adapter_name, pytestconfig):
    named = [n for n in pytestconfig.getoption("adapters").split(",") if n != adapters.REFERENCE]
    if adapter_name == adapters.REFERENCE or adapter_name != named[0]:
        pytest.skip("it takes minutes: for the first one of --adapters, and not the reference")
    if reason := adapters.get(adapter_name).available("cpu"):
        pytest.skip(reason)
    faults = {f"{adapter_name}_{name}": FAULTS[name] for name in FEW}
    comparison, results = run(directory, ["torch", *faults])
    assert comparison.is_ranked(results["torch"]), comparison.doubt(results["torch"])
    check_refused(comparison, results, faults)


def test_each_fault_is_found_without_another_row(directory):
    named = {f"reference_{fault}": words for fault, words in FAULTS.items()}
    comparison, results = run(directory, ["reference", *named], TINY)
    assert comparison.is_ranked(results["reference"]), comparison.doubt(results["reference"])
    check_refused(comparison, results, named)


@pytest.mark.long
@pytest.mark.parametrize(("fault", "epochs"), [("repetition_idles", 1), ("third_epoch_idles", 3)])
def test_an_idle_repetition_or_a_later_epoch_is_not_ranked(directory, fault, epochs):
    asked = {"batch_size": 20, "batches": 6}  # an epoch so short that it is repeated
    name = f"reference_{fault}"
    comparison, results = run(directory, ["torch", name], epochs=epochs, **asked)
    words = r"an epoch changed \S+\.weight less \(0, not "
    check_refused(comparison, results, {name: (words, IN_PIECES)})


def test_a_learning_rate_that_is_not_lowered_is_found_by_the_other_rows(directory):
    """Each step is the same one in pieces; the proof has a schedule of its own."""
    schedule = WarmupCosine(warmup=4, steps=8, minimum=0.1)
    model = replace(TINY, optimizer=replace(TINY.optimizer, schedule=schedule))
    comparison, results = run(directory, ["reference", "reference_lowers_no_rate"], model)
    for result in results.values():
        assert result.parity.agrees
        assert not comparison.is_ranked(result)  # one framework against one
    doubt = comparison.doubt(results["reference_lowers_no_rate"])
    assert re.match(
        r"an epoch changed the weights differently \(by \d+%\) than in reference", doubt
    )


@pytest.fixture
def five_batches(monkeypatch):
    """Let all epochs but the first one of the second round take the first five of ten batches."""
    monkeypatch.setattr(round_steps, "PART_SECONDS", 1e-9)
    monkeypatch.setattr(round_steps, "MAX_STEPS", 5)
    monkeypatch.setattr(round_steps, "LEAST_FLOPS", 1)


@pytest.mark.long
@pytest.mark.usefixtures("five_batches")
def test_a_fault_is_found_where_epochs_are_not_whole(directory):
    """One of them has its fault there alone."""
    names = ("remembers", "stops_early", "keeps_weights", "returns_early", "repeats_last")
    faults = {name: FAULTS[name] for name in (*names, "averages")}
    faults |= {"stops_parts_early": (IN_PIECES, "than in")}
    faulty = {
        f"reference_{name}": (*words, "round", "reference", "epoch")
        for name, words in faults.items()
    }
    comparison, results = run(directory, ["torch", "reference", *faulty], rounds=2)
    assert [epoch.steps for epoch in results["reference"].epochs] == [5, 5, 10, 5]
    for name in ("torch", "reference"):
        assert comparison.is_ranked(results[name]), comparison.doubt(results[name])
    check_refused(comparison, results, faulty)


def test_a_fault_of_a_later_round_is_found(directory, tmp_path, monkeypatch):
    monkeypatch.setenv("STOPS_LATER_MARKER", str(tmp_path / "marker"))
    _, results = run(directory, ["reference", "reference_stops_later"], TINY, rounds=2)
    assert results["reference"].status == "ran"
    assert results["reference_stops_later"].status == "failed"
    assert "than in an earlier round (in round 2)" in results["reference_stops_later"].reason
    assert {epoch.round for epoch in results["reference_stops_later"].epochs} == {1}


@pytest.mark.long
def test_dropouts_hide_no_fault(directory):
    """Their losses differ by chance, but not those without dropouts, after the round."""
    faults = {name: FAULTS[name] for name in ("halves_late", "repeats_middle", "averages")}
    words = (r"\(without dropouts\) is", IN_PIECES)
    faults |= dict.fromkeys(("takes_less", "keeps_weights"), words)
    faulty = {f"reference_{name}": words for name, words in faults.items()}
    comparison, results = run(directory, ["reference", *faulty], DROPPED)
    assert len(results["reference"].undropped_losses) == 3
    assert results["reference"].gradient is not None
    assert comparison.doubt(results["reference"]) is None
    check_refused(comparison, results, faulty)
