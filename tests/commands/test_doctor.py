"""The report of `doctor`, its check of each framework, and what neither of them must say."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import nvml
import pytest
from nvml import Card

from crossbench import adapters, cli
from crossbench.commands import doctor
from crossbench.engine import checkup
from crossbench.engine.checkup import Verdict
from crossbench.engine.process import WorkerFailure
from crossbench.plan import make_plan
from crossbench.spec import make_spec

ROOT = Path(__file__).parents[2]
ADVICE = "; do not compare its times, and attach the output of `doctor --check --format json`"


def check(capsys, frameworks, *words):
    """Check these frameworks on the CPU; return the exit status, the standard output and error."""
    arguments = ["doctor", "--check", "--devices", "cpu", "--frameworks", frameworks, *words]
    status = cli.main([str(word) for word in arguments])
    return status, *capsys.readouterr()


def lines(out):
    """Return the verdict of each cell, in words, by its name."""
    rows = [re.fullmatch(r"(\S+ \S+)\s{2,}(.*)", row) for row in out.split("\n\n")[1].splitlines()]
    return {row[1]: row[2] for row in rows}


def test_a_framework_that_agrees_has_its_deviation(capsys):
    status, out, err = check(capsys, "reference")
    assert status == 0
    (line,) = lines(out).values()
    assert re.fullmatch(
        r"agrees; the largest deviation is 0e\+00 in float64, \de-\d\d in float32", line
    )
    assert err == "crossbench: parity\ncrossbench: 1 of 1 proofs: reference cpu\n"
    assert out.startswith("crossbench ")
    assert "CIFAR-10" not in out  # the data has nothing to do with it


def write_adapter(folder, code, imports="os"):
    """Write an adapter with the code in its class, which is the reference's else; name it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "secret_adapter.py").write_text(
        f"import {imports}\n"
        "from crossbench.adapters.reference import ReferenceAdapter, ReferenceWorkload\n"
        f"class Own(ReferenceAdapter):\n    title = 'own'\n{indent(dedent(code), '    ')}\n"
        "OWN = Own()\n"
    )
    return f"{folder}/secret_adapter.py:OWN"


WRONG_ATTENTION = """
def build(self, job):
    workload = ReferenceWorkload(job)
    load = workload.load_weights
    workload.load_weights = lambda weights: load(
        {n: -w if 'query' in n else w for n, w in weights.items()})
    return workload
"""
"""Method of an adapter with a fault that the second model alone shows."""


@pytest.mark.long
@pytest.mark.usefixtures("plugin")
def test_each_fault_loses_its_own_line_and_the_status_is_1(capsys, tmp_path):
    own = write_adapter(tmp_path, WRONG_ATTENTION)
    status, out, _ = check(capsys, f"wrong,raises,dies,vanished,absent,reference,{own}")
    assert status == 1
    found = lines(out)
    assert re.match(r"does not agree: .* differs by .* in float64", found["wrong cpu"])
    assert f", in the model pictures{ADVICE}" in found["wrong cpu"]
    assert found["raises cpu"].startswith("failed: RuntimeError: out of luck; ")
    assert found["dies cpu"].startswith(
        "failed: the worker process exited with status 7: the last words; "
    )
    assert found["vanished cpu"] == "cannot run: it is not available: no network"
    assert found["absent cpu"] == "cannot run: absent is not installed: pip install absent"
    assert found["reference cpu"].startswith("agrees; ")
    assert found[f"{own} cpu"].startswith("does not agree: ")
    assert f", in the model tokens{ADVICE}" in found[f"{own} cpu"]


@pytest.mark.long
@pytest.mark.usefixtures("plugin")
def test_a_framework_that_hangs_is_stopped(capsys):
    status, out, _ = check(capsys, "hangs", "--timeout", 5)
    assert status == 1
    late = "failed: no answer within 5 s (timeout); --timeout gives it more"
    assert lines(out) == {"hangs cpu": late}


def test_the_report_in_json_has_versions_and_deviations(capsys, monkeypatch):
    monkeypatch.setattr(adapters, "names", lambda: ["reference"])  # each takes its time
    status, out, _ = check(capsys, "reference", "--format", "json")
    assert status == 0
    report = json.loads(out)
    (found,) = report["check"]
    assert (found["name"], found["status"], found["problem"]) == ("reference cpu", "agrees", None)
    assert set(found["deviations"]) == {"pictures", "tokens"}
    assert found["deviations"]["tokens"]["float64"]["logits"] == 0.0
    assert found["deviations"]["pictures"]["dropout"]
    (framework,) = report["frameworks"]
    assert (framework["name"], framework["devices"]["cpu"]) == ("reference", "ready")
    assert framework["installed"] == adapters.get("reference").installed()
    assert report["crossbench"]
    assert report["gpus"] == []


