"""Test models: their weights, FLOPs and checks, the catalogue, and models in a user's file."""

import dataclasses
import json

import numpy as np
import pytest
from small_models import SPEAKING

from crossbench import models
from crossbench.inputs.errors import SpecError
from crossbench.models import (
    SGD,
    BinaryCrossEntropy,
    Conv,
    Dense,
    Embedding,
    Flatten,
    InverseTimeDecay,
    MeanSquaredError,
    OneHot,
    Residual,
    RMSprop,
    SoftmaxCrossEntropy,
    Unembedding,
)

CONV = Conv(4, (5, 5))


def test_lenet_is_the_published_one(lenet):
    shapes = {named.name: named.output_shape for named in lenet.named_layers()}
    assert shapes["maxpool2"] == (8, 5, 5)
    assert [n for n in shapes if n.startswith("relu")] == ["relu1", "relu2"]  # none between dense
    # 5.9 GFLOP per batch of 1,000
    assert lenet.training_flops * 1000 == pytest.approx(5.9e9, rel=0.01)


def test_initial_weights_follow_the_seed(lenet):
    first, again, other = (lenet.initial_weights(seed) for seed in (0, 0, 1))
    assert all(w.dtype == np.float32 for w in first.values())
    assert all((first[n] == again[n]).all() for n in first)
    assert (first["conv1.weight"] != other["conv1.weight"]).any()
    bound = np.sqrt(6 / (3 * 25 + 16 * 25))
    assert 0.95 * bound < abs(first["conv1.weight"]).max() <= bound
    assert not first["conv1.bias"].any()


def test_a_description_is_json(lenet):
    description = lenet.description()
    assert json.loads(json.dumps(description)) == description
    first = {"name": "conv1", "type": "Conv", "input_shape": [3, 32, 32], "kernel": [5, 5]}
    assert first.items() <= description["layers"][0].items()


