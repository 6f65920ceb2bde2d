"""The downloads, from a server on this machine."""

import hashlib
import socket
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from crossbench import data
from crossbench.data.download import Official, Unreachable


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        self.server.asked.append((self.command, self.path))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of the files in tmp_path / "served"; its `asked` lists the requests."""
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "served").mkdir()
    handler = partial(Handler, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def official(server, served, **more):
    """Two files, of which the server has what is in served."""
    base = f"http://127.0.0.1:{server.server_address[1]}"
    digests = {f"{base}/{name}": hashlib.sha256(name.encode()).hexdigest() for name in "ab"}
    return Official("T", "t", digests, 1, **{"files": ("a", "b"), **more})


def serve(tmp_path, **contents):
    for name, content in contents.items():
        (tmp_path / "served" / name).write_text(content)


def test_what_is_downloaded_is_kept(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    here = official(server, tmp_path)
    assert not here.is_cached()
    directory = here.fetch()
    assert directory == tmp_path / "cache" / "t"
    assert sorted((p.name, p.read_text()) for p in directory.iterdir()) == [("a", "a"), ("b", "b")]
    assert here.is_cached()
    asked = len(server.asked)
    assert here.fetch() == directory
    assert len(server.asked) == asked
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["t"]


def test_what_is_unpacked_is_kept_and_nothing_else(tmp_path, server):
    def unpack(downloaded, directory):
        directory.mkdir()
        (directory / "c").write_text((downloaded / "a").read_text())

    serve(tmp_path, a="a", b="b")
    directory = official(server, tmp_path, files=("c",), unpack=unpack).fetch()
    assert [(p.name, p.read_text()) for p in directory.iterdir()] == [("c", "a")]


def test_another_file_is_not_taken(tmp_path, server):
    serve(tmp_path, a="a", b="B")
    here = official(server, tmp_path)
    with pytest.raises(Unreachable, match=r"/b sent is not the official file \(SHA-256\)"):
        here.fetch()
    assert not here.is_cached()
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(("served", "message"), [({}, "/a: HTTPError"), ({"a": "a"}, "/b: HTTP")])
def test_a_missing_file_is_a_reason(tmp_path, server, served, message):
    serve(tmp_path, **served)
    with pytest.raises(Unreachable, match=message):
        official(server, tmp_path).fetch()
    assert not official(server, tmp_path).is_cached()


def test_half_a_cache_is_downloaded_anew(tmp_path, server):
    serve(tmp_path, a="a", b="b")
    here = official(server, tmp_path)
    (tmp_path / "cache" / "t").mkdir(parents=True)
    (tmp_path / "cache" / "t" / "a").write_text("old")
    assert (here.fetch() / "a").read_text() == "a"


def test_a_server_that_is_silent_is_given_up_within_10_s(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSBENCH_CACHE", str(tmp_path / "cache"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # as a proxy, through which everything goes
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        monkeypatch.setenv("https_proxy", proxy)
        started = time.monotonic()
        with pytest.raises(Unreachable):
            data.OFFICIAL[0].fetch()
        assert time.monotonic() - started < 10


def test_what_auto_downloads_has_a_digest_and_a_place_of_its_own():
    assert len({official.folder for official in data.OFFICIAL}) == len(data.OFFICIAL) == 4
    for here in data.OFFICIAL:
        for url, sha256 in here.sha256.items():
            assert url.startswith("https://")
            assert len(bytes.fromhex(sha256)) == 32
