"""Compare "the first batches, times all by first" with whole epochs.

Every second round is whole, the others take the first batches only, as in an ordinary run; prints
of each row the seconds of a whole epoch that partial rounds tell, relative to those of the whole
round after it. Run by hand, with nothing else running:
python benchmarks/partial_epochs.py FRAMEWORKS MODEL [ROUNDS] [BATCHES]
"""

import sys
from statistics import median

import crossbench
from crossbench.engine import round_steps, rounds


def main(frameworks, model, most_rounds="7", batches=None):
    steps = round_steps.steady_steps

    def every_second_is_whole(comparison, result, number):
        if number % 2 == 0:
            return comparison.batches(result)
        return steps(comparison, result, number)

    rounds.STEPS = every_second_is_whole, every_second_is_whole
    found = crossbench.run(
        frameworks,
        "cpu",
        model=model,
        data="synthetic",
        rounds=int(most_rounds),
        batches=batches and int(batches),
    )
    for row in found.results:
        seconds = found.seconds_by_round(row)
        ratios = [seconds[number - 1] / seconds[number] for number in seconds if number % 2 == 0]
        taken = sorted({epoch.steps for epoch in row.steady})
        print(
            f"{row.name}, {model}: {median(ratios):.3f} of a whole epoch "
            f"({min(ratios):.3f} to {max(ratios):.3f} in rounds), of {taken} batches",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
