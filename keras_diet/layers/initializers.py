"""Initializers, handled alike by all layers."""

import keras


def bert_initializer():
    """Return the initializer of all of BERT's kernels and embeddings (Devlin et al., 2018)."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


def embedding_initializer(initializer):
    """Return the initializer that a layer's argument names; `None` stands for BERT's."""
    return bert_initializer() if initializer is None else keras.initializers.get(initializer)


def fresh(initializer):
    """Return a copy of `initializer` that draws anew.

    Keras's random initializers repeat their draw, so two weights of one shape would be equal.
    """
    return initializer.clone() if hasattr(initializer, "clone") else initializer
