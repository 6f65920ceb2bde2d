"""Check what is refused in a results file, and that everything else can be shown."""

import copy
import json
from dataclasses import replace

import msgspec
import pytest
from samples import QUIET, comparison, result

import crossbench
from crossbench.inputs.errors import ResultsError
from crossbench.report.several_runs import change_table, merged_table
from crossbench.results import file
from crossbench.results.epochs import TargetEpoch, Usage
from crossbench.results.machine import Peak
from crossbench.results.parity import GradientParity
from crossbench.results.parts import Part, PartResult, PartTime
from crossbench.results.reference import Reference, ReferenceLosses
from crossbench.results.replay import Replay
from crossbench.results.several_runs import check_same_work
from crossbench.results.untimed import UntimedCalls


def full_comparison(model):
    """Return a comparison in which every optional field has a value."""
    cpu, gpu = result("torch", [9, 2, 1, 3]), result("torch", [9, 1, 1], device="gpu:1")
    one = result("torch", [9, 4, 2, 6], threads=1, name="torch cpu, 1 thread")
    absent = result("flux", [], status="unavailable", parity=None)
    gpu.peak, gpu.allocated, gpu.peak_problem = Peak(1.0, 2.0), 2**20, "out of memory"
    gpu.start_seconds, gpu.threads_reported, gpu.cpus_allowed = 1.0, 2, 2
    gpu.to_target = [TargetEpoch(1.0, 1.0, 0.5)]
    gpu.usage = [Usage(1, 9, 0.01, 1.5, 2**30, 0.8, 2**31, 200.0, 1500.0, 1450.0, ["power cap"])]
    gpu.epochs[1] = replace(
        gpu.epochs[1],
        figures={"GC s": 0.1},
        system_activity=replace(QUIET, cpu_joules=1.0, gpu_joules=1.0),
        repeats=3,
    )
    gpu.changes = cpu.changes = {10: {"conv1.weight": [1.0, None], "conv1.bias": [0.5, 0.25]}}
    cpu.undropped_losses = [2.3, None]
    cpu.loss_drift, cpu.change_drift = [1e-7, None], 1e-5
    cpu.other_changes = {0: {10: {"dense1.weight": [1.0, None]}}}
    cpu.replays = [Replay(1, 2, 1, 1, 10, 7, 2.3, None, 1e-7, None, 0.5)]
    cpu.untimed = {"place": UntimedCalls(3, 0.1, 0.1, 2, 0.01)}
    cpu.gradient = GradientParity({"gradient of w": 1e-7}, {"float32": {"gradient of w": None}})
    c = comparison(
        gpu,
        one,
        absent,
        cpu,
        model=model,
        prices={"cpu": 0.1, "gpu": 1.0},
        target_accuracy=0.5,
        trace_memory=True,
        baseline="torch",
    )
    c.reference = Reference(
        ["conv1.bias"],
        False,
        [ReferenceLosses("train", 100, {"first epoch": [2.3]}, {"first epoch": [2.31]})],
    )
    c.resumed = ["2026-01-02T00:00:00+00:00"]
    c.parts = [Part("conv1", 2, 10, 4.0, 8.0), Part("optimizer", 1, 0, 0.0, 0.0)]
    for r, factor in ((gpu, 1), (cpu, 2)):
        times = [PartTime(1, 0.1 * factor, 0.2 * factor, 1.5), PartTime(2, -0.01, 0.2, None)]
        r.parts = {"conv1": PartResult(1e-15, times), "optimizer": PartResult(None, [], "why")}
    return c


@pytest.fixture(scope="module")
def good(lenet):
    dropout = {"type": "Dropout", "input_shape": [4]}
    residual = dropout | {"type": "Residual", "body": [dropout], "shortcut": []}
    model = lenet.description() | {"layers": [residual]}
    return json.loads(full_comparison(model).encode())


DEEP = json.loads("[" * 200 + "]" * 200)
DAMAGES = (None, -1, 0, 0.5, 1e308, 1e-308, 2**62, 10**400, "word",
           "a\nb\x1b[31m\u202e" + "x" * 200_000, [], {"type": None})  # fmt: skip


