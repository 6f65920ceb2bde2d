"""The site: pages of a folder of results files, without a network."""

import csv
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from urllib.parse import unquote

import pytest
from browsing import WIDTH, opened
from samples import DISAGREES, FAST, SLOW, comparison, result, sized

from crossbench import cli, models
from crossbench.inputs.errors import ReportError, ResultsError
from crossbench.results.cells import Place
from crossbench.results.statistics import mean_over_models, round_ratios
from crossbench.sites import runs
from crossbench.sites.answers import answers, base, histories
from crossbench.sites.build import MARK, site

HOSTILE = "<script>alert(1)</script> & \"'../../x"
PLACE = Place("cpu", 2, "float32", "train")
MAX_BYTES = 1_500_000


def made(model="lenet", created="2026-01-01", machine="cpu", version="1.0", cells=None):
    """Return a run of a model of the catalogue with two frameworks."""
    c = comparison(
        *(cells or [result("torch", FAST), result("jax", SLOW)]),
        model=models.get(model).description(),
    )
    c.created = f"{created}T00:00:00+00:00"
    c.machine = replace(c.machine, label=machine)
    c.settings = replace(c.settings, model=model)
    for cell in c.results:
        cell.details = {cell.cell.framework: version, "BLAS": "x"}
    return c


def saved(directory, *comparisons):
    """Write these results files, and return their folder."""
    folder = directory / "results"
    folder.mkdir()
    for number, c in enumerate(comparisons):
        c.save(folder / f"run {number}.json")
    return folder


def runs_of(*comparisons):
    return [runs.of_comparison(c, f"{number}.json") for number, c in enumerate(comparisons)]


@pytest.fixture
def folder(tmp_path):
    return saved(tmp_path, made())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return a site of seven runs: of five models, of which lenet was measured again, and with a
    shorter epoch, gpt_char on a second machine, and one in Keras.

    No test changes it; its results are beside it.
    """
    directory = tmp_path_factory.mktemp("built")
    shorter = made(created="2026-02-01")
    shorter.data = replace(shorter.data, most_batches=3)
    folder = saved(
        directory,
        made(),
        made("gpt_char", machine="other"),
        made("mlp7_relu", cells=[result("torch", SLOW), result("jax", FAST)]),
        made("mlp7_gelu"),
        shorter,
        made(created="2026-03-01", version="2.0"),
        made("mnist_mlp", cells=[result("torch", FAST), result("keras", SLOW)]),
    )
    site(folder, directory / "site")
    return directory / "site"


def text_of(path):
    """Return what a reader sees of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", path.read_text()))


def pages(folder):
    return sorted(folder.rglob("*.html"))


def test_the_front_page_answers_for_each_kind_of_model(built):
    seen = text_of(built / "index.html")
    assert "7 runs, 5 models, 2 machines, measured 2026-01-01 to 2026-03-01" in seen
    assert re.search(r"convolutional, the CPU \(1 model\) Torch 1\.00 2\.00 \(1\.90–2\.10\)", seen)
    assert re.search(r"dense, the CPU \(2 models\) Torch and Jax 1\.00 1\.00", seen)
    assert "Dense models: too few were measured in Keras." in seen
    assert "seconds relative to Torch" in (built / "index.html").read_text().partition("<table")[0]
    assert seen.index("cpu, 2 CPUs") < seen.index("other, 2 CPUs")  # the last measured first


def test_there_is_a_page_for_each_model_machine_framework_and_current_run(built):
    found = Counter(str(page.relative_to(built).parent) for page in pages(built))
    # one of the seven runs was measured again
    assert found == {".": 2, "models": 5, "machines": 2, "frameworks": 3, "runs": 6}


