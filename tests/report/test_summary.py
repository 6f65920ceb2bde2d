"""The summary: what decides on one screen, who is fastest in a sentence, and the warnings."""

from dataclasses import replace

import pytest
from samples import DISAGREES, FAST, PRECISION, QUIET, SLOW, comparison, epoch, result, sized

from crossbench.report.details import all_details
from crossbench.report.formats import html, markdown
from crossbench.report.summary import summarize
from crossbench.report.terminal import text
from crossbench.results.machine import Peak
from crossbench.results.replay import Replay

EQUAL, MIDDLE = [9, *[2.05, 2.0] * 4], [9, *[3.1, 3] * 4]


def three():
    """Return a quiet run of three frameworks, the fastest of which is neither first nor last."""
    return comparison(result("flux", SLOW), result("torch", FAST), result("jax", MIDDLE))


def test_rows_are_sorted_by_seconds_within_a_device_and_the_unranked_are_last():
    c = comparison(
        result("slow", SLOW),
        result("slow", [9, 0.2, 0.2], device="gpu"),
        result("wrong", [9, 0.1, 0.1], parity=DISAGREES),
        result("none", [], status="failed"),
        result("fast", FAST),
        result("fast", [9, 0.1, 0.1], device="gpu"),
    )
    summary = summarize(c)
    shown = ["Fast cpu", "Slow cpu", "Wrong cpu", "None cpu", "Fast gpu", "Slow gpu"]
    assert [" ".join(row[:2]) for row in summary.rows] == shown
    assert summary.fastest == [True, False, False, False, True, False]


def test_a_column_whose_rows_are_all_equal_is_left_out():
    headers = summarize(three()).columns
    assert headers[:3] == ["framework", "steady epoch s", "× fastest"]
    one = result("torch", SLOW, threads=1, name="torch cpu, 1 thread")
    assert "threads" in summarize(comparison(one, result("torch", FAST))).columns


@pytest.mark.parametrize(
    ("model", "accuracy", "is_shown"),
    [
        ({}, None, True),  # not trained yet
        ({"classes": None}, None, False),
        ({"classes": None}, 0.5, True),  # damaged: what is there is shown
        ({"output_shape": [8, 10]}, None, False),  # a class for each letter of an example
    ],
)
def test_the_accuracy_is_left_out_where_an_example_has_no_class(model, accuracy, is_shown):
    c = comparison(replace(result("torch", FAST), test_accuracy=accuracy))
    c.model |= model
    assert ("accuracy" in summarize(c).columns) == is_shown


@pytest.mark.parametrize(
    ("seconds", "verdicts"),
    [
        (
            {"flux": SLOW, "torch": FAST, "jax": MIDDLE},
            "Torch is fastest on the CPU: of its seconds Jax takes 1.49× (1.43–1.55), Flux 2.00× "
            "(1.90–2.10).",
        ),
        (
            {"torch": FAST, "jax": EQUAL, "flux": SLOW},
            "Jax and Torch are fastest on the CPU, without a significant difference "
            "(Torch 1.01× (0.976–1.05)); of Jax's seconds Flux takes 2.02× (2.00–2.05).",
        ),
        (
            {"torch": [9, 2, 2.1], "jax": [9, 4, 4.1]},
            "Torch is fastest on the CPU: of its seconds Jax takes 1.98× [1.95–2.00] ([range]: 6 "
            "rounds give an interval).",
        ),
        (
            {"torch": [9, 2, 2.1], "jax": [9, 1.9, 2.3]},
            "Torch and Jax are fastest on the CPU, without a significant difference "
            "(Jax 1.02× [0.950–1.10]) ([range]: 6 rounds give an interval).",
        ),
        (
            {f"f{i}": [9, *[i + 1.0] * 6] for i in range(30)},
            "F0 is fastest on the CPU: of its seconds F1 takes 2.00×, F2 3.00×, F3 4.00×, "
            "F4 5.00×, F5 6.00×; 24 more are slower.",
        ),
        ({"torch": FAST}, None),
    ],
)
def test_who_is_fastest_is_a_sentence(seconds, verdicts):
    wrong = result("wrong", FAST, parity=DISAGREES)
    cells = [result(*pair) for pair in seconds.items()]
    assert summarize(comparison(wrong, *cells)).verdicts == ([verdicts] if verdicts else [])


