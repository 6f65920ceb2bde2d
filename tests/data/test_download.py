"""Test downloads, from a server on this machine."""

import hashlib
import resource
import socket
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crossbench import data
from crossbench.commands import doctor
from crossbench.data.download import DataUnavailable, OfficialFiles
from crossbench.data.sources import Text


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
    return OfficialFiles("T", "t", digests, 1, **more)


def serve(tmp_path, **contents):
    for name, content in contents.items():
        (tmp_path / "served" / name).write_text(content)


def test_downloaded_files_are_kept_in_the_cache(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    here = official(server)
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
    def unpack(directory):
        for name in "cd":
            (directory / name).write_text((directory / "a").read_text())

    serve(tmp_path, a="a", b="b")
    here = official(server, unpack=unpack, unpacked={"c": 1, "d": 1})
    for size in (None, 2):
        if size:
            (here.directory() / "c").write_bytes(bytes(size))
        assert not here.is_cached()
        directory = here.fetch()
        assert sorted((p.name, p.read_text()) for p in directory.iterdir()) == [
            *(("c", "a"), ("d", "a")),
        ]


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
    assert {path.name for path in (tmp_path / "cache/t").iterdir()} == {"a"}


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("A")])
def test_a_missing_or_damaged_file_in_the_cache_is_downloaded_again(tmp_path, server, spoil):
    serve(tmp_path, a="a", b="b")
    here = official(server)
    spoil(here.fetch() / "a")
    server.requests.clear()
    assert (here.fetch() / "a").read_text() == "a"
    assert server.requests == [("HEAD", "/a"), ("GET", "/a")]


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
    assert list((tmp_path / "cache/t").iterdir()) == []


def test_the_files_of_a_download_that_another_one_overtakes_are_whole(tmp_path, server):
    """A process that reads the first one's files must not lose them."""
    overtook = []

    def unpack(directory):
        if not overtook:
            overtook.append(True)
            overtook.append(contents(here.fetch()))
        for name in "cd":
            (directory / name).write_text(name)

    serve(tmp_path, a="a", b="b")
    here = official(server, unpack=unpack, unpacked={"c": 1, "d": 1})
    assert contents(here.fetch()) == overtook[1] == {"c": "c", "d": "d"}


def contents(directory):
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


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
