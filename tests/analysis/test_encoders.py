"""The analyses accept a `DietEncoder` instead of a `DietBertBackbone`."""

import numpy as np
import pytest

from keras_diet import analysis
from keras_diet.layers import DietEncoder
from tests.helpers import to_numpy

pytestmark = pytest.mark.any_backend

NUM_LAYERS, NUM_HEADS, HIDDEN, LENGTH = 2, 3, 6, 5


def make(**kwargs):
    encoder = DietEncoder(NUM_LAYERS, NUM_HEADS, 7, max_sequence_length=LENGTH, **kwargs)
    encoder.build((1, LENGTH, HIDDEN))
    return encoder


def test_position_scores():
    encoder = make(position_encoding="diet_rel")
    scores = analysis.position_scores(encoder)
    assert scores.shape == (NUM_LAYERS, NUM_HEADS, LENGTH, LENGTH)
    expected = encoder.position_biases[1](np.zeros((1, LENGTH, 1)))
    np.testing.assert_array_equal(scores[1], to_numpy(expected)[0])


def test_positions_at_the_input():
    encoder = make(position_encoding="input", segment_encoding="none")
    positions = to_numpy(encoder.input_encoding.position_embedding.position_embeddings)
    assert analysis.position_scores(encoder).shape == (NUM_LAYERS, NUM_HEADS, LENGTH, LENGTH)
    normed = positions / np.linalg.norm(positions, axis=1, keepdims=True)
    np.testing.assert_allclose(analysis.position_similarity(encoder), normed @ normed.T, atol=1e-5)


def test_segments():
    encoder = make(position_encoding="diet_rel")
    segment_ids = np.array([0, 0, 1, 1, 1])
    both = analysis.position_and_segment_scores(encoder, segment_ids)
    segments = to_numpy(encoder.segment_biases[1](segment_ids[None]))[0]
    expected = analysis.position_scores(encoder)[1] + segments
    np.testing.assert_allclose(both[1], expected, atol=1e-6)


def test_encoders_must_be_built():
    with pytest.raises(ValueError, match=r"`DietEncoder` must be built.*'fresh'"):
        analysis.position_scores(DietEncoder(1, 2, 3, name="fresh"))
