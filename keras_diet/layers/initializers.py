"""Initializers of weights. All layers handle them in the same way."""

from typing import Any

import keras

from keras_diet.types import Initializer


def bert_initializer() -> keras.initializers.Initializer:
    """Return BERT's initializer for kernels and embeddings (Devlin et al., 2018)."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


def embedding_initializer(initializer: Initializer) -> Any:
    """Return the initializer for a layer's argument: BERT's initializer for `None`."""
    return bert_initializer() if initializer is None else keras.initializers.get(initializer)


def fresh(initializer: Any) -> Any:
    """Return a copy of `initializer` with a new random seed, unless its seed was chosen.

    A random initializer of Keras returns the same values in every call. Two weights of one shape
    would start equal.
    """
    return initializer.clone() if hasattr(initializer, "clone") else initializer
