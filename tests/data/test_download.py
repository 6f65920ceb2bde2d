"""Test downloads, from a server on this machine."""

import hashlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crossbench import data
from crossbench.commands import doctor
from crossbench.data.dataset import Dataset, Split
from crossbench.data.download import DataUnavailable, OfficialFiles
from crossbench.data.files import DamagedFile
from crossbench.data.sources import Text
from crossbench.inputs.errors import DataError

PATIENCE = 60  # seconds until a waiting test gives up


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        self.server.requests.append((self.command, self.path))

    def do_GET(self):
        if hold := self.server.holds.pop(self.path, None):
            hold.arrived.set()
            hold.released.wait(PATIENCE)
        super().do_GET()


class Hold:
    """Makes the first request for a file wait until it is released."""

    def __init__(self, server, path):
        self.arrived, self.released = threading.Event(), threading.Event()
        server.holds[path] = self


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve the files in tmp_path / "served"; `server.requests` lists the requests."""
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "served").mkdir()
    handler = partial(Handler, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests, server.holds = [], {}
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def official(server, served, **more):
    """Return the official files a and b of the server; it has those in served."""
    return of_two_files(f"http://127.0.0.1:{server.server_address[1]}", **more)


def of_two_files(base, **more):
    digests = {f"{base}/{name}": hashlib.sha256(name.encode()).hexdigest() for name in "ab"}
    return OfficialFiles("T", "t", digests, 1, **{"files": ("a", "b"), **more})


def serve(tmp_path, **contents):
    for name, content in contents.items():
        (tmp_path / "served" / name).write_text(content)


def test_downloaded_files_are_kept_in_the_cache(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    here = official(server, tmp_path)
    assert not here.is_cached()
    directory = here.fetch()
    assert directory == tmp_path / "cache" / "t"
    assert sorted((p.name, p.read_text()) for p in directory.iterdir()) == [("a", "a"), ("b", "b")]
    assert here.is_cached()
    asked = len(server.requests)
    assert here.fetch() == directory
    assert len(server.requests) == asked
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["t"]


def test_unpacked_files_are_kept_and_nothing_else(tmp_path, server):
    def unpack(downloaded, directory):
        directory.mkdir()
        (directory / "c").write_text((downloaded / "a").read_text())

    serve(tmp_path, a="a", b="b")
    directory = official(server, tmp_path, files=("c",), unpack=unpack).fetch()
    assert [(p.name, p.read_text()) for p in directory.iterdir()] == [("c", "a")]


def test_a_file_with_another_digest_is_not_accepted(tmp_path, server):
    serve(tmp_path, a="a", b="B")
    here = official(server, tmp_path)
    with pytest.raises(DataUnavailable, match=r"/b sent is not the official file \(SHA-256\)"):
        here.fetch()
    assert not here.is_cached()
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(("served", "message"), [({}, "/a: HTTPError"), ({"a": "a"}, "/b: HTTP")])
def test_a_file_that_the_server_lacks_is_named(tmp_path, server, served, message):
    serve(tmp_path, **served)
    with pytest.raises(DataUnavailable, match=message):
        official(server, tmp_path).fetch()
    assert not official(server, tmp_path).is_cached()


def test_an_incomplete_cache_is_downloaded_again(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    here = official(server, tmp_path)
    (tmp_path / "cache" / "t").mkdir(parents=True)
    (tmp_path / "cache" / "t" / "a").write_text("old")
    assert (here.fetch() / "a").read_text() == "a"


def test_a_file_that_unpacking_finds_damaged_is_an_error_and_not_kept(tmp_path, server):
    def unpack(downloaded, directory):
        raise DamagedFile(downloaded / "a", "is damaged")

    serve(tmp_path, a="a", b="b")
    with pytest.raises(DataError, match=r"/a is damaged; it was removed, and the next run down"):
        official(server, tmp_path, unpack=unpack).load(one_example)
    assert list((tmp_path / "cache").iterdir()) == []


def one_example(directory):
    """Return a data set of one example: the contents of the file `a`."""
    split = Split(*2 * [[(directory / "a").read_text()]])
    return Dataset("T", split, split)


def test_a_file_in_the_cache_that_is_not_the_official_one_is_downloaded_by_the_next_run(
    tmp_path, server
):
    serve(tmp_path, a="a", b="b")
    here = official(server, tmp_path)
    file = here.fetch() / "a"
    file.write_text("A")
    with pytest.raises(DataError) as caught:
        here.load(one_example)
    assert str(caught.value) == (
        f"{file} is damaged: it is not the official file (SHA-256); it was removed, and the next "
        "run downloads it again"
    )
    assert here.load(one_example).train.inputs == ["a"]


def circle_of_links(place):
    (place / "cache").symlink_to("cache")
    return place / "cache"


def cache_with(place, make):
    """Return a cache in which `make` puts something else in the place of the folder."""
    (place / "cache").mkdir()
    make(place / "cache" / "t")
    return place / "cache"


def make_at(path, make):
    make(path)
    return path


UNUSABLE = {
    "a file": lambda place: make_at(place / "cache", Path.touch),
    "below a file": lambda place: make_at(place / "file", Path.touch) / "cache",
    "a dangling link": lambda place: make_at(place / "cache", lambda p: p.symlink_to("nowhere")),
    "a circle of links": circle_of_links,
    "a name that is too long": lambda place: place / ("x" * 300),
    "where nothing can be made": lambda place: Path("/dev/null/cache"),
    "with a file for a folder": lambda place: cache_with(place, Path.touch),
    "with a dangling link for a folder": lambda place: cache_with(
        place, lambda path: path.symlink_to("nowhere")
    ),
    "read-only": lambda place: make_at(place / "cache", lambda path: path.mkdir(0o555)),
    "closed": lambda place: make_at(place / "cache", lambda path: path.mkdir(0o000)),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_unusable_cache_is_named(tmp_path, monkeypatch, server, kind):
    cache = UNUSABLE[kind](tmp_path)
    if kind in ("read-only", "closed") and os.access(cache, os.W_OK):
        pytest.skip("this user may write everywhere")
    monkeypatch.setenv("CROSSBENCH_CACHE", str(cache))
    serve(tmp_path, a="a", b="b")
    here = official(server, tmp_path)
    assert not here.is_cached()
    with pytest.raises(DataUnavailable) as caught:
        here.fetch()
    said = str(caught.value)
    assert said.startswith(f"{cache / 't'} cannot be written: ")
    assert said.endswith("; set CROSSBENCH_CACHE to a folder that can be written")
    assert "\n" not in said
    assert not any(command == "GET" for command, _ in server.requests)


def test_auto_uses_synthetic_data_if_the_cache_is_unusable(tmp_path, monkeypatch):
    (tmp_path / "cache").touch()
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(data.synthetic_text.load, "__defaults__", (5_000,))
    dataset = data.load(Text(length=4, step=3), "auto", 0)
    assert dataset.name == "synthetic text (seed 0)"
    assert f"is not available ({tmp_path}/cache/nietzsche cannot be written: " in dataset.note


def test_auto_uses_synthetic_data_without_a_home_directory(no_home_directory, monkeypatch):
    monkeypatch.setattr(data.synthetic_text.load, "__defaults__", (5_000,))
    assert "(there is no home directory for the cache; set CROSSBENCH_CACHE to a folder" in (
        data.load(Text(length=4, step=3), "auto", 0).note
    )


def test_doctor_reports_a_missing_home_directory(no_home_directory):
    assert "not available: there is no home directory for the cache; set" in doctor.report()


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path, server):
    """Limit the size of a file instead of the disk: writing fails in the same place."""

    def unpack(downloaded, directory):
        directory.mkdir()
        (directory / "a").write_bytes(bytes(100_000))

    serve(tmp_path, a="a", b="b")
    here = official(server, tmp_path, unpack=unpack)
    with limited_file_size(50_000), pytest.raises(DataUnavailable) as caught:
        here.fetch()
    assert str(caught.value).startswith(f"{tmp_path}/cache/t cannot be written: File too large; ")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_disk_that_fills_up_during_a_download_is_an_error(tmp_path, server):
    (tmp_path / "served" / "a").write_bytes(bytes(100_000))
    with (
        limited_file_size(50_000),
        pytest.raises(DataUnavailable, match=r"/cache/t cannot be written: File"),
    ):
        official(server, tmp_path).fetch()
    assert list((tmp_path / "cache").iterdir()) == []


@contextmanager
def limited_file_size(size):
    """Let no file of this process grow over so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


