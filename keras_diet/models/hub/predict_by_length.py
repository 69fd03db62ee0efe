"""Predictions for sequences whose batches are cut to the smallest length that holds them."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np


def buckets_of(padding_mask: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Return the smallest length that holds each sequence.

    Args:
        padding_mask: Array of shape `(B, T)`.
        lengths: The lengths to choose from, which increase. The last one is `T`.
    """
    return np.array(lengths)[np.searchsorted(lengths, padding_mask.sum(-1))]


def predict_by_length(
    model: keras.Model,
    inputs: Mapping[str, np.ndarray],
    lengths: Sequence[int],
    batch_size: int | None,
) -> Any:
    """Return the outputs of a model for all tokens. Short sequences have batches of their own.

    Args:
        model: The model. Its outputs have the shapes `(B, T, ...)`.
        inputs: Arrays of shape `(B, T)`, with a `"padding_mask"`.
        lengths: The lengths of the batches, as in `buckets_of`.
        batch_size: As in `keras.Model.predict`.

    Returns:
        Arrays in float32. Behind the length of a sequence, they are zero.
    """
    buckets = buckets_of(inputs["padding_mask"], lengths)
    outputs: Any = None
    for length in np.unique(buckets):
        rows = buckets == length
        batch = {name: array[rows, :length] for name, array in inputs.items()}
        # The method of a task would take the inputs for texts.
        found = keras.Model.predict(model, batch, batch_size=batch_size, verbose=0)
        if outputs is None:
            outputs = keras.tree.map_structure(
                lambda part: np.zeros((*inputs["padding_mask"].shape, *part.shape[2:]), "float32"),
                found,
            )
        for array, part in zip(*map(keras.tree.flatten, (outputs, found)), strict=True):
            array[rows, :length] = part
    return outputs
