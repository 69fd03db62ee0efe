"""The tensors of a cache are repeated for the beams, and follow them."""

import numpy as np
import pytest
from keras import ops

from keras_diet.samplers.beam_search_sampler import reorder_cache, repeat_cache
from tests.helpers import to_numpy

BEAMS = np.array([[1, 1, 0], [2, 0, 2]], "int32")


def test_tensors_are_repeated_and_follow_their_beams(rng):
    rows = {"keys": rng.normal(size=(2, 5, 4, 1)), "lengths": np.array([7, 9])}
    repeated = repeat_cache({name: (ops.convert_to_tensor(x),) for name, x in rows.items()}, 3, 2)
    for name, values in rows.items():
        np.testing.assert_allclose(to_numpy(repeated[name][0]), values[[0, 0, 0, 1, 1, 1]], 1e-6)
    # Each beam has its own values after a step.
    beams = {name: rng.normal(size=(6, *values.shape[1:])) for name, values in rows.items()}
    cache = {name: (ops.convert_to_tensor(values),) for name, values in beams.items()}
    reordered = reorder_cache(cache, ops.convert_to_tensor(BEAMS))
    for name, values in beams.items():
        np.testing.assert_allclose(to_numpy(reordered[name][0]), values[[1, 1, 0, 5, 3, 5]], 1e-6)


@pytest.mark.any_backend("torch")
@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_cache_of_the_caller_is_copied(num_beams):
    cache = ops.ones((1, 2))
    repeated = repeat_cache(cache, num_beams, 1)
    repeated += 1.0
    np.testing.assert_array_equal(to_numpy(cache), np.ones((1, 2)))
    assert tuple(repeated.shape) == (num_beams, 2)


@pytest.mark.parametrize("shape", [(), (3,), (1, 2), (4, 2)])
def test_tensors_without_the_batch_first_are_refused(shape):
    with pytest.raises(ValueError, match=r"first axis.*`cache`.*Received: a tensor of shape"):
        repeat_cache({"keys": ops.zeros(shape)}, 3, 2)
