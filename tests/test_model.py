import json

import numpy as np
import pytest

from crossbench import models
from crossbench.errors import SpecError
from crossbench.models.layers import Conv, Dense


def test_lenet_is_the_published_one(lenet):
    assert lenet.parameter_count == 39_558
    shapes = {named.name: named.output_shape for named in lenet.named_layers()}
    assert shapes["maxpool2"] == (8, 5, 5)
    assert shapes["flatten1"] == (200,)
    assert lenet.output_shape == (10,)
    assert [n for n in shapes if n.startswith("relu")] == ["relu1", "relu2"]  # none between dense
    # 5.9 GFLOP a batch of 1,000
    assert lenet.training_flops * 1000 == pytest.approx(5.9e9, rel=0.01)


def test_initial_weights_follow_the_seed(lenet):
    first, again, other = (lenet.initial_weights(seed) for seed in (0, 0, 1))
    assert {n: w.shape for n, w in first.items()} == {
        n: p.shape for n, p in lenet.parameters.items()
    }
    assert all(w.dtype == np.float32 for w in first.values())
    assert all((first[n] == again[n]).all() for n in first)
    assert (first["conv1.weight"] != other["conv1.weight"]).any()
    bound = np.sqrt(6 / (3 * 25 + 16 * 25))
    assert 0.95 * bound < abs(first["conv1.weight"]).max() <= bound
    assert not first["conv1.bias"].any()


def test_training_flops_leave_out_the_gradient_of_the_images(small_model):
    forward = small_model.forward_flops
    named = next(small_model.named_layers())
    first = named.layer.forward_flops(named.input_shape)
    assert small_model.training_flops == 3 * forward - first


def test_description_is_plain_json(lenet):
    description = lenet.description()
    assert json.loads(json.dumps(description)) == description
    assert description["layers"][0] == {
        "name": "conv1",
        "type": "Conv",
        "input_shape": [3, 32, 32],
        "features": 16,
        "kernel": [5, 5],
        "stride": [1, 1],
        "padding": [0, 0],
    }


def test_layers_that_do_not_fit_one_another_make_no_model(lenet):
    import dataclasses

    with pytest.raises(ValueError, match="Flatten first"):
        dataclasses.replace(lenet, layers=(Conv(4, (5, 5)), Dense(10)))


def test_the_catalogue():
    assert models.names() == ["lenet"]
    with pytest.raises(SpecError, match="there is no model 'vgg': choose from lenet"):
        models.get("vgg")