def test_each_device_and_number_of_threads_has_its_verdict():
    cells = [
        result(name, seconds, device=device, threads=threads, name=f"{name} {device} {threads}")
        for device, threads in (("cpu", 1), ("cpu", 2), ("gpu", 2))
        for name, seconds in (("torch", FAST), ("jax", SLOW))
    ]
    verdicts = summarize(comparison(*cells)).verdicts[:3]
    assert [line.partition(":")[0] for line in verdicts] == [
        "Torch is fastest on the CPU with 1 thread",
        "Torch is fastest on the CPU with 2 threads",
        "Torch is fastest on the GPU with 2 threads",
    ]


def test_the_speed_up_of_a_gpu_is_a_sentence():
    c = comparison(result("torch", SLOW), result("torch", [9, *[2.1, 2.0] * 4], device="gpu"))
    assert summarize(c).verdicts == ["On the CPU Torch takes 2.00× its seconds on the GPU."]


def test_the_fastest_is_named_whatever_the_baseline_is():
    c = comparison(result("torch", FAST), result("jax", SLOW), baseline="jax")
    summary = summarize(c)
    assert "× jax" in summary.columns
    (verdict,) = summary.verdicts
    assert verdict == "Torch is fastest on the CPU: of its seconds Jax takes 2.00× (1.90–2.10)."


def test_parity_is_one_line_for_the_rows_that_have_it():
    assert summarize(three()).parity == (
        "All rows do the same work as the NumPy reference: in float64 the largest deviation is "
        "1e-15 (1e-09 is allowed)."
    )
    c = comparison(result("torch", FAST), result("wrong", SLOW, parity=DISAGREES))
    assert summarize(c).parity.startswith("Torch does the same work as")
    c.results[0].epochs = [replace(e, still_training=True) for e in c.results[0].epochs]
    assert summarize(c).parity == ""  # of a row that the timed run doubts it is not said
    assert "Torch: not ranked" in summarize(c).warnings[0]


def test_each_warning_is_a_sentence_that_is_wrapped():
    busy = replace(QUIET, other_processes_cpu_seconds=9.0)
    cell = result("torch", FAST)
    cell.epochs = [epoch(i, 2.0, busy) for i in range(1, 8)]
    c = comparison(cell, result("jax", [], status="failed"))
    c.data = replace(c.data, note="CIFAR-10 is not available (no network)")
    assert summarize(c).warnings == [
        "The data: CIFAR-10 is not available (no network).",
        "Torch: other processes used 4.5 CPUs during its epochs: stop them and run again.",
        "Jax: failed: why.",
    ]
    *_, one, two, three = text(c, 60).splitlines()
    assert one == "! Torch: other processes used 4.5 CPUs during its epochs:"
    assert two == "  stop them and run again."
    assert three == "! Jax: failed: why."


def test_an_interrupted_run_says_so_and_one_that_goes_on_does_not():
    c = comparison(result("torch", FAST, status="pending"), result("jax", SLOW, status="pending"))
    interrupted = "Torch and Jax: interrupted before the last round."
    assert summarize(c).warnings == [interrupted]
    assert summarize(c, running=True).warnings == []


@pytest.mark.parametrize("width", [0, 60, 100])
def test_a_narrow_terminal_gets_what_decides(width):
    written = text(three(), width)
    assert max(map(len, written.splitlines())) <= max(width, 40)
    for words in ("Torch", "2.05", "(2.00–2.10)", "1.49", "(1.43–1.55)"):
        assert words in written
    assert ("accuracy" in written) == (width >= 100)


OUTSIDE = "[bold]a[/bold]\x1b[31m\n\u202e<script>|*_"


@pytest.mark.parametrize("draw", [text, markdown, html, all_details])
@pytest.mark.parametrize("outside", [OUTSIDE, "x" * 10**6], ids=["marks", "long"])
def test_text_from_outside_keeps_the_layout(draw, outside):
    c = comparison(result("torch", SLOW, status="failed"), result("jax", FAST), baseline=outside)
    (cell, _), lines = c.results, len(draw(c).splitlines())
    cell.cell = replace(cell.cell, title=outside, name=outside)
    cell.reason, cell.peak_problem, cell.details = outside, outside, {outside: outside}
    cell.epochs = [replace(e, figures={outside: 1.0}) for e in cell.epochs]
    c.machine = replace(c.machine, cpu=outside, label=outside[:99], gpu_problem=outside)
    c.data = replace(c.data, name=outside)
    drawn = draw(c)
    assert drawn.replace("\n", "").isprintable()
    assert len(drawn.splitlines()) < lines + 300
    assert max(map(len, drawn.splitlines())) < 20_000
    if outside is OUTSIDE:
        assert ("[bold]a[/bold]" in drawn) == (draw is not markdown)
        assert ("<script>" in drawn) == (draw in (text, all_details))
    assert repr(c).isprintable()
    assert len(repr(c)) <= 500


