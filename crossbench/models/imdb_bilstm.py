"""Describe the bidirectional LSTM of minimaxir's keras-cntk-benchmark.

The benchmark (2017) took it from Keras' examples.
"""

from ..data.sources import IMDB
from . import LSTM, Adam, BinaryCrossEntropy, Dense, Dropout, Embedding, Model

MODEL = Model(
    name="imdb_bilstm",
    input_shape=(100,),
    layers=(Embedding(20_000, 128), LSTM(64, bidirectional=True), Dropout(0.5), Dense(1)),
    loss=BinaryCrossEntropy(),
    # Keras' defaults of 2017
    optimizer=Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
    batch_size=32,
    data=IMDB(words=20_000, length=100),
    source="minimaxir's keras-cntk-benchmark, 2017: imdb_bidirectional_lstm",
)
