"""Describe the GRU on IMDB of ilkarman's DeepLearningFrameworks (2017), "a Rosetta Stone"."""

from ..data.sources import IMDB
from . import GRU, Adam, Dense, Embedding, Model, SoftmaxCrossEntropy

MODEL = Model(
    name="rosetta_gru",
    input_shape=(150,),
    layers=(Embedding(30_000, 125), GRU(100), Dense(2)),
    loss=SoftmaxCrossEntropy(),
    optimizer=Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    batch_size=64,
    data=IMDB(words=30_000, length=150),
    source="ilkarman's DeepLearningFrameworks, 2017: the RNN",
)
