"""The rank of attention scores, and a plot that compares the ranks of models."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def numerical_rank(scores: Any, tolerance: float | None = None) -> np.ndarray:
    """Return the numerical rank of score matrices.

    The rank is the number of singular values `s_1 >= s_2 >= ...` of a matrix with

        s_k > tolerance * s_1

    computed in float64. A product such as `P_Q P_K^T` is rounded to float32. Rounding turns
    singular values of zero into about `s_1` times the machine epsilon of float32 (`1.2e-7`). The
    default tolerance is `max(T, S)` times this epsilon, which is larger: 3e-5 for 256 positions.
    `numpy.linalg.matrix_rank` uses the same rule, but with the precision of the stored array.

    Scores in half precision (`mixed_bfloat16`) are rounded much more, so their rank is full with
    this tolerance. Load the model with `dtype="float32"` instead.

    Args:
        scores: Array of shape `(..., T, S)`, such as the result of `attention_scores` or
            `position_scores`.
        tolerance: float or `None`. Relative to the largest singular value of its matrix, a
            singular value up to this size counts as zero. With 0.01 or 0.1, the result tells how
            many directions matter. Defaults to `None`, which means `max(T, S)` times the machine
            epsilon of float32.

    Returns:
        Integer array of shape `(...)`. The rank of a matrix of zeros is 0.

    Raises:
        ValueError: If `scores` has fewer than two axes, empty matrices, or entries that are not
            finite, or if `tolerance` is not in `[0, 1)`.

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
        raise ValueError(
            "`scores` must have the shape (..., T, S) with at least one query and key. "
            f"Received: shape={scores.shape}"
        )
    if not np.all(np.isfinite(scores)):
        raise ValueError(
            "`scores` must be finite. Received: infinite or NaN entries. Compute scores "
            "without a mask, or replace these entries."
        )
    if tolerance is None:
        tolerance = max(scores.shape[-2:]) * np.finfo("float32").eps
    elif not 0 <= tolerance < 1:
        raise ValueError(f"`tolerance` must be in [0, 1). Received: tolerance={tolerance}")
    # One matrix at a time, because a copy of all matrices in float64 would be large.
    matrices = scores.reshape(-1, *scores.shape[-2:])
    return np.array([_rank(matrix, tolerance) for matrix in matrices]).reshape(scores.shape[:-2])


def _rank(matrix, tolerance):
    singular_values = np.linalg.svd(matrix.astype("float64"), compute_uv=False)
    return np.count_nonzero(singular_values > tolerance * singular_values[0])


def plot_ranks(ranks: Mapping[str, Any], layers: Iterable[int] | None = None) -> "Figure":
    """Plot ranks as bars, with a panel for each layer and a group of bars for each head.

    Each model has its own colour. Figure 2 of the paper shows the ranks of the attention scores in
    the first layer for a batch. Figure 8 shows the ranks of the positional scores.

    Args:
        ranks: Dictionary that maps the label of each model to an integer array, the result of
            `numerical_rank`. Its shape is `(num_layers, num_heads)`, or
            `(num_layers, B, num_heads)` for the examples of a batch. For a batch, bars show the
            mean rank, and lines extend from the smallest to the largest rank. Models may have
            different numbers of layers and heads.
        layers: Layers to plot, or `None` for all layers. Defaults to `None`.

    Returns:
        A `matplotlib.figure.Figure`; `figure.savefig(path)` writes it to a file.

    Raises:
        ImportError: If matplotlib is not installed (`pip install keras-diet[examples]`).
        ValueError: If `ranks` is empty, an array has another shape, or `layers` is empty or names
            a layer that no model has.

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
        raise ValueError("`ranks` must contain an array for at least one model. Received: {}")
    num_layers = max(len(array) for array in ranks.values())
    layers = list(range(num_layers) if layers is None else layers)
    if not layers or not all(0 <= layer < num_layers for layer in layers):
        raise ValueError(
            f"`layers` must name at least one layer in [0, {num_layers}). Received: layers={layers}"
        )
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
            "The arrays in `ranks` must have the shape (num_layers, num_heads) or "
            f"(num_layers, B, num_heads). Received: shape={ranks.shape} for {label!r}"
        )
    return ranks[:, None] if ranks.ndim == 2 else ranks


def _draw_ranks(axis, ranks, layer):
    width = 0.8 / len(ranks)
    for i, (label, array) in enumerate(ranks.items()):
        if layer >= len(array):
            continue
        examples = array[layer]
        means = examples.mean(axis=0)
        spread = None
        if len(examples) > 1:
            spread = [means - examples.min(axis=0), examples.max(axis=0) - means]
        center = np.arange(len(means)) + (i - (len(ranks) - 1) / 2) * width
        axis.bar(
            center, means, width, label=label, color=f"C{i}", yerr=spread, error_kw={"lw": 0.8}
        )


def _legend(axes):
    """Return the handles and labels of all axes, each label once."""
    handles = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return list(handles.values()), list(handles)
