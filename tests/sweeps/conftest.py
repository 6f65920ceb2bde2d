"""Leave no sweep behind, whatever becomes of a test."""

import pytest
from sweeping import stop_sweeps


@pytest.fixture(autouse=True)
def sweeps_stopped():
    yield
    stop_sweeps()
