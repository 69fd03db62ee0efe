"""The tensors of a cache are repeated for the beams, and follow them."""

import numpy as np
import pytest
from keras import ops

from keras_diet.samplers.beam_cache import reorder_cache, repeat_cache
from tests.helpers import to_numpy

BEAMS = np.array([[1, 1, 0], [2, 0, 2]], "int32")


def test_tensors_are_repeated_and_follow_their_beams(rng):
    keys, lengths = rng.normal(size=(2, 4)).astype("float32"), np.array([7, 9], "int32")
    cache = {"keys": ops.convert_to_tensor(keys), "lengths": (ops.convert_to_tensor(lengths),)}
    repeated = repeat_cache(cache, 3, 2)
    np.testing.assert_array_equal(to_numpy(repeated["keys"]), keys[[0, 0, 0, 1, 1, 1]])
    changed = {**repeated, "lengths": (repeated["lengths"][0] + ops.arange(6, dtype="int32"),)}
    reordered = reorder_cache(changed, ops.convert_to_tensor(BEAMS))
    np.testing.assert_array_equal(to_numpy(reordered["keys"]), keys[[0, 0, 0, 1, 1, 1]])
    np.testing.assert_array_equal(to_numpy(reordered["lengths"][0]), [8, 8, 7, 14, 12, 14])


@pytest.mark.parametrize("shape", [(), (3,), (4, 2)])
def test_tensors_without_the_batch_first_are_refused(shape):
    with pytest.raises(ValueError, match=r"first axis.*`cache`.*Received: a tensor of shape"):
        repeat_cache({"keys": ops.zeros(shape)}, 3, 2)
