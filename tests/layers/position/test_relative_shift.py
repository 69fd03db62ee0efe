import numpy as np
import pytest
from keras import ops

from keras_diet.layers.position.relative_shift import scores_of_distances
from tests.helpers import normal, to_numpy

# JAX and TensorFlow cut query lengths from 32 into blocks if 16 divides them: here into blocks of
# 2 and 3 queries, and into blocks of blocks. They do not cut 17, 31 and 33.
LONG = [(32, 32), (33, 5), (48, 50), (512, 3)]


@pytest.mark.parametrize("query_length, key_length", [(3, 7), (1, 1), *LONG])
def test_scores_of_distances(rng, query_length, key_length):
    values = normal(rng, query_length + key_length - 1, 3)
    scores = to_numpy(scores_of_distances(ops.convert_to_tensor(values), query_length, key_length))
    assert scores.shape == (1, 3, query_length, key_length)
    for h, i, j in np.ndindex(scores.shape[1:]):
        assert scores[0, h, i, j] == values[j - i + query_length - 1, h]
