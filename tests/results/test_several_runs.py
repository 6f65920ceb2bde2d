import re
from dataclasses import replace

import pytest
from samples import DISAGREES, comparison, result, sized

from crossbench import cli
from crossbench.report.formats import tables
from crossbench.report.several_runs import change_table, merged_rows, merged_table
from crossbench.results.several_runs import changes, mean_ratios

EVEN = [9.0, 2.0, 2.01, 1.99, 2.0, 2.02, 1.98, 2.0]


def times(factor, seconds=EVEN):
    return [factor * s for s in seconds]


@pytest.mark.parametrize(
    ("after", "verdict", "fails"),
    [
        (result("torch", times(1.2)), "slower", True),
        (result("torch", times(1.05)), "slower", False),
        (result("torch", times(0.9)), "faster", False),
        (result("torch", times(1.001)), "not significantly different", False),
        (result("torch", times(2)[:4]), "too few rounds to tell", True),
        (result("jax", EVEN), "not compared: only the first file has it", True),
        (
            result("torch", EVEN, parity=DISAGREES),
            "not compared: it does not do the same work: gradient of conv1.weight differs by",
            True,
        ),
        (
            result("torch", EVEN, status="failed"),
            "not compared: why, in the run of 2026-01-01T00:00:00+00:00",
            True,
        ),
    ],
)
def test_the_verdict_of_a_change_and_whether_it_fails_above_a_tenth(after, verdict, fails):
    (change,) = changes(comparison(result("torch", EVEN)), comparison(after))
    assert change.verdict.startswith(verdict)
    assert change.fails(0.1) is fails


def test_a_machine_that_is_slower_as_a_whole_does_not_show_against_its_fastest():
    before = comparison(result("torch", EVEN), result("jax", times(3)))
    after = comparison(result("torch", times(2)), result("jax", times(6)))
    torch, jax = changes(before, after)
    assert torch.seconds.median == jax.seconds.median == pytest.approx(2)
    assert jax.relative_to_run == pytest.approx(1)
    assert torch.relative_to_run is None


@pytest.mark.parametrize("baseline", [None, "torch"])
def test_a_row_is_related_to_the_same_row_in_both_runs(baseline):
    """Another one may be the fastest, or the baseline, of the later run."""
    seconds = {"jax": 1, "torch": 1.5, "flux": 3}
    before = comparison(*(result(name, times(factor)) for name, factor in seconds.items()))
    slower = seconds | {"jax": 3}
    after = comparison(
        *(result(name, times(factor)) for name, factor in slower.items()), baseline=baseline
    )
    _, torch, flux = changes(before, after)
    assert torch.relative_to_run == flux.relative_to_run == pytest.approx(1 / 3)
    assert torch.seconds.median == flux.seconds.median == pytest.approx(1)


@pytest.fixture
def files(tmp_path):
    """Save a base, the same with torch 20 % slower, and one on other data; return their paths."""
    base = comparison(result("torch", EVEN), result("jax", times(3)))
    slow = comparison(result("torch", times(1.2)), result("jax", times(3)))
    slow.machine = replace(slow.machine, cpu="another cpu", environment={"XLA_FLAGS": "--xla_x"})
    other = comparison(result("torch", EVEN))
    other.data = replace(other.data, sha256="another")
    names = []
    for name, content in {"base": base, "slow": slow, "other": other}.items():
        names.append(str(tmp_path / f"{name}.json"))
        content.save(names[-1])
    return names


def test_compare_prints_changes_and_sets_the_status(files, capsys):
    base, slow, _ = files
    assert cli.main(["compare", base, slow]) == 0
    out = capsys.readouterr().out
    (torch,) = [line for line in out.splitlines() if line.startswith("torch cpu")]
    assert "1.20 (1.19–1.21)" in torch or "1.20 (1.18–1.22)" in torch
    assert "slower" in torch
    assert "another cpu" in out
    assert "; XLA_FLAGS=--xla_x" in out
    assert cli.main(["compare", base, slow, "--fail-above", "30%"]) == 0
    assert cli.main(["compare", base, slow, "--fail-above", "10%"]) == 1


def test_files_of_different_work_are_not_compared(files, capsys):
    base, _, other = files
    assert cli.main(["compare", base, other]) == 2
    err = capsys.readouterr().err
    assert err.startswith("crossbench: the runs of 2026")
    assert err.endswith("cannot be compared: the data differs\n")


def test_files_of_different_work_are_merged_in_a_table_each(files, capsys):
    base, slow, other = files
    assert cli.main(["merge", base, other, slow]) == 0
    first, second = capsys.readouterr().out.split("m, pictures, seed 0:")[1:]
    rows = [re.findall(r"^\d .* Torch .*", part, re.MULTILINE) for part in (first, second)]
    assert [[line[0] for line in part] for part in rows] == [["1", "2"], ["1"]]
    assert "1.20" in rows[0][1]
    assert " 1.00 (" in rows[1][0]  # the fastest of its own work


@pytest.mark.parametrize("command", ["compare", "merge"])
def test_one_file_alone_is_not_compared(files, command, capsys):
    assert cli.main([command, files[0]]) == 2
    assert capsys.readouterr().err == "crossbench: name at least two results files\n"


def test_runs_without_a_finished_round_are_merged_and_compared():
    failed = comparison(result("torch", [], status="failed"))
    absent = comparison(result("flux", [], status="unavailable", named=False))
    for c in (failed, absent):
        assert "nothing was measured" in merged_table([c, c])
    assert "nothing was measured" in change_table([absent, absent])


def pair(size, torch, jax):
    """Return the cells of a batch size, with these seconds in each of the rounds."""
    return [sized("torch", size, [9.0, *torch]), sized("jax", size, [9.0, *jax])]


def test_the_geometric_mean_counts_each_model_once_and_says_what_it_is_over():
    drift = [1.0, 2.0, 1.5, 1.2, 0.8, 1.1]  # of the machine: it cancels
    small = pair(2, drift, [2 * d for d in drift])
    large = pair(200, drift, [8 * d for d in drift])
    other = comparison(*pair(2, drift, [9 * d for d in drift]))
    other.model["name"] = "other"
    (mean,) = mean_ratios([comparison(*small, *large), other], "torch")
    assert (mean.name, mean.base, mean.device, mean.task) == ("Jax", "Torch", "cpu", "train")
    assert mean.ratio.median == pytest.approx(6)  # of 4 and 9
    assert (mean.ratio.minimum, mean.ratio.maximum) == pytest.approx((4, 9))
    assert mean.ratio.low is None, "two models have no interval"
    assert mean.over == ("m, batches of 2", "m, batches of 200", "other, batches of 2")
    assert "geometric mean" in tables([comparison(*small, *large), other], False, "text")


def test_a_row_that_is_not_ranked_is_in_no_mean():
    cells = [cell for size in (2, 8, 32) for cell in pair(size, [1.0], [2.0])]
    cells[-1].parity = DISAGREES
    (mean,) = mean_ratios([comparison(*cells)], "torch")
    assert len(mean.over) == 2
    assert mean_ratios([comparison(*pair(2, [1.0], [2.0]))]) == []


def test_merged_rows_are_relative_to_the_fastest_of_their_batch_size():
    one = comparison(*pair(2, [1.0], [2.0]), *pair(200, [8.0], [4.0]))
    two = comparison(*pair(2, [0.5], [2.0]), *pair(200, [8.0], [4.0]))
    rows = merged_rows([one, two])
    assert [row["batch_size"] for row in rows] == [2, 2, 200, 200] * 2
    assert [row["ratio"] for row in rows] == [2, 4, 2, 1, 1, 4, 2, 1]
