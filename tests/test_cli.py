import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from samples import comparison, result

import crossbench
from crossbench import adapters, benchmark, cli, models
from crossbench.arguments import ARGUMENTS
from crossbench.engine.rounds import MAX_TARGET_SECONDS
from crossbench.inputs.words import percentage
from crossbench.report import FORMATS
from crossbench.report.formats import tables
from crossbench.results.comparison import SECONDS_PER_ROW
from crossbench.results.statistics import PRECISION


def invoke(capsys, *words):
    """Run the command line in this process; return exit status, standard output and error."""
    try:
        status = cli.main([str(word) for word in words])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def unwrapped(output):
    """Return the output with all its words in one line."""
    return " ".join(output.split())


@pytest.mark.parametrize(
    "words",
    [
        ["--frobnicate"],
        ["--round", "1"],
        ["--rounds", "0"],
        ["--seed", "9" * 5000],
        ["--model", "nul\0.py:MODEL"],
        ["--machine", "a\nb"],
        ["--resume", "/not/there"],
        ["--resume", "/not/there", "--rounds", "2"],
        ["doctor", "--x"],
        ["frobnicate"],
        ["two\nlines"],
    ],
)
def test_wrong_arguments_get_one_line_and_status_2(capsys, words):
    status, out, err = invoke(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("crossbench: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "word", "hint"),
    [
        ("--rounds", "x", "write a whole number or auto"),
        ("--threads", "1,x", "write a whole number, or several as 1,2,4"),
        *(("--precision", word, "write 5% or 0.05") for word in ("1", "5", "nan", "inf%", "0")),
    ],
)
def test_a_word_that_is_no_number_gets_the_allowed_forms(capsys, option, word, hint):
    _, _, err = invoke(capsys, option, word)
    said = f"argument {option}: {word!r}: {hint}"
    assert err == f"crossbench: {said} (--help shows the arguments)\n"


def test_a_bare_10_is_not_taken_for_1000_percent(capsys):
    assert percentage("5%") == percentage("0.05") == 0.05
    assert percentage("150%") == 1.5
    status, _, err = invoke(capsys, "compare", "a", "b", "--fail-above", "10")
    assert status == 2
    assert "'10': write 5% or 0.05" in err


def test_the_models_command_lists_models_with_their_sizes(capsys):
    status, out, err = invoke(capsys, "models")
    assert (status, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert set(models.names()) <= set(lines)
    assert all(text in lines["bignet"] for text in ("58,091,396", "2,880", "5,311", "DATAmadness"))


def test_a_run_prints_the_table_and_writes_a_new_results_file(capsys, tmp_path, small_run):
    file = tmp_path / "r.json"
    words = [*small_run, "--json", file]
    status, out, _ = invoke(capsys, *words)
    assert status == 0
    assert crossbench.table(crossbench.load(file)) == out.strip()
    assert "NumPy reference" in out

    before = file.read_bytes()
    status, out, err = invoke(capsys, *words)
    assert (status, out) == (2, "")
    assert err == f"crossbench: {file} exists already: choose another name\n"
    assert file.read_bytes() == before
    status, out, err = invoke(capsys, *words, "--json", tmp_path / "none" / "r.json")
    assert (status, out) == (2, "")
    assert "cannot be written: No such file or directory" in err


@pytest.mark.usefixtures("plugin")
def test_a_named_framework_without_valid_figures_gives_status_1(capsys, small_run):
    status, out, _ = invoke(capsys, *small_run, "--frameworks", "reference,absent")
    assert status == 1
    assert "NumPy reference" in out
    assert "absent cpu: did not run: absent is not installed: pip install absent" in unwrapped(out)


@pytest.fixture
def program(tmp_path, plugin):
    """Return a function that starts the command line as a process whose TMPDIR is tmp_path/tmp."""
    (tmp_path / "tmp").mkdir()

    def start(*words, **options):
        return subprocess.Popen(
            [sys.executable, "-m", "crossbench", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(plugin), "TMPDIR": str(tmp_path / "tmp")},
            **options,
        )

    return start


def wait_for(process, words):
    while words not in process.stderr.readline():
        assert process.poll() is None


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("moment", "signals", "words"),
    [
        pytest.param("first epoch", [signal.SIGINT] * 4, "interrupted", marks=pytest.mark.long),
        ("parity", [signal.SIGTERM] * 2, "stopped by SIGTERM"),
        pytest.param("first epoch", [signal.SIGHUP], "stopped by SIGHUP", marks=pytest.mark.long),
    ],
)
def test_a_signal_stops_the_workers_and_prints_the_finished_rounds(
    program, tmp_path, small_run, moment, signals, words
):
    file = tmp_path / "r.json"
    process = program(*small_run, "--frameworks", "hangs", "--json", file)
    wait_for(process, moment)
    time.sleep(1)
    while not (workers := psutil.Process(process.pid).children()):  # between two workers
        assert process.poll() is None
    for number in signals:
        process.send_signal(number)
        time.sleep(0.05)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signals[0]
    assert err.splitlines()[-2:] == [  # the run may have got further before the signal
        f"crossbench: to continue this run: --resume {file}",
        f"crossbench: {words}; all worker processes are stopped",
    ]
    assert "Traceback" not in err
    assert "misbehaving: interrupted before the last round" in unwrapped(out)
    assert crossbench.load(file).results[0].status == "pending"
    assert workers
    assert not any(worker.is_running() for worker in workers)
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_before_the_first_line_leaves_no_traceback(program, tmp_path, small_run):
    """Interrupt after the first import; before it Python itself prints a traceback."""
    process = program(*small_run)
    wait_until_handled(process.pid)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "crossbench: interrupted; all worker processes are stopped"
    assert "Traceback" not in err
    assert list((tmp_path / "tmp").iterdir()) == []


def wait_until_handled(pid, number=signal.SIGTERM):
    """Wait until a process has a handler for a signal, according to Linux."""
    caught = 0
    while not caught & (1 << (number - 1)):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(re.search(r"SigCgt:\s+(\w+)", status).group(1), 16)


@pytest.mark.long
def test_a_signal_that_is_ignored_stays_ignored(program, small_run):
    """What nohup starts ignores SIGHUP, for example."""

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = program(*small_run, preexec_fn=ignore)
    wait_for(process, "parity")
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_run_leaves_the_signal_handlers_of_a_script_alone(run):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen = []

    def look(_):
        seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])

    run("reference", devices="cpu", rounds=1, progress=look)
    assert all(found == before for found in seen)