def test_the_pages_of_models_machines_and_frameworks_rank_the_rows_of_their_runs(built):
    """A model or a machine by place and model, a framework from where it is best."""
    of_lenet = text_of(built / "models/lenet.html")
    assert "kind convolutional" in of_lenet
    verdict = "Torch is fastest on the CPU: of its seconds Jax takes 2.00× (1.90–2.10)."
    assert of_lenet.index(verdict) < of_lenet.index("Who is fastest?"), "it answers first"
    assert of_lenet.count(verdict) == 3
    place = r"train in float32 on the CPU with 2 threads"
    row = rf"cpu, 2 CPUs {place} 10 × 100 Torch 1\.00; Jax 2\.00 \(1\.90–2\.10\) 2026-03-01"
    assert re.search(row, of_lenet)
    of_machine = text_of(built / "machines" / f"{runs.page_name('cpu, 2 CPUs')}.html")
    shown = re.findall(rf"(\w+) {place} (?:10|3) × 100 (\w+) ", of_machine)
    assert [model for model, _ in shown] == [
        *("lenet", "lenet", "mlp7_gelu", "mlp7_relu", "mnist_mlp")
    ]
    assert dict(shown)["mlp7_relu"] == "Jax"
    of_jax = text_of(built / "frameworks" / f"{runs.page_name('Jax')}.html")
    assert "versions jax 2.0; jax 1.0" in of_jax
    shown = re.findall(rf"(\w+) (?:cpu|other), 2 CPUs {place} (?:10|3) × 100 (\w+) ", of_jax)
    assert shown[0] == ("mlp7_relu", "Jax")
    assert set(shown[1:]) == {(m, "Torch") for m in ("lenet", "gpt_char", "mlp7_gelu")}
    assert re.search(r"lenet, 10 batches of 100, .* jax 1\.0 2\.00 .* jax 2\.0 2\.00 ", of_jax)


def test_runs_that_differ_in_the_length_of_their_epoch_are_told_apart(built):
    for page in ("models/lenet.html", f"frameworks/{runs.page_name('Jax')}.html"):
        shown = text_of(built / page)
        assert "10 × 100" in shown
        assert "3 × 100" in shown


def test_every_link_leads_to_a_file_of_the_site_and_nothing_is_loaded_from_outside(built):
    for page in pages(built):
        content = page.read_text()
        for link in re.findall(r'(?:href|src)="([^"]*)"', content):
            if link.startswith(("#", "data:")):
                continue
            assert not re.match(r"[a-z]+:|//", link), (page, link)
            target = unquote(link.partition("#")[0])
            assert (page.parent / target).resolve().is_relative_to(built.resolve())
            assert (page.parent / target).is_file(), (page, link)
        assert page.stat().st_size + (built / "vega.js").stat().st_size < MAX_BYTES


def test_a_results_file_is_beside_its_figures(built):
    assert (built / "results/run 0.json").read_bytes() == (
        built.parent / "results/run 0.json"
    ).read_bytes()
    with (built / "everything.csv").open() as file:
        files = Counter(row["results_file"] for row in csv.DictReader(file))
    assert files == {f"run {number}.json": 2 for number in range(7)}
    assert json.loads((built / "everything.json").read_text())[0]["framework"] == "torch"


def test_the_table_of_everything_has_each_row_once(built):
    script = (built / "rows.js").read_text()
    table = json.loads(script.removeprefix("window.crossbenchRows = ").rstrip(";\n"))
    state = table["columns"].index("state")
    states = [table["texts"][state][row[state]] for row in table["rows"]]
    assert sorted(states) == ["ranked"] * 12 + ["ranked, measured again later"] * 2


def test_a_run_page_has_the_programs_and_the_proof(built):
    seen = text_of(built / "runs" / f"{runs.page_name('run 5')}.html")
    assert "nn.Conv2d(3, 16, 5)" in seen
    assert "Parity, tensor by tensor" in seen


def test_the_means_are_of_ranked_rows_and_of_the_models_that_all_have():
    slow = [result("torch", SLOW), result("jax", SLOW)]
    wrong = [result("torch", FAST), result("jax", FAST, parity=DISAGREES)]
    found = runs_of(
        *(made("mlp7_relu"), made("mlp7_gelu", cells=slow), made("mlp7_bn", cells=wrong)),
        made("mnist_mlp", cells=[*slow, result("keras", SLOW)]),
    )
    (answer,) = answers(found, PLACE)
    assert (answer.kind, answer.models) == ("dense", ["mlp7_gelu", "mlp7_relu", "mnist_mlp"])
    assert answer.lacking == ["Keras"]  # a quarter of torch's models
    pairs = [{m.label: m.seconds for m in run.measured} for run in found if run.model != "mlp7_bn"]
    expected = [[round_ratios(p["Jax"], p["Torch"])] for p in pairs]
    assert answer.ratios["Jax"] == mean_over_models(expected)


def test_a_model_counts_once_however_many_batch_sizes_it_has():
    several = [sized("torch", size, FAST) for size in (10, 100)]
    several += [sized("jax", size, SLOW) for size in (10, 100)]
    equal = [result("torch", SLOW), result("jax", SLOW)]
    found = runs_of(made("mlp7_relu", cells=several), made("mlp7_gelu", cells=equal))
    (answer,) = answers(found, PLACE)
    assert len(answer.units) == 3
    assert answer.ratios["Jax"].median == pytest.approx((2.0 * 1.0) ** 0.5, abs=0.01)


