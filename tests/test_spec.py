import os

import pytest

from crossbench.errors import SpecError
from crossbench.machine import usable_cpus
from crossbench.spec import make_spec


def test_defaults(lenet):
    spec = make_spec()
    assert (spec.frameworks, spec.devices) == (None, None)
    assert (spec.model, spec.batch_size) == (lenet, 1000)
    assert spec.threads == (len(os.sched_getaffinity(0)),) == (len(usable_cpus()),)
    assert spec.settings.rounds == 6


def test_auto_rounds_and_several_threads():
    assert make_spec(rounds="auto").settings.rounds is None
    assert make_spec(threads=[1, 1]).threads == (1,)


def test_names_come_as_a_list_or_with_commas():
    assert make_spec("torch, jax,torch").frameworks == ("torch", "jax")
    assert make_spec(["jax"], ["cpu"]).devices == ("cpu",)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"frameworks": "tensorflow"}, "there is no framework 'tensorflow': choose from"),
        ({"frameworks": ""}, "there is no framework ''"),
        ({"frameworks": []}, "name at least one framework"),
        ({"devices": "tpu"}, "there is no device 'tpu': choose from cpu, gpu"),
        ({"model": "vgg"}, "there is no model 'vgg'"),
        ({"data": "/not/there"}, "data is /not/there: it must be auto, synthetic, or a directory"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"rounds": "many"}, "rounds must be a whole number or auto, not 'many'"),
        ({"precision": 0}, "precision must be a number over 0"),
        ({"max_seconds": -1}, "max_seconds must be a number over 0"),
        ({"threads": []}, "name at least one number of threads"),
        ({"baseline": "tensorflow"}, "there is no framework 'tensorflow'"),
        ({"frameworks": "torch", "baseline": "jax"}, "there is no framework 'jax': choose from t"),
        ({"epochs": -1}, "epochs must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batches": 0}, "batches must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"threads": 9999}, "threads is 9999, but this process may use only"),
        ({"timeout": 0}, "timeout must be a number over 0"),
        ({"timeout": float("nan")}, "timeout must be a number over 0"),
    ],
)
def test_what_makes_no_sense_is_named(asked, message):
    with pytest.raises(SpecError, match=message) as caught:
        make_spec(**asked)
    assert "\n" not in str(caught.value)
