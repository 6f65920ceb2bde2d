import os
import signal
import subprocess
import sys
import time

import nvml
import psutil
import pytest

import crossbench
from crossbench import cli, models, spec

SMALL = ["--devices", "cpu", "--rounds", "1", "--batch-size", "50", "--threads", "1"]


def invoke(capsys, *words):
    """Exit status, standard output and error."""
    try:
        status = cli.main([str(word) for word in words])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    "words",
    [
        ["--frobnicate"],
        ["--rounds", "x"],
        ["--rounds", "0"],
        ["--frameworks", "tensorflow"],
        ["--data", "/not/there"],
        ["--round", "1"],
        ["--threads", "1,x"],
        ["--precision", "x%"],
        ["--resume", "/not/there"],
        ["--resume", "/not/there", "--rounds", "2"],
        ["doctor", "--x"],
        ["models", "--x"],
        ["--model", "vgg"],
        ["--model", "/not/there.py:MODEL"],
        ["--batches", "0"],
        ["frobnicate"],
        ["two\nlines"],
        ["--timeout", "1e300"],
        ["--max-seconds", "1e300"],
        ["--max-seconds", "nan"],
        ["--seed", "1.5"],
        ["--seed", "9" * 5000],
        ["--rounds", "9" * 5000],
        ["--threads", "9" * 5000],
        ["--batch-size", "-1"],
        ["--data", "long" * 2000],
        ["--data", ""],
        ["--data", "nul\0"],
        ["--model", "long" * 2000 + ".py:MODEL"],
        ["--model", "nul\0.py:MODEL"],
        ["--price", "long" * 2000 + ".toml:a"],
    ],
)
def test_wrong_arguments_get_one_line_and_status_2(capsys, words):
    status, out, err = invoke(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("crossbench: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rounds", "x"], "argument --rounds: 'x': write a whole number or auto"),
        (
            ["--threads", "1,x"],
            "argument --threads: '1,x': write a whole number, or several as 1,2,4",
        ),
        (["--precision", "x%"], "argument --precision: 'x%': write 5% or 0.05"),
        (["--precision", "5"], "argument --precision: '5': write 5% or 0.05"),
    ],
)
def test_a_word_for_a_number_is_told_with_what_to_write(capsys, words, message):
    _, _, err = invoke(capsys, *words)
    assert err == f"crossbench: {message} (--help shows the arguments)\n"


def test_a_model_file_that_exits_is_no_success(capsys, tmp_path):
    (tmp_path / "own.py").write_text("import sys\nsys.exit(0)\n")
    status, out, err = invoke(capsys, "--model", f"{tmp_path / 'own.py'}:MODEL")
    assert (status, out) == (2, "")
    assert err == f"crossbench: {tmp_path / 'own.py'} does not load: SystemExit: 0 (line 2)\n"


@pytest.mark.usefixtures("plugin")
def test_a_gpu_alone_where_there_is_none_is_told_without_a_proof(
    capsys, monkeypatch, cifar_directory
):
    nvml.install(monkeypatch)
    words = ["--frameworks", "runs_on_gpu", "--devices", "gpu", "--data", cifar_directory]
    status, out, err = invoke(capsys, *words, "--batch-size", "50")
    assert status == 1
    assert "runs_on_gpu gpu: did not run: this machine has no NVIDIA GPU" in out
    assert "parity" not in err


