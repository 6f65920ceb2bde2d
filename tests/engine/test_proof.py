"""Test what the proof trains: a model as large as it needs to be, whose every part shows."""

from dataclasses import replace

import pytest
from samples import comparison, result
from small_models import FITTED, PLAIN, SPEAKING

from crossbench import models
from crossbench.adapters.reference import ReferenceWorkload, global_norm
from crossbench.engine import parity
from crossbench.engine.parity import expected
from crossbench.inputs.errors import SpecError
from crossbench.models import Dense, Embedding, ReLU, Residual, Unembedding
from crossbench.models.shortened import in_whole_model, left_out, shortened, without_repetitions
from crossbench.report.summary import summarize
from crossbench.results.reference import Reference
from crossbench.workload import Job


def test_a_large_model_is_proved_with_two_of_its_equal_blocks_and_on_shorter_sequences():
    model = models.get("gpt2_small")
    layers, inputs = shortened(model).layers, parity.proof_batches(shortened(model)).inputs
    assert inputs.shape[-1] == 64 < model.input_shape[0]
    assert layers[0] == Embedding(2_000, 768, std=0.02)
    assert layers[-1] == Unembedding(2_000)
    assert layers[2:6] == model.layers[2:6]  # two blocks of two residuals
    assert layers[6] == model.layers[-2]
    assert left_out(model) == [
        "8 of 28 layers (equal blocks repeat)",
        "64 of 1,024 places",
        "2,000 of 50,257 token ids",
    ]


def test_a_large_convolutional_model_is_proved_with_fewer_blocks_or_smaller_pictures():
    resnet, bignet = models.get("resnet63"), models.get("bignet")
    assert left_out(resnet) == ["21 of 65 layers (equal blocks repeat)"]
    assert {type(n.layer) for n in shortened(resnet).all_layers()} == {
        type(n.layer) for n in resnet.all_layers()
    }
    assert left_out(bignet) == ["pictures of 128 by 128, not 256 by 256"]
    assert parity.proof_batches(shortened(bignet)).inputs.shape[2:] == (3, 128, 128)
    tiny = replace(bignet, input_shape=(3, 100, 100))
    assert shortened(tiny) == tiny


def test_wide_pictures_with_few_flops_are_proved_in_small_batches():
    layers = (models.Conv(64, (3, 3), groups=64), models.GlobalAveragePool(), Dense(10))
    wide = replace(models.get("lenet"), input_shape=(64, 124, 124), layers=layers)
    outputs = 64 * 122 * 122 + 64 + 10
    assert len(parity.proof_batches(wide).inputs[0]) == int(1.5e7 / outputs) == 15


def test_blocks_that_differ_are_all_kept():
    dense, wide = (Dense(3), ReLU()), (Dense(4), ReLU())
    assert without_repetitions(dense * 5 + wide * 2) == dense * 2 + wide * 2
    assert without_repetitions(dense + wide + dense + wide) == dense + wide + dense + wide
    assert without_repetitions((ReLU(),) * 4) == (ReLU(),) * 2
    inner = (Residual(body=(Dense(3),)),)
    assert without_repetitions(inner * 3 + dense) == inner * 2 + dense


def test_a_parameter_of_the_proof_stands_for_those_of_the_equal_layers_that_are_left_out():
    resnet = models.get("resnet63")
    whole, proved = (
        {named.name: named.layer for named in model.all_layers() if named.parameters}
        for model in (resnet, shortened(resnet))
    )
    found = [(layer, in_whole_model(resnet, [f"{name}.bias"])) for name, layer in proved.items()]
    assert sorted(n for _, names in found for n in names) == sorted(f"{n}.bias" for n in whole)
    for layer, names in found:
        assert {whole[name.removesuffix(".bias")] for name in names} == {layer}


def test_a_large_model_of_numbers_is_proved_with_two_of_its_equal_blocks():
    wide = replace(FITTED, input_shape=(20_000,), layers=(*5 * (Dense(20_000), ReLU()), Dense(3)))
    assert left_out(wide) == ["5 of 11 layers (equal blocks repeat)"]


def test_a_small_model_is_proved_as_it_is():
    for model in map(models.get, ("lenet", "gpt_char", "vit_cifar")):
        assert (shortened(model).layers, left_out(model)) == (model.layers, [])
        assert in_whole_model(model, model.parameters) == list(model.parameters)


def test_what_the_proof_leaves_out_is_said():
    c = comparison(result("torch", [9, 2]), result("jax", [9, 2]))
    c.reference = Reference([], False, left_out=["8 of 28 layers", "2,000 of 50,257 token ids"])
    sentence = "The proof has 8 of 28 layers and 2,000 of 50,257 token ids."
    assert summarize(c).parity.endswith(f"(1e-09 is allowed). {sentence}")


def test_the_proof_clips_the_gradients_of_one_set_of_steps_alone():
    model = parity.proof_model(SPEAKING)
    workload, norms = ReferenceWorkload(Job(model, "cpu", 1, "float64")), []
    weights, batches = parity.proof_weights(model), parity.proof_batches(model)
    for start in (weights, parity.large_weights(model, weights)):
        workload.load_weights(start)
        norms.append([global_norm(workload.loss_and_gradients(batch)[1]) for batch in batches])
    assert max(norms[0]) < model.optimizer.clip_norm < min(norms[1])


def test_the_proofs_schedule_has_each_of_its_phases():
    rate = parity.proof_model(SPEAKING).optimizer.rate
    rates = [rate(step) for step in range(parity.STEPS)]
    assert len(set(rates)) == parity.STEPS
    assert rates[-1] == pytest.approx(0.2 * max(rates))
    steady = replace(SPEAKING, optimizer=replace(SPEAKING.optimizer, schedule=None))
    rate = parity.proof_model(steady).optimizer.rate
    assert rate(0) == rate(3) == steady.optimizer.learning_rate * parity.LEARNING_RATE_SCALE


def test_float32_may_have_inputs_of_relus_on_the_other_side_of_0_where_they_are_near(
    tmp_path, monkeypatch
):
    """As NNlib has one in resnet63, where a framework adds up in another order than NumPy."""
    monkeypatch.setattr(expected, "NEAR_ZERO", 1e-4)
    reference = expected.compute_reference(PLAIN, tmp_path / "reference")  # not a cached one

    def prove(taken):
        def build(job):
            workload = ReferenceWorkload(job)
            workload.near_zero = taken if job.dtype == "float32" else 0.0
            return workload

        return parity.prove(build, Job(PLAIN, "cpu", 1, "float32"), reference)

    proofs = [prove(taken) for taken in (5e-5, -5e-5, 2e-2)]
    assert [proof.agrees for proof in proofs] == [True, True, False]
    last = list(PLAIN.parameters)[-1]
    assert proofs[0].near_zero[f"gradient of {last}"] == 0.0  # no ReLU comes after it


def test_a_model_whose_max_pool_has_near_ties_with_every_seed_is_refused(tmp_path):
    """Behind such a norm all values of a channel are nearly equal."""
    norm = models.BatchNorm(epsilon=1e20, momentum=0.9)
    pooled = (norm, models.MaxPool((2, 2), (2, 2)), models.Flatten(), Dense(10))
    model = replace(PLAIN, input_shape=(1, 4, 4), layers=pooled)
    with pytest.raises(SpecError, match="with each of 20 seeds the two largest values in a window"):
        parity.compute_reference(model, tmp_path / "expected")


def test_without_relus_no_input_is_near_0(tmp_path):
    reference = parity.compute_reference(SPEAKING, tmp_path / "reference")
    assert reference.forms["beside zero"] == {}
