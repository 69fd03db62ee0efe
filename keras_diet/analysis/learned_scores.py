"""What a model has learned about positions and segments, without any tokens."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet._backend import float32_array
from keras_diet.analysis.attention_scores import as_diet_bert
from keras_diet.layers import DietEncoder, LinformerMultiHeadAttention


def encoder_and_input(model: Any) -> tuple[Any, keras.layers.Layer | None]:
    """Return the encoder of a model, and the layer that adds embeddings to its input, if any.

    Args:
        model: As in `as_diet_bert`, or a built `DietEncoder`.
    """
    model = model if isinstance(model, DietEncoder) else as_diet_bert(model)
    return getattr(model, "encoder", model), model.input_encoding


def zero_states(encoder: DietEncoder, length: int) -> np.ndarray:
    """Return zeros of the shape of the hidden states of one sequence, `(1, length, hidden_dim)`."""
    kernel = encoder.transformer_layers[0].self_attention.query_dense.kernel
    return np.zeros((1, length, kernel.shape[0]), "float32")


def input_positions(
    encoder: DietEncoder, encoding: keras.layers.Layer | None, length: int
) -> np.ndarray:
    """Return the position embeddings `(length, hidden_dim)` at the input."""
    if encoding is None or encoding.position_embedding is None:
        raise ValueError(
            "`backbone` has no position embeddings at its input, because it has no positions, adds "
            "them to the scores, or combines them with queries. Received: position_encoding="
            f"{encoder.position_encoding!r}. See `position_scores` and `attention_scores`."
        )
    x = zero_states(encoder, length)
    return np.broadcast_to(float32_array(encoding.position_embedding(x)), x.shape)[0]


def position_scores(
    backbone: keras.Model | keras.layers.Layer, length: int | None = None
) -> np.ndarray:
    """Return the part of the attention scores that depends on positions alone.

    For a query at position `i` and a key at position `j`, in each layer and head:

        (P_Q P_K^T)_ij                         DIET-ABS
        R_{i-j}                                DIET-REL
        B_ij                                   any other bias: T5, TUPE, a custom bias layer
        (p_i W_Q) . (p_j W_K) / sqrt(d_h)      positions `P` at the input

    With positions at the input, the scores have no separate positional term. As in Figure 8 of the
    paper, the result is then the score of the embeddings `P` alone, without tokens, segments, layer
    normalization and the biases of the projections. It is computed for every layer, although `P`
    only enters the first one. If a model also has a bias (`"diet_abs_input"`), the result is the
    bias.

    With Linformer, `j` is a projected key and `p_j` is a row of the projection of `P`.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`, a `keras_hub.models.BertBackbone`, a task
            with one of them, or a built `keras_diet.layers.DietEncoder`.
        length: int or `None`. Number of positions. Defaults to `None`, which means
            `max_sequence_length`.

    Returns:
        float32 array of shape `(num_layers, num_heads, length, length)`. Its axes are the layer,
        the head, the query and the key. With Linformer, the shape is
        `(num_layers, num_heads, length, projection_dim)`. Layers with shared parameters have equal
        scores.

    Raises:
        ValueError: If the model has no positions (`"none"`), if its positional scores depend on
            the tokens (`"shaw"`, `"rotary"`, `"transformer_xl"`, or a bias layer that reads its
            inputs), or if `length` is not in `[1, max_sequence_length]`.

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
    encoder, encoding = encoder_and_input(backbone)
    length = encoder.max_sequence_length if length is None else length
    if encoder.position_biases:
        scores = np.stack([_bias_scores(bias, encoder, length) for bias in encoder.position_biases])
        # All layers may share one bias.
        return np.broadcast_to(scores, (encoder.num_layers, *scores.shape[1:])).copy()
    positions = input_positions(encoder, encoding, length)
    attentions = [block.self_attention for block in encoder.transformer_layers]
    return np.stack([_input_scores(positions, attention) for attention in attentions])


def _bias_scores(bias, encoder, length):
    """Return the scores of one bias layer, `(num_heads, length, number of keys)`."""
    key_length = encoder.projection_dim or length
    keys = () if encoder.projection_dim is None else (ops.zeros((1, key_length)),)

    def scores_of(inputs):
        scores = float32_array(bias(inputs.astype("float32"), *keys))
        return np.broadcast_to(scores, (1, encoder.num_heads, length, key_length))[0]

    x = zero_states(encoder, length)
    scores = scores_of(x)
    if not np.array_equal(scores, scores_of(np.random.default_rng(0).normal(size=x.shape))):
        raise ValueError(
            "`backbone` has no positional scores, because its bias layer reads its inputs. "
            f"Received: the bias layer '{bias.name}'. Use `attention_scores` for the scores of a "
            "batch."
        )
    return scores


def _input_scores(positions, attention):
    """Return the scores of position embeddings `(length, hidden_dim)` in one layer."""
    keys = positions
    if isinstance(attention, LinformerMultiHeadAttention):
        keys = float32_array(attention.key_projection)[:, : len(positions)] @ positions
    # t, s: query and key positions; d: hidden size; h: heads; k: head size
    query = np.einsum("td,dhk->htk", positions, float32_array(attention.query_dense.kernel))
    key = np.einsum("sd,dhk->hsk", keys, float32_array(attention.key_dense.kernel))
    scale = attention.key_dim**-0.5 if attention.scale is None else attention.scale
    return np.einsum("htk,hsk->hts", query * np.float32(scale), key)


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
    encoder, _ = encoder_and_input(backbone)
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
            (see `position_scores`), if `segment_ids` has a negative id, or is longer than
            `max_sequence_length`.

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
    segment_ids = np.asarray(segment_ids)
    if np.any(segment_ids < 0):
        raise ValueError(
            "`segment_ids` must not be negative. Received: segment_ids with the smallest id "
            f"{segment_ids.min()}."
        )
    positions = position_scores(backbone, len(segment_ids))
    return positions + segments[:, :, segment_ids[:, None], segment_ids[None, :]]


def position_similarity(backbone: keras.Model | keras.layers.Layer) -> np.ndarray:
    """Return the cosine similarities of all pairs of position embeddings at the input.

        C_ij = (p_i . p_j) / (|p_i| |p_j|)

    If positions are also in the scores (`"diet_abs_input"`), the paper finds nearly the same
    embedding at the input for all positions. The embeddings then carry hardly any information.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone` with positions at its input (`"input"`,
            `"diet_abs_input"`, `"sinusoidal"`), a `keras_hub.models.BertBackbone`, a task with one
            of them, or a built `keras_diet.layers.DietEncoder`.

    Returns:
        float32 array of shape `(n, n)`, where `n` is `max_sequence_length`. The similarity to an
        embedding of zeros is 0.

    Raises:
        ValueError: If the model does not have position embeddings at its input.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=10, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16, position_encoding="input",
    )
    similarities = keras_diet.analysis.position_similarity(backbone)
    similarities.shape  # (16, 16)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), appendix C, Figure 5
    """
    encoder, encoding = encoder_and_input(backbone)
    positions = input_positions(encoder, encoding, encoder.max_sequence_length)
    norms = np.linalg.norm(positions, axis=1, keepdims=True)
    directions = positions / np.where(norms == 0, 1, norms)
    return directions @ directions.T
