import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from samples import DISAGREES, comparison, result

from crossbench import cli
from crossbench.report.formats import tables
from crossbench.report.several_runs import change_table, merged_rows, merged_table
from crossbench.results.several_runs import changes, mean_ratios
from crossbench.results.statistics import estimate

EVEN = [9.0, 2.0, 2.01, 1.99, 2.0, 2.02, 1.98, 2.0]


def times(factor, seconds=EVEN):
    return [factor * s for s in seconds]


def verdict(before, after):
    (change,) = changes(comparison(before), comparison(after))
    return change.verdict


def test_the_verdict_of_a_change():
    base = result("torch", EVEN)
    assert verdict(base, result("torch", times(1.05))) == "slower"
    assert verdict(base, result("torch", times(0.9))) == "faster"
    assert verdict(base, result("torch", times(1.001))) == "not significantly different"
    assert verdict(base, result("torch", times(2)[:4])) == "too few rounds to tell"
    assert verdict(base, result("jax", EVEN)) == "not compared: only the first file has it"
    assert verdict(base, result("torch", EVEN, parity=DISAGREES)).startswith(
        "not compared: it does not do the same work: gradient of conv1.weight differs by 3.0e-01 "
    )
    failed = result("torch", EVEN, status="failed")
    assert verdict(base, failed).startswith("not compared: why, in the run of 2026")


def test_a_machine_that_is_slower_as_a_whole_does_not_show_against_its_fastest():
    before = comparison(result("torch", EVEN), result("jax", times(3)))
    after = comparison(result("torch", times(2)), result("jax", times(6)))
    torch, jax = changes(before, after)
    assert torch.seconds.median == jax.seconds.median == pytest.approx(2)
    assert jax.relative_to_run == pytest.approx(1)
    assert torch.relative_to_run is None


@pytest.mark.parametrize(
    ("factor", "above", "fails"), [(1.2, 0.1, True), (1.05, 0.1, False), (0.5, 0.1, False)]
)
def test_fail_above_allows_small_slowdowns(factor, above, fails):
    (change,) = changes(
        comparison(result("torch", EVEN)), comparison(result("torch", times(factor)))
    )
    assert change.fails(above) is fails


def test_too_few_rounds_fail():
    (change,) = changes(comparison(result("torch", EVEN)), comparison(result("torch", EVEN[:3])))
    assert change.fails(0.1)


@pytest.fixture
def files(tmp_path, lenet):
    """Save a base, the same with torch 20 % slower, and one on other data; return their paths."""
    base = comparison(result("torch", EVEN), result("jax", times(3)), model=lenet.description())
    slow = comparison(
        result("torch", times(1.2)), result("jax", times(3)), model=lenet.description()
    )
    slow.machine = replace(slow.machine, cpu="another cpu", environment={"XLA_FLAGS": "--xla_x"})
    other = comparison(result("torch", EVEN), model=lenet.description())
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


def test_merge_prints_the_rows_of_all_runs(files, capsys):
    base, slow, _ = files
    assert cli.main(["merge", slow, base]) == 0
    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if " cpu " in line and "Torch" in line]) == 2
    rows = [line.split() for line in out.splitlines() if "Torch  " in line]
    assert [row[0] for row in rows] == ["1", "2"]
    assert "1.20" in " ".join(rows[0])


def test_files_of_different_work_are_not_compared(files, capsys):
    base, _, other = files
    assert cli.main(["compare", base, other]) == 2
    err = capsys.readouterr().err
    assert err.startswith("crossbench: the runs of 2026")
    assert err.endswith("cannot be compared: the data differs\n")


def test_files_of_different_work_are_merged_in_a_table_each(files, capsys):
    base, slow, other = files
    assert cli.main(["merge", base, other, slow]) == 0
    first, second = capsys.readouterr().out.split("lenet, pictures, seed 0:")[1:]
    rows = [re.findall(r"^\d .* Torch .*", part, re.MULTILINE) for part in (first, second)]
    assert [[line[0] for line in part] for part in rows] == [["1", "2"], ["1"]]
    assert " 1.00 (" in rows[1][0]  # the fastest of its own work


@pytest.mark.parametrize("command", ["compare", "merge"])
def test_one_file_alone_is_not_compared(files, command, capsys):
    assert cli.main([command, files[0]]) == 2
    assert capsys.readouterr().err == "crossbench: name at least two results files\n"


