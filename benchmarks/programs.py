"""Compare the time of an epoch in the program that `script` writes with that in the row.

Each framework has a run of its own. After each round its program trains in another process; the
median of the program's steady epochs is divided by that of the row's in that round. Prints the
median of these ratios with the smallest and the largest. Run by hand, on a quiet machine:
python benchmarks/programs.py torch,jax [model ...].
"""

import os
import re
import subprocess
import sys
import tempfile
from statistics import median

import crossbench

BATCHES = {
    "lenet": 5,
    "mnist_cnn": 5,
    "mlp7_bn": 128,
    "text_lstm": 10,
    "gpt_char": 10,
    "resnet_small": 2,
}
"""Batches of an epoch, by model: a second of training at most."""
ROUNDS, EPOCHS = 10, 3
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


def ratios(framework, model):
    """Return the ratio of each round."""
    asked = {"model": model, "data": "synthetic", "batches": BATCHES[model]}
    found = []
    with tempfile.TemporaryDirectory() as directory:
        (program,) = crossbench.script(frameworks=framework, out=directory, **asked)

        def after_round(comparison):
            (result,) = comparison.results
            if len(result.epochs) // (1 + EPOCHS) > len(found):
                steady = result.epochs[-EPOCHS:]
                row = median(comparison.per_epoch(result, epoch) for epoch in steady)
                found.append(seconds(program) / row)

        crossbench.run(
            framework, "cpu", rounds=ROUNDS, epochs=EPOCHS, on_update=after_round, **asked
        )
    return found


def main(frameworks="torch,jax,keras", *models):
    for model in models or BATCHES:
        for framework in frameworks.split(","):
            values = ratios(framework, model)
            spread = f"({min(values):.3f} to {max(values):.3f}, {len(values)} rounds)"
            print(f"{model} {framework}: program / row {median(values):.3f} {spread}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