def test_a_problem_of_many_rows_is_one_warning():
    def noisy(number):
        cell = result(f"f{number}", [9, *[1.0, 2.0] * 6])
        cell.cpus_allowed = 3 + number
        return cell

    five, six = (summarize(comparison(*map(noisy, range(n)))).warnings for n in (5, 6))
    assert len([line for line in five if "its threads may run on" in line]) == 5
    (line,) = [line for line in six if "its threads may run on" in line]
    assert line.startswith("6 rows (F0 is the first): its threads may run on 3 CPUs instead of")


def test_what_to_do_about_a_problem_of_several_rows_is_said_once():
    warnings = summarize(
        comparison(result("torch", [9, *[1.0, 2.0] * 6]), result("jax", [9, *[2.0, 4.0] * 6]))
    ).warnings
    first, second = [line for line in warnings if "interquartile range" in line]
    assert first.startswith("Torch: the interquartile range of its epochs is 67% of the median: ")
    assert first.endswith("run again when it is quieter.")
    assert second == "Jax: the interquartile range of its epochs is 67% of the median."


def test_the_heading_says_that_few_rounds_have_a_range():
    heading = summarize(comparison(result("torch", [9, 2, 2.1]))).heading
    assert heading.endswith("; 2 interleaved rounds: median [range].")


@pytest.mark.parametrize(
    ("asked", "jax", "words"),
    [
        ({"rounds": 6}, 4.0, "8 interleaved rounds: median"),
        ({"rounds": None}, 4.0, "8 interleaved rounds, until each ratio was clear: median"),
        ({"rounds": None, "precision": 0.02}, 4.0, ", until each interval was within 2 %: median"),
        ({"rounds": None}, None, ", until each interval was within 5 %: median"),
        ({"rounds": None}, 2.1, ", until 120 s were over: median"),
        ({"rounds": None, "max_seconds": 7.0}, 2.1, ", until 7 s were over: median"),
    ],
)
def test_the_heading_says_why_there_were_no_more_rounds(asked, jax, words):
    rows = [result("torch", [9, *[2.0] * 8]), result("flux", [], status="unavailable")]
    if jax:
        spread = 0.0 if jax == 4.0 else 0.2
        rows.append(result("jax", [9, *[jax - spread, jax + spread] * 4]))
    c = comparison(*rows, **asked)
    assert words in summarize(c).heading
    assert ", until " not in summarize(c, running=True).heading


def test_the_heading_says_which_epochs_are_not_whole():
    c = comparison(result("torch", [9, *[2.0] * 6]))
    assert "batches." not in summarize(c).heading
    epochs = c.results[0].epochs
    for at, steps in ((0, 5), (1, 5), (4, 7), (5, 7)):
        epochs[at] = replace(epochs[at], losses=[2.3] * steps)
    assert summarize(c).heading.endswith(
        " In 4 rounds the epochs are whole, in the others they take the first 5 to 7 batches."
    )
    c.results[0].epochs, c.most_turns = [replace(e, losses=[2.3] * 5) for e in epochs], 2
    assert " In each round they take the first 5 batches." in summarize(c).heading
    assert "the rows of a round ran in up to 2 turns" in summarize(c).heading