def test_ratios_are_to_the_fastest_whatever_the_baseline():
    c = made()
    c.settings = replace(c.settings, baseline="jax")
    (run,) = runs_of(c)
    assert [round(m.ratio.median, 2) for m in run.measured] == [1.0, 2.0]
    assert round(run.measured[0].row.ratio.median, 2) == 0.5


def test_a_later_run_replaces_one_of_the_same_machine_whose_rows_it_has():
    old, new = made(), made(created="2026-02-01")
    wider = made(created="2025-01-01", cells=[result(n, FAST) for n in ("torch", "jax", "keras")])
    other = made(machine="b", created="2027-01-01")
    found = runs.current(runs_of(old, new, wider, other))
    assert [run.file for run in found] == ["3.json", "1.json", "2.json"]
    (answer,) = answers(found[1:], PLACE)  # of the same work that with more rows
    assert set(answer.ratios) == {"Torch", "Jax", "Keras"}


def test_a_row_stands_in_a_mean_by_its_models_not_by_their_batch_sizes():
    several = [sized(name, size, FAST) for name in ("torch", "jax") for size in (5, 10, 50, 100)]
    three = [result(name, FAST) for name in ("torch", "jax", "keras")]
    found = runs_of(
        made("mlp7_relu", cells=several),
        *(made(model, cells=three) for model in ("mlp7_gelu", "mnist_mlp")),
    )
    (answer,) = answers(found, PLACE)
    assert (set(answer.ratios), answer.lacking) == ({"Torch", "Jax", "Keras"}, [])


def test_a_later_run_in_which_a_row_failed_replaces_none():
    failed = made(created="2026-02-01", cells=[result("torch", FAST), result("jax", FAST)])
    failed.results[1].status = "failed"
    found = runs.current(runs_of(made(), failed))
    assert [run.file for run in found] == ["1.json", "0.json"]
    (answer,) = answers(found, PLACE)
    assert set(answer.ratios) == {"Torch", "Jax"}


@pytest.mark.parametrize("names", [("torch", "jax", "keras"), ("keras", "jax", "torch")])
def test_a_history_is_relative_to_what_the_runs_were_asked_for_first(names):
    c = made(cells=[result(name, FAST) for name in names])
    first, second, third = (name.title() for name in names)
    found = runs_of(c)
    assert [base(found, label) for label in (first, second, third)] == [second, first, first]


def test_without_the_packages_of_pages_one_line_says_so(folder):
    hidden = "import sys; sys.modules['altair'] = None; from crossbench import cli; "
    command = f"sys.exit(cli.main(['site', {str(folder)!r}, '--out', 'site']))"
    ended = subprocess.run(
        [sys.executable, "-c", hidden + command], capture_output=True, text=True, cwd=folder
    )
    assert ended.returncode == 2
    assert ended.stderr == "crossbench: a page needs more packages: pip install altair\n"


def test_the_history_of_a_framework_is_relative_to_another_of_the_same_run():
    old = made(version="1.0")
    cells = [result("torch", FAST), result("jax", FAST)]
    found = runs_of(made(version="2.0", created="2026-02-01", cells=cells), old)
    ((what, steps),) = histories(found, "Jax", "Torch")
    assert (
        what == "lenet, 10 batches of 100, train in float32 on the CPU with 2 threads; cpu, 2 CPUs"
    )
    shown = [(s.measured.versions, round(s.ratio.median, 1)) for s in steps]
    assert shown == [("jax 1.0", 2.0), ("jax 2.0", 1.0)]
    assert histories(found[:1], "Jax", "Torch") == []
    shorter = made(version="3.0", created="2026-03-01")
    shorter.data = replace(shorter.data, most_batches=3)
    assert histories(runs_of(made(version="2.0"), shorter), "Jax", "Torch") == []


def test_a_file_that_cannot_be_read_costs_no_other(folder, tmp_path, capsys):
    content = (folder / "run 0.json").read_bytes()
    bad = {
        "damaged.json": (content[:100], "is not a crossbench results file"),
        "old.json": (b'{"schema": 3}', "it has schema 3, this crossbench reads"),
        "twice.json": (content, "it is the same run as run 0.json"),
        "packed.json.gz": (gzip.compress(content)[:200], "what gzip packed is cut off"),
    }
    for name, (damaged, _) in bad.items():
        (folder / name).write_bytes(damaged)
    assert cli.main(["site", str(folder), "--out", str(tmp_path / "site")]) == 1
    written = capsys.readouterr()
    for name, (_, reason) in bad.items():
        (line,) = [line for line in written.err.splitlines() if name in line]
        assert reason in line
        assert reason in text_of(tmp_path / "site/unread.html")
    assert "pages of 1 runs" in written.out
    assert "4 files could not be read" in text_of(tmp_path / "site/index.html")


