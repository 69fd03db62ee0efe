"""What the tests of `DietDecoder` share: small decoders, and their outputs by the reference."""

import numpy as np
from keras import ops

from keras_diet.layers import DietDecoder
from tests import reference
from tests.helpers import decoder_block_weights, randomize
from tests.layers.diet_encoders import (
    EPSILON,
    arguments_of_scores,
    expected_positions,
    expected_scores,
    normalized,
    of_layer,
    options_of,
)

BATCH, LENGTH, SOURCE, HIDDEN, SOURCE_DIM = 2, 5, 7, 12, 10
NUM_LAYERS, NUM_HEADS, INTERMEDIATE, MAX_LENGTH, MEMORY, RANK = 2, 3, 11, 9, 8, 13
TARGET_SHAPE, SOURCE_SHAPE = (BATCH, LENGTH, HIDDEN), (BATCH, SOURCE, SOURCE_DIM)
# The second target and the second source end with padding.
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
SOURCE_VALID = np.array([[True] * 7, [True] * 4 + [False] * 3])
PADDINGS = {"padding_mask": VALID, "encoder_padding_mask": SOURCE_VALID}


def make_decoder(rng, **kwargs):
    """A built decoder with random weights."""
    arguments = {"max_sequence_length": MAX_LENGTH, "layer_norm_epsilon": EPSILON, **kwargs}
    decoder = DietDecoder(NUM_LAYERS, NUM_HEADS, INTERMEDIATE, **arguments)
    decoder.build(TARGET_SHAPE, SOURCE_SHAPE)
    return randomize(decoder, rng, scale=0.6)


def make_inputs(rng):
    """Target and source."""
    return tuple(rng.normal(size=shape).astype("float32") for shape in (TARGET_SHAPE, SOURCE_SHAPE))


def expected_output(decoder, target, source):
    """The output of the decoder with `PADDINGS` by the reference."""
    positions = expected_positions(decoder, LENGTH, HIDDEN)
    x = target if positions is None else target + positions
    for i, block in enumerate(decoder.transformer_layers):
        weights = decoder_block_weights(block)
        of_scores = (decoder, i, HIDDEN // NUM_HEADS)
        weights["attention"] |= arguments_of_scores(*of_scores)
        weights["cross_attention"] |= arguments_of_scores(
            *of_scores, decoder.cross_attention_positions
        )
        window = reference.window_mask(LENGTH, of_layer(decoder.attention_windows, i))
        x = reference.decoder_block(
            x,
            source,
            weights,
            _expected_bias(decoder.position_biases, i, LENGTH),
            _expected_bias(decoder.cross_position_biases, i, SOURCE),
            VALID[:, None, None] & window,
            SOURCE_VALID[:, None, None],
            activation=np.tanh,
            **options_of(decoder),
        )
    return normalized(decoder, x)


def _expected_bias(biases, index, key_length):
    if not biases:
        return None
    return expected_scores(biases[0 if len(biases) == 1 else index], LENGTH, key_length)


def decode(decoder, target, memory, sizes, **arguments):
    """The outputs of steps of these sizes, one after the other, and the last memory."""
    outputs, start = [], 0
    for size in sizes:
        step = target[:, start : start + size]
        output, memory = decoder(step, memory=memory, start_index=start, **arguments)
        outputs.append(output)
        start += size
    return ops.concatenate(outputs, axis=1), memory
