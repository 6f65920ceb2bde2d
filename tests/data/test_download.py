"""Test downloads, from a server on this machine."""

import hashlib
import resource
import socket
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from crossbench import data
from crossbench.commands import doctor
from crossbench.data.dataset import Dataset, Split
from crossbench.data.download import DataUnavailable, OfficialFiles
from crossbench.data.files import DamagedFile
from crossbench.data.sources import Text
from crossbench.inputs.errors import DataError


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        self.server.requests.append((self.command, self.path))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve the files in tmp_path / "served"; `server.requests` lists the requests."""
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "served").mkdir()
    handler = partial(Handler, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def official(server, **more):
    """Return the official files a and b of the server."""
    base = f"http://127.0.0.1:{server.server_address[1]}"
    digests = {f"{base}/{name}": hashlib.sha256(name.encode()).hexdigest() for name in "ab"}
    return OfficialFiles("T", "t", digests, 1, **{"files": ("a", "b"), **more})


def serve(tmp_path, **contents):
    for name, content in contents.items():
        (tmp_path / "served" / name).write_text(content)


def test_downloaded_files_are_kept_in_the_cache(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    here = official(server)
    assert not here.is_cached()
    (tmp_path / "cache" / "download-abcdefgh").mkdir(parents=True)  # of one that was killed
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
    directory = official(server, files=("c",), unpack=unpack).fetch()
    assert [(p.name, p.read_text()) for p in directory.iterdir()] == [("c", "a")]


@pytest.mark.parametrize(
    ("served", "message"),
    [
        ({"a": "a", "b": "B"}, r"what .*/b sent is not the official file \(SHA-256\)$"),
        ({"a": "a"}, "/b: HTTPError$"),
    ],
)
def test_another_or_a_missing_file_is_named(tmp_path, server, served, message):
    serve(tmp_path, **served)
    with pytest.raises(DataUnavailable, match=message):
        official(server).fetch()
    assert not official(server).is_cached()
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_incomplete_cache_is_downloaded_again(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    here = official(server)
    (tmp_path / "cache" / "t").mkdir(parents=True)
    (tmp_path / "cache" / "t" / "a").write_text("old")
    assert (here.fetch() / "a").read_text() == "a"


def test_a_file_that_unpacking_finds_damaged_is_an_error_and_not_kept(tmp_path, server):
    def unpack(downloaded, directory):
        raise DamagedFile(downloaded / "a", "is damaged")

    serve(tmp_path, a="a", b="b")
    with pytest.raises(DataError, match=r"/a is damaged; it was removed, and the next run down"):
        official(server, unpack=unpack).load(one_example)
    assert list((tmp_path / "cache").iterdir()) == []


def one_example(directory):
    """Return a data set of one example: the contents of the file `a`."""
    split = Split(*2 * [[(directory / "a").read_text()]])
    return Dataset("T", split, split)


def test_a_file_in_the_cache_that_is_not_the_official_one_is_downloaded_by_the_next_run(
    tmp_path, server
):
    serve(tmp_path, a="a", b="b")
    here = official(server)
    file = here.fetch() / "a"
    file.write_text("A")
    with pytest.raises(DataError) as caught:
        here.load(one_example)
    assert str(caught.value) == (
        f"{file} is damaged: it is not the official file (SHA-256); it was removed, and the next "
        "run downloads it again"
    )
    assert here.load(one_example).train.inputs == ["a"]


UNUSABLE = {
    "a file": lambda cache: cache.touch(),
    "with a file for a folder": lambda cache: (cache.mkdir(), (cache / "t").touch()),
    "with a dangling link for a folder": lambda cache: (
        cache.mkdir(),
        (cache / "t").symlink_to("nowhere"),
    ),
    "a name that is too long": lambda cache: None,
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_unusable_cache_is_named(tmp_path, monkeypatch, server, kind):
    cache = tmp_path / ("x" * 300 if "name" in kind else "cache")
    UNUSABLE[kind](cache)
    monkeypatch.setenv("CROSSBENCH_CACHE", str(cache))
    serve(tmp_path, a="a", b="b")
    here = official(server)
    assert not here.is_cached()
    with pytest.raises(DataUnavailable) as caught:
        here.fetch()
    said = str(caught.value)
    assert said.startswith(f"{cache / 't'} cannot be written: ")
    assert said.endswith("; set CROSSBENCH_CACHE to a folder that can be written")
    assert "\n" not in said
    assert not any(command == "GET" for command, _ in server.requests)


def test_without_a_home_directory_auto_uses_synthetic_data_and_doctor_says_why(
    no_home_directory, monkeypatch
):
    monkeypatch.setattr(data.synthetic_text.load, "__defaults__", (5_000,))
    monkeypatch.setattr("crossbench.adapters.names", lambda: ["reference"])
    why = "there is no home directory for the cache; set CROSSBENCH_CACHE to a folder"
    assert f"({why}" in data.load(Text(length=4, step=3), "auto", 0).note
    assert f"not available: {why}" in doctor.report()


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path, server):
    """Limit the size of a file instead of the disk: writing fails in the same place."""
    serve(tmp_path, a="a" * 100_000, b="b")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(DataUnavailable, match=r"/cache/t cannot be written: File too large; "):
            official(server).fetch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_files_of_a_download_that_another_one_overtakes_stay(tmp_path, server):
    """A process that reads the first one's files must not lose them."""
    overtook = []

    def unpack(downloaded, directory):
        overtook.append(inodes(official(server).fetch()))
        downloaded.rename(directory)  # the other one has left it alone

    serve(tmp_path, a="a", b="b")
    directory = official(server, unpack=unpack).fetch()
    assert [inodes(directory)] == overtook
    assert list((tmp_path / "cache").iterdir()) == [directory]


def inodes(directory):
    return {path.name: path.stat().st_ino for path in (directory, *directory.iterdir())}


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