def test_a_killed_run_leaves_no_worker_and_the_next_one_removes_its_data(
    program, tmp_path, small_run
):
    process = program(*small_run, "--frameworks", "hangs")
    wait_for(process, "first epoch")
    time.sleep(1)
    workers = psutil.Process(process.pid).children()
    process.kill()
    process.communicate()
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive
    (left,) = (tmp_path / "tmp").iterdir()
    process = program(*small_run, "--batch-size", "999")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    assert not left.exists()


def test_a_full_temporary_folder_gets_one_line(capsys, monkeypatch, tmp_path, small_run):
    def write_a_part(*_):
        raise OSError("8 requested and 0 written")  # NumPy's, which has no reason

    monkeypatch.setattr(benchmark, "save_arrays", write_a_part)
    status, out, err = invoke(capsys, *small_run, "--json", tmp_path / "r.json")
    assert (status, out) == (2, "")
    assert re.fullmatch(
        "crossbench: cannot write the data to the temporary folder .*: only a part of it was "
        "written: set TMPDIR to a folder with enough space",
        err.splitlines()[-1],
    )
    assert not (tmp_path / "r.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is Linux's")
def test_a_full_disk_does_not_stop_a_run(program, tmp_path, small_run):
    """The file size limit of the process stands in for a full disk."""
    file = tmp_path / "r.json"
    process = program(*small_run, "--json", file, "--rounds", "2")
    wait_for(process, "round 2 of 2, first epoch")
    psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (1000, 1000))
    out, err = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "2 interleaved rounds" in unwrapped(out)
    why = f"{file} cannot be written: File too large"
    assert err.splitlines()[-1] == f"crossbench: {why}"
    assert err.count(f"crossbench: {why}; the run goes on\n") == 1
    assert {epoch.round for epoch in crossbench.load(file).results[0].epochs} == {1}


