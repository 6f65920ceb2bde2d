"""Measure how many machines and jobs one Dask scheduler and one client of a sweep serve.

The scheduler, the client and everything between them are real; the workers are many in a few
processes, and their jobs only sleep and return a real results file.

    python benchmarks/sweep_scale.py [WORKERS [JOBS [SECONDS [FILE.json]]]]

The default is 200 workers, 2,000 jobs of 2 seconds, and the results file of the tests.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from distributed import Client, Worker
from tabulate import tabulate

import crossbench
from crossbench.sweeps import dask_machines
from crossbench.sweeps.folder import Task

PROCESSES = 2
FILE = Path(__file__).parents[1] / "tests/results/lenet.json"
ENOUGH = 0.99


def main() -> None:
    words = [*sys.argv[1:], *["200", "2000", "2", str(FILE)][len(sys.argv) - 1 :]]
    count, number, seconds = int(words[0]), int(words[1]), float(words[2])
    content = Path(words[3]).read_bytes()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    command = ["dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    scheduler = subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.DEVNULL)
    context = multiprocessing.get_context("spawn")
    share = count // PROCESSES
    workers = [
        context.Process(target=serve, args=(address, share, seconds, content))
        for _ in range(PROCESSES)
    ]
    try:
        for worker in workers:
            worker.start()
        with Client(address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(share * PROCESSES, timeout=300)
            print(measure(client, scheduler.pid, share * PROCESSES, number, seconds, content))
    finally:
        for worker in workers:
            worker.kill()
        scheduler.kill()


def serve(address: str, count: int, seconds: float, content: bytes) -> None:
    """Run workers in this process, whose jobs sleep."""

    def run_job(name, arguments, wanted, cancelled, report):
        host = socket.gethostname()
        report(name, "runs", host)
        time.sleep(seconds)
        return Task(name, "done", host, seconds=seconds, sha256="0" * 64), content

    dask_machines.run_job = run_job

    async def start() -> None:
        folder = tempfile.mkdtemp()
        started = [Worker(address, nthreads=1, local_directory=folder) for _ in range(count)]
        await asyncio.gather(*started)
        await asyncio.gather(*(worker.finished() for worker in started))

    asyncio.run(start())


def measure(
    client: Client, scheduler: int, count: int, number: int, seconds: float, content: bytes
) -> str:
    """Run a sweep and return a table of its figures."""
    memory, busy = Memory(scheduler), list[float]()
    started = time.monotonic()
    first: list[float] = []

    def watch(tasks) -> None:
        first[:] = first or [time.monotonic()]
        if not busy and sum(task.state == "runs" for task in tasks) >= ENOUGH * count:
            busy.append(time.monotonic() - first[0])

    jobs = [{"seed": seed, "data": "synthetic"} for seed in range(number)]
    with tempfile.TemporaryDirectory() as folder, memory:
        tasks = crossbench.sweep(jobs, folder, client, on_update=watch)
        ended = time.monotonic()
        kept = len(list(Path(folder).glob("*.json")))
    assert all(task.state == "done" for task in tasks)
    assert kept == number
    took = ended - first[0]
    rows = [
        ("workers", count),
        ("jobs", number),
        ("seconds of a job", seconds),
        ("KiB of a result", round(len(content) / 1024)),
        ("seconds until all jobs were submitted", round(first[0] - started, 1)),
        (f"seconds until {ENOUGH:.0%} of the workers were busy", *(round(b, 1) for b in busy)),
        ("seconds from then to the end", round(took, 1)),
        ("jobs per second", round(number / took, 1)),
        ("jobs per second if nothing but sleep took time", round(count / seconds, 1)),
        ("MiB of the scheduler, at most", round(memory.scheduler / 2**20)),
        ("MiB of the client, at most", round(memory.client / 2**20)),
        ("CPU seconds of the scheduler", round(memory.scheduler_seconds, 1)),
        ("CPU seconds of the client", round(memory.client_seconds, 1)),
    ]
    return tabulate(rows, disable_numparse=True, colalign=("left", "right"))


class Memory:
    """Watches the resident memory and the CPU time of the scheduler and this process."""

    def __init__(self, scheduler: int) -> None:
        self.processes = psutil.Process(scheduler), psutil.Process()
        self.scheduler = self.client = 0
        self.over = threading.Event()

    def __enter__(self) -> None:
        self.before = [sum(p.cpu_times()[:2]) for p in self.processes]
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        after = [sum(p.cpu_times()[:2]) for p in self.processes]
        used = [b - a for a, b in zip(self.before, after, strict=True)]
        self.scheduler_seconds, self.client_seconds = used
        self.over.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.over.wait(0.2):
            sizes = [process.memory_info().rss for process in self.processes]
            self.scheduler = max(self.scheduler, sizes[0])
            self.client = max(self.client, sizes[1])


if __name__ == "__main__":
    main()
