"""Describe fastText on IMDB of minimaxir's keras-cntk-benchmark.

The benchmark (2017) took it from Keras' examples. The vocabulary is 20,000 words and all bigrams of
the training reviews. The catalogue's model has a round number of token ids, 1,200,000; a run takes
the number of its data.
"""

import dataclasses

from ..data.sources import IMDB
from . import Adam, BinaryCrossEntropy, Dense, Embedding, GlobalAveragePool, Model


def for_vocabulary(size: int) -> Model:
    return Model(
        name="imdb_fasttext",
        input_shape=(400,),
        layers=(Embedding(size, 50), GlobalAveragePool(), Dense(1)),
        loss=BinaryCrossEntropy(),
        # Keras' defaults of 2017
        optimizer=Adam(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8),
        batch_size=32,
        data=IMDB(words=20_000, length=400, bigrams=True),
        source="minimaxir's keras-cntk-benchmark, 2017: imdb_fasttext",
    )


MODEL = dataclasses.replace(for_vocabulary(1_200_000), for_vocabulary=for_vocabulary)
