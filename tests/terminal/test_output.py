"""Check commands whose standard streams are full, closed, or in an encoding of few characters."""

import os
import subprocess
import sys

import pytest
from samples import comparison, result

import crossbench

FULL = "/dev/full"
needs_full = pytest.mark.skipif(not os.access(FULL, os.W_OK), reason="there is no /dev/full")


def shell(command, *words, **environment):
    """Run `command` in bash, where "$@" is crossbench and its arguments."""
    return subprocess.run(
        ["bash", "-c", command, "bash", sys.executable, "-m", "crossbench", *map(str, words)],
        capture_output=True,
        env=os.environ | environment,
        timeout=120,
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return a results file, twice, whose table does not fit into a pipe's buffer."""
    path = tmp_path_factory.mktemp("results") / "r.json"
    cells = [result(f"f{i:0700d}", [9, 2, 1, 3]) for i in range(100)]
    comparison(*cells).save(path)
    return [path, path]


@pytest.mark.parametrize(
    ("encoding", "figure"),
    [
        ("ascii", "2.00 [1.00-3.00]"),
        pytest.param("utf-8", "2.00 [1.00–3.00]", marks=pytest.mark.long),
    ],
)
def test_characters_that_the_encoding_lacks_are_replaced(tmp_path, encoding, figure):
    path = tmp_path / "r.json"
    comparison(result("torch", [2, 2, 1, 3])).save(path)
    done = shell('"$@"', "merge", path, path, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    assert figure in text
    assert ("x" if encoding == "ascii" else "×") + " fastest" in text
    grid = [line for line in text.splitlines() if line and line[1] != ":"]
    assert len({len(line) for line in grid}) == 1  # the columns stay aligned


def test_a_closed_pipe_ends_quietly(results):
    done = shell('"$@" | head -1; exit ${PIPESTATUS[0]}', "compare", *results)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"1: 2026")
    done = shell('"$@" | (exec <&-); exit ${PIPESTATUS[0]}', "--help")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("where", "why"),
    [
        pytest.param(
            f">{FULL}",
            "cannot write to the standard output: No space left on device",
            marks=needs_full,
        ),
        pytest.param(">&-", "the standard output is closed", marks=pytest.mark.long),
    ],
)
def test_a_table_that_cannot_be_printed_is_an_error(results, where, why):
    done = shell(f'"$@" {where}', "merge", *results)
    assert done.returncode == 2
    assert done.stderr.decode() == f"crossbench: {why}\n"


@needs_full
def test_a_run_whose_table_cannot_be_printed_succeeds_if_a_file_holds_it(tmp_path, small_run):
    path = tmp_path / "r.json"
    done = shell(f'"$@" >{FULL}', *small_run, "--json", path)
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("crossbench: cannot write to the standard output: ")
    assert last.endswith(f": the results are in {path}")
    assert (done.returncode, crossbench.load(path).complete) == (0, True)


@pytest.mark.long
@pytest.mark.parametrize("where", ["2>&-", pytest.param(f"2>{FULL}", marks=needs_full)])
def test_an_unusable_standard_error_changes_nothing_else(small_run, where):
    done = shell(f'"$@" {where}', *small_run)
    assert done.returncode == 0
    assert done.stdout.startswith(b"tiny on ")
    assert b"crossbench: " not in done.stdout
    wrong = shell(f'"$@" {where}', "--rounds", "x")
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert shell('"$@" <&- >&- 2>&-', *small_run).returncode == 2
