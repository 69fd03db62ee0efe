"""The scores that a model has learned for segments, alone and together with positions."""

from typing import Any

import keras
import numpy as np

from keras_diet._arrays import float32_array
from keras_diet.analysis._backbone import encoder_parts
from keras_diet.analysis.position_scores import position_scores


def segment_scores(backbone: keras.Model | keras.layers.Layer) -> np.ndarray:
    """Return the part of the attention scores that depends on segments alone.

    This is `E_S` in equation 2 of the paper. The score of a query in segment `r` and a key in
    segment `c` contains the term

        E_S[r, c]

    The softmax is over the keys, so only differences within a row matter:
    `E_S[r, 1] - E_S[r, 0]` tells by how much queries of segment `r` prefer segment 1.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone` with `segment_encoding="per-head"`, a task
            with such a backbone, or a built `keras_diet.layers.DietEncoder`.

    Returns:
        float32 array of shape `(num_layers, num_heads, num_segments, num_segments)`. Its axes are
        the layer, the head, the segment of the query and the segment of the key.

    Raises:
        ValueError: If the scores of the model do not contain segments, as in KerasHub's BERT.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=10, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    scores = keras_diet.analysis.segment_scores(backbone)
    scores.shape  # (2, 4, 2, 2)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), equation 2
    """
    encoder = encoder_parts(backbone).encoder
    if not encoder.segment_biases:
        raise ValueError(
            "`backbone` must have segment_encoding='per-head'. "
            f"Received: segment_encoding={encoder.segment_encoding!r}"
        )
    return np.stack([float32_array(bias.segment_embedding) for bias in encoder.segment_biases])


def position_and_segment_scores(
    backbone: keras.Model | keras.layers.Layer, segment_ids: Any
) -> np.ndarray:
    """Return the attention scores of a sequence without their token-to-token part.

    For queries `i` and keys `j`, in each layer and head:

        B_ij + E_S[S(i), S(j)]

    with the positional scores `B` of `position_scores` and the segment scores `E_S` of
    `segment_scores`. Figure 6 of the paper shows this pattern for DIET-REL and 32 tokens, of which
    the last 16 belong to the second segment.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone` with `segment_encoding="per-head"` and with
            positional scores, a task with such a backbone, or a built
            `keras_diet.layers.DietEncoder`.
        segment_ids: Integer array of shape `(T,)`: `S(i)`, the segment of each token.

    Returns:
        float32 array of shape `(num_layers, num_heads, T, T)`. Its axes are the layer, the head,
        the query and the key.

    Raises:
        ValueError: If the scores of the model do not contain segments or positions
            (see `position_scores`), or if `segment_ids` is not one row of ids in
            `[0, num_segments)`, or is longer than `max_sequence_length`.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=10, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=32, position_encoding="diet_rel",
    )
    segment_ids = np.repeat([0, 1], 16)
    scores = keras_diet.analysis.position_and_segment_scores(backbone, segment_ids)
    figure = keras_diet.analysis.plot_scores(scores, heads=[0, 1])
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Figure 6
    """
    segments = segment_scores(backbone)
    segment_ids = _checked(segment_ids, segments.shape[-1])
    positions = position_scores(backbone, len(segment_ids))
    return positions + segments[:, :, segment_ids[:, None], segment_ids[None, :]]


def _checked(segment_ids, num_segments):
    segment_ids = np.asarray(segment_ids)
    if segment_ids.ndim != 1 or not np.issubdtype(segment_ids.dtype, np.integer):
        raise ValueError(
            "`segment_ids` must be a one-dimensional integer array: the segments of one sequence. "
            f"Received: shape={segment_ids.shape}, dtype={segment_ids.dtype}"
        )
    if segment_ids.size and not 0 <= segment_ids.min() <= segment_ids.max() < num_segments:
        raise ValueError(
            f"`segment_ids` must be in [0, num_segments) = [0, {num_segments}). "
            f"Received: ids from {segment_ids.min()} to {segment_ids.max()}"
        )
    return segment_ids
