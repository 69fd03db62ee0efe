"""Decoding in steps with a memory equals the full pass of `DietDecoder`."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_diet._compat import set_keras_mask
from keras_diet.layers.attention import biased_multi_head_attention, dot_product
from keras_diet.layers.transformer.diet_decoder import DecoderMemory
from tests.helpers import assert_close, to_numpy
from tests.layers.diet_decoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    MEMORY,
    NUM_HEADS,
    NUM_LAYERS,
    RANK,
    SOURCE,
    SOURCE_VALID,
    VALID,
    make_decoder,
    make_inputs,
)
from tests.layers.diet_encoders import Distances

if keras.backend.backend() == "jax":
    EAGER_ENCODINGS = ["sinusoidal"]


def decode(decoder, target, memory, sizes=(1,) * LENGTH, **arguments):
    """The outputs of steps of these sizes, one after the other, and the last memory."""
    outputs, start = [], 0
    for size in sizes:
        step = target[:, start : start + size]
        output, memory = decoder(step, memory=memory, start_index=start, **arguments)
        outputs.append(output)
        start += size
    return ops.concatenate(outputs, axis=1), memory




def compiled(function):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function)
    return function






@pytest.mark.parametrize(
    "arguments",
    [
        {"sharing": "none", "cross_attention_positions": False},
        {"position_encoding": "shaw", "cross_attention_positions": False},
        {"attention_implementation": "features", "rank": RANK},
        {"attention_implementation": "blockwise", "position_encoding": "diet_rel"},
        {"position_encoding": Distances(NUM_HEADS, 9)},
        {"position_encoding": "diet_abs_input", "encode_inputs": False},
    ],
    ids=str,
)
def test_arguments(rng, arguments):
    decoder = make_decoder(rng, **arguments)

    @compiled
    def both(target, source):
        memory = decoder.start_memory(BATCH, MEMORY, source)
        return decode(decoder, target, memory, (2, 3))[0], decoder(target, source)

    assert_close(*both(*map(ops.convert_to_tensor, make_inputs(rng))))




def test_paddings_and_scores_of_a_step(rng):
    decoder, (target, source) = make_decoder(rng), make_inputs(rng)
    options = {"return_attention_scores": True}
    output, scores, cross_scores = decoder(
        target, source, padding_mask=VALID, encoder_padding_mask=SOURCE_VALID, **options
    )
    valid = np.concatenate([VALID, np.ones((BATCH, MEMORY - LENGTH), "bool")], axis=1)
    memory = decoder.start_memory(BATCH, MEMORY, source, SOURCE_VALID.astype("int32"))
    _, memory = decode(decoder, target, memory, (3,), padding_mask=valid)
    step, *step_scores, memory = decoder(
        target[:, 3:], memory=memory, start_index=3, padding_mask=valid, **options
    )
    assert_close(step, output[:, 3:])
    for found, expected in zip(step_scores, (scores, cross_scores), strict=True):
        assert len(found) == NUM_LAYERS
        for of_layer, expected_of_layer in zip(found, expected, strict=True):
            length = expected_of_layer.shape[-1]
            assert_close(of_layer[..., :length], expected_of_layer[:, :, 3:])
            assert not to_numpy(of_layer[..., length:]).any()
    assert isinstance(memory, DecoderMemory)


def test_a_keras_mask_of_the_source_is_its_padding(rng):
    decoder, (target, source) = make_decoder(rng), make_inputs(rng)
    expected = decoder(target, source, encoder_padding_mask=SOURCE_VALID)
    source = ops.convert_to_tensor(source)
    set_keras_mask(source, ops.convert_to_tensor(SOURCE_VALID))
    memory = decoder.start_memory(BATCH, MEMORY, source)
    assert np.array_equal(to_numpy(memory.source_padding_mask), SOURCE_VALID)
    assert_close(decode(decoder, target, memory, (2, 3))[0], expected)
    # A mask that is given replaces it.
    memory = decoder.start_memory(BATCH, MEMORY, source, ~SOURCE_VALID)
    assert np.array_equal(to_numpy(memory.source_padding_mask), ~SOURCE_VALID)


def test_a_step_reads_no_keras_mask_of_its_tokens(rng):
    decoder, (target, source) = make_decoder(rng), make_inputs(rng)
    memory = decoder.start_memory(BATCH, MEMORY, source)
    step = ops.convert_to_tensor(target[:, :1])
    expected, _ = decoder(step, memory=memory)
    set_keras_mask(step, ops.convert_to_tensor(np.arange(BATCH)[:, None] > 0))
    assert_close(decoder(step, memory=memory)[0], expected, 1e-6)




def test_targets_of_a_source_can_change_places(rng):
    """What beam search does: two targets for each source, whose memories it reorders."""
    decoder, (target, source) = make_decoder(rng), make_inputs(rng)
    other = rng.normal(size=target.shape).astype("float32")
    targets = np.stack([target, other], axis=1).reshape(2 * BATCH, LENGTH, HIDDEN)
    memory = decoder.start_memory(2 * BATCH, MEMORY, source, SOURCE_VALID)
    _, memory = decode(decoder, targets, memory, (3,))
    order = np.array([1, 1, 3, 2])
    reordered = tree.map_structure(lambda x: ops.take(x, order, axis=0), memory.target)
    memory = memory._replace(target=reordered)
    targets[:, :3] = targets[order, :3]
    output, _ = decoder(targets[:, 3:], memory=memory, start_index=3)
    sources, valid = (np.repeat(x, 2, axis=0) for x in (source, SOURCE_VALID))
    expected = decoder(targets, sources, encoder_padding_mask=valid)
    assert_close(output, expected[:, 3:])


def several_targets(rng, source):
    """Three targets for each source, and the source and its padding once for each target."""
    targets = rng.normal(size=(3 * BATCH, LENGTH, HIDDEN)).astype("float32")
    return targets, *(np.repeat(x, 3, axis=0) for x in (source, SOURCE_VALID))






def test_scores_of_targets_that_share_their_source(rng):
    decoder, (_, source) = make_decoder(rng, position_encoding="diet_rel"), make_inputs(rng)
    targets, sources, valid = several_targets(rng, source)
    options = {"return_attention_scores": True}
    _, _, expected = decoder(targets, sources, encoder_padding_mask=valid, **options)
    memory = decoder.start_memory(3 * BATCH, MEMORY, source, SOURCE_VALID)
    _, memory = decode(decoder, targets, memory, (3,))
    _, _, found, _ = decoder(targets[:, 3:], memory=memory, start_index=3, **options)
    for of_layer, expected_of_layer in zip(found, expected, strict=True):
        assert_close(of_layer, expected_of_layer[:, :, 3:])


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize("is_known", [(False, False), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize(
    "arguments",
    [
        {"position_encoding": "t5"},
        {"position_encoding": "shaw"},
        {"position_encoding": "transformer_xl"},
        {"position_encoding": "diet_rel", "attention_implementation": "blockwise"},
    ],
    ids=str,
)
def test_batches_of_unknown_size_share_their_source(rng, arguments, is_known):
    import tensorflow as tf

    decoder, (_, source) = make_decoder(rng, **arguments), make_inputs(rng)
    targets, sources, valid = several_targets(rng, source)
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


@pytest.mark.parametrize("position_encoding", ["diet_abs", "shaw"])
def test_steps_keep_the_order_of_the_memory(rng, position_encoding, monkeypatch):
    """The axis of the batch comes first in both kinds of attention, so that nothing is copied."""
    plans, orders = [], set()

    def attend(attention, heads, terms, plan, *args, **options):
        plans.append((plan.batch_first, plan.low_rank))
        return original(attention, heads, terms, plan, *args, **options)

    original = biased_multi_head_attention.attend_as_layer
    monkeypatch.setattr(biased_multi_head_attention, "attend_as_layer", attend)
    for name in ("BATCH_FIRST", "HEADS_FIRST"):
        order = getattr(dot_product, name)

        def multiply(left, right, name=name, order=order):
            orders.add(name)
            return order.multiply(left, right)

        monkeypatch.setattr(dot_product, name, dataclasses.replace(order, multiply=multiply))
    decoder = make_decoder(rng, position_encoding=position_encoding)
    target, source = make_inputs(rng)
    options = {"return_attention_scores": True}
    decoder(target, source, encoder_padding_mask=SOURCE_VALID, **options)
    assert {batch_first for batch_first, _ in plans} == {False}
    assert orders == {"HEADS_FIRST"}
    plans.clear()
    orders.clear()
    memory = decoder.start_memory(BATCH, MEMORY, source, SOURCE_VALID)
    decoder(target[:, :1], memory=memory, **options)
    assert plans == [(True, "tensor")] * 2 * NUM_LAYERS
    assert orders == {"BATCH_FIRST"}




@pytest.mark.any_backend
def test_half_precision(rng):
    decoder = make_decoder(rng, position_encoding="input", dtype="mixed_bfloat16")
    target, source = make_inputs(rng)
    memory = decoder.start_memory(BATCH, MEMORY, source)
    output, memory = decode(decoder, target, memory, (2, 3))
    for tensor in tree.flatten((output, memory.target, memory.source)):
        assert keras.backend.standardize_dtype(tensor.dtype) == "bfloat16"
    assert_close(output, decoder(target, source), 0.1)


@pytest.mark.any_backend
def test_symbolic_outputs(rng):
    decoder, (target, source) = make_decoder(rng), make_inputs(rng)
    memory = decoder.start_memory(BATCH, MEMORY, source)
    options = {"start_index": 2, "return_attention_scores": True}
    outputs = decoder(target, memory=memory, **options)
    target, memory = tree.map_structure(
        lambda x: keras.KerasTensor(x.shape, keras.backend.standardize_dtype(x.dtype)),
        (ops.convert_to_tensor(target), memory),
    )
    spec = decoder.compute_output_spec(target, memory=memory, **options)

    def check(symbolic, tensor):
        assert tuple(symbolic.shape) == tuple(tensor.shape)
        assert symbolic.dtype == keras.backend.standardize_dtype(tensor.dtype)

    tree.map_structure(check, spec, outputs)


@pytest.mark.any_backend
def test_a_custom_embedding_gets_the_start_index(rng, register):
    class Ramp(keras.layers.Layer):
        def call(self, inputs, start_index=0):
            positions = ops.cast(ops.arange(inputs.shape[1]) + start_index, "float32")
            return ops.broadcast_to(positions[:, None] / 3.0, inputs.shape)

    name = register(embedding=lambda sizes, **kwargs: Ramp(**kwargs))
    decoder = make_decoder(rng, position_encoding=name)
    target, source = make_inputs(rng)
    memory = decoder.start_memory(BATCH, MEMORY, source)
    assert_close(decode(decoder, target, memory)[0], decoder(target, source))






