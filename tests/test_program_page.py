"""The programs on the page are those that `script` writes."""

import re
from pathlib import Path

import pytest

from crossbench import adapters, models
from crossbench.source.training_programs import Training

PAGE = Path(__file__).parents[1] / "docs" / "programs.md"
LENET = models.get("lenet")


def program(framework):
    """Return the program of the LeNet's idiomatic row, of CIFAR-10 in the working directory."""
    adapter = adapters.get(framework)
    training = Training(
        model=LENET,
        variant="idiomatic",
        device="cpu",
        threads=2,
        batch_size=1_000,
        batches=50,
        test_examples=10_000,
        seed=0,
        data="cifar-10",
        weights=f"weights_{framework}{adapter.arrays_suffix}",
        examples=f"data{adapter.arrays_suffix}",
    )
    return adapter.programs.training_program(training)


@pytest.mark.parametrize("framework", ["torch", "jax", "keras", "flux", "lux"])
def test_a_program_on_the_page_is_current(framework):
    pattern = rf"<!-- not run: the program in {framework}, .*? -->\n```\w+\n(.*?)```\n"
    (shown,) = re.findall(pattern, PAGE.read_text(), re.DOTALL)
    assert shown == program(framework)
