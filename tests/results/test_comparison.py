import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from samples import DISAGREES, comparison, epoch, result

import crossbench
from crossbench import models
from crossbench.inputs.errors import ResultsError
from crossbench.results.comparison import SCHEMA, without_data
from crossbench.results.parity import Parity


def test_the_first_epoch_is_not_a_steady_one():
    c = comparison(result("torch", [9.0, 2.0, 1.0, 3.0]))
    (torch,) = c.results
    assert c.first_epoch(torch).median == 9.0
    assert c.first_epoch(torch, "cpu_seconds").median == 18.0
    steady = c.steady(torch)
    assert (steady.median, steady.minimum, steady.maximum) == (2.0, 1.0, 3.0)
    assert c.steady(torch, "cpu_seconds").median == 4.0
    assert c.examples_per_second(torch) == 500  # whole batches only: 1,000 images in 2 s


def test_cells_are_ranked_and_relative_to_the_fastest_or_to_the_baseline():
    slow, fast = result("jax", [9, 4, 2, 6]), result("torch", [9, 2, 1, 3])
    wrong = result("wrong", [1, 0.1, 0.1, 0.1], parity=DISAGREES)
    dead = result("dead", [1, 0.1], status="failed")
    c = comparison(slow, fast, wrong, dead)
    assert c.ranked(c.results[0].cell.group) == [fast, slow]
    assert c.base(slow) is c.base(fast) is fast
    assert c.ratio(slow).median == 2.0
    assert c.ratio(fast).median == 1.0
    assert c.ratio(wrong) is c.ratio(dead) is None
    assert comparison(slow, fast, baseline="jax").ratio(fast).median == 0.5
    without = comparison(result("jax", [9, 4], status="failed"), fast, baseline="jax")
    assert without.base(fast) is without.ratio(fast) is None


EVEN, UNEVEN = [9.0, *[2.0] * 8], [9.0, 2.0, 3.0, 2.0, 4.0, 2.0, 3.0, 2.0, 5.0]


def test_a_narrow_interval_decides():
    assert comparison(result("torch", EVEN)).decided
    assert not comparison(result("torch", UNEVEN)).decided
    assert not comparison(result("torch", EVEN[:4])).decided  # too few for an interval
    # the base's own seconds do not matter, the ratio does
    drifting = [result("torch", UNEVEN), result("jax", [2 * s for s in UNEVEN])]
    assert comparison(*drifting).decided
    assert not comparison(result("torch", EVEN), result("jax", UNEVEN)).decided
    assert comparison(result("torch", EVEN), result("jax", UNEVEN), precision=9.0).decided
    assert comparison(result("torch", EVEN), result("jax", UNEVEN, status="failed")).decided


def test_a_wide_interval_on_one_side_of_1_decides_where_no_precision_is_asked_for():
    clear = [result("torch", EVEN), result("jax", [9.0, 4.0, 5.0, 4.2, 4.8, 4.4, 4.6, 4.1, 4.9])]
    assert comparison(*clear).ratio(clear[1]).width > 0.1
    assert comparison(*clear).decided
    assert not comparison(*clear, precision=0.05).decided
    assert comparison(*clear, baseline="jax").decided  # there the ratio is under 1
    # the seconds of a single row are no ratio
    assert not comparison(clear[1]).decided


def test_the_first_batches_stand_for_the_whole_epoch():
    """Two rounds of 5 of 10 batches, and a whole one, in which alone the first epoch counts."""
    parts = result("torch", [4.0, 1.0, 1.1])
    parts.epochs = [replace(e, losses=e.losses[:5], page_faults=50.0) for e in parts.epochs]
    whole = [epoch(3, 9.0, at=0), replace(epoch(3, 2.4), page_faults=110.0)]
    parts.epochs += whole
    c = comparison(parts)
    assert c.seconds(parts) == [2.0, 2.2, 2.4]
    assert c.seconds(parts, "page_faults") == [100.0, 100.0, 110.0]
    assert c.shortest(parts) == 2.0
    assert c.first_epoch(parts).median == 9.0
    assert c.first_epoch(parts).count == 1
    assert c.examples_per_second(parts) == 1000 / 2.2
    assert parts.first_losses == whole[0].losses


def test_devices_are_ranked_apart_and_joined_by_the_speedup():
    cpu, gpu = result("torch", [9, 10, 10]), result("torch", [9, 0.5, 2], device="gpu")
    c = comparison(cpu, gpu)
    assert c.ratio(gpu).median == 1.0
    speedup = c.gpu_speedup(gpu)
    assert (speedup.median, speedup.minimum, speedup.maximum) == (12.5, 5.0, 20.0)
    assert c.gpu_speedup(cpu) is None
    assert comparison(gpu).gpu_speedup(gpu) is None