def places(value, path=()):
    """Yield the key path of every branch and leaf; of a list only of its first and last item."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for number in {0, len(value) - 1} if value else ():
            yield from places(value[number], (*path, number))


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
    """Use a loaded comparison in every way."""
    crossbench.table(c)
    assert repr(c).isprintable()
    check_same_work([c, c])
    change_table([c, c])
    merged_table([c, c])
    assert isinstance(c.complete, bool)
    assert isinstance(c.decided, bool)


KINDS = ("schema", "crossbench", "created", "model", "data", "machine", "settings", "results",
         "reference", "parts", "resumed", "most_turns")  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.long] if k in ("model", "results") else []) for k in KINDS],
)
def test_a_damaged_file_is_shown_or_refused_in_one_line(good, tmp_path, kind):
    assert set(KINDS) == set(good)
    path, shown, refusals = tmp_path / "r.json", 0, []
    for place in places(good[kind], (kind,)):
        for content in damaged(good, place):
            path.write_bytes(content)
            try:
                c = crossbench.load(path)
            except ResultsError as error:
                refusals.append(str(error))
            else:
                use(c)
                c.encode()
                shown += 1
    assert len(refusals) > 10
    assert all(line.isprintable() and len(line) < 700 for line in refusals)
    assert shown or kind in ("schema", "created")


LATENCY = {"round": 9, "median_seconds": 1.0, "p99_seconds": 1.0}


def cell(c):
    """Return the first cell of a results file's content."""
    return c["results"][0]


