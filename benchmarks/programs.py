"""Compare the time of an epoch in the program that `script` writes with that in the row.

After each round of a run the program of each row trains in a process of its own; the median of its
steady epochs is divided by that of the row's in that round. Prints the median of these ratios with
the smallest and the largest. Run by hand, on a quiet machine:
python benchmarks/programs.py torch,jax [model ...].
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from statistics import median

import crossbench

BATCHES = {
    "lenet": 5,
    "mnist_cnn": 15,
    "mlp7_bn": 128,
    "text_lstm": 25,
    "gpt_char": 30,
    "resnet_small": 5,
}
"""Batches of an epoch, by model: seconds of training at most."""
ROUNDS, EPOCHS = 6, 3
JULIA = os.environ.get("PYTHON_JULIAPKG_EXE", "julia")


def seconds(program):
    """Run a program, and return the median seconds of its steady epochs."""
    command = [sys.executable, program.path]
    if program.path.suffix == ".jl":
        command = [JULIA, f"--threads={program.threads}", program.path]
    command += ["--epochs", str(1 + EPOCHS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.findall(r"^epoch \d+: ([\d.e+-]+) s", done.stdout, re.MULTILINE)
    return median(map(float, found[1:]))


def ratios(frameworks, model):
    """Return the ratios of the rounds by framework."""
    asked = {"model": model, "data": "synthetic", "batches": BATCHES[model]}
    found, rounds = defaultdict(list), 0
    with tempfile.TemporaryDirectory() as directory:
        programs = crossbench.script(frameworks=frameworks, out=directory, **asked)

        def after_round(comparison):
            nonlocal rounds
            finished = min(len(r.epochs) // (1 + EPOCHS) for r in comparison.results)
            if finished == rounds:
                return
            rounds = finished
            for program, result in zip(programs, comparison.results, strict=True):
                row = median(epoch.wall_seconds for epoch in result.epochs[-EPOCHS:])
                found[result.name].append(seconds(program) / row)

        crossbench.run(
            frameworks, "cpu", rounds=ROUNDS, epochs=EPOCHS, on_update=after_round, **asked
        )
    return found


def main(frameworks="torch,jax,keras", *models):
    for model in models or BATCHES:
        for row, values in ratios(frameworks, model).items():
            spread = f"({min(values):.3f} to {max(values):.3f}, {len(values)} rounds)"
            print(f"{model} {row}: program / row {median(values):.3f} {spread}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
