"""Implements `sweep`: every comparison that a file asks for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..host import signals
from ..inputs.errors import SpecError
from ..sweeps import display, jobs, run
from ..terminal.output import write_stdout
from ..workload import missing
from .parsing import Parser

if TYPE_CHECKING:
    from distributed import Client

TLS_FILES = {
    "tls_ca_file": ("--tls-ca-file", "the certificate authority's certificate"),
    "tls_client_cert": ("--tls-cert", "this client's certificate"),
    "tls_client_key": ("--tls-key", "its key"),
}
"""The option of each file that Dask's `Security` takes, and what the file is."""


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
    for name, (option, what) in TLS_FILES.items():
        add(option, dest=name, metavar="FILE", help=f"for --dask tls://: {what}")
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
    with (
        signals.raise_on_signal(),
        display.SweepDisplay() as shown,
        _connected(options.dask, files) as client,
    ):
        tasks = run.sweep(
            [job.arguments for job in asked.jobs],
            options.out,
            client,
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


def _connected(
    address: str | None, tls_files: dict[str, str]
) -> AbstractContextManager[Client | None]:
    """Return a context with a client of the scheduler; None, for this machine, without one."""
    if address is None:
        return nullcontext()
    try:
        from ..sweeps.dask_machines import connected
    except ImportError as error:
        raise SpecError(missing("dask", "distributed") or str(error)) from None
    return connected(address, tls_files)
