"""Pictures of what the analyses return."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_diet.analysis.attention_scores import CrossAttention

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
        ImportError: If matplotlib is not installed (an extra of the package: `examples`).

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
    layers = [0] if layers is None else list(layers)
    if heads is None:
        heads = range(min(4, *(array.shape[1] for array in by_label.values())))
    chosen = heads if isinstance(heads, dict) else {label: list(heads) for label in by_label}
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
        ImportError: If matplotlib is not installed (an extra of the package: `examples`).

    Example:

    ```python
    ranks = {"input": np.full((2, 4), 8), "diet_abs": np.full((2, 4), 16)}
    figure = keras_diet.analysis.plot_ranks(ranks, layers=[0])
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Figures 2 and 8
    """
    from matplotlib.figure import Figure

    ranks = {label: _with_batch(np.asarray(array)) for label, array in ranks.items()}
    num_layers = max(len(array) for array in ranks.values())
    layers = list(range(num_layers) if layers is None else layers)
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
    # A model has the same colour in all panels.
    found = [axis.get_legend_handles_labels() for axis in axes[: len(layers)]]
    by_label = {label: handle for each in found for handle, label in zip(*each, strict=True)}
    figure.legend(by_label.values(), by_label.keys(), loc="outside right center")
    return figure


def _with_batch(ranks):
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
        ImportError: If matplotlib is not installed (an extra of the package: `examples`).

    Example:

    ```python
    embeddings = np.random.normal(size=(16, 32))
    figure = keras_diet.analysis.plot_position_similarity({"random": np.corrcoef(embeddings)})
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), appendix C, Figure 5
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    for label, array in similarities.items():
        array = np.asarray(array)
        pairs = array[np.triu_indices(len(array), k=1)]
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


def plot_cross_attention(attention: CrossAttention, layer: int = -1) -> "Figure":
    """Plot the mean attention of the heads of a layer, with a row for each token of the target.

    Args:
        attention: What `cross_attention` returns.
        layer: int. The layer. Defaults to `-1`, the last one.

    Returns:
        A `matplotlib.figure.Figure`; `figure.savefig(path)` writes it to a file.

    Raises:
        ImportError: If matplotlib is not installed (an extra of the package: `examples`).

    Example:

    ```python
    attention = keras_diet.analysis.CrossAttention(
        probabilities=np.full((2, 4, 3, 2), 0.5),
        target_tokens=["ein", "Fuchs", "</s>"],
        source_tokens=["fox", "</s>"],
    )
    figure = keras_diet.analysis.plot_cross_attention(attention)
    ```
    """
    from matplotlib.figure import Figure

    mean = attention.probabilities[layer].mean(axis=0)
    rows, columns = mean.shape
    figure = Figure(figsize=(1.5 + 0.35 * columns, 1.2 + 0.3 * rows), layout="constrained")
    axis = figure.subplots()
    axis.imshow(mean, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    axis.set_xticks(range(columns), attention.source_tokens, rotation=60, ha="right")
    axis.set_yticks(range(rows), attention.target_tokens)
    axis.set(xlabel="source", ylabel="target")
    return figure
