import keras
import numpy as np
import pytest
from keras import ops

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import SegmentBias
from tests import reference
from tests.helpers import assert_close, check_layer, randomize, to_numpy

NUM_HEADS = 5


def make(rng, num_segments=2, **kwargs):
    bias = SegmentBias(NUM_HEADS, num_segments, **kwargs)
    bias.build()
    return randomize(bias, rng)


def random_ids(rng, shape, num_segments):
    return rng.integers(num_segments, size=shape).astype("int32")


def expected_bias(bias, *segment_ids):
    embedding = to_numpy(bias.segment_embedding)
    return reference.segment_bias(embedding, *segment_ids, num_heads=NUM_HEADS)


@pytest.mark.parametrize(
    "num_segments, share_heads", [(1, False), (2, True), (2, False), (3, True), (3, False)]
)
def test_scores_and_features(rng, num_segments, share_heads):
    bias = make(rng, num_segments, share_heads=share_heads)
    heads = 1 if share_heads else NUM_HEADS
    sizes = {weight.name: weight.shape for weight in bias.weights}
    assert sizes == {"segment_embedding": (heads, num_segments, num_segments)}
    ids = random_ids(rng, (3, 2), num_segments), random_ids(rng, (3, 7), num_segments)
    expected = expected_bias(bias, *ids)
    assert_close(bias(*ids), expected)
    assert_close(bias(ids[0]), expected_bias(bias, ids[0]))
    assert bias.compute_output_shape((3, 2), (3, 7)) == expected.shape
    # Up to softmax, the scores of the first segment are left out, and a feature less is needed.
    of_first = expected_bias(bias, ids[0], np.zeros((3, 1), "int32"))
    less = int(num_segments > 1)
    for up_to_softmax, scores, size in (
        (False, expected, num_segments),
        (True, expected - less * of_first, num_segments - less),
    ):
        query, key = map(to_numpy, bias.features(*ids, up_to_softmax=up_to_softmax))
        assert sorted([query.shape[2:], key.shape[2:]]) == [(1, size), (heads, size)]
        products = np.einsum("bt...r,bs...r->b...ts", query, key)
        assert_close(np.broadcast_to(products, scores.shape), scores, 1e-6)


def test_as_a_layer_and_in_a_functional_model(rng):
    initializer = keras.initializers.RandomNormal(stddev=0.5, seed=3)
    bias = SegmentBias(NUM_HEADS, 3, share_heads=True, initializer=initializer, name="segments")
    # A pair of segments that does not occur would have no gradient.
    ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]], "int32")
    check_layer(bias, ids, random_ids(rng, (2, 7), 3))
    inputs = keras.Input((None,), dtype="int32")
    outputs = bias(inputs)
    assert outputs.shape == (None, NUM_HEADS, None, None)
    model = keras.Model(inputs, ops.sum(outputs, axis=(2, 3)))
    for length in (3, 7):
        ids = random_ids(rng, (2, length), 3)
        assert_close(model.predict(ids, verbose=0), expected_bias(bias, ids).sum((2, 3)))


@pytest.mark.filterwarnings("error:.*mask")
def test_masked_ids_have_scores_without_a_mask(rng):
    ids = ops.convert_to_tensor(random_ids(rng, (2, 4), 2))
    set_keras_mask(ids, ids > 0)
    assert get_keras_mask(make(rng)(ids)) is None
    assert get_keras_mask(ids) is not None


@pytest.mark.any_backend
@pytest.mark.parametrize("bad_id", [-1, 3, 0.5, np.nan])
@pytest.mark.parametrize("side", [0, 1], ids=["query", "key"])
def test_ids_out_of_range_are_refused(rng, side, bad_id):
    ids = [random_ids(rng, (2, 5), 3).astype("float32") for _ in range(2)]
    ids[side][1, 3] = bad_id
    with pytest.raises(ValueError, match=r"`segment_ids` must be integers in .*num_segments.*3\)"):
        make(rng, 3)(*map(ops.convert_to_tensor, ids))
