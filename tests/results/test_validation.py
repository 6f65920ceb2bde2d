"""Check what is refused in a results file, and that everything else can be shown."""

import copy
import json
from dataclasses import replace
from functools import partial

import msgspec
import pytest
from samples import comparison, full_comparison, places, result

import crossbench
from crossbench.inputs.errors import ResultsError
from crossbench.report.several_runs import change_table, merged_table
from crossbench.results import file
from crossbench.results.comparison import decode
from crossbench.results.epochs import TargetEpoch
from crossbench.results.several_runs import check_same_work


@pytest.fixture(scope="module")
def good():
    return json.loads(full_comparison().encode())


DEEP = json.loads("[" * 200 + "]" * 200)
DAMAGES = (None, -1, 0, 1e308, 1e-308, 2**62, 10**400, "word",
           "a\nb\x1b[31m\u202e" + "x" * 200_000, [], {"type": None})  # fmt: skip


def damaged(content, path):
    """Yield the encoded content with the value at the path replaced, duplicated or missing."""
    *way, key = path
    parent = content
    for step in way:
        parent = parent[step]
    before = parent[key]
    for damage in (*DAMAGES, [before, before]):
        parent[key] = damage
        yield json.dumps(content).encode()
    del parent[key]
    yield json.dumps(content).encode()
    parent.insert(key, before) if isinstance(parent, list) else parent.update({key: before})


def use(c):
    """Use a loaded comparison in every way. It is frozen: drawing is what takes the time here."""
    c = c.frozen()
    assert str(c).replace("\n", "").isprintable()
    assert repr(c).isprintable()
    check_same_work([c, c])
    for draw in (change_table, merged_table):
        assert draw([c, c]).replace("\n", "").isprintable()
    assert isinstance(c.complete, bool)
    assert isinstance(c.decided, bool)


@pytest.mark.long
@pytest.mark.filterwarnings("error")
def test_a_damaged_file_is_shown_or_refused_in_one_line(good):
    read, refusals = {}, []
    for place in places(good):
        for content in damaged(good, place):
            try:
                c = decode(content, "r.json")
            except ResultsError as error:
                refusals.append(str(error))
            else:
                read[c.encode()] = c  # many damages say the same, such as null and nothing
    for c in read.values():
        use(c)
    assert len(refusals) > 1000
    assert len(read) > 700
    assert all(line.isprintable() and len(line) < 700 for line in refusals)


LATENCY = {"round": 9, "median_seconds": 1.0, "p99_seconds": 1.0}


def cell(c):
    """Return the first cell of a results file's content."""
    return c["results"][0]


