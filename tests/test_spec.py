import os
import threading
from dataclasses import dataclass, replace

import numpy as np
import psutil
import pytest
from small_models import FITTED, SPEAKING

from crossbench.data.sources import CIFAR10, Synthetic
from crossbench.host import memory
from crossbench.inputs.errors import SpecError
from crossbench.models import (
    SGD,
    BinaryCrossEntropy,
    Conv,
    Dense,
    Embedding,
    Flatten,
    GlobalAveragePool,
)
from crossbench.spec import make_spec


def test_several_tasks_and_batch_sizes():
    spec = make_spec(task="predict, train", batch_size=[2, np.int64(8), 2])
    assert (spec.tasks, spec.batch_sizes) == (("train", "predict"), (2, 8))
    assert make_spec(task=["predict"]).tasks == ("predict",)
    assert make_spec(compute="bfloat16,float32").computes == ("float32", "bfloat16")
    # one example normalizes a picture, and predicts
    assert make_spec(batch_size=1, model="resnet_small").batch_sizes == (1,)
    assert make_spec(batch_size=1, model="mlp7_bn", task="predict").batch_sizes == (1,)


def test_a_limit_on_the_steps_or_on_the_examples(small_model):
    limited = replace(small_model, batches=3)
    assert (make_spec(model=limited).batches, make_spec(model=limited).examples) == (3, None)
    spec = make_spec(model=limited, examples=64)
    assert (spec.batches, spec.examples) == (None, 64)


def test_names_are_a_list_or_separated_by_commas():
    assert make_spec("torch, jax,torch").frameworks == ("torch", "jax")
    assert make_spec(["jax"], ["cpu"]).devices == ("cpu",)
    assert make_spec(rounds="auto", threads=[1, 1]).threads == (1,)
    assert make_spec().threads == (len(os.sched_getaffinity(0)),)


POSITIVE_INTEGER = "a whole number from 1 to 2,147,483,647"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"frameworks": "tensorflow"}, "there is no framework 'tensorflow': choose from"),
        ({"frameworks": []}, "name at least one framework"),
        ({"devices": "tpu"}, "there is no device 'tpu': choose from cpu, gpu, gpu:1"),
        ({"devices": "gpu:x"}, "there is no device 'gpu:x'"),
        ({"devices": "gpu:-1"}, "there is no device 'gpu:-1'"),
        ({"devices": "cpu,,gpu"}, "there is no device ''"),
        ({"model": "vgg"}, "there is no model 'vgg'"),
        ({"data": "/not/there"}, "data must be auto, synthetic, .*, not '/not/there': No such"),
        ({"data": ""}, "data must be auto, synthetic, or a directory or file, not ''"),
        ({"data": "long" * 2000}, "data must be .*: File name too long"),
        ({"data": "nul\0"}, "data must be .*: embedded null"),
        ({"data": "\ud800"}, "data must be .*: "),
        ({"rounds": "six"}, f"rounds must be {POSITIVE_INTEGER}, or auto, not 'six'"),
        ({"model": 42}, "model must be a name .*, FILE.py:NAME, a Model or .*, not 42"),
        ({"frameworks": "long" * 2000}, "there is no framework 'long"),
        ({"frameworks": 3}, "frameworks must be names such as 'reference', not 3"),
        ({"frameworks": [None]}, r"frameworks must be names such as 'reference', not \[None\]"),
        ({"devices": []}, "name at least one device"),
        ({"baseline": 3}, "baseline must be the name of a framework, not 3"),
        ({"frameworks": "torch", "baseline": "jax"}, "the baseline 'jax' is not run: choose from"),
        ({"price": object()}, "price must be a number, text or a mapping by device, not <object"),
        ({"target_accuracy": 50}, "target_accuracy must be None or a number over 0 and at most 1"),
        ({"target_loss": 0}, "target_loss must be None or a finite number over 0, not 0"),
        ({"target_loss": 1, "target_accuracy": 0.5}, "are two targets: give one"),
        ({"task": "predict", "target_accuracy": 0.5}, "target_accuracy is reached by training"),
        ({"task": "infer"}, "there is no task 'infer': choose from train, predict"),
        ({"compute": []}, "name at least one compute of float32, tf32, bfloat16"),
        ({"trace_memory": "no"}, "trace_memory must be True or False, not 'no'"),
        ({"layers": 1}, "layers must be True or False, not 1"),
        ({"layers": True, "task": "predict"}, "layers are parts of a training step: add train to"),
        ({"trace_memory": True, "task": "predict"}, "trace_memory is about a training step: add"),
        ({"rounds": 6, "precision": 0.1}, "precision is for rounds auto: leave one of precision"),
        ({"rounds": 6, "max_seconds": 9}, "max_seconds limits rounds auto, and a training to a"),
        ({"precision": 0}, "precision must be None or a finite number over 0, not 0"),
        ({"max_seconds": -1}, "max_seconds must be None or a number over 0 and at most [0-9,]+, n"),
        ({"epochs": None}, f"epochs must be {POSITIVE_INTEGER}, not None"),
        ({"batch_size": 0}, f"batch_size must be {POSITIVE_INTEGER}, not 0"),
        ({"batch_size": []}, "name at least one batch size"),
        ({"batch_size": [8, 1], "model": "mlp7_bn"}, "batch_size is 1, but batchnorm1 of mlp7_bn"),
        ({"batch_size": [2, 128], "examples": 64}, "examples is 64, but batch_size is 128"),
        ({"batches": 2, "examples": 64}, "batches gives every batch size as many steps, examples"),
        ({"batches": 0}, f"batches must be {POSITIVE_INTEGER}, not 0"),
        ({"seed": -1}, "seed must be a whole number from 0 to 9,223,372,036,854,775,807, not -1"),
        ({"threads": []}, "name at least one number of threads"),
        ({"threads": np.array(0)}, rf"threads must be {POSITIVE_INTEGER}, not array\(0\)"),
        ({"threads": 9999}, "threads is 9999, but this process may use only"),
        ({"timeout": float("nan")}, "timeout must be a number over 0"),
        ({"timeout": 1e300}, "timeout must be a number over 0 and at most [0-9,]+, not 1e[+]300"),
    ],
)
def test_an_invalid_argument_is_named_in_one_line(asked, message):
    with pytest.raises(SpecError, match=message) as caught:
        make_spec(**asked)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("model", "what"), [(FITTED, "numbers"), (SPEAKING, "a class at each place of a sequence")]
)
def test_a_target_accuracy_needs_a_model_with_one(model, what):
    with pytest.raises(SpecError) as caught:
        make_spec(model=model, target_accuracy=0.5)
    assert str(caught.value) == (
        f"target_accuracy does not apply to the model {model.name}: it predicts {what}; "
        "target_loss does"
    )
    assert make_spec(model=model, target_loss=2).settings.target_loss == 2.0