def test_the_folder_may_be_a_url_and_have_folders_and_files_that_gzip_packed(folder, tmp_path):
    pytest.importorskip("upath")
    (folder / "2026-01").mkdir()
    made("gpt_char").save(folder / "2026-01/a b.json")
    content = (folder / "run 0.json").read_bytes()
    (folder / "run 0.json").unlink()
    (folder / "run 0.json.gz").write_bytes(gzip.compress(content))
    assert site(folder.as_uri(), tmp_path / "site").runs == 2
    assert (tmp_path / "site/results/2026-01/a b.json").is_file()
    page = (tmp_path / "site/models/gpt_char.html").read_text()
    assert 'href="../results/2026-01/a%20b.json"' in page


def test_a_folder_without_results_gets_one_line(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match=r"empty holds no results file \(\*\.json\)"):
        site(tmp_path / "empty", tmp_path / "site")
    with pytest.raises(ResultsError, match="nowhere cannot be read: No such file"):
        site(tmp_path / "nowhere", tmp_path / "site")
    (tmp_path / "empty" / "a.json").write_text("{}")
    with pytest.raises(ResultsError, match=r"no file of .* can be read; the first, a\.json: "):
        site(tmp_path / "empty", tmp_path / "site")
    assert not (tmp_path / "site").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "results"]


def test_nothing_is_overwritten_without_force_and_only_a_site_with_it(folder, tmp_path):
    out = tmp_path / "site"
    out.mkdir()
    for name in ("mine.txt", MARK):
        (out / name).write_text("x")
    with pytest.raises(ReportError, match="site exists already: choose another name, or add --fo"):
        site(folder, out)
    assert (out / "mine.txt").is_file()
    site(folder, out, force=True)
    assert not (out / "mine.txt").exists()
    (out / MARK).unlink()
    with pytest.raises(ReportError, match="is not a site that crossbench wrote"):
        site(folder, out, force=True)
    assert (out / "index.html").is_file()


def test_hostile_names_become_text_that_leaves_no_folder_and_loads_no_code(folder, tmp_path):
    code = tmp_path / "model.py"
    code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    c = made(machine=HOSTILE)
    c.model["name"], c.model["source"] = HOSTILE, HOSTILE
    c.settings = replace(c.settings, model=f"{code}:{HOSTILE}")
    for cell in c.results:
        cell.cell = replace(cell.cell, title=HOSTILE)
        cell.details = {HOSTILE: HOSTILE}
    c.save(folder / "<img src=x onerror=alert(1)>.json")
    site(folder, tmp_path / "site")
    for page in pages(tmp_path / "site"):
        content = page.read_text()
        assert "<script>alert" not in content
        assert "<img" not in content
        assert "alert(1)</script" not in content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.py", "results", "site"]


def test_page_names_are_safe_and_differ():
    texts = ["lenet", "LeNet", "../x", "", "a/b", "a b", "x" * 300, HOSTILE]
    names = [runs.page_name(text) for text in texts]
    assert names[0] == "lenet"
    assert len({name.lower() for name in names}) == len(texts)
    assert all(re.fullmatch(r"[a-z0-9_.-]{1,80}", name) and name[0] != "." for name in names)


@pytest.mark.long
def test_the_pages_work_from_a_disk_on_a_phone_and_rows_are_filtered(built):
    with opened(built / "index.html", built, charts=False) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH
    with opened(built / "models/lenet.html", built, charts=False) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH
    with opened(built / "runs" / f"{runs.page_name('run 5')}.html", built) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH
        assert tab.locator(".chart svg").count() == tab.locator(".chart").count() == 3
    with opened(built / "everything.html", built) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH
        assert tab.locator("#rows tr").count() == 14
        tab.locator("select[name=model]").focus()
        tab.keyboard.type("gpt")
        assert tab.locator("#rows tr").count() == 2
        assert "2 of 2 rows" in tab.locator("#shown").inner_text()
        tab.locator("#rows a", has_text="page").first.click()
        assert tab.locator("h1").first.inner_text().startswith("gpt_char")
