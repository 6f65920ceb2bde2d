"""Check prediction and several batch sizes: what is run, proved, doubted and shown."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from samples import comparison, result, sized
from small_models import FITTED, TINY

import crossbench
from crossbench import table
from crossbench.engine.rounds import Measurement
from crossbench.engine.tasks import PredictionTask, count_near_ties
from crossbench.inputs.errors import SpecError
from crossbench.report.sections import batch_sizes
from crossbench.report.summary import summarize
from crossbench.results.epochs import Latency, Predictions
from crossbench.results.reference import FIRST_EPOCH, STEADY_EPOCH, Reference, ReferenceLosses


@pytest.fixture
def run(run):
    """Return crossbench.run with small data and a model of one layer."""
    return partial(run, model=TINY)


def predicted(name, *, losses=(2.4, 2.5), correct=12, near_ties=0):
    """Return a cell that predicts, whose steady epoch has these losses."""
    found = result(name, [9.0, 1.0], task="predict")
    first, steady = found.epochs
    found.epochs = [replace(first, losses=[2.3, 2.4]), replace(steady, losses=list(losses))]
    found.predictions = Predictions(correct, near_ties)
    found.latencies = [Latency(1, 0.002, 0.003)]
    return found


def doubts(*results):
    losses = {FIRST_EPOCH: [2.3], STEADY_EPOCH: [2.4]}
    c = comparison(*results)
    c.reference = Reference([], False, [ReferenceLosses("predict", 100, losses, losses)])
    return [c.doubt(r) for r in results]


def test_training_and_prediction_are_cells_of_their_own(run, tmp_path):
    file = tmp_path / "r.json"
    found = run("reference", task="train,predict", batch_size=[5, 20], rounds=2, json=file)
    assert found.complete
    assert [r.name for r in found.results] == [
        "reference cpu, train, batches of 5",
        "reference cpu, train, batches of 20",
        "reference cpu, predict, batches of 5",
        "reference cpu, predict, batches of 20",
    ]
    train, _, predict, larger = found.results
    assert [found.batches(r) for r in (predict, larger)] == [20, 5]
    assert train.parity is predict.parity  # one proof for all four
    assert [len(r.latencies) for r in found.results] == [0, 0, 2, 2]
    assert 0 < predict.latencies[0].median_seconds <= predict.latencies[0].p99_seconds
    assert predict.predictions.correct == larger.predictions.correct  # the same 100 examples
    assert train.predictions is None
    assert predict.test_accuracy is None
    assert found.accuracy(predict) == predict.predictions.correct / 100
    steady = [[epoch.losses for epoch in r.steady] for r in (train, predict)]
    assert len(steady[1][0]) == 20
    assert steady[1][0] == steady[1][1]  # from the same weights in every round
    for row, flops in ((train, "training_flops"), (predict, "forward_flops")):
        found_flops = 1e9 * found.gflops(row) / found.examples_per_second(row)
        assert found_flops == pytest.approx(found.model[flops])
    # where another process disturbs the measurement, its problem is kept instead
    peaks = [r.peak or r.peak_problem for r in found.results]
    assert [peak is not None for peak in peaks].count(True) == 1
    assert crossbench.load(file).rows() == found.rows()


def test_the_epochs_of_every_batch_size_have_as_many_examples(run):
    found = run("reference", batch_size=[5, 20], examples=40)
    assert [len(r.steady[0].losses) for r in found.results] == [8, 2]
    assert found.data.test_examples == 20


def test_a_batch_larger_than_the_data_is_named_with_the_examples(run):
    with pytest.raises(SpecError, match=r"^batch_size is 101, but there are only 100 examples$"):
        run("reference", batch_size=[20, 101])


ADAPTER = """
import numpy as np
from crossbench.adapters.reference import ReferenceAdapter, ReferenceWorkload

class Changed(ReferenceWorkload):
    def predict_epoch(self):
        whole = np.stack([self.predict(batch.inputs) for batch in self.batches])
        if len(whole) == 4:
            return whole
        {epoch}

    def predict_batches(self):
        {batches}

