"""What a model has learned about positions: its scores by query and key position."""

import numpy as np
from keras import ops

from keras_diet.layers.position_encodings import POSITION_ENCODINGS


def position_scores(backbone, length=None):
    """Return the part of the attention scores that depends on positions alone.

    For DIET-ABS that is `P_Q P_K^T`, for DIET-REL `R_{i-j}`. With positions at the input there is
    no such term; as in Figure 8 of the paper its place is taken by
    `(P W_Q)(P W_K)^T / sqrt(d_h)`, what the position embeddings `P` alone would score.

    Args:
        backbone: A built `keras_diet.models.DietBertBackbone`.
        length: int or `None`. Number of positions, in tokens. Defaults to `None`, which means
            `max_sequence_length`.

    Returns:
        Array of shape `(num_layers, num_heads, length, length)`: layer, head, query, key. Layers
        that share their parameters have equal scores.

    Raises:
        ValueError: If the model has no positions, or `length` is above `max_sequence_length`.

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
    length = backbone.max_sequence_length if length is None else length
    positions = np.zeros((1, length, 1), dtype="float32")
    biases = backbone.encoder.position_biases
    if biases:
        keys = () if backbone.projection_dim is None else (np.zeros((1, backbone.projection_dim)),)
        scores = [bias(positions, *keys) for bias in biases]
    elif POSITION_ENCODINGS[backbone.position_encoding].scores_positions:
        embeddings = backbone.input_encoding.position_embedding(
            np.zeros((1, length, backbone.hidden_dim), dtype="float32")
        )
        scores = [_input_scores(embeddings, block) for block in backbone.encoder.transformer_layers]
    else:
        raise ValueError(
            "A model without positions has no positional scores. Received: "
            f"position_encoding={backbone.position_encoding!r}"
        )
    scores = [ops.convert_to_numpy(ops.cast(score, "float32")) for score in scores]
    shape = (backbone.num_layers, backbone.num_heads, length, length)
    return np.broadcast_to(np.concatenate(scores), shape)


def _input_scores(embeddings, block):
    # b: one; t, s: query and key positions; d: hidden size; h: heads; k: head size
    attention = block.self_attention
    query = ops.einsum("btd,dhk->bthk", embeddings, attention.query_dense.kernel)
    key = ops.einsum("bsd,dhk->bshk", embeddings, attention.key_dense.kernel)
    return ops.einsum("bthk,bshk->bhts", query, key) / attention.key_dim**0.5


def plot_position_scores(scores, layers=None, heads=None):
    """Draw positional scores as maps, one row a layer and one column a head.

    Args:
        scores: Array of shape `(num_layers, num_heads, T, S)`, from `position_scores`.
        layers: Layers to draw, or `None` for the first one.
        heads: Heads to draw, or `None` for the first four.

    Returns:
        A `matplotlib.figure.Figure`; `figure.savefig(path)` writes it to a file.

    Raises:
        ImportError: If matplotlib is not installed (`pip install keras-diet[examples]`).

    Example:

    ```python
    scores = np.random.normal(size=(2, 4, 16, 16))
    figure = keras_diet.analysis.plot_position_scores(scores, layers=[0, 1])
    ```
    """
    from matplotlib.figure import Figure

    layers = range(1) if layers is None else layers
    heads = range(min(4, scores.shape[1])) if heads is None else heads
    figure = Figure(figsize=(3 * len(heads), 2.8 * len(layers)), layout="constrained")
    axes = figure.subplots(len(layers), len(heads), squeeze=False)
    for row, layer in zip(axes, layers, strict=True):
        for axis, head in zip(row, heads, strict=True):
            image = axis.imshow(scores[layer, head], cmap="viridis")
            axis.set(title=f"layer {layer}, head {head}", xlabel="key", ylabel="query")
            figure.colorbar(image, ax=axis, shrink=0.8)
    return figure
