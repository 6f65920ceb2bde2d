"""Check why a cell that ran is not ranked, from records alone.

Real runs are in test_timed_faults.py.
"""

from dataclasses import replace

import pytest
from samples import comparison, result

from crossbench.results.agreement import MAX_COMPARED_STEPS
from crossbench.results.epochs import TargetEpoch
from crossbench.results.machine import Peak
from crossbench.results.parity import GradientParity
from crossbench.results.reference import (
    FIRST_EPOCH,
    STEADY_EPOCH,
    UNDROPPED,
    Reference,
    ReferenceLosses,
)
from crossbench.results.replay import NOT_FINITE, Replay
from crossbench.results.untimed import UntimedCalls

LOSSES = {FIRST_EPOCH: [2.3], STEADY_EPOCH: [2.3]}
WORK = ("train", 100)
REFERENCE = Reference(["conv1.bias"], False, [ReferenceLosses(*WORK, LOSSES, LOSSES)])
MASKED_REFERENCE = Reference(
    [], True, [ReferenceLosses(*WORK, {UNDROPPED: [2.3]}, {UNDROPPED: [2.3]})]
)
CHANGES = {"conv1.weight": [3.0, 4.0], "conv1.bias": [1.0, 0.0], "dense1.weight": [0.0, 0.1]}


def doubts(*results, reference=REFERENCE):
    """Return the doubt about each cell; an epoch of one second is 10 GFLOP/s."""
    c = comparison(*results)
    c.model["training_flops"] = 10_000_000
    c.reference = reference
    return [c.doubt(r) for r in results]


def with_changes(name, **changes):
    found = result(name, [9.0, 1.0])
    changed = {key.replace("_", "."): value for key, value in changes.items()}
    found.changes = {10: CHANGES | changed}
    return found


def with_epoch_fields(**fields):
    """Return a cell of three rounds with these fields in all its epochs."""
    found = result("torch", [9.0, 1.0, 1.0, 1.0])
    found.epochs = [replace(epoch, **fields) for epoch in found.epochs]
    return found


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"losses": [2.30002, 1.0], "late_seconds": 0.049}, None),
        ({"losses": [2.30003, 1.0]}, "the loss of step 1 (first epoch) is 2.30003, but 2.3 in the"),
        ({"losses": [None, 1.0]}, "the loss of step 1 (first epoch) is not finite, but 2.3 in the"),
        ({"late_seconds": 0.051}, "not over when they returned: the device went on for 0.051 s"),
        ({"still_training": True}, "was not over when it returned: the weights changed afterwards"),
    ],
)
def test_epochs_that_did_other_work_or_went_on_are_doubted(fields, words):
    (doubt,) = doubts(with_epoch_fields(**fields))
    assert doubt is None if words is None else words in doubt


def test_losses_that_the_reference_has_not_computed_are_not_doubted():
    assert doubts(with_epoch_fields(losses=[9.0]), reference=None) == [None]
    assert doubts(result("torch", [9.0, 1.0], batch_size=50)) == [None]


def losses_of(second):
    """Return losses of the reference's two epochs, whose second step has this one."""
    return {FIRST_EPOCH: [2.3, second], STEADY_EPOCH: [2.3, second]}


@pytest.mark.parametrize(
    ("float32", "near_zero", "bound"),
    [(1.0, [], 1e-5), (1.0, [1.0, 1.00001], 2e-5), (1.00002, [], 2e-4)],
    ids=["least", "ReLUs near 0", "float32"],
)
def test_the_bound_of_a_loss_is_as_wide_as_the_reference_rounds(float32, near_zero, bound):
    sides = [losses_of(second) for second in near_zero]
    known = ReferenceLosses(*WORK, losses_of(1.0), losses_of(float32), near_zero=sides)
    reference = replace(REFERENCE, losses=[known])
    for factor, words in ((0.999, None), (1.001, "the loss of step 2 (first epoch) is 1.0")):
        found = with_epoch_fields(losses=[2.3, 1 + factor * bound])
        (doubt,) = doubts(found, reference=reference)
        assert doubt is None if words is None else words in doubt


def test_one_late_epoch_of_several_and_milliseconds_are_not_doubted():
    found = with_epoch_fields(late_seconds=0.0)
    found.epochs[1] = replace(found.epochs[1], late_seconds=3.0)
    assert doubts(found) == [None]
    found = result("torch", [0.02, 0.01, 0.01])
    found.epochs = [replace(epoch, late_seconds=0.004) for epoch in found.epochs]
    assert doubts(found) == [None]


