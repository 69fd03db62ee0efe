"""The pictures of the analyses."""

import numpy as np
import pytest

from keras_diet import analysis
from tests.helpers import assert_close

pytestmark = pytest.mark.any_backend


def maps(figure):
    return [axis for axis in figure.axes if axis.images]


def titles(figure):
    return [axis.get_title() for axis in maps(figure)]


def test_first_layer_and_four_heads_are_the_default(rng):
    for heads, shown in ((5, 4), (2, 2)):
        figure = analysis.plot_scores(rng.normal(size=(3, heads, 7, 7)))
        assert titles(figure) == [f"layer 0, head {head}" for head in range(shown)]


def test_colours_are_centred_on_zero(rng):
    scores = rng.normal(size=(1, 2, 7, 7))
    scores[0, 0] += 3
    scores[0, 1] -= 9
    for head, axis in enumerate(maps(analysis.plot_scores(scores))):
        limit = np.abs(scores[0, head]).max()
        assert axis.images[0].get_clim() == (-limit, limit)
    (axis,) = maps(analysis.plot_scores(np.zeros((1, 1, 2, 2))))
    assert axis.images[0].get_clim() == (-1, 1)


def test_models_are_compared_row_by_row(rng):
    scores = {"a": rng.normal(size=(2, 3, 5, 5)), "b": rng.normal(size=(2, 4, 7, 2))}
    chosen = {"a": [2, 0], "b": [1, 3]}
    figure = analysis.plot_scores(scores, layers=[1, 0], heads=chosen)
    places = [(name, i, head) for name, heads in chosen.items() for i in (1, 0) for head in heads]
    assert titles(figure) == [f"{name}\nlayer {i}, head {head}" for name, i, head in places]
    for axis, (name, i, head) in zip(maps(figure), places, strict=True):
        np.testing.assert_array_equal(axis.images[0].get_array(), scores[name][i, head])
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("key", "query")
    assert len(figure.axes) == 2 * len(places), "each map has a colour bar"


def bars(axis):
    """The position and the height of each bar, in the order of the heads, by label."""
    return {
        container.get_label(): [
            (bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in container
        ]
        for container in axis.containers
        if hasattr(container, "patches")
    }


def test_plot_has_a_panel_for_each_layer_and_bars_for_each_head():
    ranks = {"one": np.arange(10).reshape(2, 5), "two": 20 + np.arange(6).reshape(3, 2)}
    figure = analysis.plot_ranks(ranks)
    assert [axis.get_title() for axis in figure.axes] == ["layer 0", "layer 1", "layer 2"]
    assert {(axis.get_xlabel(), axis.get_ylabel()) for axis in figure.axes} == {("head", "rank")}
    assert [text.get_text() for text in figure.legends[0].texts] == ["one", "two"]
    drawn = [bars(axis) for axis in figure.axes]
    assert [height for _, height in drawn[1]["one"]] == [5, 6, 7, 8, 9]
    assert [height for _, height in drawn[1]["two"]] == [22, 23]
    # Only one model has a third layer. It keeps its side and its colour.
    assert list(drawn[2]) == ["two"]
    for axis in drawn[:2]:
        assert all(
            head - 0.5 < left < head < right < head + 0.5
            for head, ((left, _), (right, _)) in enumerate(
                zip(axis["one"], axis["two"], strict=False)
            )
        )
    colours = [bar.containers[-1].patches[0].get_facecolor() for bar in figure.axes]
    assert colours[1] == colours[2]


def test_plot_of_a_batch_and_chosen_layers_has_means_and_extremes():
    ranks = np.array([[[0, 0]] * 3, [[1, 2], [3, 2], [8, 5]], [[7, 7]] * 3])
    other, axis = analysis.plot_ranks({"model": ranks}, layers=[2, 1]).axes
    assert [each.get_title() for each in (other, axis)] == ["layer 2", "layer 1"]
    assert [height for _, height in bars(axis)["model"]] == [4, 3]
    (lines,) = axis.collections
    assert [list(segment[:, 1]) for segment in lines.get_segments()] == [[1, 8], [2, 5]]


def test_histogram_shows_each_pair_once():
    similarities = np.eye(4)
    similarities[np.triu_indices(4, 1)] = [0.51, 0.51, 0.51, -0.99, 0.01, 1.0000001]
    # The other half is not used.
    similarities[np.tril_indices(4, -1)] = -0.3
    figure = analysis.plot_position_similarity({"one": similarities, "two": -np.ones((3, 3))})
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.get_legend().texts] == ["one", "two"]
    assert "cosine similarity" in axis.get_xlabel()
    assert axis.get_ylabel() == "share of all pairs"
    one, two = (patch.get_xy() for patch in axis.patches)
    # Half of the first model's pairs are in the bar that starts at 0.5.
    # All of the second model's pairs are in the first bar.
    assert one[:, 1].max() == pytest.approx(0.5)
    assert one[np.argmax(one[:, 1]), 0] == pytest.approx(0.5)
    assert two[:, 1].max() == pytest.approx(1.0)
    assert two[np.argmax(two[:, 1]), 0] == pytest.approx(-1.0)
    for x, y in (one.T, two.T):
        # Bars have a width of 1 / 40. The area of the outline shows that no pair is missing.
        area = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
        assert area * 40 == pytest.approx(1.0)


def test_cross_attention():
    probabilities = np.random.default_rng(0).random((2, 3, 4, 5))
    attention = analysis.CrossAttention(probabilities, list("wxyz"), list("abcde"))
    for layer in (-1, 0, np.int64(1)):
        (axis,) = analysis.plot_cross_attention(attention, layer).axes
        (image,) = axis.images
        assert_close(image.get_array(), probabilities[layer].mean(axis=0))
        assert [label.get_text() for label in axis.get_xticklabels()] == list("abcde")
        assert [label.get_text() for label in axis.get_yticklabels()] == list("wxyz")
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("source", "target")
