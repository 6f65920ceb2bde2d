"""Results that others rely on: what is checked, and what is taken out of them."""

import getpass
import json
import re
import socket
from dataclasses import replace

import msgspec
import pytest
from samples import DISAGREES, comparison, result

import crossbench
from crossbench import cli
from crossbench.results.machine import Peak
from crossbench.results.publication import problems, published

SECONDS = [9, *[2.0, 2.1] * 3]


def made(*cells):
    """Return a run that may be published."""
    c = comparison(*(cells or [result("torch", SECONDS), result("jax", SECONDS)]))
    for cell in c.results:
        cell.peak = cell.peak or Peak(100.0, 10.0)
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


def texts(value):
    if isinstance(value, dict):
        return [text for inner in value.values() for text in texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def test_a_published_file_has_no_folders_and_no_names(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    c = private()
    found = published(c)
    shown = "\n".join(texts(json.loads(found.encode())))
    assert "/home" not in shown
    assert "/srv" not in shown
    assert not re.search(rf"\b(ann|{re.escape(socket.gethostname())})\b", shown)
    assert found.settings.data == "…/cifar"
    assert len(problems(c)) >= 5
    assert problems(found) == []
    assert c.results[0].traceback  # the original is as it was


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
    again = published(found)
    assert msgspec.to_builtins(again) == msgspec.to_builtins(found)


def with_field(name, value):
    c = made()
    setattr(c.results[0], name, value)
    return c


WRONG = {
    "not proved": (
        lambda: made(result("torch", SECONDS, parity=None), result("jax", SECONDS)),
        "torch cpu: it was not proved to do the same work",
    ),
    "other work": (
        lambda: made(result("torch", SECONDS, parity=DISAGREES), result("jax", SECONDS)),
        "torch cpu: it does not do the same work",
    ),
    "few rounds": (lambda: made(result("torch", SECONDS[:4])), "torch cpu: 3 rounds: an interv"),
    "interrupted": (
        lambda: made(result("torch", SECONDS, status="pending")),
        "torch cpu: interrupted before its last round",
    ),
    "too fast": (lambda: made(result("torch", [9, *[1e-5, 1.1e-5] * 3])), "torch cpu: "),
    "all failed": (lambda: made(result("torch", [], status="failed")), "no row is ranked"),
    "no versions": (
        lambda: with_field("details", {}),
        "torch cpu: its versions are missing",
    ),
    "no peak": (
        lambda: with_field("peak", None),
        "torch cpu: its peak was not measured, which its seconds are held to",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said_of_each_row(kind):
    make, line = WRONG[kind]
    assert any(found.startswith(line) for found in problems(make())), problems(make())


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
