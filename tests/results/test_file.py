"""Check that results files are replaced as a whole and locked by one run, even if it is killed."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest
from samples import comparison, result

import crossbench
from crossbench.inputs.errors import ResultsError
from crossbench.results import file
from crossbench.results.schema import schema

HOLDER = """
import sys, time
from crossbench.results import file
with file.new_file(sys.argv[1]) as write:
    if sys.argv[2:]:
        write(sys.argv[2].encode())
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hold(tmp_path):
    """Return a function that locks a new file from another process; it returns path and process."""
    started = []

    def hold(*content):
        path = tmp_path / "r.json"
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, path, *content], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return path, process

    yield hold
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_file_in_use_by_another_run_is_refused(hold):
    path, process = hold("something")
    with pytest.raises(ResultsError) as caught, file.old_file(path):
        pass
    held_by = f" (process {process.pid})" if sys.platform == "linux" else ""
    assert str(caught.value) == (
        f"{path} is being written by another run{held_by}: wait for it, or name another file"
    )
    assert path.read_bytes() == b"something"


@pytest.mark.parametrize("path", [3, "a\0b"])
def test_an_invalid_path_gets_one_line(path):
    for work in (file.read, lambda path: file.new_file(path).__enter__()):
        with pytest.raises(ResultsError) as caught:
            work(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reopen", "message"),
    [
        (["something"], file.old_file, "exists already"),
        ([], file.new_file, "is empty: its run was killed before it wrote"),
    ],
)
def test_a_killed_run_releases_its_file(hold, content, reopen, message):
    path, process = hold(*content)
    process.kill()
    process.wait()
    with pytest.raises(ResultsError, match=message):
        file.new_file(path).__enter__() if content else file.read(path)
    with reopen(path) as write:
        write(b"more")
    assert path.read_bytes() == b"more"


def test_a_file_stays_locked_when_it_is_replaced(tmp_path):
    path = tmp_path / "r.json"
    with file.new_file(path) as write:
        for content in (b"one", b"two"):
            write(content)
            with pytest.raises(ResultsError, match="by another run"), file.new_file(path):
                pass
    with file.old_file(path):
        pass
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


def test_a_new_file_that_was_not_written_is_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), file.new_file(tmp_path / "r.json"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_partial_files_of_a_killed_writer_are_removed(tmp_path):
    """Those of other files, and those that another process is writing, stay."""
    path = tmp_path / "r.json"
    names = [f"{file._temporary_prefix(path)}{i}" for i in range(2)] + [".crossbench-other"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    with open(tmp_path / names[0], "rb") as written:
        assert file.try_lock(written.fileno())
        with file.new_file(path) as write:
            write(b"something")
        assert {found.name for found in tmp_path.iterdir()} == {"r.json", names[0], names[2]}


def test_readers_never_see_half_a_file(tmp_path):
    path, end = tmp_path / "r.json", threading.Event()
    contents = [letter * 10**6 for letter in (b"a", b"b")]
    file.replace(path, contents[0])

    def write(content):
        while not end.is_set():
            file.replace(path, content)

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, content) for content in contents]
        try:
            assert all(file.read(path) in contents for _ in range(50))
        finally:
            end.set()
    assert [writer.result() for writer in writers] == [None, None]
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


def test_a_file_has_any_name_that_the_system_allows_and_the_permissions_of_any_file(tmp_path):
    path = tmp_path / ("x" * (os.pathconf(tmp_path, "PC_NAME_MAX") - 5) + ".json")
    c = comparison(result("torch", [9, 2]))
    c.save(path)
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    c.replace(path)
    assert crossbench.load(path) == c
    with pytest.raises(ResultsError, match="cannot be written: No such file"):
        c.replace(tmp_path / "none" / path.name)
    with pytest.raises(ResultsError, match="cannot be written: File name too long"):
        c.save(tmp_path / f"x{path.name}")


@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_only_regular_files_are_opened(tmp_path, kind):
    path = {"fifo": tmp_path / "fifo", "device": Path("/dev/zero"), "directory": tmp_path}[kind]
    if kind == "fifo":
        os.mkfifo(path)
    for use in (crossbench.load, crossbench.resume, comparison(result("torch", [9, 2])).save):
        with pytest.raises(ResultsError, match=r"not a regular file|Is a directory") as caught:
            use(path)
        assert "\n" not in str(caught.value)


def test_the_json_schema_in_the_documentation_is_that_of_the_records():
    """Where it fails: python -m crossbench.results.schema > docs/results-file.schema.json."""
    kept = Path(__file__).parents[2] / "docs" / "results-file.schema.json"
    assert kept.read_text() == schema() + "\n"
    validator = jsonschema.Draft202012Validator(json.loads(kept.read_text()))
    saved = json.loads(comparison(result("torch", [9, 2, 2])).encode())
    assert list(validator.iter_errors(saved)) == []
    saved["results"][0]["epochs"][0]["wall_seconds"] = "1"
    assert list(validator.iter_errors(saved))