INVALID_VALUES = [
    (lambda c: c.update(results=[]), "at least one cell - at `$.results`"),
    (lambda c: c["results"].append(cell(c)), "Two cells have the name 'torch gpu:1'"),
    (lambda c: cell(c)["cell"].update(name="torch cpu"), "Two cells have the name 'torch cpu'"),
    (lambda c: cell(c)["cell"].update(device="tpu"), "results[0].cell.device"),
    (lambda c: cell(c)["cell"].update(threads=-1), "results[0].cell.threads"),
    (lambda c: cell(c).update(test_accuracy=-1.0), "`float` >= 0.0 - at `$.results[0]"),
    (lambda c: cell(c).update(test_accuracy=1.5), "`float` <= 1.0 - at `$.results[0]"),
    (lambda c: cell(c).update(peak_memory=0), "peak_memory"),
    (lambda c: cell(c).update(allocated=-1), "allocated"),
    (lambda c: cell(c).update(threads_reported=-1), "threads_reported"),
    (lambda c: cell(c).update(parity=None), "a cell that ran - at `$.results[0]`"),
    (lambda c: cell(c).update(epochs=[], usage=[]), "a steady epoch of a cell that ran"),
    (lambda c: cell(c).update(status="failed", reason=None), "why the cell is failed"),
    (lambda c: cell(c)["peak"].update(gflops=0), "gflops"),
    (lambda c: cell(c)["epochs"].append(cell(c)["epochs"][0]), "each epoch once and in orde"),
    (lambda c: cell(c)["epochs"][1].update(epoch=0), "in order - at `$.results[0].epochs[1]`"),
    (lambda c: cell(c)["epochs"][1].update(started=10_001.0), "start after the previous epoch"),
    (lambda c: cell(c)["epochs"][0].update(wall_seconds=2000.0), "epochs[1].started"),
    (lambda c: [e.update(started=-e["started"]) for e in cell(c)["epochs"]], "start afte"),
    (lambda c: cell(c)["epochs"][1].update(wall_seconds=0.0), "wall_seconds"),
    (lambda c: cell(c)["epochs"][1].update(wall_seconds=1e-30), "at least 1e-09 seconds"),
    (lambda c: cell(c)["epochs"][3].update(wall_seconds=1e300), "at most 1e+09 seconds"),
    (lambda c: cell(c)["epochs"][1].update(losses=[]), "the loss of each step"),
    (lambda c: cell(c)["epochs"][1].update(repeats=0), "repeats"),
    (lambda c: cell(c)["epochs"][1]["system_activity"].update(cpu_joules=-1), "cpu_joules"),
    (lambda c: cell(c)["usage"][0].update(round=9), "a round of the cell - at `$.results[0]"),
    (lambda c: cell(c)["usage"][0].update(resident_peak=-1), "resident_peak"),
    (lambda c: c["machine"].update(cpus=0), "machine.cpus"),
    (lambda c: c["machine"].update(memory_bytes=10**400), "memory_bytes"),
    (lambda c: c["settings"].update(prices={"tpu": 1.0}), "settings.prices"),
    (lambda c: c["data"].update(train_examples=99), "results[0].cell.batch_size"),
    (lambda c: cell(c)["cell"].update(task="infer"), "results[0].cell.task"),
    (lambda c: cell(c).update(latencies=[LATENCY]), "results[0].latencies[0].round"),
    (lambda c: c.update(created="yesterday"), "a time in the format of ISO 8601 - at `$.created`"),
    (lambda c: c["model"].pop("layers"), "`layers` - at `$.model`"),
    (lambda c: c["model"]["layers"][0].update(body=[{}]), "`$.model.layers[0].body[0]`"),
    (lambda c: c["model"].update(parameters=10**400), "parameters"),
    (lambda c: c["model"]["optimizer"].pop("type"), "model.optimizer.type"),
    (lambda c: c["model"].update(more=DEEP), "at most 50 levels"),
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


@pytest.mark.parametrize("raw", ["[" * 10**5, '{"schema": 5, "model": ' + '{"a":' * 10**5])
def test_deep_nesting_is_refused(tmp_path, raw):
    path = tmp_path / "r.json"
    path.write_text(raw)
    with pytest.raises(ResultsError, match="is not a crossbench results file"):
        crossbench.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(results=c["results"] * 200), "at most 500 cells - at `\\$.results`"),
        (lambda c: c["settings"].update(rounds=50_000), "at most 20,000 rounds"),
        (lambda c: cell(c).update(epochs=cell(c)["epochs"] * 50_000), "at most 200,000 epochs"),
        (lambda c: cell(c)["epochs"][0].update(losses=[1.0] * 1_000_001), "1,000,000 losses"),
        (lambda c: cell(c).update(details={str(i): "" for i in range(10_001)}), "10,000 entries"),
        (lambda c: cell(c)["epochs"][0].update(figures={str(i): 1.0 for i in range(101)}),
         "at most 100 figures"),
        (lambda c: cell(c).update(usage=cell(c)["usage"] * 50_000), "results\\[0\\].usage"),
    ],
)  # fmt: skip
def test_too_many_entries_are_refused(good, tmp_path, change, message):
    content = copy.deepcopy(good)
    change(content)
    (tmp_path / "r.json").write_bytes(msgspec.json.encode(content))
    with pytest.raises(ResultsError, match=message):
        crossbench.load(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_seconds": float("nan")}, None),
        ({"start_seconds": -1.0}, r"`\$.results\[0\].start_seconds`"),
        ({"details": {"jax": 1}}, r"`\$.results\[0\].details\[...\]`"),
        ({"details": {"jax": "\ud800"}}, "surrogates not allowed"),
        ({"details": {"jax": object()}}, "object is unsupported"),
        ({"peak_memory": 2**70}, "peak_memory"),
        ({"traceback": "x" * 10**6}, None),
    ],
)
def test_results_that_could_not_be_read_back_are_not_written(tmp_path, change, message):
    good, path = comparison(result("torch", [9, 2, 1])), tmp_path / "r.json"
    good.save(path)
    bad = comparison(result("torch", [9, 2, 1]))
    vars(bad.results[0]).update(change)
    if message is None:
        bad.replace(path)
    else:
        with pytest.raises(ResultsError, match=f"the results cannot be written: .*{message}"):
            bad.replace(path)
        assert crossbench.load(path) == good
        with pytest.raises(ResultsError, match=message):
            bad.save(tmp_path / "new.json")
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
    found.to_target = [TargetEpoch(1.0, 1.0, 0.5, [2.3] * 20_000)]
    comparison(found).encode()
    for field, value in (
        ("loss_drift", [1e-7] * 1_000_001),
        ("to_target", [TargetEpoch(1.0, 1.0, 0.5, [2.3] * 1_000_001)]),
    ):
        with pytest.raises(ResultsError, match="at most 1,000,000"):
            comparison(replace(found, **{field: value})).encode()
