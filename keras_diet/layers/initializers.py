"""Initializers of weights. All layers handle them in the same way."""

from typing import Any

import keras

from keras_diet.types import Initializer, Shape


def bert_initializer() -> keras.initializers.Initializer:
    """Return BERT's initializer for kernels and embeddings (Devlin et al., 2018)."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


def score_initializer(stddev: float | None, rank: int | None = None) -> Any:
    """Return an initializer of positional scores, or `None` for the default of a layer.

    Args:
        stddev: Standard deviation of the scores `s`, or `None`.
        rank: If given, the initializer is for both factors of `P_Q P_K^T`. The entries of a product
            of rank `r` have the standard deviation `s`, if those of the factors have
            `(s^2 / r)^(1/4)`.
    """
    if stddev is None:
        return None
    return keras.initializers.RandomNormal(
        stddev=stddev if rank is None else (stddev**2 / rank) ** 0.25
    )


def embedding_initializer(initializer: Initializer) -> Any:
    """Return the initializer for a layer's argument: BERT's initializer for `None`."""
    return bert_initializer() if initializer is None else keras.initializers.get(initializer)


def add_weight(
    layer: keras.layers.Layer,
    name: str,
    shape: Shape,
    initializer: Initializer = None,
    **arguments: Any,
) -> keras.Variable:
    """Add a weight to a layer, whose values differ from those of its other weights.

    Args:
        layer: The layer.
        name: str. Name of the weight.
        shape: tuple. Its shape.
        initializer: Initializer. Defaults to `None`, which means that of the layer.
        **arguments: Other arguments of `add_weight`.
    """
    initializer = fresh(layer.initializer if initializer is None else initializer)
    return layer.add_weight(name=name, shape=shape, initializer=initializer, **arguments)


def fresh(initializer: Any) -> Any:
    """Return a copy of `initializer` with a new random seed, unless its seed was chosen.

    A random initializer of Keras returns the same values in every call. Two weights of one shape
    would start equal.
    """
    return initializer.clone() if hasattr(initializer, "clone") else initializer
