import numpy as np

from crossbench.adapters.reference import ADAPTER
from crossbench.data import synthetic
from crossbench.engine.worker import as_inputs, batches
from crossbench.workload import Job


def test_the_seed_gives_the_bytes():
    first, again, other = (synthetic.load(seed, 300, 100) for seed in (0, 0, 1))
    assert first.sha256() == again.sha256() != other.sha256()
    assert first.train.inputs.shape == (300, 3, 32, 32)
    assert first.train.inputs.dtype == np.uint8
    assert set(first.train.labels) == set(range(10))
    assert (first.train.inputs[:100] != first.test.inputs).any()


def test_every_class_looks_different():
    split = synthetic.split(400, np.random.default_rng(0))
    means = [split.inputs[split.labels == k].mean(0) for k in range(10)]
    apart = [abs(a - b).mean() for i, a in enumerate(means) for b in means[:i]]
    assert min(apart) > 2  # of 255


def test_a_small_model_learns_it(small_model):
    dataset = synthetic.load(0, 1000, 200)
    workload = ADAPTER.build(Job(small_model, "cpu", 1, "float32"))
    workload.load_weights(small_model.initial_weights(0))
    workload.place(batches(dataset.train, 10))
    losses = [workload.train_epoch() for _ in range(8)]
    logits = workload.predict(as_inputs(dataset.test.inputs))
    assert losses[-1].mean() < 0.7 * losses[0].mean()
    assert (logits.argmax(1) == dataset.test.labels).mean() > 0.3  # 0.1 is chance
