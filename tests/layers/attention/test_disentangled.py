"""What the contract of attention layers does not say of DeBERTa's: its rows, terms and table.

`tests/models/test_trained_encoders.py` compares it with `transformers`.
"""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    BiasedTransformerEncoder,
    DisentangledMultiHeadAttention,
    PositionTable,
)
from keras_diet.layers.attention.disentangled_multi_head_attention import rows_of_distances
from tests.helpers import assert_close, randomize
from tests.layers.attention import variants

NUM_HEADS, KEY_DIM, LENGTH = 3, 4, 23
HIDDEN = NUM_HEADS * KEY_DIM


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["deberta", "deberta_v1"])
@pytest.mark.parametrize("term", ["c2p", "p2c"])
def test_one_of_the_terms(rng, name, term):
    attention, inputs = variants.make(name, rng, position_terms=[term]), variants.make_inputs(rng)
    assert attention.score_scale == pytest.approx((2 * attention.key_dim) ** -0.5)
    assert_close(attention(*inputs), variants.expected(attention, *inputs))


@pytest.mark.any_backend
def test_rows_of_far_distances():
    """Those of DeBERTa v3, by its function."""
    modeling = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    import torch

    distances = torch.arange(-512, 513)
    expected = modeling.make_log_bucket_position(distances, 256, 512).long()
    expected = torch.clamp(expected + 256, 0, 511).numpy()
    np.testing.assert_array_equal(rows_of_distances(512, 256), expected)
    # Rows that many distances share, and all rows.
    assert np.bincount(expected).max() == 7
    assert len(set(expected)) == 512


def make_attentions(table):
    """Two attention layers with one table, which the first makes if it is `None`."""
    first = DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, table=table)
    return first, DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, table=first.table)


@pytest.mark.any_backend
@pytest.mark.parametrize("table", [None, PositionTable(512)], ids=["of a layer", "of the user"])
@pytest.mark.parametrize("in_blocks", [False, True], ids=["attention", "blocks"])
def test_layers_of_a_loaded_model_share_a_table(rng, tmp_path, in_blocks, table):
    attentions = make_attentions(table)
    x = inputs = keras.Input((LENGTH, HIDDEN))
    for attention in attentions:
        if in_blocks:
            x = BiasedTransformerEncoder(5, NUM_HEADS, self_attention=attention)(x)
        else:
            x = attention(x, x)
    model = randomize(keras.Model(inputs, x), rng)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    batch = rng.normal(size=(2, LENGTH, HIDDEN)).astype("float32")
    assert_close(copy(batch), model(batch), 1e-5)
    first, second = (getattr(each, "self_attention", each).table for each in copy.layers[1:])
    assert first is second
    assert len(copy.weights) == len(model.weights)


@pytest.mark.any_backend
def test_a_copy_of_a_layer_has_its_own_table():
    layer = make_attentions(None)[1]
    assert DisentangledMultiHeadAttention.from_config(layer.get_config()).table is not layer.table


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"position_terms": ("p2p",)}, "`position_terms` must be.*p2p"),
        ({"position_terms": ()}, "`position_terms` must be"),
        ({"num_buckets": 7}, "`num_buckets` must be even.*=7"),
        ({"num_buckets": 8, "max_distance": 5}, "`num_buckets` must be even and below"),
        ({"table": PositionTable(10)}, "`table` must.*=10 with num_buckets=256.*num_rows=512"),
        ({"table": PositionTable(512), "num_buckets": None, "max_distance": 9}, "num_rows=18"),
        # That of `DietEncoder`, which has no `num_buckets`.
        ({"max_distance": 129}, "a `max_distance` above 129, or"),
    ],
)
def test_refused_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, **arguments)


@pytest.mark.any_backend
def test_the_smallest_distance_of_256_buckets():
    assert DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, 130).table.num_rows == 512
