"""How alike the position embeddings at the input are."""

import numpy as np

from keras_diet.analysis._backbone import input_positions, with_positions


def position_similarity(backbone):
    """Return the cosine similarities of all pairs of position embeddings at the input.

        C_ij = (p_i . p_j) / (|p_i| |p_j|)

    Where positions are also in the scores (`"diet_abs_input"`) the paper finds the embeddings at
    the input to be nearly the same for all positions: they carry hardly any information then.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone` with positions at its input (`"input"`,
            `"diet_abs_input"`, `"sinusoidal"`), a `keras_hub.models.BertBackbone`, a task with
            one, or a built `keras_diet.layers.DietEncoder`.

    Returns:
        float32 array of shape `(n, n)`, with `n` the `max_sequence_length`. The similarity with an
        embedding of zeros is 0.

    Raises:
        ValueError: If the model has no positions at its input.

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
    backbone = with_positions(backbone)
    positions = input_positions(backbone, backbone.max_sequence_length)
    if positions is None:
        raise ValueError(
            "The model has no position embeddings at its input. "
            f"Received: position_encoding={backbone.position_encoding!r}"
        )
    norms = np.linalg.norm(positions, axis=1, keepdims=True)
    directions = positions / np.where(norms == 0, 1, norms)
    return directions @ directions.T


def plot_position_similarity(similarities):
    """Draw the distribution of the similarities of different positions, one colour a model.

    The height of a bar is the share of all pairs of positions whose similarity lies there. A pair
    counts once, a position with itself does not.

    Args:
        similarities: Dictionary of labels and arrays `(n, n)` of `position_similarity`, one for
            each model.

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
        raise ValueError("`similarities` must have an array for at least one model. Received: {}")
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    for label, array in similarities.items():
        pairs = _pairs(label, np.asarray(array))
        # Rounding takes similarities beyond 1, where no bar would be.
        axis.hist(
            np.clip(pairs, -1, 1),
            bins=np.linspace(-1, 1, 81),
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
            "Similarities must have the shape (n, n) with at least 2 positions. "
            f"Received: {shape} of {label!r}"
        )
    return similarities[np.triu_indices(shape[0], k=1)]
