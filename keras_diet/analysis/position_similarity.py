"""The similarity of the position embeddings at the input."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_diet.analysis._backbone import encoder_parts, input_positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    parts = encoder_parts(backbone)
    positions = input_positions(parts, parts.encoder.max_sequence_length)
    if positions is None:
        raise ValueError(
            "`backbone` must have position embeddings at its input. "
            f"Received: position_encoding={parts.encoder.position_encoding!r}. "
            "Use `position_scores` for positions in the attention scores."
        )
    norms = np.linalg.norm(positions, axis=1, keepdims=True)
    directions = positions / np.where(norms == 0, 1, norms)
    return directions @ directions.T


def plot_position_similarity(similarities: Mapping[str, Any]) -> "Figure":
    """Plot the distribution of the similarities of different positions, with a colour per model.

    The height of a bar is the share of all pairs of positions with such a similarity. Each pair
    counts once, and the similarity of a position to itself does not count.

    Args:
        similarities: Dictionary that maps the label of each model to an array `(n, n)`, the result
            of `position_similarity`.

    Returns:
        A `matplotlib.figure.Figure`; `figure.savefig(path)` writes it to a file.

    Raises:
        ImportError: If matplotlib is not installed (`pip install keras-diet[examples]`).
        ValueError: If `similarities` is empty, or an array is not square with at least 2 rows.

    Example:

    ```python
    embeddings = np.random.normal(size=(16, 32))
    figure = keras_diet.analysis.plot_position_similarity({"random": np.corrcoef(embeddings)})
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), appendix C, Figure 5
    """
    from matplotlib.figure import Figure

    if not similarities:
        raise ValueError(
            "`similarities` must contain an array for at least one model. Received: {}"
        )
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    for label, array in similarities.items():
        pairs = _pairs(label, np.asarray(array))
        # Rounded similarities can be greater than 1, outside of all bars.
        axis.hist(
            np.clip(pairs, -1, 1),
            bins=np.linspace(-1, 1, 81).tolist(),
            weights=np.full(len(pairs), 1 / len(pairs)),
            label=label,
            histtype="stepfilled",
            alpha=0.6,
        )
    axis.set(
        xlim=(-1, 1),
        xlabel="cosine similarity of two position embeddings",
        ylabel="share of all pairs",
    )
    axis.legend()
    return figure


def _pairs(label, similarities):
    shape = similarities.shape
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        raise ValueError(
            "The arrays in `similarities` must have the shape (n, n) with at least 2 positions. "
            f"Received: shape={shape} for {label!r}"
        )
    return similarities[np.triu_indices(shape[0], k=1)]
