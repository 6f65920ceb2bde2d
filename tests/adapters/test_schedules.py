"""The schedules that the frameworks are given, in each step: the proof takes four of a shorter
one.
"""

import numpy as np
import pytest

from crossbench.models import SGD, OneCycle, Steps
from crossbench.source.statements import join_blocks

SCHEDULES = {
    "steps": Steps(milestones=(1, 4, 7), gamma=0.3),
    "one cycle": OneCycle(warmup=3, steps=8, start=0.3, end=0.01),
    "one linear cycle": OneCycle(warmup=3, steps=8, start=0.3, end=0.01, linear=True),
}
STEPS = 12  # with some behind the last that changes


@pytest.fixture(params=SCHEDULES)
def optimizer(request):
    return SGD(0.4, schedule=SCHEDULES[request.param])


def check(rates, optimizer):
    expected = [optimizer.rate(step) for step in range(STEPS)]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_in_pytorch(optimizer):
    torch = pytest.importorskip("torch")
    from crossbench.adapters.torch.source import schedule_source

    definitions, made = schedule_source(optimizer)
    names = {"torch": torch, "np": np}
    names["optimizer"] = torch.optim.SGD([torch.zeros(1)], lr=optimizer.learning_rate)
    exec(join_blocks([*definitions, *made]), names)
    rates = []
    for _ in range(STEPS):
        rates.append(names["optimizer"].param_groups[0]["lr"])
        names["optimizer"].step()
        names["schedule"].step()
    check(rates, optimizer)


def test_in_optax(optimizer):
    names = {"optax": pytest.importorskip("optax")}
    from crossbench.adapters.jax.source import schedule_source

    definitions, made = schedule_source(optimizer)
    exec(join_blocks([*definitions, *made]), names)
    check([float(names["schedule"](step)) for step in range(STEPS)], optimizer)


def test_a_schedule_without_an_order_is_refused():
    with pytest.raises(ValueError, match="must have milestones that ascend"):
        Steps(milestones=(4, 1), gamma=0.3)
    with pytest.raises(ValueError, match="must have more steps than warm-up"):
        OneCycle(warmup=8, steps=8, start=0.3, end=0.01)
    with pytest.raises(ValueError, match="must have a momentum"):
        SGD(0.1, nesterov=True)
