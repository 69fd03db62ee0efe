"""What a model has learned about segments, alone and together with positions."""

import numpy as np

from keras_diet._arrays import float32_array
from keras_diet.analysis._backbone import with_positions
from keras_diet.analysis.position_scores import position_scores


def segment_scores(backbone):
    """Return the part of the attention scores that depends on segments alone.

    That is `E_S` of equation 2 of the paper: for a query of segment `r` and a key of segment `c`

        E_S[r, c]

    is added to the score. Softmax runs over the keys, so what counts is how a row varies:
    `E_S[r, 1] - E_S[r, 0]` is by how much queries of segment `r` prefer segment 1.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone` with `segment_encoding="per-head"`, a task
            with one, or a built `keras_diet.layers.DietEncoder`.

    Returns:
        float32 array of shape `(num_layers, num_heads, num_segments, num_segments)`: layer, head,
        segment of the query, segment of the key.

    Raises:
        ValueError: If the model has no segments in its scores, as KerasHub's BERT.

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
    backbone = with_positions(backbone)
    biases = backbone.encoder.segment_biases
    if not biases:
        raise ValueError(
            "Only a model with segment_encoding='per-head' has segment scores. "
            f"Received: segment_encoding={backbone.segment_encoding!r}"
        )
    return np.stack([float32_array(bias.segment_embedding) for bias in biases])


def position_and_segment_scores(backbone, segment_ids):
    """Return the attention scores of a sequence without their token-to-token part.

    For queries `i` and keys `j`, in each layer and head:

        B_ij + E_S[S(i), S(j)]

    with the positional scores `B` of `position_scores` and the segment scores `E_S` of
    `segment_scores`. This is the pattern of Figure 6 of the paper, there of DIET-REL and 32 tokens
    of which the last 16 belong to the second segment.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone` with `segment_encoding="per-head"` and with
            positional scores, a task with one, or a built `keras_diet.layers.DietEncoder`.
        segment_ids: Integer array of shape `(T,)`: `S(i)`, the segment of each token.

    Returns:
        float32 array of shape `(num_layers, num_heads, T, T)`: layer, head, query, key.

    Raises:
        ValueError: If the model has no segments in its scores, or no positional scores
            (see `position_scores`), or `segment_ids` is not one row of ids in `[0, num_segments)`,
            or longer than `max_sequence_length`.

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
            "`segment_ids` must be a one-dimensional integer array, the segments of one sequence. "
            f"Received: shape={segment_ids.shape}, dtype={segment_ids.dtype}"
        )
    if segment_ids.size and not 0 <= segment_ids.min() <= segment_ids.max() < num_segments:
        raise ValueError(
            f"Segment ids must lie in [0, num_segments) = [0, {num_segments}). "
            f"Received ids from {segment_ids.min()} to {segment_ids.max()}."
        )
    return segment_ids
