"""Check that a run locks and removes its directory, and those that killed runs left."""

import fcntl
import os
import tempfile
from contextlib import suppress

import pytest

from crossbench.host.run_directory import (
    PREFIX,
    remove_abandoned_directories,
    run_directory,
)
from crossbench.inputs.errors import DataError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_the_directory_is_in_tmpdir_and_removed_at_the_end(folder):
    with run_directory() as directory:
        assert directory.parent == folder
        (directory / "tmp").mkdir()
        (directory / "tmp" / "file").write_text("content")
    assert list(folder.iterdir()) == []
    with pytest.raises(FileNotFoundError), run_directory():
        raise FileNotFoundError
    assert list(folder.iterdir()) == []


def test_ctrl_c_during_removal_is_raised_after_it(folder, monkeypatch):
    """The user presses it when the first file is removed."""
    unlink, pressed = os.unlink, []

    def press(*arguments, **options):
        unlink(*arguments, **options)
        if not pressed:
            pressed.append(True)
            raise KeyboardInterrupt

    def stay_for_a_while():
        with run_directory() as directory:
            for number in range(3):
                (directory / f"{number}").touch()
            monkeypatch.setattr(os, "unlink", press)

    with pytest.raises(KeyboardInterrupt):
        stay_for_a_while()
    assert pressed
    assert list(folder.iterdir()) == []


def test_of_the_folder_only_the_directories_of_killed_runs_are_removed(folder):
    """Not a link, a file, names that are not quite the same, and what a link in one points to."""
    own = folder / "own"
    own.mkdir()
    (own / "file").touch()
    (folder / f"{PREFIX}abcdefgh").symlink_to(own)
    (folder / f"{PREFIX}ijklmnop").touch()
    for name in ("crossbench-", "crossbench-main", f"{PREFIX}abc", f"{PREFIX}abcdefgh.old"):
        (folder / name).mkdir(exist_ok=True)
    before = sorted(folder.iterdir())
    abandoned = folder / f"{PREFIX}qrstuvwx"
    abandoned.mkdir()
    (abandoned / "link").symlink_to(own)
    with run_directory():
        pass
    assert sorted(folder.iterdir()) == before
    assert (own / "file").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_the_directory_of_another_user_is_left_alone(folder):
    other = folder / f"{PREFIX}abcdefgh"
    other.mkdir()
    os.chown(other, 12345, 12345)
    remove_abandoned_directories(folder)
    assert other.exists()


def held(path):
    """Lock a directory, as another process does."""
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@pytest.mark.parametrize("taken", [os.rmdir, held])
def test_a_directory_lost_before_it_is_locked_is_created_again(folder, monkeypatch, taken):
    """Another process may find the new directory before it is locked and remove it."""
    make, lost = tempfile.mkdtemp, []

    def make_and_lose_the_first(**where):
        path = make(**where)
        if not lost:
            lost.append((path, taken(path)))
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose_the_first)
    with run_directory() as path:
        assert path.is_dir()
        assert str(path) != lost[0][0]


def test_a_thread_that_writes_before_each_removal_cannot_keep_the_directory(folder, monkeypatch):
    """It writes to the path that it knows, however often the removal is tried."""
    rmdir = os.rmdir

    def write_and_remove(*arguments, **options):
        with suppress(FileNotFoundError):
            (directory / "file").touch()
        rmdir(*arguments, **options)

    with run_directory() as directory:
        monkeypatch.setattr(os, "rmdir", write_and_remove)
    assert list(folder.iterdir()) == []


def test_a_missing_tmpdir_gets_one_line(folder, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(folder / "none"))
    words = "none: No such file or directory: set TMPDIR"
    with pytest.raises(DataError, match=words), run_directory():
        pass


def test_no_temporary_folder_at_all_gets_one_line(folder, monkeypatch):
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(folder / "none")])
    words = "there is no folder for temporary files: set TMPDIR"
    with pytest.raises(DataError, match=words), run_directory():
        pass
