import numpy as np
import pytest

from keras_diet import analysis

pytestmark = pytest.mark.any_backend


def maps(figure):
    return [axis for axis in figure.axes if axis.images]


def titles(figure):
    return [axis.get_title() for axis in maps(figure)]


def test_plot_has_a_map_for_each_layer_and_head(rng):
    scores = rng.normal(size=(3, 5, 7, 7))
    figure = analysis.plot_scores(scores, layers=[0, 2], heads=[1, 3, 4])
    assert titles(figure) == [f"layer {i}, head {head}" for i in (0, 2) for head in (1, 3, 4)]
    np.testing.assert_array_equal(maps(figure)[3].images[0].get_array(), scores[2, 1])
    assert {(axis.get_xlabel(), axis.get_ylabel()) for axis in maps(figure)} == {("key", "query")}
    assert len(figure.axes) == 2 * 6, "each map has a colour bar"


def test_first_layer_and_four_heads_are_the_default(rng):
    figure = analysis.plot_scores(rng.normal(size=(3, 5, 7, 7)))
    assert titles(figure) == [f"layer 0, head {head}" for head in range(4)]
    figure = analysis.plot_scores(rng.normal(size=(3, 2, 7, 7)))
    assert titles(figure) == ["layer 0, head 0", "layer 0, head 1"]


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
    figure = analysis.plot_scores(scores, layers=[1])
    expected = [f"{label}\nlayer 1, head {head}" for label in "ab" for head in range(3)]
    assert titles(figure) == expected
    np.testing.assert_array_equal(maps(figure)[4].images[0].get_array(), scores["b"][1, 1])


def test_each_model_can_have_different_heads(rng):
    scores = {"a": rng.normal(size=(1, 3, 5, 5)), "b": rng.normal(size=(1, 4, 5, 5))}
    figure = analysis.plot_scores(scores, heads={"a": [2, 0], "b": [1, 3]})
    assert [title[-1] for title in titles(figure)] == ["2", "0", "1", "3"]
    np.testing.assert_array_equal(maps(figure)[2].images[0].get_array(), scores["b"][0, 1])


@pytest.mark.parametrize(
    ("scores", "arguments", "message"),
    [
        (np.ones((2, 3, 3)), {"heads": [0]}, r"Received: shape=\(2, 3, 3\)$"),
        ({}, {}, "at least one model"),
        (np.ones((2, 3, 5, 5)), {"layers": [2]}, r"`layers` must .* \[0, 2\)"),
        (np.ones((2, 3, 5, 5)), {"layers": []}, "`layers`"),
        (np.ones((2, 3, 5, 5)), {"heads": [3]}, r"`heads` must .* \[0, 3\)"),
        (np.ones((2, 3, 5, 5)), {"heads": [-1]}, r"`heads` must .* \[0, 3\)"),
    ],
)
def test_bad_arguments_are_refused(scores, arguments, message):
    with pytest.raises(ValueError, match=message):
        analysis.plot_scores(scores, **arguments)
