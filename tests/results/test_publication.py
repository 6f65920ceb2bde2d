"""Results that others rely on: what is checked, and what is taken out of them."""

import getpass
import re
import socket
from dataclasses import replace

import pytest
from samples import DISAGREES, comparison, epochs, result

import crossbench
from crossbench import cli
from crossbench.results.machine import Peak
from crossbench.results.publication import problems, published

SECONDS = [9, *[2.0, 2.1] * 3]


def made(*cells):
    """Return a run that may be published."""
    c = comparison(*(cells or [result("torch", SECONDS), result("jax", SECONDS)]))
    for cell in c.results:
        cell.peak = Peak(100.0, 10.0)
    return c


def private():
    """Return a run that names folders, its user and its host."""
    c = made()
    c.settings = replace(c.settings, data="/home/ann/data/cifar", model="/srv/my models/m.py:M")
    c.data = replace(c.data, name="CIFAR-10 files in /home/ann/data/cifar")
    c.machine = replace(c.machine, label=socket.gethostname())
    c.results[0].traceback = 'File "/home/ann/x.py", line 3'
    c.results[1].peak_problem = "cannot open /home/ann/data/x"
    return c


def test_a_published_file_has_no_folders_and_no_names(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    c = private()
    found = published(c)
    private_words = rf"/home|/srv|\b(ann|{re.escape(socket.gethostname())})\b"
    assert re.search(private_words, c.encode().decode())
    assert not re.search(private_words, found.encode().decode())
    assert found.settings.data == "…/cifar"
    assert len(problems(c)) >= 5
    assert problems(found) == []
    assert c.results[0].traceback  # the original is as it was


def test_crossbenchs_own_words_are_no_names(monkeypatch):
    """A user or a host may be called as a device or a framework is."""
    monkeypatch.setattr(getpass, "getuser", lambda: "gpu")
    monkeypatch.setattr(socket, "gethostname", lambda: "torch")
    c = made(result("torch", SECONDS, device="gpu"))
    assert problems(c) == []
    assert published(c).results == c.results


def test_a_published_file_has_every_figure():
    c = private()
    found = published(c)
    assert found.machine.name == c.machine.cpu  # a sweep names a machine by its host
    assert [r.epochs for r in found.results] == [r.epochs for r in c.results]
    ours, theirs = (
        [{k: v for k, v in row.items() if k not in ("machine", "data")} for row in each.rows()]
        for each in (found, c)
    )
    assert ours == theirs
    assert published(found) == found


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"parity": None}, "torch cpu: it was not proved to do the same work"),
        ({"parity": DISAGREES}, "torch cpu: it does not do the same work"),
        ({"epochs": epochs(SECONDS[:4])}, "torch cpu: 3 rounds: an interval needs 6"),
        ({"status": "pending"}, "torch cpu: interrupted before its last round"),
        (
            {"epochs": epochs([9, *[1e-5, 1.1e-5] * 3])},
            "torch cpu: 9.524e+04 GFLOP/s are more than 3 times",
        ),
        ({"status": "failed"}, "no row is ranked"),
        ({"details": {}}, "torch cpu: its versions are missing"),
        ({"peak": None}, "torch cpu: its peak was not measured, which its seconds are held to"),
    ],
)
def test_what_is_wrong_is_said_of_each_row(changes, line):
    c = made(result("torch", SECONDS))
    vars(c.results[0]).update(changes)
    assert any(found.startswith(line) for found in problems(c)), problems(c)


def test_other_instructions_than_the_processors_are_not_published():
    c = made(result("torch", SECONDS))
    c.machine = replace(c.machine, environment={"OPENBLAS_CORETYPE": "Haswell", "OMP_PLACES": "x"})
    (found,) = problems(c)
    assert found.startswith("OPENBLAS_CORETYPE chooses the processor's instructions")


def test_the_command_checks_each_file_and_writes_copies(tmp_path, capsys):
    for name, c in (("good", made()), ("private", private())):
        c.save(tmp_path / f"{name}.json")
    (tmp_path / "bad.json").write_text("{}")
    files = [str(tmp_path / f"{name}.json") for name in ("good", "private", "bad")]
    assert cli.main(["check", *files]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{files[0]}: may be published"
    assert any(line.startswith(f"{files[1]}: settings.data holds a folder") for line in lines)
    assert "is not a crossbench results file" in lines[-1]
    assert cli.main(["check", *files[:2], "--publish", str(tmp_path / "out")]) == 0
    assert crossbench.load(tmp_path / "out/good.json.gz").rows() == made().rows()
    assert cli.main(["check", files[0], "--publish", str(tmp_path / "out")]) == 1
    assert "good.json.gz exists already" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_gets_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    assert cli.main(["check", *files, "--publish", str(tmp_path / "file")]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"crossbench: {tmp_path}/file cannot be made: File exists\n")
