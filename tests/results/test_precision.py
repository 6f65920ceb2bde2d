"""What the proof of a precision accepts, and what it says of the rest."""

from dataclasses import replace

import pytest
from samples import PRECISION, comparison, result

from crossbench.results.parity import GradientParity, Parity
from crossbench.results.reference import Reference, ReferenceLosses

FORMS = {"logits": 3e-3, "gradient of w": 4e-3}


@pytest.mark.parametrize(
    ("observed", "others", "words"),
    [
        ({}, {}, None),
        ({"logits": 0.5}, {}, "logits differs by 5.0e-01"),
        ({"logits": None}, {}, "logits is not finite"),
        ({"logits": 1e-7}, {}, "the logits are computed in a higher precision than bfloat16"),
        ({"gradient of w": 1e-6}, {}, "the gradients are computed in a higher precision than bf"),
        ({"gradient of v": 0.3}, {}, "gradient of v differs by 3.0e-01"),
        # one rounded layer does not acquit the others
        ({"gradient of v": 1.5e-3}, {}, "the gradient of v is computed in a higher precision"),
        ({"gradient of v": 1.7e-3}, {}, None),
        ({"gradient of b.bias": 1.3}, {}, None),
        ({"gradient of b.bias": None}, {}, "gradient of b.bias is not finite"),
        ({}, {"optimizer": {"w": 2e-3}}, "the optimizer's step of w differs by 2.0e-03"),
        ({}, {"rounded": ["w", "b"]}, "w and 1 more are kept in bfloat16, not in float32"),
    ],
)
def test_what_disagrees_is_named(observed, others, words):
    reference = FORMS | {"gradient of b.bias": 4e-3, "gradient of v": 4e-3}
    forms = {"observed": FORMS | observed, "operands": reference, "everywhere": reference}
    found = replace(PRECISION, **forms, **others).disagreement("bfloat16")
    assert found is None if words is None else words in found


def test_a_precision_that_is_not_proved_or_is_wrong_is_not_ranked():
    r = result("torch", [1, 1.0], compute="bfloat16")
    assert comparison(r).doubt(r) == "it was not proved to compute in bfloat16"
    r.precision = replace(PRECISION, rounded=["w", "b"])
    words = "it does not compute in bfloat16 as it should: w and 1 more are kept in bfloat16"
    assert comparison(r).doubt(r).startswith(words)


def test_losses_of_the_timed_run_are_neither_too_far_nor_too_exact():
    losses = {"first epoch": [2.3] * 3, "steady epoch": [2.3] * 3}
    rounded = {name: [2.302] * 3 for name in losses}
    reference = Reference(
        [], False, [ReferenceLosses("train", 100, losses, losses, {"bfloat16": rounded})]
    )

    def doubt(loss, compute="bfloat16"):
        r = replace(result("torch", [1, 1.0], compute=compute), precision=PRECISION)
        r.epochs = [replace(epoch, losses=[loss] * epoch.steps) for epoch in r.epochs]
        return replace(comparison(r), reference=reference).own_doubt(r)

    assert doubt(2.3015) is None
    assert "the loss of step 1 (first epoch) is 2.33" in doubt(2.33)
    assert "its losses are too exact" in doubt(2.300001)
    assert "the loss of step 1" in doubt(2.3015, compute="float32")


@pytest.mark.parametrize(
    ("value", "words"),
    [(1e-3, "is computed in a higher precision"), (5e-2, "differs by 5.0e-02"), (4e-3, None)],
)
def test_a_gradient_of_a_whole_batch_is_as_inexact_as_the_precision(value, words):
    name = "gradient of dense1.weight"
    found = GradientParity({name: value}, {"operands": {name: 3e-3}, "everywhere": {name: 4e-3}})
    wrong = found.disagreement("bfloat16")
    assert wrong is None if words is None else words in wrong


@pytest.mark.parametrize(
    ("name", "value", "agrees"),
    [
        ("gradient of batchnorm5.weight", 31e-5, True),  # the examples' gradients nearly cancel
        ("gradient of batchnorm5.weight", 41e-5, False),
        ("gradient of batchnorm5.bias", 31e-5, False),
        ("gradient of conv5.weight", 31e-5, False),
    ],
)
def test_a_normalizations_scale_may_be_off_by_more_rounding(name, value, agrees):
    found = GradientParity({name: value}, {"float32": {name: 1e-5}})
    assert (found.disagreement("float32") is None) == agrees
    proof = Parity({name: 0.0}, {name: value}, {name: 1e-5})
    assert (value <= proof.float32_bound(name)) == agrees