def test_numpy_numbers_become_plain_numbers():
    assert repr(make_spec(rounds=np.int64(7)).settings.rounds) == "7"
    assert repr(make_spec(precision=np.float32(0.5)).settings.precision) == "0.5"


def test_the_longest_timeout_is_valid_for_a_lock():
    timeout = make_spec(timeout=threading.TIMEOUT_MAX).settings.timeout
    assert threading.Lock().acquire(timeout=timeout)


@pytest.mark.parametrize(
    ("field", "known", "value"),
    [("layers", Dense, 10), ("optimizer", SGD, 0.1), ("data", CIFAR10, None)],
)
def test_unsupported_parts_of_a_model_are_named(lenet, field, known, value):
    """A subclass of a known part too: nobody says what it changes, and no worker can load it."""
    mine = dataclass(frozen=True)(type("Mine", (known,), {}))(value)
    model = replace(lenet, **{field: (Flatten(), mine) if field == "layers" else mine})
    with pytest.raises(SpecError, match="an unsupported layer, loss, optimizer or data source: Mi"):
        make_spec(model=model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": (Flatten(), Dense(2**31 - 1), Dense(2**31 - 1))}, "its weights, gradients and"),
        ({"layers": (Conv(9, (3, 3), padding=(2**30, 2**30)), GlobalAveragePool())}, "output of"),
        (
            {
                "input_shape": (9,),
                "layers": (Embedding(2**31 - 1, 10**5), GlobalAveragePool(), Dense(1)),
                "loss": BinaryCrossEntropy(),
            },
            "its weights and gradients",
        ),
        ({"data": Synthetic(), "input_shape": (3, 2**20, 2**20)}, "the data"),
    ],
)
def test_a_model_too_large_for_the_memory_is_refused_before_it_is_built(lenet, change, message):
    layers = (Conv(1, (2**20, 2**20)), Flatten(), Dense(4))
    model = replace(lenet, **({"layers": layers} | change))
    has = f"{psutil.virtual_memory().total / 2**30:,.1f} GiB"
    with pytest.raises(
        SpecError, match=rf"lenet needs at least [0-9,.]+ GiB of .*{message}.*has {has}"
    ) as caught:
        make_spec(model=model)
    assert "\n" not in str(caught.value)


def test_a_batch_too_large_for_the_memory_is_refused_on_the_cpu_only(lenet):
    with pytest.raises(SpecError, match="for conv1's output of 1,000,000,000 examples"):
        make_spec(batch_size=10**9)
    assert make_spec(devices="gpu", batch_size=10**9).batch_sizes == (10**9,)


def test_the_models_of_the_catalogue_fit_into_4_gib(monkeypatch):
    monkeypatch.setattr(memory, "total_bytes", lambda: 4 * 2**30)
    for name in ("bignet", "imdb_fasttext", "lenet", "resnet63"):
        assert make_spec(model=name).model.name == name


def test_the_float64_copy_of_an_embedding_does_not_count(lenet, monkeypatch):
    """The proof takes a part of its rows: its float64 does not count."""
    monkeypatch.setattr(memory, "total_bytes", lambda: 16 * 2**30)
    layers = (Embedding(15_000_000, 100), GlobalAveragePool(), Dense(2))
    embedded = replace(lenet, input_shape=(9,), layers=layers)
    assert make_spec(model=embedded).model is embedded  # 12 GB in float32
    with pytest.raises(SpecError, match="of memory for its weights, gradients"):
        make_spec(model=replace(lenet, layers=(Flatten(), Dense(500_000), Dense(10))))  # 37 GB