@pytest.mark.parametrize(
    ("results", "complete"),
    [
        ([result("torch", [1, 1])], True),
        ([result("torch", [1, 1]), result("flux", [], status="unavailable", named=False)], True),
        ([result("torch", [1, 1]), result("flux", [], status="unavailable")], False),
        ([result("torch", [1, 1], status="failed", named=False)], False),
        ([result("torch", [1, 1], status="pending")], False),
        ([result("torch", [1, 1], parity=DISAGREES)], False),
    ],
)
def test_complete(results, complete):
    assert comparison(*results).complete is complete


SINGLE = {"logits": 0.002, "loss": 0.05, "gradient of b.bias": 1e-7}
"""Deviations of the reference's own float32."""
EXACT = dict.fromkeys(SINGLE, 1e-15)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"float64": EXACT | {"loss": 2e-9}}, "loss differs by 2.0e-09 in float64 (at most 1e-09"),
        (
            {"float64": {"loss": 3.0, "logits": None, "gradient of a": 4.0}},
            "logits is not finite in float64",
        ),
        ({"float32": {"logits": 0.019, "loss": 0.49}}, None),
        (
            {"float32": {"logits": 0.16, "loss": 0.14}},
            "logits differs by 1.6e-01 in float32 (at most 2e-02 is allowed)",
        ),
        (
            {"float32": {"loss": 0.02}, "reference_float32": {"loss": 1e-7}},
            "loss differs by 2.0e-02 in float32 (at most 2e-06 is allowed)",
        ),
        ({"float32": SINGLE | {"gradient of b.bias": 2e-5, "gradient of a": 1e-16}}, None),
        (
            {"float32": SINGLE | {"gradient of b.bias": 2e-16}},
            "the gradients are computed in float64, not in float32",
        ),
        ({"dropout": {"the share": 0.9, "the scale": 0.1}}, None),
        (
            {"dropout": {"the share": 1.5, "the scale": 0.1}},
            "the dropout masks that it draws are wrong: the share is off by 1.5 times",
        ),
        ({"dropout": {"the share": None}}, "masks that it draws are wrong: the share is not fin"),
    ],
)
def test_a_tensor_that_is_farther_from_the_reference_than_rounding_disagrees(changes, words):
    found = replace(Parity(EXACT, SINGLE, SINGLE), **changes)
    assert found.agrees == (words is None)
    assert words is None or words in found.disagreement


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"[]", "Expected `object`"),
        (b"\xff\xfe", "not a crossbench results file"),
        (b"[" * 10**5, "not a crossbench results file"),
        (b'{"schema": %d, "model": ' % SCHEMA + b'{"a":' * 10**5, "not a crossbench results file"),
        (b'{"schema": 99}', "it has schema 99, this crossbench reads 15 and 16"),
    ],
    ids=["list", "bytes", "deep list", "deep object", "schema"],
)
def test_a_file_that_is_none_gets_one_line(tmp_path, raw, message):
    (tmp_path / "r.json").write_bytes(raw)
    with pytest.raises(ResultsError, match=rf"r\.json .*{message}") as caught:
        crossbench.load(tmp_path / "r.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["resnet63", "gpt_char", "text_lstm", "cifar_cnn"])
def test_the_model_of_a_published_file_is_described_as_it_is_today(name):
    """Else no new run could be compared with it, or go on from it."""
    path = next((Path(__file__).parents[2] / "results").rglob(f"{name}-*.json.gz"))
    described = crossbench.load(path).model
    (vocabulary,) = {layer.get("vocabulary") for layer in described["layers"][:1]}
    today = models.get(name).with_vocabulary(vocabulary).description()
    assert without_data(described) == without_data(today)


def test_a_published_file_of_the_schema_before_keeps_what_was_renamed():
    (path,) = (Path(__file__).parents[2] / "results").rglob("mnist_cnn-*idiomatic-tuned*.json.gz")
    assert json.loads(gzip.decompress(path.read_bytes()))["schema"] == SCHEMA - 1
    comparison = crossbench.load(path)
    row = comparison.results[0]
    assert (comparison.schema, comparison.doubt(row)) == (SCHEMA, None)
    row.undropped_losses[2] = 2.4
    assert "the loss of step 3 (without dropouts) is 2.4, but" in comparison.doubt(row)