def test_more_gflops_than_the_device_can_reach():
    found = result("torch", [9.0, 1.0])
    found.peak = Peak(3.3, 1.0)
    assert doubts(found)[0].startswith("10 GFLOP/s are more than 3 times the best matrix")
    found.peak = Peak(3.4, 1.0)
    assert doubts(found) == [None]


SMALLER = CHANGES | {"dense1.weight": [0.0, 0.02]}
TURNED = CHANGES | {"conv1.weight": [4.0, -3.0]}
NOTHING = {name: [0.0, 0.0] for name in CHANGES}


def of_eight(change):
    return CHANGES | {"dense1.weight": [change] * 8 + [0.0] * 8}


DIFFERENTLY = "the weights differently (by 141%)"


@pytest.mark.parametrize(
    ("reference", "others", "odd", "words"),
    [
        (REFERENCE, {10: CHANGES}, {10: CHANGES | {"dense1.weight": [0.0, 0.03]}}, None),
        (REFERENCE, {10: CHANGES}, {10: SMALLER}, "dense1.weight less (0.02, not 0.1)"),
        (REFERENCE, {10: SMALLER}, {10: CHANGES}, "dense1.weight more (0.1, not 0.02)"),
        (REFERENCE, {10: CHANGES}, {10: CHANGES | {"conv1.weight": [None, 1]}}, "conv1.weight mo"),
        # the rounding of a gradient that is nothing else, and what only one cell has
        (REFERENCE, {10: CHANGES}, {10: CHANGES | {"conv1.bias": [-9.0, 9.0]}}, None),
        (REFERENCE, {10: CHANGES}, {3: SMALLER}, None),
        # one number of steps that is alike does not hide another
        (REFERENCE, {10: CHANGES, 3: CHANGES}, {10: CHANGES, 3: SMALLER}, "dense1.weight less"),
        # the direction of a long epoch, or with other dropout masks, is not compared
        (REFERENCE, {MAX_COMPARED_STEPS: CHANGES}, {MAX_COMPARED_STEPS: TURNED}, DIFFERENTLY),
        (REFERENCE, {MAX_COMPARED_STEPS + 1: CHANGES}, {MAX_COMPARED_STEPS + 1: TURNED}, None),
        (MASKED_REFERENCE, {10: CHANGES}, {10: TURNED}, None),
        (MASKED_REFERENCE, {10: of_eight(0.1)}, {10: of_eight(0.02)}, "dense1.weight less"),
        # a few numbers go either way with the masks, but they do change
        (MASKED_REFERENCE, {10: CHANGES}, {10: SMALLER}, None),
        (MASKED_REFERENCE, {10: CHANGES}, {10: NOTHING}, "conv1.weight less (0, not 5)"),
    ],
)
def test_a_change_of_another_size_or_direction_is_doubted(reference, others, odd, words):
    cells = [result(name, [9.0, 1.0]) for name in ("a", "odd", "b")]
    for cell, changes in zip(cells, (others, odd, others), strict=True):
        cell.changes = changes
    before, doubt, after = doubts(*cells, reference=reference)
    assert before is after is None
    assert doubt is None if words is None else doubt.startswith(f"an epoch changed {words}")
    assert doubt is None or doubt.endswith(" than in a cpu, b cpu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [(NOTHING, "conv1.weight less (0, not 5)"), (TURNED, None)],
)
def test_of_a_later_epoch_only_the_size_of_its_change_is_compared(changes, words):
    cells = [with_changes(name) for name in ("a", "odd", "b")]
    for cell, of_epoch in zip(cells, (CHANGES, changes, CHANGES), strict=True):
        cell.other_changes = {3: {10: of_epoch}}
    doubt = words and f"an epoch changed {words} than in a cpu, b cpu"
    assert doubts(*cells) == [None, doubt, None]


def test_a_change_may_turn_as_rounding_turns_it():
    cells = [with_changes("a"), with_changes("b", conv1_weight=[4.0, -3.0])]
    cells[0].change_drift = 1.0
    assert doubts(*cells) == [None, None]


