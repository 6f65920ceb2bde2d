"""Check that what an adapter returns is refused in one line if the protocol does not allow it."""

import math

import numpy as np
import pytest
from small_models import SMALL_MODELS

from crossbench.adapters.reference import ReferenceWorkload
from crossbench.engine.checked import AdapterError, CheckedWorkload
from crossbench.engine.parity import proof_batches
from crossbench.workload import Job

MODEL = SMALL_MODELS["plain"]
INPUTS = np.zeros((3, *MODEL.input_shape))


def checked(**methods):
    """Return a checked reference workload with some methods replaced."""
    workload = ReferenceWorkload(Job(MODEL, "cpu", 1, "float64"))
    for name, method in methods.items():
        setattr(workload, name, method)
    return CheckedWorkload(workload, MODEL)


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("peak_memory", "much", r"^peak_memory\(\) of the adapter returned 'much', not None or a"),
        ("peak_memory", 2**63, r"returned 9223372036854775808, not None or a .* to 2\^63 - 1"),
        ("allocated", True, "returned True, not None or a whole number from 0"),
        ("threads", 0, "returned 0, not None or a whole number from 1"),
        ("details", None, "returned None, not a dict of at most 100 entries"),
        ("details", {"version": 3}, "returned 'version': 3, not a str"),
        ("details", {1: "a"}, "returned 1, not a str for a name"),
        ("details", {str(i): "" for i in range(101)}, "not a dict of at most 100 entries"),
        ("epoch_figures", {"GC s": "many"}, "returned 'GC s': 'many', not a finite number"),
        ("epoch_figures", {"GC s": math.inf}, "returned 'GC s': inf, not a finite number"),
        ("weights", [np.zeros(1)], "not arrays by name"),
        ("weights", {"conv1.bias": [0.0]}, r"'conv1.bias': \[0.0\], not an array of numbers"),
        ("loss_and_gradients", ("1", {}), "not a loss and gradients"),
        ("predict", np.zeros(3), r"shape \(3,\) and type float64, not an array of 3x10 numbers"),
        ("train_epoch", [1.0] * 4, r"not an array of 4 numbers \(one loss for each batch\)"),
        ("train_epoch", np.zeros(4, object), "type object, not an array of 4 numbers"),
    ],
)
def test_a_value_that_the_protocol_does_not_allow_is_refused(method, value, message):
    workload = checked(**{method: lambda *_: value})
    workload.place(proof_batches(MODEL))
    arguments = {"predict": (INPUTS,), "loss_and_gradients": (None,)}.get(method, ())
    with pytest.raises(AdapterError, match=message) as caught:
        getattr(workload, method)(*arguments)
    assert "\n" not in str(caught.value)


def test_numpy_numbers_become_pythons():
    figures = {"GC s": np.float32(0.5)}
    workload = checked(peak_memory=lambda: np.int32(1), epoch_figures=lambda: figures)
    found = [workload.peak_memory(), workload.epoch_figures()["GC s"]]
    assert (found, [type(number) for number in found]) == ([1, 0.5], [int, float])


def test_figures_with_other_names_in_another_epoch_are_refused():
    names = iter(["a", "b"])
    workload = checked(epoch_figures=lambda: {next(names): 1.0})
    workload.epoch_figures()
    with pytest.raises(AdapterError, match="returned 'a, b' in some epochs and not in others"):
        workload.epoch_figures()


def test_source_code_is_text_that_can_be_kept():
    with pytest.raises(AdapterError, match="source_code of the adapter returned 3, not a str"):
        checked(source_code=3)
    assert checked().source_code == ""
    assert checked(source_code="a =\n\x1b[31m'\ud800é'\n").source_code == "a =\n?[31m'?é'\n"
    assert len(checked(source_code="a\n" * 200_000).source_code) == 200_000
