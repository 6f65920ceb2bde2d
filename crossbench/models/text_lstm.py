"""Describe the text-generating LSTM of minimaxir's keras-cntk-benchmark.

The benchmark (2017) took it from Keras' examples. The catalogue's model has 57 characters, as
Nietzsche's text has; a run takes the number of its data.
"""

import dataclasses

from ..data.sources import Text
from . import LSTM, Dense, Model, OneHot, RMSprop, SoftmaxCrossEntropy


def for_vocabulary(size: int) -> Model:
    return Model(
        name="text_lstm",
        input_shape=(40,),
        layers=(OneHot(size), LSTM(128), Dense(size)),
        loss=SoftmaxCrossEntropy(),
        optimizer=RMSprop(learning_rate=0.01, rho=0.9, epsilon=1e-8),  # Keras' defaults of 2017
        batch_size=128,
        data=Text(length=40, step=3),
        source="minimaxir's keras-cntk-benchmark, 2017: lstm_text_generation",
    )


MODEL = dataclasses.replace(for_vocabulary(57), for_vocabulary=for_vocabulary)
