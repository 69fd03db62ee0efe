"""`DietDecoder` in one pass: against the reference, its arguments and its errors."""

import numpy as np
import pytest
from keras import ops

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import (
    BiasedMultiHeadAttention,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
)
from tests.helpers import assert_close, gradients, random_loss, to_numpy
from tests.layers.diet_decoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    MAX_LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    PADDINGS,
    SOURCE,
    SOURCE_VALID,
    VALID,
    make_decoder,
    make_inputs,
)
from tests.layers.diet_encoders import Distances


def test_paddings_of_integers_and_masks_of_keras(rng):
    decoder, (target, source) = make_decoder(rng), make_inputs(rng)
    expected = decoder(target, source, **PADDINGS)
    integers = {name: mask.astype("int32") for name, mask in PADDINGS.items()}
    assert_close(decoder(target, source, **integers), expected, 1e-6)
    target, source = map(ops.convert_to_tensor, (target, source))
    set_keras_mask(target, ops.convert_to_tensor(VALID))
    set_keras_mask(source, ops.convert_to_tensor(SOURCE_VALID))
    output = decoder(target, source)
    assert_close(output, expected, 1e-6)
    for tensor, mask in [(target, VALID), (source, SOURCE_VALID), (output, VALID)]:
        assert np.array_equal(to_numpy(get_keras_mask(tensor)), mask)


def test_scores_on_request(rng):
    decoder, (target, source) = make_decoder(rng, normalize_first=True), make_inputs(rng)
    output, scores, cross_scores = decoder(target, source, **PADDINGS, return_attention_scores=True)
    assert_close(output, decoder(target, source, **PADDINGS))
    for all_scores, key_length, padding in [(scores, LENGTH, 3), (cross_scores, SOURCE, 4)]:
        assert len(all_scores) == NUM_LAYERS
        for of_layer in map(to_numpy, all_scores):
            assert of_layer.shape == (BATCH, NUM_HEADS, LENGTH, key_length)
            assert_close(of_layer.sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))
            assert not of_layer[1, ..., padding:].any()
    assert not np.triu(to_numpy(scores[1]), 1).any()


@pytest.mark.parametrize("position_encoding", ["diet_rel", "shaw"])
def test_a_later_token_does_not_change_an_earlier_output(rng, position_encoding):
    decoder = make_decoder(rng, position_encoding=position_encoding, normalize_first=True)
    target, source = make_inputs(rng)
    changed = target.copy()
    changed[:, 3] = rng.normal(size=(BATCH, HIDDEN))
    before, after = to_numpy(decoder(target, source)), to_numpy(decoder(changed, source))
    assert np.array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).max(axis=(0, 2)).min() > 1e-2




@pytest.mark.any_backend
def test_t5_has_bins_for_keys_before_the_query_in_self_attention_only(rng):
    decoder = make_decoder(rng, position_encoding="t5")
    assert not decoder.position_biases[0].bidirectional
    assert decoder.cross_position_biases[0].bidirectional


def test_a_bias_layer(rng):
    """The first bias is the given layer. Cross-attention has a copy of it."""
    decoder = make_decoder(rng, position_encoding=Distances(NUM_HEADS, MAX_LENGTH, name="own"))
    (bias,), (cross_bias,) = decoder.position_biases, decoder.cross_position_biases
    assert bias is decoder.position_encoding
    assert cross_bias is not bias
    target, source = make_inputs(rng)
    _, scores, cross_scores = decoder(target, source, return_attention_scores=True)
    plain = make_decoder(rng, position_encoding="none")
    for block, plain_block in zip(
        decoder.transformer_layers, plain.transformer_layers, strict=True
    ):
        plain_block.set_weights(block.get_weights())
    _, plain_scores, _ = plain(target, source, return_attention_scores=True)
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    expected = np.where(
        distance >= 0,
        to_numpy(plain_scores[0]) * np.exp(to_numpy(bias.slopes)[None] * distance),
        0,
    )
    assert_close(scores[0], expected / expected.sum(axis=-1, keepdims=True))
    assert cross_scores[0].shape == (BATCH, NUM_HEADS, LENGTH, SOURCE)








@pytest.mark.parametrize("position_encoding", ["diet_rel", "shaw"])
def test_gradients_reach_the_vectors_of_possible_distances(rng, position_encoding):
    decoder, inputs = make_decoder(rng, position_encoding=position_encoding), make_inputs(rng)
    weights = {
        weight.path: weight
        for weight in decoder.trainable_weights
        if "embedding" in weight.path.rsplit("/", 1)[1]
    }
    loss = random_loss(lambda: decoder(*inputs), rng)
    # Shaw's vectors are ordered by `j - i`, and the scalars of DIET-REL by `i - j`.
    order = 1 if position_encoding == "diet_rel" else -1
    for path, gradient in zip(weights, gradients(loss, weights.values()), strict=True):
        middle = len(gradient) // 2
        used = {int(row - middle) * order for row in np.flatnonzero(np.abs(gradient).max(axis=1))}
        earliest = 1 - SOURCE if "cross" in path else 0
        assert used == set(range(earliest, LENGTH)), path








@pytest.mark.any_backend
def test_an_encoding_with_projected_keys_is_refused(rng, register):
    def linformer(sizes, **kwargs):
        return LinformerMultiHeadAttention(sizes.num_heads, sizes.head_dim, 9, 4, **kwargs)

    name = register(attention=linformer)
    with pytest.raises(ValueError, match="may not project keys along the sequence, as Linformer"):
        make_decoder(rng, position_encoding=name)






@pytest.mark.any_backend
def test_attention_layers(rng):
    for cross, expected in ((True, RelativeMultiHeadAttention), (False, BiasedMultiHeadAttention)):
        decoder = make_decoder(rng, position_encoding="shaw", cross_attention_positions=cross)
        for block in decoder.transformer_layers:
            assert type(block.self_attention) is RelativeMultiHeadAttention
            assert type(block.cross_attention) is expected
            assert block.cross_attention is not block.self_attention


@pytest.mark.any_backend
def test_a_source_of_any_length_without_positions_in_cross_attention(rng):
    decoder = make_decoder(rng, cross_attention_positions=False)
    target, _ = make_inputs(rng)
    assert decoder(target, np.zeros((BATCH, 13, 10), "float32")).shape == target.shape
    assert decoder.compute_output_shape(target.shape, (BATCH, 13, 10)) == target.shape
