"""What the layers of a stack get: plans for all their terms, and masks in any attention layer."""

import keras
import numpy as np

from keras_diet._compat import get_keras_mask
from keras_diet.layers import (
    BiasedMultiHeadAttention,
    BiasedTransformerEncoder,
    DietEncoder,
)
from tests.helpers import assert_close, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    NUM_HEADS,
    PROJECTED,
    VALID,
    make_encoder,
    make_inputs,
)


class Overriding(BiasedMultiHeadAttention):
    """An attention layer that overrides the method that Keras documents for this."""

    def _compute_attention(self, query, key, value, attention_mask=None, training=None, *args):
        return super()._compute_attention(query, key, value, attention_mask, training, *args)


def test_overridden_attention_gets_the_padding_of_the_keys(rng, register):
    name = register(
        attention=lambda sizes, **kwargs: Overriding(sizes.num_heads, sizes.head_dim, **kwargs)
    )
    arguments = {"segment_encoding": "none"}
    encoder = make_encoder(rng, position_encoding=name, **arguments)
    plain = make_encoder(rng, position_encoding="none", **arguments)
    plain.set_weights(encoder.get_weights())
    x, _ = make_inputs(rng)
    assert_close(encoder(x, padding_mask=VALID), plain(x, padding_mask=VALID))


def test_a_block_leaves_the_mask_of_its_inputs():
    tokens = np.array([[3, 1, 2, 0, 0], [2, 2, 1, 3, 0]])
    x = keras.layers.Embedding(5, HIDDEN, mask_zero=True)(tokens)
    BiasedTransformerEncoder(11, NUM_HEADS)(x)
    np.testing.assert_array_equal(to_numpy(get_keras_mask(x)), tokens > 0)


def test_symbolic_scores_have_the_projected_keys():
    encoder = DietEncoder(
        1, NUM_HEADS, 11, projection_dim=PROJECTED, segment_encoding="none", max_sequence_length=7
    )
    x = keras.Input((LENGTH, HIDDEN), batch_size=BATCH)
    _, (scores,) = encoder(x, return_attention_scores=True)
    assert scores.shape == (BATCH, NUM_HEADS, LENGTH, PROJECTED)