@pytest.mark.parametrize(("steps", "is_compared"), [(9, False), (10, True)])
def test_a_change_is_compared_in_no_more_steps_than_its_drift_was_measured_in(steps, is_compared):
    cells = [with_changes("a"), with_changes("b", conv1_weight=[4.0, -3.0])]
    for cell in cells:
        cell.loss_drift = [1e-7] * steps
    assert [doubt is not None for doubt in doubts(*cells)] == [is_compared] * 2


def test_a_doubted_cell_is_no_evidence_against_another():
    wrong = with_changes("b", conv1_weight=[0.0, 0.0])
    wrong.epochs[1] = replace(wrong.epochs[1], still_training=True)
    assert doubts(with_changes("a"), wrong)[0] is None


REPLAY = Replay(2, 3, 1, 1, 9, 7, 2.31, 2.29, 0.0, 0.0, 0.5)


DRIFT = [0.0] * 6 + [0.128, 2.0]
"""How far the losses move from weights that are changed by more than rounding."""


@pytest.mark.parametrize(
    ("fields", "drift", "words"),
    [
        ({"deviation": 0.9e-5}, [], None),
        (
            {"deviation": 1.1e-5},
            [],
            "the loss of step 7 of epoch 1 was 2.31, not 2.29 as in calls of a few batches "
            "(round 2)",
        ),
        (
            {"deviation": NOT_FINITE, "timed": None, "repetition": 3},
            [],
            "was not finite, not 2.29 as in calls of a few batches (round 2, repetition 3)",
        ),
        ({"deviation": 0.9e-3}, DRIFT, None),
        ({"deviation": 1.1e-3}, DRIFT, "the loss of step 7"),
        ({"deviation": 0.9e-2, "step": 8}, DRIFT, None),
        ({"deviation": 1.1e-2, "step": 8}, DRIFT, "the loss of step 8"),  # the most of all
        ({"weights_deviation": None}, [], None),
        ({"weights_deviation": 0.9e-3}, [], None),
        (
            {"weights_deviation": 1.1e-3, "epoch": 0},
            [],
            "the weights at the end of the first epoch differ by 0.1% of their change from those "
            "in calls of a few batches (round 2)",
        ),
    ],
)
def test_an_epoch_that_differs_in_pieces_by_more_than_rounding_is_doubted(fields, drift, words):
    found = result("torch", [9.0, 1.0, 1.0])
    found.loss_drift = drift
    found.replays = [replace(REPLAY, round=1), replace(REPLAY, **fields)]
    (doubt,) = doubts(found)
    assert doubt is None if words is None else words in doubt


@pytest.mark.parametrize(
    ("name", "calls", "words"),
    [
        ("load_weights", (0.2, 0.3, 10, 1e-4), "load_weights() takes 0.2 s for a call"),
        ("place", (0.2, 0.3, 2, 1e-3), "place() takes 0.2 s for a batch"),
        ("place", (0.019, 0.019, 2, 3e-4), "where a step takes 0.1 s"),
        ("place", (0.015, 0.3, 2, 3e-4), None),  # 9 ms and thirty copies
        ("place", (0.036, 0.036, 12, 5e-4), None),  # an honest row's load_weights
        ("place", (0.045, 0.045, 12, 5e-4), "place() takes 0.045 s for a batch"),
        ("place", (0.3, 0.016, 2, 1e-3), None),  # it waited for a CPU
        ("load_weights", (0.049, 0.049, 2, 0.0), None),  # a twentieth of an epoch
    ],
)
def test_work_outside_of_the_timed_epochs_is_doubted(name, calls, words):
    found = result("torch", [9.0, 1.0, 1.0])
    found.untimed = {name: UntimedCalls(3, *calls)}
    (doubt,) = doubts(found)
    assert (doubt is None) if words is None else (words in doubt)


def drifting(name, losses, drift=(1e-7, 1e-6), epoch=1):
    found = result(name, [9.0, 1.0])
    found.epochs = [
        replace(e, losses=[2.3, *losses] if e.epoch == epoch else [2.3, 2.2, 2.1, 2.0])
        for e in found.epochs
    ]
    found.loss_drift = list(drift)
    return found


def test_a_later_loss_that_only_one_framework_has_is_doubted():
    honest = [drifting(name, [2.2, 2.1, 2.0]) for name in ("a", "b")]
    for epoch, name in ((0, "the first epoch"), (1, "epoch 1")):
        found = doubts(*honest, drifting("odd", [2.2, 2.11, 2.0], epoch=epoch))
        assert found[:2] == [None, None]
        assert found[2] == (
            f"the loss of step 3 of {name} is another one (2.11, not 2.1) than in a cpu, b cpu"
        )