FETCH = """
import sys
from test_download import of_two_files
print(of_two_files(sys.argv[1]).fetch())
"""


@pytest.fixture
def start_fetch(server):
    """Return a function that starts a process that fetches; kill the processes at the end."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", FETCH, f"http://127.0.0.1:{server.server_address[1]}"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def unfinished_downloads(tmp_path):
    return list((tmp_path / "cache").glob("download-*"))


def test_two_processes_that_download_at_once_both_get_the_files(tmp_path, server, start_fetch):
    serve(tmp_path, a="a", b="b")
    hold = Hold(server, "/b")
    slow = start_fetch()
    assert hold.arrived.wait(PATIENCE)

    directory = official(server, tmp_path).fetch()  # it overtakes the slow one
    [part] = unfinished_downloads(tmp_path)  # and leaves it alone
    assert (part / "downloaded" / "a").exists()
    first = {path.name: path.stat().st_ino for path in directory.iterdir()}
    folder = directory.stat().st_ino

    hold.released.set()
    out, errors = slow.communicate(timeout=PATIENCE)
    assert (slow.returncode, out.strip()) == (0, str(directory)), errors
    # so a process that reads the first one's files does not lose them
    assert directory.stat().st_ino == folder
    assert {path.name: path.stat().st_ino for path in directory.iterdir()} == first
    assert list((tmp_path / "cache").iterdir()) == [directory]


def test_the_leftovers_of_a_killed_download_are_removed_by_the_next_run(
    tmp_path, server, start_fetch
):
    serve(tmp_path, a="a", b="b")
    hold = Hold(server, "/b")
    killed = start_fetch()
    assert hold.arrived.wait(PATIENCE)
    killed.send_signal(signal.SIGKILL)
    killed.wait(PATIENCE)
    hold.released.set()
    [part] = unfinished_downloads(tmp_path)
    assert (part / "downloaded" / "a").exists()
    assert not official(server, tmp_path).is_cached()
    directory = official(server, tmp_path).fetch()
    assert list((tmp_path / "cache").iterdir()) == [directory]


def test_foreign_files_in_the_cache_stay(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    cache = tmp_path / "cache"
    (cache / "mine").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (cache / "download-link").symlink_to(tmp_path / "elsewhere")
    (cache / "download-file").touch()
    official(server, tmp_path).fetch()
    assert sorted(p.name for p in cache.iterdir()) == [
        "download-file",
        "download-link",
        "mine",
        "t",
    ]
    assert (tmp_path / "elsewhere").exists()


@pytest.mark.long
def test_a_silent_server_is_given_up_within_10_s(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # as a proxy, so that every request reaches it
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        monkeypatch.setenv("https_proxy", proxy)
        started = time.monotonic()
        with pytest.raises(DataUnavailable):
            data.OFFICIAL_FILES[0].fetch()
        assert time.monotonic() - started < 10


def test_every_official_file_has_a_digest_and_a_folder_of_its_own():
    folders = {official.folder for official in data.OFFICIAL_FILES}
    assert len(folders) == len(data.OFFICIAL_FILES) == 5
    for here in data.OFFICIAL_FILES:
        for url, sha256 in here.sha256.items():
            assert url.startswith("https://")
            assert len(bytes.fromhex(sha256)) == 32
