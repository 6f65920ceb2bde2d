"""What is reported in public has no folders and no names of a user or a host."""

import getpass
import socket

import pytest

from crossbench.inputs.anonymous import anonymous


@pytest.fixture(autouse=True)
def home(monkeypatch):
    """Be the user ann on the host lab7, with a home directory whose name has a space."""
    monkeypatch.setenv("HOME", "/home/ann lee")
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    monkeypatch.setattr(socket, "gethostname", lambda: "lab7")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.10.8 (/usr/local/julia/bin/julia)", "1.10.8 (…/julia)"),
        ("in /home/ann lee", "in /…"),
        ("cannot open '/scratch/ann/data.bin': no space", "cannot open '…/data.bin': no space"),
        ("PATH=/home/ann/bin:/usr/local/bin", "PATH=…/bin:…/bin"),
        ("/data/ann", "…/USER"),
        (
            'File "/venv/lib/python3.11/site-packages/torch/nn/linear.py", line 3',
            'File "…/site-packages/torch/nn/linear.py", line 3',
        ),
        ("ann@lab7: not in the group video", "USER@HOST: not in the group video"),
        ("annotated by lab70", "annotated by lab70"),
        ("install it from https://julialang.org/downloads/", None),
        ("JAX/Flax and/or Keras, 3 / 4 GB/s, 1/2/3", None),
    ],
)
def test_folders_and_names_are_left_out(text, expected):
    assert anonymous(text) == (text if expected is None else expected)


def test_all_texts_of_a_nested_value_are_changed():
    value = {"a": ["/x/y/z", 3, None, {"b": "/x/y/z"}], "c": 0.5, "d": True}
    assert anonymous(value) == {"a": ["…/z", 3, None, {"b": "…/z"}], "c": 0.5, "d": True}


def test_a_name_that_tells_nothing_stays(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    assert anonymous("the root of the tree") == "the root of the tree"


def test_an_id_without_an_account_is_no_error(no_home_directory, monkeypatch):
    def no_entry():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", no_entry)
    assert anonymous("/x/y/z") == "…/z"