class Adapter(ReferenceAdapter):
    title = "Changed"
    def build(self, job):
        return Changed(job)

ADAPTER = Adapter()
"""
"""It does the real work in the proof, which has four batches, unlike the timed run."""
EACH = "return iter(self.predict_epoch())"
TIMED = {
    "honest": ("return whole", EACH, None),
    "skips": (
        *("whole[-1] = whole[-2] if len(whole) > 4 else whole[-1]; return whole", EACH),
        "the logits of batch 5 of",
    ),
    "replays": (
        *("self.first = getattr(self, 'first', whole); return self.first[: len(whole)]", EACH),
        "the loss of step 1 (steady epoch) is",
    ),
    "trains": (
        *("self.parameters['dense1.bias'] += np.float32(1); return whole", EACH),
        "predict_epoch() of the adapter changed dense1.bias",
    ),
    "shapes": ("return whole[0]", EACH, "predict_epoch() of the adapter returned an array of sha"),
    "keeps": (
        "self.kept = getattr(self, 'kept', list(whole)); return whole",
        "return iter(getattr(self, 'kept', None) or super().predict_batches())",
        "predict_batches() of the adapter returned other logits than",
    ),
}
"""What is timed: an epoch, each of its batches, and what is said of the fault."""


def test_a_fault_of_the_timed_prediction_is_not_ranked(run, tmp_path):
    for name, (epoch, batches, _) in TIMED.items():
        (tmp_path / f"{name}.py").write_text(ADAPTER.format(epoch=epoch, batches=batches))
    names = [f"{tmp_path / name}.py:ADAPTER" for name in TIMED]
    found = run(["reference", *names], task="predict", batch_size=20)
    for row, (_, _, words) in zip(found.results[1:], TIMED.values(), strict=True):
        assert found.is_ranked(row) == (words is None)
        assert words is None or words in (row.reason or found.doubt(row))
    assert found.is_ranked(found.results[0])


def test_a_batch_with_other_logits_is_doubted():
    assert doubts(predicted("a"), predicted("b", losses=(2.400001, 2.500001))) == [None, None]
    found = doubts(predicted("a"), predicted("odd", losses=(2.4, 2.6)), predicted("b"))
    words = "the logits of batch 2 of epoch 1 have another loss than in a cpu, b cpu"
    assert found == [None, words, None]


def test_other_predicted_labels_need_near_ties():
    odd = predicted("odd", correct=14, near_ties=1)
    found = doubts(predicted("a"), odd, predicted("b"))
    words = "2 more or fewer examples are predicted right than in a cpu, b cpu"
    assert found == [None, words, None]
    odd.predictions = Predictions(14, 2)
    assert doubts(predicted("a"), odd, predicted("b")) == [None, None, None]


def test_near_ties_are_counted():
    logits = np.array([[1.0, 0.0, 0.99995], [1.0, 0.0, 0.999], [-1.0, -1.00001, -9.0]])
    assert count_near_ties(logits) == 1 + 1
    assert count_near_ties(np.array([[0.5], [-1e-5]])) == 1


def test_a_model_without_classes_has_no_predictions():
    prediction = PredictionTask.__new__(PredictionTask)
    prediction.model = FITTED
    assert prediction.predictions([]) is None


def test_cells_of_another_batch_size_or_task_are_not_compared():
    small = [sized("torch", 2, [9, 1, 1]), sized("jax", 2, [9, 2, 2])]
    large = [sized("torch", 200, [9, 3, 3]), sized("jax", 200, [9, 1, 1])]
    c = comparison(*small, *large)
    assert [c.ratio(r).median for r in (*small, *large)] == [1, 2, 3, 1]
    assert c.base(small[1]) is small[0]
    assert c.ranked(large[0].cell.group) == large[::-1]


def test_who_is_fastest_from_which_batch_size_on():
    times = {2: (1.0, 2.0), 8: (1.0, 1.5), 32: (1.5, 1.0), 128: (3.0, 1.0)}
    cells = [
        sized(name, size, [9, *[seconds] * 6])
        for size, pair in times.items()
        for name, seconds in zip(("torch", "jax"), pair, strict=True)
    ]
    verdict, means = summarize(comparison(*cells)).verdicts
    assert verdict == (
        "On the CPU, Torch is fastest with batches of 2 (Jax takes 2.00×) and Jax from 32 on "
        "(Torch takes 1.50×)."
    )
    mean = (0.5 / 1 * 1 / 1.5 * 1.5 / 1 * 3 / 1) ** 0.25  # of 1/2, 1/1.5, 1.5/1 and 3/1
    assert means == (
        f"The geometric means over batch sizes: of Torch's seconds Jax takes {1 / mean:.3f}× "
        "(over 4)."
    )


def test_batch_sizes_without_a_significant_difference_or_two_rows_are_said():
    steady = {2: ([1.0] * 6, [2.0] * 6), 8: ([1.9, 2.2] * 3, [2.0] * 6), 32: ([1.0] * 6, [2.0] * 6)}
    cells = [
        sized(name, size, [9, *seconds])
        for size, pair in steady.items()
        for name, seconds in zip(("torch", "jax"), pair, strict=True)
    ]
    cells[-1].status = "failed"
    verdict, _ = summarize(comparison(*cells)).verdicts
    assert re.fullmatch(
        r"On the CPU, Torch is fastest with batches of 2 \(Jax takes 2.00×\) and Jax and "
        r"Torch from 8 on, without a significant difference \(Torch 1\.\d+× \(.*\)\); with "
        r"batches of 32 fewer than two rows are ranked\.",
        verdict,
    )
    equal = [sized(name, n, [9, *[1.9, 2.2] * 3]) for n in (2, 8) for name in ("torch", "jax")]
    verdict, _ = summarize(comparison(*equal)).verdicts
    assert verdict == (
        "On the CPU, Jax and Torch are fastest with every batch size, without a significant "
        "difference."
    )


def test_the_section_has_the_time_of_a_step_and_of_an_example():
    cells = [sized("torch", size, [9, *[2.0] * 6]) for size in (200, 2)]
    c = comparison(*cells)
    text = batch_sizes(c)
    rows = [line.split() for line in text.splitlines()[2:]]
    # an epoch has 525 steps of 2 or 5 of 200, and takes two seconds
    assert rows == [["Torch", "2", "3.81", "1,905"], ["Torch", "200", "400", "2,000"]]
    assert batch_sizes(comparison(cells[0])) is None


def test_the_summary_shows_the_latency_of_a_batch():
    summary = summarize(comparison(predicted("torch")))
    (row,) = summary.rows
    cells = dict(zip(summary.columns, row, strict=True))
    assert (cells["latency\nms"], cells["99 % in\nms"]) == ("2.00", "3.00")
    assert "from the initial weights" in summary.heading
    trained = summarize(comparison(result("torch", [9.0, 1.0])))
    assert not {"latency\nms", "task", "batch"} & set(trained.columns)


def test_a_note_says_how_many_predictions_differ():
    same = table(comparison(predicted("a"), predicted("b")), details=True)
    assert "which must be the same in all rows.\n" in same
    other = table(comparison(predicted("a"), predicted("b", correct=13, near_ties=2)), details=True)
    assert "they predict 12 to 13 examples right: rounding may decide 2." in other


@pytest.mark.long
def test_only_cells_that_are_compared_are_interleaved(run, monkeypatch):
    """The processes of all cells at once would need the memory of all."""
    together = []

    def looked_at(self, number, results):
        together.append({r.cell.work for r in results})
        return round_of(self, number, results)

    round_of = Measurement.run_round
    monkeypatch.setattr(Measurement, "run_round", looked_at)
    assert run("reference", task="train,predict", batch_size=[5, 20], rounds=2).complete
    assert [len(works) for works in together] == [1] * 8
