"""Maps of attention scores."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_scores(
    scores: Any,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | Mapping[str, Iterable[int]] | None = None,
) -> "Figure":
    """Plot scores as maps, with a row for each layer (of each model) and a column for each head.

    White is 0, red is positive, and blue is negative. Both signs have the same range. Each map has
    its own scale, because attention only depends on the differences within a map.

    Args:
        scores: Array of shape `(num_layers, num_heads, T, S)`, such as the result of
            `position_scores`, `position_and_segment_scores` or `attention_scores(...)[:, example]`.
            To compare models, pass a dictionary that maps labels to such arrays.
        layers: Layers to plot, or `None` for the first layer. Defaults to `None`.
        heads: Heads to plot, or `None` for the first four heads. To compare different heads of
            several models, pass a dictionary that maps each label to the same number of heads.
            Defaults to `None`.

    Returns:
        A `matplotlib.figure.Figure`; `figure.savefig(path)` writes it to a file.

    Raises:
        ImportError: If matplotlib is not installed (`pip install keras-diet[examples]`).
        ValueError: If `scores` is an empty dictionary, an array has another number of axes, or a
            model does not have the layers or heads.

    Example:

    ```python
    scores = np.random.normal(size=(2, 4, 16, 16))
    figure = keras_diet.analysis.plot_scores(scores, layers=[0, 1])
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Figures 4, 6 and 7
    """
    from matplotlib.figure import Figure

    by_label = scores if isinstance(scores, dict) else {"": scores}
    by_label = {label: np.asarray(array) for label, array in by_label.items()}
    if not by_label:
        raise ValueError("`scores` must contain an array for at least one model. Received: {}")
    layers = [0] if layers is None else list(layers)
    if heads is None:
        heads = range(min(4, *(array.shape[1] for array in by_label.values())))
    chosen = heads if isinstance(heads, dict) else {label: list(heads) for label in by_label}
    for label, array in by_label.items():
        _check(label, array, layers, chosen[label])
    rows = [(label, layer) for label in by_label for layer in layers]
    columns = len(chosen[rows[0][0]])
    figure = Figure(figsize=(3.4 * columns, 2.9 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for row_axes, (label, layer) in zip(axes, rows, strict=True):
        for axis, head in zip(row_axes, chosen[label], strict=True):
            title = f"layer {layer}, head {head}"
            draw_map(axis, by_label[label][layer, head], f"{label}\n{title}" if label else title)
    return figure


def draw_map(axis: "Axes", scores: np.ndarray, title: str) -> None:
    """Draw one matrix `(T, S)` of scores on an axis of a figure, with its colour bar."""
    limit = np.max(np.abs(scores)) or 1.0
    # Linformer has few projected keys, so its map would be a narrow strip.
    aspect: Any = "equal" if scores.shape[0] == scores.shape[1] else "auto"
    image = axis.imshow(
        scores, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect=aspect, interpolation="nearest"
    )
    axis.set(title=title, xlabel="key", ylabel="query")
    colours = axis.figure.colorbar(image, ax=axis, shrink=0.8)
    colours.ax.ticklabel_format(axis="y", scilimits=(-3, 3))


def _check(label, scores, layers, heads):
    if scores.ndim != 4:
        raise ValueError(
            "`scores` must have the shape (num_layers, num_heads, T, S). "
            f"Received: shape={scores.shape}" + (f" for {label!r}" if label else "")
        )
    for name, indices, size in (("layers", layers, len(scores)), ("heads", heads, scores.shape[1])):
        if not indices or not all(0 <= index < size for index in indices):
            raise ValueError(
                f"`{name}` must contain at least one index in [0, {size}). "
                f"Received: {name}={list(indices)}"
            )
