"""The parts of a training step: a layer each, equal ones once, the loss and the optimizer."""

from dataclasses import replace

import pytest
from small_models import SMALL_MODELS

from crossbench import models
from crossbench.inputs.errors import SpecError
from crossbench.models.parts import OPTIMIZER_EXAMPLES, find_part, parts
from crossbench.models.training import GivenGradient


def named(model):
    return {part.name: part for part in parts(model)}


def kinds(work):
    return [type(layer).__name__ for layer in work.model.layers] if work else []


def test_a_layer_is_timed_behind_the_nearest_one_with_weights(lenet):
    """Its input then needs a gradient, as in the model."""
    found = named(lenet)
    first, pool, second = found["conv1"], found["maxpool1"], found["conv2"]
    assert (kinds(first.whole), first.before) == (["Conv"], None)
    assert kinds(pool.whole) == ["Conv", "ReLU", "MaxPool"]
    assert kinds(pool.before) == ["Conv", "ReLU"]
    assert kinds(second.whole) == ["Conv", "ReLU", "MaxPool", "Conv"]
    assert second.whole.model.input_shape == lenet.input_shape
    behind = found["relu2"]
    assert kinds(behind.whole) == ["Conv", "ReLU"]
    assert behind.whole.model.input_shape == second.whole.model.layers[2].output_shape(
        pool.before.model.output_shape
    )


def test_the_loss_and_the_optimizer_are_what_they_add(lenet):
    loss, optimizer = parts(lenet)[-2:]
    assert loss.whole.model.loss == lenet.loss
    assert loss.before.model == replace(loss.whole.model, loss=GivenGradient())
    assert kinds(loss.whole) == ["Dense"]
    assert (optimizer.whole.model, optimizer.whole.trains) == (lenet, True)
    assert (optimizer.before.model, optimizer.before.trains) == (lenet, False)
    assert optimizer.whole.examples == optimizer.before.examples == OPTIMIZER_EXAMPLES


def test_layers_before_the_first_weights_are_timed_with_these():
    assert next(iter(named(models.get("text_lstm")))) == "onehot1, lstm1"


def test_equal_layers_are_one_part():
    """The resnet63 has three stages of ten equal blocks, but for the first of each."""
    model = models.get("resnet63")
    found = parts(model)
    assert sum(part.count for part in found[:-2]) == len(list(model.all_layers()))
    assert len(found) < 40
    # the first layer of each stage, whose input is larger, and the shortcut behind the body
    names = [part.name for part in found]
    assert names.index("conv22") < names.index("conv23") < names.index("conv24")


def test_a_join_is_a_part():
    found = named(models.get("resnet63"))["add1"]
    assert kinds(found.before) == ["BatchNorm"]
    assert kinds(found.whole) == ["BatchNorm", "Branches"]
    assert found.whole.model.layers[-1] == models.Residual(())


def added(part):
    """Return the layers that a part's work has behind those before it."""
    layers = list(part.whole.model.named_layers())
    return layers[len(part.before.model.layers) if part.before else 0 :]


@pytest.mark.short(model_name={"resnet_small", "text_lstm", *SMALL_MODELS})
@pytest.mark.parametrize("model_name", [*models.names(), *SMALL_MODELS])
def test_the_parts_have_the_layers_and_the_flops_of_the_model(model_name):
    model = SMALL_MODELS.get(model_name) or models.get(model_name)
    found, total = parts(model), 0
    for part in found[:-2]:
        before = part.before.model.training_flops if part.before else 0
        total += part.count * (part.whole.model.training_flops - before)
        assert len(part.names) == part.count * len(added(part))
        assert find_part(model, part.name) == part
    assert total == pytest.approx(model.training_flops)
    for layer in model.all_layers():
        if not isinstance(layer.layer, models.Branches):
            part = find_part(model, layer.name)
            assert layer.name in part.names
            assert layer.layer in [named.layer for named in added(part)]


def test_a_layer_that_is_not_there_is_refused_with_those_that_are(lenet):
    with pytest.raises(SpecError, match="lenet has no layer 'conv3': choose from conv1; relu1; ma"):
        find_part(lenet, "conv3")