def test_the_models_are_listed_with_their_sizes(capsys):
    status, out, err = invoke(capsys, "models")
    assert (status, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert set(models.names()) <= set(lines)
    assert all(text in lines["bignet"] for text in ("58,091,396", "2,880", "5,311", "DATAmadness"))


def test_the_table_and_the_file(capsys, tmp_path, cifar_directory):
    file = tmp_path / "r.json"
    words = ["--frameworks", "reference", "--data", cifar_directory, "--json", file, *SMALL]
    status, out, _ = invoke(capsys, *words)
    assert status == 0
    assert crossbench.table(crossbench.load(file)) == out.strip()
    assert "NumPy reference" in out

    before = file.read_bytes()
    status, out, err = invoke(capsys, *words)
    assert (status, out) == (2, "")
    assert err == f"crossbench: {file} exists already: choose another name\n"
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_written_is_told_before_the_run(capsys, tmp_path, cifar_directory):
    words = ["--frameworks", "reference", "--data", cifar_directory, *SMALL]
    status, out, err = invoke(capsys, *words, "--json", tmp_path / "none" / "r.json")
    assert (status, out) == (2, "")
    assert "cannot be written: No such file or directory" in err


def test_no_empty_file_is_left_behind(capsys, tmp_path, cifar_directory):
    (cifar_directory / "test_batch.bin").write_bytes(b"short")
    words = ["--frameworks", "reference", "--data", cifar_directory, *SMALL]
    status, _, err = invoke(capsys, *words, "--json", tmp_path / "r.json")
    assert status == 2
    assert "test_batch.bin is damaged" in err
    assert not (tmp_path / "r.json").exists()


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("absent", "absent cpu: did not run: absent is not installed: pip install absent"),
        ("wrong", "wrong cpu: not ranked, it does not do the same work: "),
        ("raises", "raises cpu: failed: RuntimeError: out of luck (in round 1)"),
    ],
)
def test_what_was_named_and_did_not_do_it_is_status_1(capsys, cifar_directory, framework, words):
    status, out, _ = invoke(
        capsys, "--frameworks", f"reference,{framework}", "--data", cifar_directory, *SMALL
    )
    assert status == 1
    assert words in out
    assert "NumPy reference" in out


@pytest.mark.usefixtures("plugin")
def test_a_broken_third_party_adapter_gets_one_line(capsys):
    status, _, err = invoke(capsys, "--frameworks", "broken", *SMALL)
    assert status == 2
    assert "the framework 'broken' (misbehaving:NOT_THERE) does not load" in err
    assert err.count("\n") == 1


@pytest.fixture
def sigint():
    """Heard by what a test starts: a shell's background jobs ignore it, and what they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
def test_ctrl_c_ends_the_workers_and_prints_what_there_is(tmp_path, cifar_directory, plugin):
    words = ["--frameworks", "hangs", "--data", str(cifar_directory), *SMALL]
    environment = os.environ | {"PYTHONPATH": str(plugin)}
    process = subprocess.Popen(
        [sys.executable, "-m", "crossbench", *words, "--json", str(tmp_path / "r.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr
    assert process.stdout
    while "first epoch" not in process.stderr.readline():
        pass
    time.sleep(1)
    workers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    file = tmp_path / "r.json"
    assert process.stderr.read().splitlines() == [
        f"crossbench: --resume {file} goes on from here",
        "crossbench: interrupted; all workers are ended",
    ]
    assert "hangs cpu: interrupted before its last round" in process.stdout.read()
    assert crossbench.load(file).results[0].status == "pending"
    assert workers
    psutil.wait_procs(workers, timeout=10)
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.usefixtures("plugin")
def test_doctor(capsys):
    status, out, err = invoke(capsys, "doctor")
    assert (status, err) == (0, "")
    assert "CIFAR-10" in out
    for name in ("torch", "jax", "flux", "reference", "absent"):
        assert f"\n{name} " in out
    assert "does not load" in out
    assert len(out.splitlines()) < 60


def test_the_help_gives_the_real_defaults(capsys):
    _, out, _ = invoke(capsys, "--help")
    text = " ".join(out.split())
    for default in (spec.MODEL, spec.ROUNDS, spec.EPOCHS, spec.SEED, f"{spec.PRECISION:.0%}"):
        assert f"(default: {default})" in text
    assert text.count(f"(default: {spec.MAX_SECONDS:.0f})") == 2
    assert spec.TIMEOUT == spec.MAX_SECONDS


def test_percentages():
    assert cli.percentage("5%") == cli.percentage("0.05") == 0.05
    assert cli.percentage("150%") == 1.5


@pytest.mark.parametrize("word", ["10", "nan", "-5%", "inf%", "0"])
def test_a_bare_10_is_not_taken_for_1000_percent(capsys, word):
    status, _, err = invoke(capsys, "compare", "a", "b", "--fail-above", word)
    assert status == 2
    assert "write 5% or 0.05" in err or "expected one argument" in err
    assert err.count("\n") == 1