INVALID_VALUES = [
    (lambda c: c.update(results=[]), "`array` of length >= 1 - at `$.results`"),
    (lambda c: cell(c)["cell"].update(name="torch cpu"), "Two cells have the name 'torch cpu'"),
    (lambda c: cell(c).update(test_accuracy=1.5), "`float` <= 1.0 - at `$.results[0]"),
    (lambda c: cell(c).update(parity=None), "a cell that ran - at `$.results[0]`"),
    (lambda c: cell(c).update(epochs=[], usage=[]), "a steady epoch of a cell that ran"),
    (lambda c: cell(c).update(status="failed", reason=None), "why the cell is failed"),
    (lambda c: cell(c)["epochs"].append(cell(c)["epochs"][0]), "each epoch once and in orde"),
    (lambda c: cell(c)["epochs"][1].update(started=10_001.0), "start after the previous epoch"),
    (lambda c: cell(c)["epochs"][0].update(wall_seconds=2000.0), "epochs[1].started"),
    (lambda c: cell(c)["epochs"][1].update(wall_seconds=1e-30),
     "`float` >= 1e-09 - at `$.results[0].epochs[1].wall_seconds`"),
    (lambda c: cell(c)["epochs"][3].update(wall_seconds=1e300),
     "`float` <= 1000000000.0 - at `$.results[0].epochs[3].wall_seconds`"),
    (lambda c: cell(c)["epochs"][1].update(losses=[]),
     "`array` of length >= 1 - at `$.results[0].epochs[1].losses`"),
    (lambda c: cell(c)["usage"][0].update(round=9), "a round of the cell - at `$.results[0]"),
    (lambda c: c["data"].update(train_examples=99), "results[0].cell.batch_size"),
    (lambda c: cell(c).update(latencies=[LATENCY]), "results[0].latencies[0].round"),
    (lambda c: c.update(created="yesterday"), "a time in the format of ISO 8601 - at `$.created`"),
    (lambda c: c["model"]["layers"][0].update(body=[{}]), "`$.model.layers[0].body[0]`"),
    (lambda c: c["model"]["optimizer"].pop("type"), "model.optimizer.type"),
    (lambda c: c["model"].update(more=DEEP), "at most 50 levels"),
    (lambda c: c["model"].update(more=2**63), "at most 63 bits"),
    (lambda c: cell(c).update(reason="x" * 200_000), "at most 100,000 characters"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"), INVALID_VALUES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_an_invalid_value_is_refused_with_its_place(good, tmp_path, change, message):
    content = copy.deepcopy(good)
    change(content)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ResultsError) as caught:
        crossbench.load(path)
    assert str(caught.value).startswith(f"{path} is not a crossbench results file: ")
    assert message in str(caught.value)


def test_a_clock_may_restart_after_a_run_was_resumed(good):
    content = copy.deepcopy(good)
    for late in cell(content)["epochs"][2:]:
        late["started"] -= 19_000.0
    assert len(content["resumed"]) == 1
    loaded = msgspec.convert(content, crossbench.Comparison, str_keys=True)
    loaded.encode()
    loaded.resumed = []
    with pytest.raises(ResultsError, match="a start after the previous epoch"):
        loaded.encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, r: c.results.extend(c.results * 100), r"length <= 500 - at `\$.results`"),
        (lambda c, r: vars(c).update(settings=replace(c.settings, rounds=50_000)),
         r"<= 20000 - at `\$.settings.rounds`"),
        (lambda c, r: r.epochs.extend(r.epochs * 50_000), "at most 200,000 epochs"),
        (lambda c, r: r.epochs[0].losses.extend([1.0] * 10**6),
         r"<= 1000000 - at `\$.results\[0\].epochs\[0\].losses`"),
        (lambda c, r: r.epochs[0].figures.update({str(i): 1.0 for i in range(101)}),
         r"<= 100 - at `\$.results\[0\].epochs\[0\].figures`"),
        (lambda c, r: r.to_target[0].losses.extend([1.0] * 1_000_001),
         r"<= 1000000 - at `\$.results\[0\].to_target\[0\].losses`"),
        (lambda c, r: r.loss_drift.extend([1e-7] * 1_000_001),
         r"<= 1000000 - at `\$.results\[0\].loss_drift`"),
        (lambda c, r: r.details.update({str(i): "" for i in range(10_001)}), "10,000 entries"),
        (lambda c, r: r.usage.extend(r.usage * 50_000), r"results\[0\]\.usage"),
    ],
)  # fmt: skip
def test_too_many_entries_are_refused(change, message):
    c = full_comparison()
    change(c, c.results[0])
    with pytest.raises(ResultsError, match=message):
        c.encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_seconds": -1.0}, r"`\$.results\[0\].start_seconds`"),
        ({"details": {"jax": "\ud800"}}, "surrogates not allowed"),
        ({"details": {"jax": object()}}, "object is unsupported"),
    ],
)
def test_results_that_could_not_be_read_back_are_not_written(tmp_path, change, message):
    good, path = comparison(result("torch", [9, 2, 1])), tmp_path / "r.json"
    good.save(path)
    bad = comparison(result("torch", [9, 2, 1]))
    vars(bad.results[0]).update(change)
    for write in (partial(bad.replace, path), partial(bad.save, tmp_path / "new.json")):
        with pytest.raises(ResultsError, match=f"the results cannot be written: .*{message}"):
            write()
    assert crossbench.load(path) == good
    assert [found.name for found in tmp_path.iterdir()] == ["r.json"]


def test_a_file_may_have_the_allowed_size_and_no_more(tmp_path, monkeypatch):
    c, path = comparison(result("torch", [9, 2])), tmp_path / "r.json"
    c.save(path)
    monkeypatch.setattr(file, "FILE_BYTES", path.stat().st_size)
    assert crossbench.load(path) == c
    c.results[0].traceback = "longer"
    with pytest.raises(ResultsError, match=r"r\.json cannot be written: it has more than"):
        c.replace(path)
    with open(path, "ab") as more:
        more.write(b" ")
    with pytest.raises(
        ResultsError, match=r"r\.json is not a results file: it has more than 0 MiB"
    ):
        crossbench.load(path)


def test_an_epoch_may_have_more_steps_than_a_list_has_entries():
    found = result("torch", [9.0, 1.0])
    found.loss_drift = [1e-7] * 20_000
    found.to_target = [TargetEpoch(1.0, 1.0, 0.5, found.loss_drift)]
    comparison(found).encode()


@pytest.mark.parametrize(
    "change", [{"traceback": "x" * 10**6}, {"start_seconds": float("nan")}], ids=list
)
def test_a_long_traceback_and_a_figure_that_is_no_number_are_written(change):
    c = comparison(result("torch", [9, 2, 1]))
    vars(c.results[0]).update(change)
    c.encode()
