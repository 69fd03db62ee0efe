"""`distance_variance` and `attended_distance`."""

import numpy as np
import pytest

from keras_diet import analysis
from tests.models.tiny import randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend


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


@pytest.mark.parametrize("name", ["diet_rel", "t5"])
def test_relative_scores_are_explained(name):
    scores = analysis.position_scores(randomize_weights(tiny_backbone(position_encoding=name)))
    np.testing.assert_allclose(analysis.distance_variance(scores), np.ones((2, 3)), atol=1e-6)


def test_random_and_absolute_scores_are_not_explained(rng):
    assert analysis.distance_variance(rng.normal(size=(64, 64))) == pytest.approx(2 / 64, abs=0.02)
    # Every query prefers the same key.
    to_cls = np.zeros((32, 32))
    to_cls[:, 0] = 1
    assert analysis.distance_variance(to_cls) < 0.6
    scores = analysis.position_scores(randomize_weights(tiny_backbone()))
    assert np.all(analysis.distance_variance(scores) < 0.7)


def test_constants_of_a_query_do_not_count(rng):
    scores = rng.normal(size=(11, 11))
    constants = 100 * rng.normal(size=(11, 1))
    share = analysis.distance_variance(scores)
    assert analysis.distance_variance(scores + constants) == pytest.approx(share)
    # A constant for each key does count.
    assert analysis.distance_variance(scores + constants.T) != pytest.approx(share, rel=0.01)


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
    scores = np.array([[5.0, 5.0], [np.log(3), 0.0]])
    assert analysis.attended_distance(scores) == pytest.approx((0.5 + 0.75) / 2)
    assert analysis.attended_distance(scores, signed=True) == pytest.approx((0.5 - 0.75) / 2)


def test_distance_of_equal_scores():
    scores = np.full((3, 7, 7), 1e4)
    np.testing.assert_allclose(analysis.attended_distance(scores), np.full(3, 48 / 21))
    np.testing.assert_allclose(analysis.attended_distance(scores, signed=True), 0, atol=1e-12)


@pytest.mark.parametrize("function", [analysis.distance_variance, analysis.attended_distance])
@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (0, 0)])
def test_projected_keys_are_refused(function, shape):
    with pytest.raises(ValueError, match="Received"):
        function(np.ones(shape))