@pytest.mark.parametrize(
    ("layers", "loss", "message"),
    [
        ((CONV, Dense(10)), SoftmaxCrossEntropy(), "Flatten first"),
        ((Flatten(), Dense(2)), BinaryCrossEntropy(), r"takes one logit, not the shape \(2,\)"),
        ((CONV,), MeanSquaredError(), r"a vector of outputs, not .* \(4, 28, 28\)"),
        (
            (Flatten(), Embedding(9, 4), Flatten(), Dense(2)),
            *(SoftmaxCrossEntropy(), "embedding1 takes token ids: put it first"),
        ),
        (
            (Flatten(), Residual((OneHot(9), Flatten(), Dense(4)), (Dense(4),))),
            *(SoftmaxCrossEntropy(), "onehot1 takes token ids"),
        ),
        ((Flatten(),), SoftmaxCrossEntropy(), "the model lenet has no weights to train"),
    ],
)
def test_layers_that_do_not_fit_one_another_or_the_loss_make_no_model(lenet, layers, loss, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(lenet, layers=layers, loss=loss)


@pytest.mark.parametrize(
    ("outputs", "loss", "classes", "label_shape"),
    [
        (7, SoftmaxCrossEntropy(), 7, ()),
        (1, BinaryCrossEntropy(), 2, ()),
        (7, MeanSquaredError(), None, (7,)),
    ],
)
def test_the_loss_decides_what_a_model_predicts(lenet, outputs, loss, classes, label_shape):
    model = dataclasses.replace(lenet, layers=(Flatten(), Dense(outputs)), loss=loss)
    assert model.classes == model.description()["classes"] == classes
    assert model.label_shape == label_shape


def test_flops_of_inner_layers_are_counted():
    shortcut, body = Conv(3, (1, 1)), Conv(3, (3, 3), padding=(1, 1))
    model = dataclasses.replace(
        models.get("lenet"), layers=(shortcut, Residual((body,), (shortcut,)), Flatten(), Dense(10))
    )
    first, inner = 2 * 3 * 3 * 32 * 32, 2 * 3 * 9 * 3 * 32 * 32
    assert model.forward_flops == 2 * first + inner + 2 * 3072 * 10
    assert model.training_flops == 3 * model.forward_flops - first
    assert [n.name for n in model.all_layers()] == [
        *("conv1", "add1", "conv2", "conv3", "flatten1", "dense1")
    ]
    assert "conv3.weight" in model.parameters


def test_neither_branch_of_a_first_residual_needs_the_gradient_of_its_input():
    layers = (Residual((Conv(64, (3, 3), padding=(1, 1)),), (Conv(64, (1, 1)),)), Flatten())
    model = dataclasses.replace(models.get("lenet"), layers=(*layers, Dense(10)))
    branches, dense = 2 * 64 * 3 * 10 * 32 * 32, 2 * 64 * 32 * 32 * 10
    assert model.forward_flops == branches + dense
    assert model.training_flops == 2 * branches + 3 * dense


def test_flops_include_the_gradient_that_an_embedding_needs():
    model = models.get("rosetta_gru")
    gru = 3 * 100 * (125 + 100) * 2 * 150
    assert model.forward_flops == gru + 2 * 100 * 2
    assert model.training_flops == 3 * model.forward_flops
    # a one-hot has no gradient: the multiplications by weight_ih are left out once
    text = models.get("text_lstm")
    assert text.training_flops == 3 * text.forward_flops - 2 * 40 * 4 * 128 * 57


def test_a_model_takes_the_vocabulary_of_its_data():
    text = models.get("text_lstm")
    fitted = text.with_vocabulary(30)
    assert (text.vocabulary, fitted.vocabulary) == (57, 30)
    assert fitted.output_shape == (30,)
    fixed = models.get("imdb_bilstm")
    assert fixed.with_vocabulary(7).vocabulary == 20_000
    assert models.get("lenet").vocabulary is None


def test_initial_weights_are_those_of_keras():
    weights = models.get("imdb_bilstm").initial_weights(0)
    forget = np.repeat([0.0, 1.0, 0.0, 0.0], 64)
    np.testing.assert_array_equal(weights["lstm1.bias_reverse"], forget)
    recurrent = weights["lstm1.weight_hh"]
    np.testing.assert_allclose(recurrent.T @ recurrent, np.eye(64), atol=1e-5)
    assert 0.049 < abs(weights["embedding1.weight"]).max() <= 0.05
    norm = models.get("resnet63").initial_weights(0)
    for name, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        assert (norm[f"batchnorm1.{name}"] == value).all()


PUBLISHED = {
    "bignet": 58_091_396,
    "convnext_atto": 3_695_520,
    "cifar_cnn": 1_250_858,
    "gpt2_small": 124_439_808,
    "gpt_char": 804_096,
    "lenet": 39_558,
    "lenet5": 44_426,
    "llama_15m": 15_191_712,
    "llama_260k": 260_032,
    "mlp7_bn": 346_122,
    "mlp7_gelu": 339_978,
    "mlp7_relu": 339_978,
    "mnist_cnn": 1_199_882,
    "mnist_mlp": 669_706,
    "mobilenet_v2": 2_296_922,
    "resnet18": 11_173_962,
    "resnet_small": 299_722,
    "rosetta_cnn": 3_441_592,
    "unet": 7_763_041,
    "vit_cifar": 119_098,
}
"""Numbers of parameters, from the posts, from Keras' summaries of the examples, or from the
repositories' own PyTorch modules."""
TRAINED_ALONE = {"mobilenet_v2", "resnet18", "unet"}
"""Models of whose published parameters running statistics are none."""


def test_the_catalogue_has_the_published_models():
    assert set(models.names()) >= set(PUBLISHED)
    for name in models.names():
        assert models.get(name).name == name
    for name, count in PUBLISHED.items():
        model = models.get(name)
        own = model.trained_parameter_count if name in TRAINED_ALONE else model.parameter_count
        assert own == count
    bignet = models.get("bignet")
    assert bignet.parameter_count - bignet.trained_parameter_count == 2_880
    convolutions = [n for n in models.get("resnet63").all_layers() if isinstance(n.layer, Conv)]
    assert len(convolutions) == 63
    with pytest.raises(SpecError, match="there is no model 'vgg': choose from bignet, cifar_cnn"):
        models.get("vgg")


def test_gpt2s_flops_are_those_of_the_palm_paper():
    """6 N + 12 L H Q T for a token (Chowdhery et al., 2022, appendix B), of the N parameters those
    that are multiplied: not the positions'. Biases and norms are parameters without FLOPs here.
    """
    model, tokens, layers, heads, head_features = models.get("gpt2_small"), 1_024, 12, 12, 64
    n = model.parameter_count - tokens * heads * head_features
    published = 6 * n + 12 * layers * heads * head_features * tokens
    assert model.training_flops / tokens == pytest.approx(published, rel=2e-3)
    assert model.training_flops / tokens < published


def test_a_schedule_has_the_published_learning_rates():
    """As of nanoGPT's get_lr(), from 1e-3 to 1e-4, with 100 and 2,000 steps."""
    optimizer = models.get("gpt_char").optimizer
    published = {0: 1e-3 / 101, 50: 51e-3 / 101, 100: 1e-3, 1_050: 5.5e-4, 2_000: 1e-4, 9_999: 1e-4}
    for step, rate in published.items():
        assert optimizer.rate(step) == pytest.approx(rate, rel=1e-12)
    assert SGD(0.1).rate(7) == 0.1
    decayed = RMSprop(0.1, 0.9, 1e-8, schedule=InverseTimeDecay(0.5))
    assert decayed.rate(2) == pytest.approx(0.05)


def test_a_weight_may_be_tied_to_the_first_layers_alone():
    for layers in (
        (Embedding(11, 6), Unembedding(12)),
        (Embedding(11, 5), Dense(6), Unembedding(11)),
        (OneHot(11), Dense(6), Unembedding(11)),
        (Embedding(11, 6), Residual(body=(Unembedding(11),), shortcut=(Unembedding(11),))),
    ):
        with pytest.raises(ValueError, match=r"unembedding1 (shares the weight of|cannot be ins)"):
            dataclasses.replace(SPEAKING, layers=layers)


OWN_FILE = """
import dataclasses
from crossbench import models
from crossbench.models import Dense, Flatten
MINE = dataclasses.replace(models.get("lenet"), name="mine", layers=(Flatten(), Dense(10)))
NUMBER = 3
"""


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "own.py:MINE", "own.py' does not exist: write FILE.py:NAME"),
        (OWN_FILE, "own.py:YOURS", r"own.py has no YOURS: its models are MINE"),
        (OWN_FILE, "own.py:NUMBER", "NUMBER in .*own.py is a int, not a crossbench Model"),
        ("def", "own.py:MINE", "own.py does not load: SyntaxError"),
        (
            OWN_FILE.replace("Dense(10))", "Dense(-1))"),
            "own.py:MINE",
            r"own.py does not load: Dense: features must be .*, not -1 \(line 5\)$",
        ),
        (
            "from crossbench.models import LeakyRelu",
            "own.py:MINE",
            r"AttributeError: crossbench.models has no LeakyRelu: LeakyReLU or \w+.* \(line 1\)$",
        ),
        ("import sys; sys.exit()", "own.py:MINE", "own.py does not load: SystemExit"),
        ("raise BaseException('a\\nb')", "own.py:MINE", "does not load: BaseException: a b"),
    ],
)
def test_a_file_without_the_model_is_an_error_in_one_line(tmp_path, content, name, message):
    if content is not None:
        (tmp_path / "own.py").write_text(content)
    with pytest.raises(SpecError, match=message) as caught:
        models.get(f"{tmp_path / name}")
    assert "\n" not in str(caught.value)


def test_a_file_named_without_a_model_gets_a_hint():
    with pytest.raises(SpecError, match=r"a model in a file is named as own.py:NAME"):
        models.get("own.py")


def test_ctrl_c_while_a_file_is_loaded_stops_the_run(tmp_path):
    """Whether the user or the file raised it, it stops the run with one line."""
    (tmp_path / "own.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        models.get(f"{tmp_path / 'own.py'}:MINE")


def test_a_vocabulary_without_a_model_is_an_error(lenet):
    def failing(size):
        raise RuntimeError("out of luck")

    for function, message in ((lambda size: None, "not None"), (failing, "out of luck")):
        own = dataclasses.replace(lenet, for_vocabulary=function)
        with pytest.raises(SpecError, match=f"the model lenet for a vocabulary of 7: .*{message}"):
            own.with_vocabulary(7)
