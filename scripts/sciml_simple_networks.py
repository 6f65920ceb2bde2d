"""Repeat SciMLBenchmarks.jl's "Simple Neural Networks" (2026): prediction and training of five
small networks by batch size, with the same work proved in every framework.

The post draws a plot of each; here are its figures as tables. Its Julia rows minimise a summed loss
and its Python rows a mean, its JAX rows lose the state of Adam, and JAX has neither batch norms nor
the ResNet there: its own figures cannot be compared with these.

    python scripts/sciml_simple_networks.py [BATCHES [ROUNDS]]

BATCHES: the most steps of an epoch (100). ROUNDS: 6. It takes more than an hour, most of it for the
start of the processes.
"""

import sys

import tabulate

import crossbench

FRAMEWORKS = ("torch", "jax", "flux", "lux")
MLP = {"train": [32, 128, 512, 2048], "predict": [2, 8, 32, 128, 512, 2048]}
NETWORKS = {
    "mlp7_relu": MLP,
    "mlp7_gelu": MLP,
    "mlp7_bn": MLP,
    "lenet5": {"train": [32, 128], "predict": [2, 8, 32, 128]},
    "resnet_small": {"train": [8, 32], "predict": [2, 8, 32]},
}

batches, rounds = int([*sys.argv, 100][1]), int([*sys.argv, 6, 6][2])
runs = []
for model, sizes in NETWORKS.items():
    for task, batch_size in sizes.items():
        try:
            run = crossbench.run(
                FRAMEWORKS,
                model=model,
                task=task,
                batch_size=batch_size,
                batches=batches,
                rounds=rounds,
                progress=lambda what, model=model: print(f"{model}: {what}", file=sys.stderr),
            )
        except crossbench.CrossbenchError as error:
            sys.exit(f"crossbench: {error}")
        print(run, end="\n\n", flush=True)
        runs.append(run)

figures = {}
for run in runs:
    for row in run.rows():
        if row["ranked"]:
            place = (row["task"], row["model"], row["batch_size"], row["device"])
            figures.setdefault(place, {})[row["title"]] = 1e3 * row["step_seconds"]
titles = list(dict.fromkeys(title for by_title in figures.values() for title in by_title))
table = [[*place, *map(by_title.get, titles)] for place, by_title in figures.items()]
headers = ["task", "network", "batch", "device", *(f"{title} ms" for title in titles)]
print("Milliseconds of a step, the figure that the post plots:", end="\n\n")
print(tabulate.tabulate(table, headers, floatfmt=".3g", missingval="-"), end="\n\n")
for task in ("train", "predict"):
    for mean in crossbench.mean_ratios([r for r in runs if r.results[0].cell.task == task]):
        low, high = mean.ratio.low, mean.ratio.high
        interval = "" if low is None else f" (95 % interval {low:.3g} to {high:.3g})"
        print(
            f"To {task} on the {mean.device}: {mean.name} takes {mean.ratio.median:.3g}{interval} "
            f"times as long as {mean.base}, the geometric mean over {len(mean.over)} batch sizes "
            "of the networks."
        )
