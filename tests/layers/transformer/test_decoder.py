"""`DietDecoder` beyond the contract of stacks: arguments, masks, scores, memory, batch sizes."""

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import BiasedMultiHeadAttention, BiasedTransformerDecoder
from tests.helpers import assert_close, randomize, to_numpy
from tests.layers.diet_decoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    MEMORY,
    NUM_HEADS,
    PADDINGS,
    SOURCE,
    SOURCE_SHAPE,
    SOURCE_VALID,
    TARGET_SHAPE,
    VALID,
    decode,
    make_decoder,
    make_inputs,
)

any_backend = pytest.mark.any_backend


def make_block(rng):
    attention = BiasedMultiHeadAttention(NUM_HEADS, 2, value_dim=5)
    block = BiasedTransformerDecoder(11, NUM_HEADS, self_attention=attention)
    block.build(TARGET_SHAPE, SOURCE_SHAPE)
    return randomize(block, rng, 0.6)


block_and_stack = pytest.mark.parametrize("make", [make_block, make_decoder])


def with_mask(x, mask):
    """A tensor that carries a Keras mask."""
    x = ops.convert_to_tensor(x)
    set_keras_mask(x, ops.convert_to_tensor(mask))
    return x


@any_backend
@block_and_stack
def test_paddings_of_integers_and_masks_of_keras(rng, make):
    decoder, (target, source) = make(rng), make_inputs(rng)
    expected = decoder(target, source, **PADDINGS)
    integers = {name: mask.astype("int32") for name, mask in PADDINGS.items()}
    assert_close(decoder(target, source, **integers), expected, 1e-6)
    masked, masked_source = with_mask(target, VALID), with_mask(source, SOURCE_VALID)
    output = decoder(masked, masked_source)
    assert_close(output, expected, 1e-6)
    for tensor, mask in [(masked, VALID), (masked_source, SOURCE_VALID), (output, VALID)]:
        assert np.array_equal(to_numpy(get_keras_mask(tensor)), mask)
    # A step reads none: it would have a value for each token of the step, not of the memory.
    memory = decoder.start_memory(BATCH, MEMORY, source)
    expected, _ = decoder(target[:, :1], memory=memory)
    step = with_mask(target[:, :1], np.arange(BATCH)[:, None] > 0)
    assert_close(decoder(step, memory=memory)[0], expected, 1e-6)


@any_backend
def test_a_keras_mask_of_the_source_is_its_padding(rng):
    decoder, (target, source) = make_decoder(rng), make_inputs(rng)
    expected = decoder(target, source, encoder_padding_mask=SOURCE_VALID)
    source = with_mask(source, SOURCE_VALID)
    memory = decoder.start_memory(BATCH, MEMORY, source)
    assert_close(decode(decoder, target, memory, (2, 3))[0], expected)
    # A mask that is given replaces it.
    memory = decoder.start_memory(BATCH, MEMORY, source, 1 - SOURCE_VALID)
    assert np.array_equal(to_numpy(memory.source_padding_mask), ~SOURCE_VALID)


@any_backend
@block_and_stack
def test_paddings_and_scores_of_a_step(rng, make):
    decoder, (target, source) = make(rng), make_inputs(rng)
    options = {"return_attention_scores": True}
    output, *scores = decoder(target, source, padding_mask=VALID, **options)
    valid = np.concatenate([VALID, np.ones((BATCH, MEMORY - LENGTH), "bool")], axis=1)
    memory = decoder.start_memory(BATCH, MEMORY, source)
    _, memory = decode(decoder, target, memory, (3,), padding_mask=valid)
    arguments = {"memory": memory, "start_index": 3, "padding_mask": valid, **options}
    step, *step_scores, _ = outputs = decoder(target[:, 3:], **arguments)
    assert_close(step, output[:, 3:])
    for found, expected in zip(*map(tree.flatten, (step_scores, scores)), strict=True):
        assert_close(found[..., : expected.shape[-1]], expected[:, :, 3:])
        assert not to_numpy(found[..., expected.shape[-1] :]).any()
    # The symbolic outputs have the same shapes.
    x, arguments["memory"] = tree.map_structure(
        lambda x: keras.KerasTensor(x.shape, dtype=keras.backend.standardize_dtype(x.dtype)),
        (target[:, 3:], memory),
    )
    spec = decoder.compute_output_spec(x, **arguments)
    shapes = [tree.map_structure(lambda x: tuple(x.shape), each) for each in (spec, outputs)]
    assert shapes[0] == shapes[1]


@any_backend
@block_and_stack
def test_symbolic_memory_keeps_its_precision(rng, make):
    target, source = make_inputs(rng)
    decoder = make(rng)
    memory = tree.map_structure(
        lambda x: keras.KerasTensor(x.shape, dtype="float16"),
        decoder.start_memory(BATCH, MEMORY, source),
    )
    x = keras.KerasTensor(target[:, :1].shape, dtype="float32")
    output, next_memory = decoder.compute_output_spec(x, memory=memory)
    assert output.dtype == "float32"
    assert {each.dtype for each in tree.flatten(next_memory)} == {"float16"}


@any_backend
def test_t5_has_bins_for_keys_before_the_query_in_self_attention_only(rng):
    decoder = make_decoder(rng, position_encoding="t5")
    assert not decoder.position_biases[0].bidirectional
    assert decoder.cross_position_biases[0].bidirectional


@any_backend
def test_a_source_of_any_length_without_positions_in_cross_attention(rng):
    decoder = make_decoder(rng, cross_attention_positions=False)
    target, _ = make_inputs(rng)
    assert decoder(target, np.zeros((BATCH, 13, 10), "float32")).shape == target.shape
    assert decoder.compute_output_shape(target.shape, (BATCH, 13, 10)) == target.shape


BLOCKWISE = {"attention_implementation": "blockwise", "position_encoding": "diet_rel"}


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize(
    "is_known, arguments",
    [
        ((False, False), {"position_encoding": "shaw"}),
        ((False, True), BLOCKWISE),
    ],
    ids=str,
)
def test_batches_of_unknown_size_share_their_source(rng, arguments, is_known):
    import tensorflow as tf

    decoder, (_, source) = make_decoder(rng, **arguments), make_inputs(rng)
    # Three targets for each source.
    targets = rng.normal(size=(3 * BATCH, LENGTH, HIDDEN)).astype("float32")
    sources, valid = (np.repeat(x, 3, axis=0) for x in (source, SOURCE_VALID))
    of_targets, of_sources = is_known
    signature = [
        tf.TensorSpec((3 * BATCH if of_targets else None, *targets.shape[1:])),
        tf.TensorSpec((BATCH if of_sources else None, *source.shape[1:])),
        tf.TensorSpec((BATCH if of_sources else None, SOURCE), "bool"),
    ]

    @tf.function(input_signature=signature)
    def steps(targets, source, valid):
        memory = decoder.start_memory(ops.shape(targets)[0], MEMORY, source, valid)
        return decode(decoder, targets, memory, (2, 3))[0]

    expected = decoder(targets, sources, encoder_padding_mask=valid)
    assert_close(steps(targets, source, SOURCE_VALID), expected)
    if not of_targets:
        assert_close(steps(targets[::3], source, SOURCE_VALID), expected[::3])
