"""Measure what each variant gains: the idiomatic row against the variants, model by model.

Run by hand: python benchmarks/variants.py [frameworks] [models] [rounds], for example
python benchmarks/variants.py torch,torch:tuned lenet,mnist_cnn 6. By default all variants of torch,
jax and flux on all models with 6 rounds, which takes hours on two cores. Each model is one run of
crossbench on synthetic data with a few batches, so the ratios are paired by round; the results
files are kept in the directory variants/.
"""

from __future__ import annotations

import sys
from pathlib import Path

import crossbench
from crossbench import models
from crossbench.report.formatting import grid, number, with_interval
from crossbench.results.comparison import Comparison

BATCHES = {"lenet": 10, "resnet63": 1, "bignet": 1}
"""Batches per epoch; OTHERS for the models that are not named."""
OTHERS = 20


def rows(comparison: Comparison) -> list[dict[str, str]]:
    """Return a row for each cell: its seconds, and how many times as fast as idiomatic it is."""
    found, cells = [], {(r.cell.framework, r.cell.variant): r for r in comparison.results}
    for result in comparison.results:
        cell = result.cell
        idiomatic = cells.get((cell.framework, "idiomatic"), result)
        gain = None if idiomatic is result else comparison.paired(idiomatic, result)
        first = comparison.first_epoch(result)
        found.append(
            {
                "model": comparison.model["name"],
                "framework": cell.label,
                "first epoch s": number(first.median if first else None),
                "steady epoch s": with_interval(comparison.steady(result)),
                "× as fast as idiomatic": with_interval(gain),
                "chosen": ", ".join(f"{k} {' or '.join(v)}" for k, v in result.choices.items()),
                "": comparison.doubt(result) or result.reason or "",
            }
        )
    return found


def main() -> None:
    arguments = dict(enumerate(sys.argv[1:]))
    frameworks = arguments.get(0)
    directory = Path("variants")
    directory.mkdir(exist_ok=True)
    table = []
    for name in arguments.get(1, ",".join(models.names())).split(","):
        comparison = crossbench.run(
            frameworks or "torch,jax,flux",
            "cpu",
            variants=None if frameworks else "all",
            model=name,
            data="synthetic",
            rounds=int(arguments.get(2, 6)),
            batches=BATCHES.get(name, OTHERS),
            json=directory / f"{name}.json",
        )
        table += rows(comparison)
        print(grid(rows(comparison), text_columns=2), flush=True)
    print(grid(table, text_columns=2))


if __name__ == "__main__":
    main()
