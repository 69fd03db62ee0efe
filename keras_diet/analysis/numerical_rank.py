"""The rank of attention scores, and a picture that compares models by it."""

import math

import numpy as np


def numerical_rank(scores, tolerance=None):
    """Return the numerical rank of score matrices.

    The number of singular values `s_1 >= s_2 >= ...` of a matrix for which

        s_k > tolerance * s_1

    computed in float64. A product such as `P_Q P_K^T` is computed in float32 and rounded, which
    lifts the singular values that should be zero to about `s_1` times the machine epsilon of
    float32. The default tolerance, `max(T, S)` times that epsilon (`1.2e-7`), lies above them:
    3e-5 for 256 positions. It is the rule of `numpy.linalg.matrix_rank`, with the precision that
    the scores were computed in instead of the one that they are stored in.

    Scores of half precision (`mixed_bfloat16`) are rounded so coarsely that their rank is full
    under this tolerance. Load the model with `dtype="float32"` instead.

    Args:
        scores: Array of shape `(..., T, S)`, e.g. from `attention_scores` or `position_scores`.
        tolerance: float or `None`. Size below which a singular value counts as zero, relative to
            the largest of its matrix. Defaults to `None`: `max(T, S)` times the machine epsilon of
            float32. With 0.01 or 0.1 the result says how many directions matter.

    Returns:
        Integer array of shape `(...)`; 0 for a matrix of zeros.

    Raises:
        ValueError: If `scores` has less than two axes, no entries in a matrix, or entries that are
            not finite, or `tolerance` is not in `[0, 1)`.

    Example:

    ```python
    query, key = np.random.normal(size=(2, 3, 20, 4)).astype("float32")
    keras_diet.analysis.numerical_rank(query @ key.swapaxes(1, 2))  # array([4, 4, 4])
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Theorem 1, Figures 2
       and 8
    """
    scores = np.asarray(scores)
    if scores.ndim < 2 or 0 in scores.shape[-2:]:
        raise ValueError(f"`scores` must have the shape (..., T, S). Received: {scores.shape}")
    if not np.all(np.isfinite(scores)):
        raise ValueError("`scores` must be finite. Received infinite or NaN entries.")
    if tolerance is None:
        tolerance = max(scores.shape[-2:]) * np.finfo("float32").eps
    elif not 0 <= tolerance < 1:
        raise ValueError(f"`tolerance` must be in [0, 1). Received: tolerance={tolerance}")
    # One by one: a copy of all in float64 would be large.
    matrices = scores.reshape(-1, *scores.shape[-2:])
    return np.array([_rank(matrix, tolerance) for matrix in matrices]).reshape(scores.shape[:-2])


def _rank(matrix, tolerance):
    singular_values = np.linalg.svd(matrix.astype("float64"), compute_uv=False)
    return np.count_nonzero(singular_values > tolerance * singular_values[0])


def plot_ranks(ranks, layers=None):
    """Draw ranks as bars, one panel a layer, one group of bars a head, one colour a model.

    Figure 2 of the paper has the ranks of the attention scores of the first layer in a batch,
    Figure 8 those of the positional scores.

    Args:
        ranks: Dictionary of labels and integer arrays of `numerical_rank`, one for each model.
            Either `(num_layers, num_heads)`, or `(num_layers, B, num_heads)` for the examples of a
            batch: bars are then means, and lines go from the least to the greatest rank. Models may
            differ in layers and heads.
        layers: Layers to draw, or `None` for all. Defaults to `None`.

    Returns:
        A `matplotlib.figure.Figure`; `figure.savefig(path)` writes it to a file.

    Raises:
        ImportError: If matplotlib is not installed (`pip install keras-diet[examples]`).
        ValueError: If `ranks` is empty, an array has another shape, or no model has a layer.

    Example:

    ```python
    ranks = {"input": np.full((2, 4), 8), "diet_abs": np.full((2, 4), 16)}
    figure = keras_diet.analysis.plot_ranks(ranks, layers=[0])
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Figures 2 and 8
    """
    from matplotlib.figure import Figure

    ranks = {label: _with_batch(label, np.asarray(array)) for label, array in ranks.items()}
    if not ranks:
        raise ValueError("`ranks` must have an array for at least one model. Received: {}")
    num_layers = max(len(array) for array in ranks.values())
    layers = list(range(num_layers) if layers is None else layers)
    if not layers or not all(0 <= layer < num_layers for layer in layers):
        raise ValueError(f"`layers` must lie in [0, {num_layers}). Received: layers={layers}")
    num_heads = max(array.shape[2] for array in ranks.values())
    columns = min(len(layers), 4 if num_heads <= 8 else 3)
    rows = math.ceil(len(layers) / columns)
    width = max(4.5, 1.0 + 0.09 * num_heads * (len(ranks) + 1))
    figure = Figure(figsize=(width * columns + 2, 2.6 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axis, layer in zip(axes, layers, strict=False):
        _draw_ranks(axis, ranks, layer)
        axis.set(title=f"layer {layer}", xlabel="head", ylabel="rank", xticks=range(num_heads))
    for axis in axes[len(layers) :]:
        axis.remove()
    handles, labels = _legend(axes[: len(layers)])
    figure.legend(handles, labels, loc="outside right center")
    return figure


def _with_batch(label, ranks):
    if ranks.ndim not in (2, 3):
        raise ValueError(
            "Ranks must have the shape (num_layers, num_heads) or (num_layers, B, num_heads). "
            f"Received: {ranks.shape} of {label!r}"
        )
    return ranks[:, None] if ranks.ndim == 2 else ranks


def _draw_ranks(axis, ranks, layer):
    width = 0.8 / len(ranks)
    for i, (label, array) in enumerate(ranks.items()):
        if layer >= len(array):
            continue
        of_heads = array[layer]
        means = of_heads.mean(axis=0)
        spread = None
        if len(of_heads) > 1:
            spread = [means - of_heads.min(axis=0), of_heads.max(axis=0) - means]
        center = np.arange(len(means)) + (i - (len(ranks) - 1) / 2) * width
        axis.bar(
            center, means, width, label=label, color=f"C{i}", yerr=spread, error_kw={"lw": 0.8}
        )


def _legend(axes):
    found = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
