"""Lesson 1: a bias in your own model.

You learn how to add a term to the attention scores of a Keras model that you wrote yourself, and
how to write such a term. The task needs the order of the words: does word 0 come before word 1?
Without positions a model can only guess. Each bias below solves the task, and nothing else changes.

    KERAS_BACKEND=jax python examples/bias_in_your_model.py
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

import keras
import numpy as np
from keras import ops

from keras_diet import layers

LENGTH = 12


def make_data(number):
    """Return sentences of 12 words, in which words 0 and 1 occur once, and the answers."""
    rng = np.random.default_rng(3)
    x = rng.integers(2, 10, (number, LENGTH))
    places = np.array([rng.choice(LENGTH, 2, replace=False) for _ in x])
    x[np.arange(number), places[:, 0]] = 0
    x[np.arange(number), places[:, 1]] = 1
    return x, (places[:, 0] < places[:, 1]).astype("int32")


def make_model(bias=None):
    """Return your model. Only the attention layer and its bias belong to keras_diet."""
    inputs = keras.Input((LENGTH,), dtype="int32")
    h = keras.layers.Embedding(10, 32)(inputs)
    # Without a bias, this is keras.layers.MultiHeadAttention.
    attention = layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    attended = attention(h, h, attention_bias=None if bias is None else bias(h))
    h = keras.layers.Add()([h, attended])  # Unlike `h + attended`, it keeps a mask.
    hidden = keras.layers.Dense(32, activation="relu")(keras.layers.LayerNormalization()(h))
    h = keras.layers.Add()([h, hidden])
    outputs = keras.layers.Dense(2)(keras.layers.GlobalMaxPooling1D()(h))
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"])
    return model


@keras.saving.register_keras_serializable(package="lessons")
class BeforeBias(layers.PositionBias):
    """Your own bias: a learned number for each head, for all keys before the query.

    `compute_scores` returns scores of the shape `(1, heads, queries, keys)`. It may use the lengths
    and the index of the first query, which is not 0 in a decoder.
    """

    def build(self, query_shape=None, key_shape=None):
        """Create the weights."""
        shape = (1, self.num_score_heads, 1, 1)
        self.before = self.add_weight(name="before", shape=shape, initializer="zeros")

    def compute_scores(self, query_length, key_length, start_index):
        """Return the scores."""
        query = ops.expand_dims(ops.arange(query_length, dtype="int32") + start_index, 1)
        is_before = ops.cast(ops.arange(key_length, dtype="int32") < query, self.compute_dtype)
        return self.before * is_before


def main(number=4800, epochs=10):
    """Train a model with each bias, and print its accuracy on other sentences."""
    keras.utils.set_random_seed(3)
    x, y = make_data(number)
    held_out = number // 6
    biases = {
        "no positions": None,
        "DIET-REL": layers.RelativePositionBias(num_heads=4, max_length=LENGTH),
        "DIET-ABS": layers.AbsolutePositionBias(num_heads=4, max_length=LENGTH, rank=8),
        "before": BeforeBias(num_heads=4, max_length=LENGTH),
    }
    accuracies = {}
    for name, bias in biases.items():
        model = make_model(bias)
        model.fit(x[held_out:], y[held_out:], batch_size=100, epochs=epochs, verbose=0)
        accuracies[name] = model.evaluate(x[:held_out], y[:held_out], verbose=0)[1]
        print(f"{name}: accuracy {accuracies[name]:.2f}")
    return accuracies


if __name__ == "__main__":
    main()
