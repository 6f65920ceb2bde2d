"""Whatever is read from outside gives a result or one line that says what is wrong.

Hypothesis makes the input: damaged results files, arguments of a run, data files and sweep files.
"""

import copy
import json
from contextlib import contextmanager
from functools import reduce
from operator import getitem

from hypothesis import HealthCheck, given, settings, strategies as st
from samples import full_comparison, places, write_cifar

import crossbench
from crossbench import arguments
from crossbench.data import cifar10
from crossbench.inputs.errors import CrossbenchError
from crossbench.models import names
from crossbench.report import FORMATS
from crossbench.spec import make_spec
from crossbench.sweeps import jobs

examples = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,  # the same input on every machine
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
WORDS = st.sampled_from(
    ["", "auto", "all", "torch", "torch:tuned", "flux,,", "gpu:1", "cpu", "x.py:M", "\x1b[31m", "é"]
)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([0, 1, 2, -1, 1e300, True])
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.text(max_size=8))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@contextmanager
def refused_in_one_line(word=""):
    """Expect success, or an error of one line that a terminal can show, with a word in it."""
    try:
        yield
    except CrossbenchError as error:
        said = str(error)
        assert said
        assert said.isprintable(), said
        assert word in said


GOOD = json.loads(full_comparison().encode())


def changed(path, value, is_removed):
    """Return the good results with another value at a place, or without that place."""
    found = copy.deepcopy(GOOD)
    *outer, last = path
    inside = reduce(getitem, outer, found)
    if is_removed:
        del inside[last]
    else:
        inside[last] = value
    return found


def draw(path, formats=("text",)):
    """Load a results file, and draw all of it."""
    loaded = crossbench.load(path)
    for format in formats:
        assert crossbench.table(loaded, details=True, format=format)
    assert str(loaded)


def test_a_results_file_with_every_field_is_read_back_and_drawn(tmp_path):
    path = tmp_path / "r.json"
    full_comparison().save(path)
    assert crossbench.load(path) == full_comparison()
    draw(path, FORMATS)


@examples
@given(st.sampled_from([*places(GOOD)]), VALUES, st.booleans())
def test_a_results_file_with_another_value(tmp_path, place, value, is_removed):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(changed(place, value, is_removed)))
    with refused_in_one_line():
        draw(path)


ARGUMENTS = {
    **dict.fromkeys(
        ("frameworks", "devices", "variants", "task", "compute", "baseline", "price"), WORDS
    ),
    **dict.fromkeys(("rounds", "precision", "max_seconds", "epochs", "batch_size"), NUMBERS),
    **dict.fromkeys(("input", "batches", "examples", "seed", "threads", "timeout"), NUMBERS),
    **dict.fromkeys(("target_accuracy", "target_loss", "trace_memory", "layers"), NUMBERS),
    "data": WORDS,
    "machine": st.text(max_size=20),
    "model": st.sampled_from([*names(), "lenet5x", "missing.py:M"]),
}


def test_every_argument_of_a_run_is_tried():
    assert set(ARGUMENTS) == set(arguments.ARGUMENTS)


@examples
@given(st.data())
def test_arguments_of_a_run(data):
    chosen = data.draw(st.lists(st.sampled_from(sorted(ARGUMENTS)), max_size=3, unique=True))
    asked = {name: data.draw(st.one_of(ARGUMENTS[name], VALUES), name) for name in chosen}
    with refused_in_one_line():
        make_spec(**asked)


@examples
@given(st.integers(0, 5), st.integers(0, 10**6), st.binary(max_size=9))
def test_a_damaged_cifar_file(tmp_path, number, position, content):
    directory = write_cifar(tmp_path / "cifar", per_file=2)
    path = sorted(directory.iterdir())[number]
    raw = path.read_bytes()
    position %= len(raw)
    path.write_bytes(raw[:position] + content)
    with refused_in_one_line(path.name):
        assert cifar10.load_path(directory).train.labels.max() < 10


@examples
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*ARGUMENTS, "machines", "workers", "resources", "jobs"]), VALUES
        ),
        max_size=3,
    ),
    st.text(max_size=12),
)
def test_a_sweep_file(tmp_path, pairs, rest):
    path = tmp_path / "sweep.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in pairs]
    path.write_text("\n".join([*lines, rest]), errors="surrogatepass")
    with refused_in_one_line():
        jobs.read(path)
