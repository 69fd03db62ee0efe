"""What a model has learned about positions: its scores by query and key position."""

import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet._arrays import float32_array
from keras_diet.analysis._backbone import input_positions, with_positions
from keras_diet.layers.attention.linformer_multi_head_attention import LinformerMultiHeadAttention
from keras_diet.layers.position.position_bias import PositionBias


def position_scores(backbone, length=None):
    """Return the part of the attention scores that depends on positions alone.

    For a query at position `i` and a key at position `j`, in each layer and head:

        (P_Q P_K^T)_ij                         DIET-ABS
        R_{i-j}                                DIET-REL
        B_ij                                   any other bias: T5, TUPE, your own
        (p_i W_Q) . (p_j W_K) / sqrt(d_h)      positions `P` at the input

    With positions at the input there is no such term. As in Figure 8 of the paper, its place is
    taken by what the embeddings `P` alone would score: without tokens and segments, the layer
    normalization and the projections' biases, and in every layer although `P` enters the first.
    With Linformer `j` is a projected key, and `p_j` a row of the projection of `P`.

    A model with both, such as `"diet_abs_input"`, has the scores of its bias.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`, or a task with one. KerasHub's
            `BertBackbone` and its tasks will do as well, with their positions at the input, and so
            will a built `keras_diet.layers.DietEncoder`.
        length: int or `None`. Number of positions, in tokens. Defaults to `None`, which means
            `max_sequence_length`.

    Returns:
        float32 array of shape `(num_layers, num_heads, length, length)`: layer, head, query, key;
        with Linformer `(num_layers, num_heads, length, projection_dim)`. Layers that share their
        parameters have equal scores.

    Raises:
        ValueError: If the model has no positions (`"none"`), or no scores that depend on positions
            alone (`"shaw"`, whose vectors of distances are multiplied by the query; a bias layer
            that reads its inputs), or `length` is not in `[1, max_sequence_length]`.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=10, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    scores = keras_diet.analysis.position_scores(backbone)
    scores.shape  # (2, 4, 16, 16)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Figures 4, 7 and 8
    """
    backbone = with_positions(backbone)
    length = backbone.max_sequence_length if length is None else length
    length = validation.positive_int("length", length)
    validation.length_within(length, backbone.max_sequence_length, "max_sequence_length")
    biases = backbone.encoder.position_biases
    if biases:
        scores = np.stack([_bias_scores(bias, backbone, length) for bias in biases])
        # One bias may serve all layers.
        return np.broadcast_to(scores, (backbone.num_layers, *scores.shape[1:])).copy()
    positions = input_positions(backbone, length)
    attentions = [block.self_attention for block in backbone.encoder.transformer_layers]
    if positions is None:
        raise ValueError(_without_scores(backbone, attentions[0]))
    return np.stack([_input_scores(positions, attention) for attention in attentions])


def _bias_scores(bias, backbone, length):
    """Return the scores of one bias layer, `(num_heads, length, number of keys)`."""
    key_length = backbone.projection_dim or length
    keys = () if backbone.projection_dim is None else (ops.zeros((1, key_length)),)

    def scores_of(inputs):
        scores = float32_array(bias(inputs.astype("float32"), *keys))
        return np.broadcast_to(scores, (1, backbone.num_heads, length, key_length))[0]

    shape = (1, length, backbone.hidden_dim)
    scores = scores_of(np.zeros(shape))
    if not isinstance(bias, PositionBias):
        others = scores_of(np.random.default_rng(0).normal(size=shape))
        if not np.array_equal(scores, others):
            raise ValueError(
                f"The bias layer '{bias.name}' depends on its inputs and not on positions alone, "
                "so that there are no positional scores. `attention_scores` has the scores of a "
                "batch."
            )
    return scores


def _input_scores(positions, attention):
    """Return what position embeddings `(length, hidden_dim)` would score in one layer."""
    keys = positions
    if isinstance(attention, LinformerMultiHeadAttention):
        keys = float32_array(attention.key_projection)[:, : len(positions)] @ positions
    # t, s: query and key positions; d: hidden size; h: heads; k: head size
    query = np.einsum("td,dhk->htk", positions, float32_array(attention.query_dense.kernel))
    key = np.einsum("sd,dhk->hsk", keys, float32_array(attention.key_dense.kernel))
    scale = attention.key_dim**-0.5 if attention.scale is None else attention.scale
    return np.einsum("htk,hsk->hts", query * np.float32(scale), key)


def _without_scores(backbone, attention):
    received = f"Received: position_encoding={backbone.position_encoding!r}"
    if backbone.position_encoding == "none":
        return f"A model without positions has no positional scores. {received}"
    return (
        "The model has no scores that depend on positions alone: its positions are in its "
        f"attention layers (`{type(attention).__name__}`), which multiply them by the query, so "
        f"that the scores depend on the tokens. `attention_scores` has those of a batch. {received}"
    )