FAILS = """
def installed(self):
    return {'tool': f'1.0 ({os.environ["HOME"]}/bin/tool)'}

def build(self, job):
    raise OSError(f'{os.environ["HOME"]}/own/x.bin of {getpass.getuser()} on '
                  f'{socket.gethostname()}, beside {os.getcwd()}/y.bin')
"""
"""Methods of an adapter whose error tells paths and names."""


def test_the_report_in_json_tells_no_paths_and_no_names(capsys, tmp_path, monkeypatch):
    home = tmp_path / "homes" / "ann lee"
    name = write_adapter(home / "private", FAILS, "os, getpass, socket")
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "annlee")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LD_PRELOAD", str(home / "libnothing.so"))
    monkeypatch.setenv("CROSSBENCH_CACHE", str(home / "cache"))
    monkeypatch.chdir(home)
    status, out, _ = check(capsys, name, "--format", "json")
    assert status == 1
    (found,) = json.loads(out)["check"]
    assert found["status"] == "failed"
    assert "x.bin of USER on " in found["problem"]
    assert "Traceback" in found["traceback"]
    assert "…/secret_adapter.py" in found["traceback"]
    for secret in ("annlee", "ann lee", "homes", "private", str(ROOT), sys.prefix, os.uname()[1]):
        assert secret not in out
    assert not re.search(r"(?<![\w…:])/\w+/", out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--frameworks", "torch"], "are for a check: add --check"),
        (["--check", "--frameworks", "tensorflow"], "there is no framework 'tensorflow'"),
        (["--check", "--devices", "tpu"], "there is no device 'tpu'"),
        (["--check", "--format", "csv"], "invalid choice: 'csv'"),
    ],
)
def test_wrong_arguments_get_one_line(capsys, words, message):
    try:
        status = cli.main(["doctor", *words])
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_what_nobody_asked_for_and_is_not_installed_is_not_wrong():
    def verdict(named):
        cell = make_plan(make_spec("reference", ["cpu"]))[0]
        absent = "absent is not installed"
        cell = replace(cell, named=named, unavailable=absent)
        return Verdict(cell, failure=WorkerFailure(absent, unavailable=True))

    assert verdict(named=True).is_wrong
    assert not verdict(named=False).is_wrong


@pytest.mark.usefixtures("plugin")
def test_what_is_missing_is_not_called_ready_and_installed_before_the_proof(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("CROSSBENCH_TEST_NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr(adapters, "names", lambda: ["installed"])  # each takes its time
    (row,) = re.findall("^installed .*", doctor.report().partition("\nvariant")[0], re.MULTILINE)
    assert "on the first run: installing a lot" in row
    assert " ready " not in row
    status, _, err = check(capsys, "installed")
    assert status == 0
    assert err.startswith("crossbench: installed cpu: installing a lot\n")
    assert (tmp_path / "notes").read_text().split()[:2] == ["install", "build"]


class Angry(type(adapters.get("reference"))):
    title = "angry"

    def available(self, device):
        raise RuntimeError("no\nmood")

    def installed(self):
        raise RuntimeError("no\nversions")


def test_an_adapter_that_raises_gets_a_line(monkeypatch):
    monkeypatch.setattr(adapters, "names", lambda: ["reference"])
    monkeypatch.setattr(adapters, "get", lambda name, variant="": Angry())
    report = doctor.report()
    assert "available() of the adapter raised" in report
    assert "error RuntimeError: no versions" in report


@pytest.mark.long
@pytest.mark.usefixtures("plugin")
def test_on_a_gpu_tensorfloat32_does_not_agree(capsys, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml.install(monkeypatch, Card("GPU-1", "NVIDIA A100"), Card("GPU-2", "NVIDIA T4"))
    words = ["doctor", "--check", "--frameworks", "rounds,runs_on_gpu", "--devices", "cpu,gpu:1"]
    assert cli.main(words) == 1
    out, _ = capsys.readouterr()
    assert "gpu:0 NVIDIA A100, gpu:1 NVIDIA T4, driver 570.86, CUDA 12.8" in out
    found = lines(out)
    assert found["runs_on_gpu gpu:1"].startswith("agrees; ")
    assert "it computes in TensorFloat-32 or a lower precision" in found["rounds gpu:1"]
    assert len(found) == 4


def test_without_a_check_the_report_is_there_in_json_too_with_the_drivers(capsys, monkeypatch):
    nvml.install(monkeypatch, Card("GPU-1", "NVIDIA A100"))
    monkeypatch.setattr(adapters, "names", lambda: ["torch", "jax", "reference"])
    assert cli.main(["doctor", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "check" not in report
    assert {"torch", "jax", "reference"} <= {found["name"] for found in report["frameworks"]}
    assert report["gpus"] == ["NVIDIA A100"]
    assert report["gpu_versions"] == {"driver": "570.86", "CUDA": "12.8"}


def test_a_full_temporary_folder_gets_one_line(capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkup.parity, "compute_reference", full)
    status, out, err = check(capsys, "reference")
    assert (status, out) == (2, "")
    assert "No space left on device: set TMPDIR" in err.splitlines()[-1]
