"""Weights of the same shape start with different values."""

import numpy as np
import pytest

from keras_diet.layers import DietEncoder
from tests.helpers import to_numpy


@pytest.fixture
def keras_draws(numpy_kernels, numpy_initializers, monkeypatch):
    """Draw all initial weights with Keras's own initializers."""
    monkeypatch.undo()


@pytest.mark.usefixtures("keras_draws")
@pytest.mark.parametrize("position_encoding", ["diet_abs", "tupe_rel", "shaw"])
def test_no_two_weights_are_equal(position_encoding):
    # Both dense layers of the feed-forward network and all projections have the same shape.
    sharing = None if position_encoding == "shaw" else "none"
    encoder = DietEncoder(
        2, 1, 6, position_encoding=position_encoding, sharing=sharing, max_sequence_length=6
    )
    encoder.build((2, 5, 6))
    names = ("kernel", "embedding", "embeddings", "scores")
    drawn = [weight for weight in encoder.weights if weight.name.split("_")[-1] in names]
    assert len(drawn) >= 2 * (6 + 1)
    values = [np.sort(to_numpy(weight).ravel()) for weight in drawn]
    for i, first in enumerate(values):
        assert np.unique(first).size > 1
        for j, second in enumerate(values[:i]):
            is_equal = first.size == second.size and np.allclose(first, second)
            assert not is_equal, f"{drawn[i].path} and {drawn[j].path}"
