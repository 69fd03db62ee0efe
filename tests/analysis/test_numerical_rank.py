import numpy as np
import pytest

from keras_diet import analysis
from tests.models.tiny import randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend


def product(rng, rank, rows=29, columns=23, dtype="float32"):
    """A product of two factors, computed in `dtype`, of the given rank."""
    left = rng.normal(size=(rows, rank)).astype(dtype)
    return left @ rng.normal(size=(rank, columns)).astype(dtype)


def test_rank_of_products_of_float32(rng):
    matrices = np.stack([product(rng, rank) for rank in (1, 2, 5, 11, 19, 23)])
    ranks = analysis.numerical_rank(matrices.reshape(2, 3, 29, 23))
    np.testing.assert_array_equal(ranks, [[1, 2, 5], [11, 19, 23]])
    assert np.issubdtype(ranks.dtype, np.integer)


def test_scale_of_a_matrix_does_not_matter(rng):
    matrix = product(rng, 7)
    scales = np.array([1e-30, 1e-3, 1e30], dtype="float32")[:, None, None]
    np.testing.assert_array_equal(analysis.numerical_rank(matrix * scales), [7, 7, 7])


def test_rank_of_hand_made_matrices():
    matrices = np.stack([np.zeros((4, 4)), np.ones((4, 4)), np.eye(4), np.diag([1, 0, 2, 0])])
    np.testing.assert_array_equal(analysis.numerical_rank(matrices), [0, 1, 4, 2])
    assert analysis.numerical_rank(np.eye(3)).shape == ()


def test_default_tolerance_of_float32():
    # 8 x 8: singular values count if they are above 8 times the machine epsilon 2 ** -23.
    above, below = 8.1 * 2.0**-23, 7.9 * 2.0**-23
    assert analysis.numerical_rank(np.diag([1.0, above, below, 0, 0, 0, 0, 0])) == 2
    # The larger side counts.
    assert analysis.numerical_rank(np.eye(2, 8) * [[1.0], [below]]) == 1
    assert analysis.numerical_rank(np.eye(8, 2) * [1.0, below]) == 1
    assert analysis.numerical_rank(np.eye(2) * [1.0, below]) == 2


def test_tolerance_is_relative_to_the_largest_singular_value():
    matrix = np.diag([10.0, 2.0, 0.9, 0.0])
    assert analysis.numerical_rank(matrix, tolerance=0.1) == 2
    assert analysis.numerical_rank(matrix, tolerance=0.05) == 3
    assert analysis.numerical_rank(matrix, tolerance=0) == 3


@pytest.mark.parametrize("rank", [1, 3, 7, 12])
def test_rank_of_diet_abs_is_its_argument(rank):
    model = randomize_weights(tiny_backbone(rank=rank, sharing="none"))
    ranks = analysis.numerical_rank(analysis.position_scores(model))
    np.testing.assert_array_equal(ranks, np.full((2, 3), rank))


@pytest.mark.parametrize(
    ("scores", "arguments", "message"),
    [
        (np.ones(3), {}, r"Received: shape=\(3,\)"),
        (np.ones((2, 0, 3)), {}, r"Received: shape=\(2, 0, 3\)"),
        (np.full((2, 2), np.nan), {}, "must be finite"),
        (np.full((2, 2), -np.inf), {}, "must be finite"),
        (np.eye(2), {"tolerance": 1}, "Received: tolerance=1"),
        (np.eye(2), {"tolerance": -0.1}, "Received: tolerance=-0.1"),
    ],
)
def test_bad_arguments_are_refused(scores, arguments, message):
    with pytest.raises(ValueError, match=message):
        analysis.numerical_rank(scores, **arguments)


# === The picture ===


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


def test_plot_of_a_batch_has_means_and_extremes():
    ranks = np.array([[[1, 2], [3, 2], [8, 5]]])
    figure = analysis.plot_ranks({"model": ranks})
    (axis,) = figure.axes
    assert [height for _, height in bars(axis)["model"]] == [4, 3]
    (lines,) = axis.collections
    assert [list(segment[:, 1]) for segment in lines.get_segments()] == [[1, 8], [2, 5]]


def test_plot_of_chosen_layers():
    figure = analysis.plot_ranks({"model": np.arange(8).reshape(4, 2)}, layers=[3, 1])
    assert [axis.get_title() for axis in figure.axes] == ["layer 3", "layer 1"]
    assert [height for _, height in bars(figure.axes[0])["model"]] == [6, 7]


def test_plot_of_bert_base():
    ranks = {name: np.full((12, 12), 64) for name in ("input", "diet_abs", "diet_rel")}
    assert len(analysis.plot_ranks(ranks).axes) == 12


@pytest.mark.parametrize(
    ("ranks", "layers", "message"),
    [
        ({}, None, "at least one model"),
        ({"model": np.ones(3)}, None, r"Received: shape=\(3,\) for 'model'"),
        ({"model": np.ones((2, 3))}, [2], r"\[0, 2\)"),
        ({"model": np.ones((2, 3))}, [], r"\[0, 2\)"),
    ],
)
def test_bad_arguments_of_the_plot_are_refused(ranks, layers, message):
    with pytest.raises(ValueError, match=message):
        analysis.plot_ranks(ranks, layers)