@pytest.mark.parametrize(
    ("losses", "drift", "doubted"),
    [
        ([2.2 * (1 + 2.9e-5), 2.1, 2.0], (1e-7, 1e-6), False),
        ([2.2 * (1 + 3.1e-5), 2.1, 2.0], (1e-7, 1e-6), True),
        # beyond the steps whose drift is known: thirty times the largest difference before
        ([2.2 * (1 + 2e-5), 2.1 * (1 + 5e-4), 2.0], (1e-7, 1e-6), False),
        ([2.2 * (1 + 2e-5), 2.1 * (1 + 7e-4), 2.0], (1e-7, 1e-6), True),
        ([2.2, 2.8, 2.0], (1e-7, 1e-2), True),  # and as much the other way
        ([2.1, 2.1, 2.0], (), False),  # where their drift is not known they are not compared
    ],
)
def test_losses_may_drift_apart_as_rounding_moves_them(losses, drift, doubted):
    found = doubts(drifting("a", [2.2, 2.1, 2.0]), drifting("b", losses, drift))
    assert [doubt is not None for doubt in found] == [doubted] * 2


def test_a_round_with_other_losses_than_the_longest_one_is_doubted():
    found = drifting("torch", [2.2, 2.1, 2.0])
    found.epochs += [replace(e, round=2, losses=[2.3, 2.21]) for e in found.epochs]
    (doubt,) = doubts(found)
    assert "step 2 of the first epoch is 2.21 in round 2, but 2.2 in the longest one" in doubt


def test_each_framework_has_one_vote():
    odd = {"dense1_weight": [0.0, 0.02]}
    many = [with_changes(f"a:{variant}", **odd) for variant in ("one", "two", "three")]
    others = [with_changes("b"), with_changes("c")]
    found = doubts(*many, *others)
    assert found[3:] == [None, None]
    assert all("less (0.02, not 0.1) than in b cpu, c cpu" in doubt for doubt in found[:3])
    # where as many frameworks differ none is ranked
    assert None not in doubts(with_changes("a"), with_changes("a:two"), with_changes("b", **odd))


def test_a_gradient_of_a_whole_batch_that_differs_is_doubted():
    found, name = result("torch", [9.0, 1.0]), "gradient of conv1.weight"
    found.gradient = GradientParity({name: 2e-3}, {"float32": {name: 1e-6}})
    (doubt,) = doubts(found)
    assert doubt == (
        f"it does not do the same work with a whole batch: {name} differs by 2.0e-03 in float32 "
        "(at most 1e-04 is allowed)"
    )


def of_two_steady_epochs(name, *losses):
    found = result(name, [9.0, 1.0])
    first, steady = found.epochs
    found.epochs = [replace(first, losses=[2.3, 2.2])]
    found.epochs += [replace(steady, epoch=i, losses=each) for i, each in enumerate(losses, 1)]
    found.loss_drift = [1e-6, 1e-6]
    return found


def test_a_later_epoch_goes_on_from_where_rounding_has_moved_it():
    a = of_two_steady_epochs("a", [2.3, 2.2], [2.1, 2.0])
    moved = of_two_steady_epochs("b", [2.3, 2.2 * (1 + 2e-5)], [2.1 * (1 + 5e-4), 2.0])
    assert doubts(a, moved) == [None, None]
    found = doubts(a, of_two_steady_epochs("b", [2.3, 2.2], [2.11, 2.0]))
    assert "the loss of step 3 of epoch 1 is another one (2.11, not 2.1) than in a cpu" in found[1]


def on_the_way(name, losses):
    found = drifting(name, [2.2, 2.1, 2.0])
    found.to_target = [TargetEpoch(1.0, 1.0, 0.3, losses)]
    return found


def test_the_losses_on_the_way_to_a_target_are_compared():
    longest = [2.3, 2.2, 2.1, 2.0]
    assert doubts(on_the_way("a", longest), on_the_way("b", longest)) == [None, None]
    (doubt,) = doubts(on_the_way("a", [2.3, 2.2, 2.11, 2.0]))
    assert "step 3 of the first epoch is 2.11 in the training to the target, but 2.1" in doubt
    later = [*longest, 1.9]
    found = doubts(on_the_way("a", later), on_the_way("b", [*longest, 1.8]))
    assert "the loss of step 5 of the training to the target is another one" in found[1]
