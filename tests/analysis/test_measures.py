"""Numbers that describe a pattern of scores."""

import numpy as np
import pytest

from keras_diet import analysis

pytestmark = pytest.mark.any_backend


def test_rank(rng):
    """Of products of two factors, computed in float32, and of matrices made by hand."""
    factors = [rng.normal(size=(2, 23, rank)).astype("float32") for rank in (1, 2, 5, 11, 19, 23)]
    ranks = analysis.numerical_rank(np.stack([left @ right.T for left, right in factors]))
    np.testing.assert_array_equal(ranks, [1, 2, 5, 11, 19, 23])
    assert np.issubdtype(ranks.dtype, np.integer)
    matrices = np.stack([np.zeros((4, 4)), np.ones((4, 4)), np.eye(4), np.diag([1, 0, 2, 0])])
    ranks = analysis.numerical_rank(matrices.reshape(2, 2, 4, 4))
    np.testing.assert_array_equal(ranks, [[0, 1], [4, 2]])
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


def least_squares(scores):
    """The share by its definition, with a column for each distance and for each query."""
    length = len(scores)
    rows, columns = np.indices(scores.shape).reshape(2, -1)
    by_distance = np.eye(2 * length - 1)[rows - columns + length - 1]
    by_query = np.eye(length)[rows]
    design = np.concatenate([by_distance, by_query], axis=1)
    target = scores.ravel()
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    centred = scores - scores.mean(axis=1, keepdims=True)
    return 1 - np.sum(residual**2) / np.sum(centred**2)


@pytest.mark.parametrize("length", [2, 3, 7, 13])
def test_share_of_the_best_approximation(rng, length):
    scores = rng.normal(size=(2, 3, length, length))
    shares = analysis.distance_variance(scores)
    assert shares.shape == (2, 3)
    for index in np.ndindex(2, 3):
        assert shares[index] == pytest.approx(least_squares(scores[index]))


def test_share_is_undefined_without_variance(rng):
    constant = np.broadcast_to(rng.normal(size=(1, 7, 1)).astype("float32"), (1, 7, 7))
    assert np.isnan(analysis.distance_variance(constant)).all()
    assert np.isnan(analysis.distance_variance(np.zeros((3, 3))))
    assert np.isnan(analysis.distance_variance(np.ones((1, 1))))


def test_distance_of_a_head_that_looks_at_one_key():
    scores = np.zeros((2, 5, 5))
    scores[0, :, 0] = 100  # the first token
    scores[1, np.arange(4), np.arange(1, 5)] = 100  # the next token
    scores[1, 4, 4] = 100
    np.testing.assert_allclose(analysis.attended_distance(scores), [2, 0.8])
    np.testing.assert_allclose(analysis.attended_distance(scores, signed=True), [-2, 0.8])


def test_distance_of_a_mixture():
    # Query 0 attends to both keys alike, and query 1 attends to key 0 by three quarters.
    scores = np.array([[1e4, 1e4], [np.log(3), 0.0]])
    assert analysis.attended_distance(scores) == pytest.approx((0.5 + 0.75) / 2)
    assert analysis.attended_distance(scores, signed=True) == pytest.approx((0.5 - 0.75) / 2)


@pytest.mark.parametrize("function", [analysis.distance_variance, analysis.attended_distance])
def test_projected_keys_have_no_distance(function):
    with pytest.raises(ValueError, match=r"Received: shape=\(2, 3, 4\)"):
        function(np.ones((2, 3, 4)))
