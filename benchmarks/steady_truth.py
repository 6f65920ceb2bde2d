"""Compare a row's steady figure with the truth: the seconds of a step in a long training.

The truth is a process that trains epoch after epoch and does nothing else. It goes on for a tenth
of its steps before and after each row, so that both see the same machine; its first tenth is left
out. The row is that of an ordinary run with so many batches an epoch. Run by hand, with nothing
else running: python benchmarks/steady_truth.py FRAMEWORK MODEL [BATCHES,...] [STEPS] [ROUNDS]
Without numbers of batches it prints the truth alone, with what the runtime tells of each tenth.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory, gettempdir

import crossbench
from crossbench import adapters, data, models
from crossbench.engine import usage
from crossbench.engine.assignment import Assignment, epoch_batches, save_arrays
from crossbench.engine.environment import environment
from crossbench.host.machine import cpu_count
from crossbench.workload import Job

STEPS, BATCHES, TENTHS, ROUNDS = 500, 10, 10, 6


def assignment(name, model, folder=Path()):
    framework, variant = adapters.split(name)
    job = Job(model, "cpu", cpu_count(), "float32", variant or "idiomatic")
    return Assignment(framework, job, folder, model.batch_size, BATCHES, 0)


def truth(name, model_name, steps, turns):
    """Train a tenth of the steps for each line of the pipe; print the seconds of a step."""
    model = models.get(model_name)
    used = BATCHES * model.batch_size
    dataset = data.load(model.data, "synthetic", 0, model.example_shapes, used)
    model = model.with_vocabulary(dataset.vocabulary)
    folder = Path(gettempdir())
    save_arrays(dataset, folder)
    asked = assignment(name, model, folder)
    workload = adapters.get(asked.framework, asked.job.variant).build(asked.job)
    workload.load_weights(model.initial_weights(0))
    workload.place(epoch_batches(asked))
    epochs = max(1, steps // TENTHS // BATCHES)
    for _ in os.fdopen(turns):
        figures: dict[str, float] = {}
        clock = usage.Clock.start()
        for _ in range(epochs):
            workload.train_epoch()
            for figure, value in workload.epoch_figures().items():
                figures[figure] = figures.get(figure, 0.0) + value
        wall, cpu = clock.seconds()
        system, faults = clock.kernel()
        count = epochs * BATCHES
        told = {"cpu s": cpu, "kernel s": system, "page faults": faults} | figures
        words = ", ".join(f"{figure} {value / count:.4g}" for figure, value in told.items())
        print(f"{wall / count:.5f} s a step; {words}", flush=True)


def main(name, model_name, batches="", steps=STEPS, rounds=ROUNDS):
    turns, asks = os.pipe()  # Julia makes standard input one that does not wait
    command = [sys.executable, __file__, "--truth", name, model_name, str(steps), str(turns)]
    child = environment(assignment(name, models.get(model_name)))
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(
            command,
            env=child | {"TMPDIR": folder},
            text=True,
            stdout=subprocess.PIPE,
            pass_fds=[turns],
        ) as process,
    ):

        def tenth():
            os.write(asks, b"\n")
            line = process.stdout.readline().strip()
            print(f"# {line}", flush=True)
            return float(line.split()[0])

        tenth()
        counts = [int(count) for count in batches.split(",")] if batches else []
        truth = [tenth() for _ in range(TENTHS - 1 - len(counts))]
        for count in counts:
            time.sleep(1)
            comparison = crossbench.run(
                name, "cpu", model=model_name, data="synthetic", batches=count, rounds=rounds
            )
            truth.append(tenth())
            expected = mean(truth[-2:])
            (row,) = comparison.results
            ratios = [seconds / count / expected for seconds in comparison.seconds(row)]
            print(
                f"{name}, {model_name}, {count} batches: {median(ratios):.3f} of the truth "
                f"({min(ratios):.3f} to {max(ratios):.3f} in rounds)",
                flush=True,
            )
        print(f"{name}, {model_name}: {mean(truth):.5f} s a step over {steps} steps", flush=True)
        os.close(turns)
        os.close(asks)


if __name__ == "__main__":
    if sys.argv[1] == "--truth":
        truth(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:6]))
    else:
        main(*sys.argv[1:4], *map(int, sys.argv[4:6]))
