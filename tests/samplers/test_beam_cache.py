"""What follows a beam in the cache, and what is only repeated."""

import numpy as np
import pytest
from keras import ops

from keras_diet.samplers.beam_cache import BeamCache

BEAMS = np.array([[1, 1, 0], [2, 0, 2]], "int32")


def step(beam_cache, before, change):
    watched = beam_cache.watch(before)
    return beam_cache.follow(watched, change(before), ops.convert_to_tensor(BEAMS))


def test_only_tensors_that_have_changed_once_are_gathered():
    beam_cache, values = BeamCache(3), np.arange(6.0)
    source, keys = ops.ones((6, 2)), ops.convert_to_tensor(values)
    first = step(beam_cache, (source, ops.zeros(6)), lambda _: (source, keys))
    assert first[0] is source, "a tensor that comes back is copied"
    second = ops.convert_to_numpy(step(beam_cache, first, lambda cache: cache)[1])
    expected = values
    for _ in range(2):
        expected = expected.reshape(2, 3)[np.arange(2)[:, None], BEAMS].reshape(-1)
    np.testing.assert_array_equal(second, expected)


@pytest.mark.any_backend("torch")
@pytest.mark.parametrize("inference_mode", [False, True])
def test_tensor_to_which_a_model_writes_follows_its_beams(inference_mode):
    import torch

    def write(cache):
        cache[0][:] = torch.arange(6.0)
        return cache

    with torch.inference_mode(inference_mode):
        cache = step(BeamCache(3), (torch.zeros(6),), write)
    np.testing.assert_array_equal(cache[0].numpy(), [1, 1, 0, 5, 3, 5])


@pytest.mark.parametrize("shape", [(), (3,), (4, 2)])
def test_tensors_without_the_batch_first_are_refused(shape):
    with pytest.raises(ValueError, match=r"first axis.*`cache`.*Received: a tensor of shape"):
        BeamCache(3).repeat({"keys": ops.zeros(shape)}, 2)