def test_precisions_are_compared_within_themselves_and_beside_float32():
    half = [9, *[1.0, 1.2] * 4]
    in_bfloat16 = result("torch", half, compute="bfloat16", name="torch cpu, bfloat16")
    c = comparison(
        result("torch", FAST, name="torch cpu, float32"),
        replace(in_bfloat16, precision=PRECISION, test_loss=2.0),
        result("jax", SLOW, name="jax cpu, float32"),
    )
    summary = summarize(c)
    shown = {row[0] + row[1]: dict(zip(summary.columns, row, strict=True)) for row in summary.rows}
    assert summary.fastest == [True, False, True]
    assert shown["Torchbfloat16"]["× fastest"] == "1.00"
    assert shown["Torchbfloat16"]["× float32"].startswith("0.5")
    assert shown["Torchbfloat16"]["test\nloss"] == "2.0000"
    assert shown["Torchfloat32"]["× float32"] == "–"
    assert "float32 and bfloat16; " in summary.heading
    assert any("on the CPU in float32" in line for line in summary.verdicts)
    alone = summarize(comparison(result("torch", FAST)))
    assert not {"compute", "× float32", "test\nloss"} & set(alone.columns)


@pytest.mark.parametrize(
    ("instructions", "gflops", "words"),
    [
        ([], 800.0, "cannot multiply in bfloat16 (it lacks AVX512_BF16"),
        (["avx512_bf16"], 800.0, None),
        (
            ["avx512_bf16"],
            300.0,
            "0.75 times as fast in bfloat16 as in float32: it hardly uses this processor's "
            "instructions (avx512_bf16)",
        ),
    ],
)
def test_a_row_that_cannot_be_faster_in_bfloat16_has_a_remark(instructions, gflops, words):
    rows = [
        replace(result("torch", FAST, compute=c, name=c), precision=PRECISION, peak=Peak(peak, 40))
        for c, peak in (("float32", 400.0), ("bfloat16", gflops))
    ]
    c = comparison(*rows)
    c.machine = replace(c.machine, bfloat16_instructions=instructions)
    warnings = [line for line in summarize(c).warnings if "in bfloat16" in line]
    assert len(warnings) == (words is not None)
    assert all(words in line for line in warnings)


def test_it_says_how_far_the_logits_and_the_biases_of_a_precision_are():
    rough = PRECISION.observed | {"gradient of b.bias": 0.44, "gradient of c.bias": 0.02}
    row = replace(
        result("torch", FAST, compute="bfloat16"), precision=replace(PRECISION, observed=rough)
    )
    summary = summarize(comparison(row))
    (warning,) = [line for line in summary.warnings if "of b.bias" in line]
    assert "in bfloat16 the gradient of b.bias is off by 44% in the proof, more than 10" in warning
    assert summary.parity.endswith(
        "In bfloat16 their logits are at most 3.0e-03 from those in float64; the reference's "
        "with the same rounding are 4.0e-03."
    )


def replayed(steps, weights, at=1):
    """Return what was found where so many steps of ten were run again."""
    return Replay(1, 2, at, 1, steps, 1, 2.3, 2.3, 0.0, weights, 0.5)


@pytest.mark.parametrize(
    ("replays", "words"),
    [
        ([replayed(10, 0.0)], "with the same losses and weights."),
        ([replayed(4, None)], "with the same losses; of long epochs the first 4 of 10 steps."),
        (
            [replayed(4, None), replayed(10, 0.0, at=0)],
            "with the same losses, and, where all steps were run again, the same weights; of long "
            "epochs the first 4 of 10 steps.",
        ),
        (
            [replace(replayed(10, 2e-6), deviation=1e-7)],
            "with losses within 1e-07 and weights within 2e-06 of their change.",
        ),
    ],
)
def test_what_was_run_again_is_said_with_what_was_compared(replays, words):
    row = result("torch", [9, 2, 2])
    row.replays = replays
    assert summarize(comparison(row)).parity.endswith(f"in calls of a few batches, {words}")


def test_steps_that_were_run_again_are_those_of_their_epochs_length():
    rows = [sized("torch", size, [9, 2]) for size in (100, 10)]
    for row, steps in zip(rows, (4, 20), strict=True):
        row.replays = [replayed(steps, None)]
    text = summarize(comparison(*rows)).parity
    assert text.endswith("; of long epochs the first 4 of 10 and 20 of 105 steps.")


def test_rows_whose_epochs_are_whole_in_other_rounds_are_not_counted_together():
    large, small = (sized("torch", size, [9, 2, 2]) for size in (100, 10))
    small.epochs[1] = replace(small.epochs[1], losses=[2.3] * 40)
    assert (
        "Epochs that are not whole take the first 40 batches."
        in summarize(comparison(large, small)).heading
    )
    small.epochs[0] = replace(small.epochs[0], losses=[2.3] * 40)
    assert "In 1 round the epochs are whole" in summarize(comparison(small)).heading