def test_a_truncated_file_gets_one_line(files, tmp_path, capsys):
    base, slow, _ = files
    content = json.loads(Path(slow).read_text())
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(content)[:500])
    assert cli.main(["compare", base, str(cut)]) == 2
    err = capsys.readouterr().err
    assert "cut.json is not a crossbench results file" in err
    assert err.count("\n") == 1


def test_runs_without_a_finished_round_are_merged_and_compared():
    failed = comparison(result("torch", [], status="failed"))
    absent = comparison(result("flux", [], status="unavailable", named=False))
    for c in (failed, absent):
        assert "nothing was measured" in merged_table([c, c])
    assert "nothing was measured" in change_table([absent, absent])


def test_text_from_outside_takes_one_line():
    cell = result("torch", EVEN)
    cell.cell = replace(cell.cell, name="a\nb", title="a\nb")
    cell.details = {"a\nb": "\x1b[31m"}
    c = comparison(cell)
    c.machine = replace(c.machine, cpu="a\nb", gpus=["\x1b[31m"], system="a\nb")
    plain = comparison(result("torch", EVEN))
    for of in (change_table, merged_table):
        text, other = of([c, c]), of([plain, plain])
        assert len(text.splitlines()) == len(other.splitlines())
        assert text.replace("\n", "").isprintable()


def sized(size, torch, jax):
    """Return a comparison's cells of a batch size, with these seconds in each of six rounds."""
    return [
        result(name, [9.0, *seconds], batch_size=size, name=f"{name} {size}")
        for name, seconds in (("torch", torch), ("jax", jax))
    ]


def test_the_geometric_mean_counts_each_model_once_and_says_what_it_is_over():
    drift = [1.0, 2.0, 1.5, 1.2, 0.8, 1.1]  # of the machine: it cancels
    small = sized(2, drift, [2 * d for d in drift])
    large = sized(200, drift, [8 * d for d in drift])
    other = comparison(*sized(2, drift, [9 * d for d in drift]))
    other.model["name"] = "other"
    (mean,) = mean_ratios([comparison(*small, *large), other], "torch")
    assert (mean.name, mean.base, mean.device, mean.task) == ("Jax", "Torch", "cpu", "train")
    assert mean.ratio.median == pytest.approx(6)  # of 4 and 9
    assert (mean.ratio.minimum, mean.ratio.maximum) == pytest.approx((4, 9))
    assert mean.ratio.low is None, "two models have no interval"
    assert mean.over == ("m, batches of 2", "m, batches of 200", "other, batches of 2")
    assert "geometric mean" in tables([comparison(*small, *large), other], False, "text")


def test_the_interval_of_a_geometric_mean_comes_from_the_rounds():
    noisy = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    cells = sized(2, [1.0] * 6, noisy) + sized(8, [1.0] * 6, [2 * n for n in noisy])
    (mean,) = mean_ratios([comparison(*cells)], "torch")
    expected = estimate([2**0.5 * n for n in noisy])
    assert (mean.ratio.low, mean.ratio.high) == pytest.approx((expected.low, expected.high))


def test_a_row_that_is_not_ranked_is_in_no_mean():
    cells = sized(2, [1.0], [2.0]) + sized(8, [1.0], [2.0]) + sized(32, [1.0], [2.0])
    cells[-1].parity = DISAGREES
    (mean,) = mean_ratios([comparison(*cells)], "torch")
    assert len(mean.over) == 2
    assert mean_ratios([comparison(*sized(2, [1.0], [2.0]))]) == []


def test_merged_rows_are_relative_to_the_fastest_of_their_batch_size():
    one = comparison(*sized(2, [1.0], [2.0]), *sized(200, [8.0], [4.0]))
    two = comparison(*sized(2, [0.5], [2.0]), *sized(200, [8.0], [4.0]))
    ratios = {
        (row["run"], row["framework"], row["batch_size"]): row["ratio"]
        for row in merged_rows([one, two])
    }
    assert ratios[1, "torch", 2] == 2
    assert ratios[2, "torch", 2] == ratios[1, "jax", 200] == 1
    assert ratios[2, "torch", 200] == 2
