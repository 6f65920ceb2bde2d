"""Implements `sweep`: every comparison that a file asks for."""

from __future__ import annotations

from pathlib import Path

from ..host import signals
from ..inputs.errors import SpecError
from ..sweeps import display, jobs, run
from ..terminal.output import write_stdout
from .parsing import Parser

TLS_FILES = {
    "tls_ca_file": "the certificate authority's certificate",
    "tls_cert": "this client's certificate",
    "tls_key": "its key",
}


def main(arguments: list[str]) -> int:
    """Run the jobs of a sweep's file; return 1 if one of them failed or is incomplete."""
    parser = Parser(
        "crossbench sweep",
        description="Run every comparison that a TOML file asks for, here or on a Dask scheduler's "
        "machines, and keep each results file. The same command goes on where it was stopped.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "file",
        type=Path,
        metavar="FILE.toml",
        help="arguments of a run by name; a list means each of its values",
    )
    add("--out", required=True, metavar="DIR", help="folder of the results files, or its URL")
    add("--dask", metavar="ADDRESS", help="a Dask scheduler, as tcp://HOST:8786 (default: here)")
    for name, what in TLS_FILES.items():
        add(f"--{name.replace('_', '-')}", metavar="FILE", help=f"for --dask tls://: {what}")
    add("--keep-going", action="store_true", help="run the others where no machine can run a job")
    add(
        "--since",
        metavar="DIR",
        help="folder of earlier results: only what has other versions of a framework or of "
        "crossbench runs again",
    )
    options = parser.parse_args(arguments)
    asked = jobs.read(options.file)
    files = {name: file for name in TLS_FILES if (file := getattr(options, name))}
    if files and not options.dask:
        raise SpecError(
            "certificates are for a Dask scheduler: name it with --dask tls://HOST:8786"
        )
    with signals.raise_on_signal(), display.SweepDisplay() as shown:
        tasks = run.sweep(
            [job.arguments for job in asked.jobs],
            options.out,
            run.Scheduler(options.dask, files) if options.dask else None,
            machines=asked.machines,
            workers=asked.workers,
            resources=asked.resources,
            keep_going=options.keep_going,
            since=options.since,
            progress=shown.begin,
            on_update=shown.update,
        )
    write_stdout(display.counts(tasks))
    return int(any(task.state != "done" for task in tasks))