@pytest.mark.usefixtures("plugin")
def test_doctor_has_a_line_for_each_framework_and_variant(capsys, monkeypatch):
    names = ["torch", "jax", "flux", "keras", "reference", "absent", "broken"]
    assert set(names) < set(adapters.names())  # each takes its time
    monkeypatch.setattr(adapters, "names", lambda: names)
    status, out, err = invoke(capsys, "doctor")
    assert (status, err) == (0, "")
    assert "CIFAR-10" in out
    assert all(f"\n{name} " in out for name in names)
    assert "does not load" in out
    _, variants = out.split("\nvariant ")
    several = [found for n in names[:5] if len(found := adapters.variants(n)) > 1]
    assert len(variants.splitlines()) == 2 + sum(map(len, several))
    assert "torch:compile" in variants
    assert "torch.compile of the model with its loss" in variants


def test_the_help_has_every_argument_of_a_run_with_its_default(capsys):
    _, out, _ = invoke(capsys, "--help")
    text = " ".join(out.split())
    for name, argument in ARGUMENTS.items():
        assert f"--{name.replace('_', '-')} " in text
        assert argument.sentence in text
    assert f"(default: {PRECISION:.0%}, or clearly" in text
    assert f"(default: {SECONDS_PER_ROW:.0f} a row, and {MAX_TARGET_SECONDS:.0f})" in text
    assert f"(default: {ARGUMENTS['timeout'].default:.0f})" in text


@pytest.fixture
def saved(tmp_path):
    """Return the path of a results file with two rows."""
    path = tmp_path / "saved.json"
    comparison(result("torch", [9, 2, 2]), result("jax", [9, 4, 4])).save(path)
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_show_prints_results_files_in_every_format(capsys, saved, format):
    status, out, err = invoke(capsys, "show", saved, "--details", "--format", format)
    assert (status, err) == (0, "")
    c = crossbench.load(saved)
    assert out == crossbench.table(c, details=True, format=format) + "\n"
    _, out, _ = invoke(capsys, "show", saved, saved, "--format", format)
    assert out == tables([c, c], False, format) + "\n"
    for command in ("compare", "merge"):
        status, out, _ = invoke(capsys, command, saved, saved, "--format", format)
        assert status == 0
        assert "torch" in out.lower()


@pytest.mark.parametrize(
    ("words", "name"),
    [(["--machine", "rack 7/a"], "rack-7-a"), ([], re.sub(r"[^\w.-]+", "-", socket.gethostname()))],
)
def test_a_run_prints_the_requested_format_and_names_its_machine_and_its_file(
    capsys, small_run, tmp_path, words, name
):
    asked = [*small_run, "--format", "json", "--json", tmp_path / "out-{machine}.json"]
    status, out, _ = invoke(capsys, *asked, *words)
    assert status == 0
    (row,) = json.loads(out)
    assert (row["framework"], row["ranked"]) == ("reference", True)
    assert not words or row["machine"] == words[-1]
    assert [path.name for path in tmp_path.glob("out-*")] == [f"out-{name}.json"]


def in_terminal(arguments, columns=100, python=(), **environment):
    """Run the command line in a pseudo-terminal; return its output and exit status."""
    main, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, columns))
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, *python, "-m", "crossbench", *map(str, arguments)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=inherited | {"TERM": "xterm-256color"} | environment,
    )
    os.close(terminal)
    output = b""
    with suppress(OSError):  # EIO when the last process has closed the terminal
        while part := os.read(main, 65536):
            output += part
    os.close(main)
    return output.decode(), process.wait()


def test_colours_are_for_terminals_and_NO_COLOR_is_kept_to(saved):  # noqa: N802
    coloured, status = in_terminal(["show", saved])
    assert status == 0
    assert "\x1b[1m" in coloured
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        output, _ = in_terminal(["show", saved], columns=40, **plain)
        assert "\x1b" not in output
        assert "Torch" in output
        assert max(map(len, output.splitlines())) <= 40


def test_a_terminal_shows_the_table_so_far_and_the_time_that_is_left(small_run):
    """`python -W error` reports pipes and files that are not closed."""
    output, status = in_terminal([*small_run, "--rounds", "3"], python=["-W", "error"])
    assert status == 0
    assert "Warning" not in output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    before, *later = plain.split("reference cpu: round 2 of 3")
    assert "steady epoch s" in before
    assert "1 interleaved round:" in unwrapped(before)
    assert "left" in later[0]
    assert "3 interleaved rounds:" in unwrapped(later[-1])
    final = plain.split("\r")[-1]
    assert "round" not in final.splitlines()[-1]
