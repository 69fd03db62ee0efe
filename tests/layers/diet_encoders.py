"""What the tests of `DietEncoder` share: small encoders, and their outputs by the reference."""

import keras
import numpy as np
from keras import ops

from keras_diet.layers import DietEncoder
from keras_diet.layers.position.sinusoids import Sinusoids
from tests import reference
from tests.helpers import block_weights, norm_weights, randomize, to_numpy
from tests.layers import bias_layers

BATCH, LENGTH, HIDDEN, NUM_LAYERS, NUM_HEADS, MAX_LENGTH = 2, 5, 6, 2, 3, 7
# The second sequence ends with padding.
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
# A mask of query-key pairs, in which each query attends to itself.
MASK = np.random.default_rng(5).random((BATCH, LENGTH, LENGTH)) < 0.7
MASK |= np.eye(LENGTH, dtype="bool")
CAUSAL = np.tri(LENGTH, dtype="bool")
# Far from the default, so that a layer normalization that ignores it returns something else.
EPSILON = 0.3
PROJECTED = 4


@keras.saving.register_keras_serializable("keras_diet_tests")
class Slopes(keras.layers.Layer):
    """A custom bias layer: ALiBi with a learned slope per head. It counts its calls."""

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.num_calls = 0

    def build(self, inputs_shape):
        self.slopes = self.add_weight(name="slopes", shape=(self.num_heads,))

    def call(self, inputs):
        self.num_calls += 1
        position = ops.arange(ops.shape(inputs)[1])
        distance = ops.abs(ops.expand_dims(position, 1) - ops.expand_dims(position, 0))
        distance = ops.cast(distance, self.compute_dtype)
        return ops.reshape(self.slopes, (1, self.num_heads, 1, 1)) * distance

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}


def make_encoder(rng, **kwargs):
    """A built encoder with random weights."""
    defaults = {"max_sequence_length": MAX_LENGTH, "layer_norm_epsilon": EPSILON}
    arguments = {"num_layers": NUM_LAYERS, **defaults, **kwargs}
    encoder = DietEncoder(num_heads=NUM_HEADS, intermediate_dim=11, **arguments)
    encoder.build((BATCH, LENGTH, HIDDEN))
    return randomize(encoder, rng, scale=0.6)


def make_inputs(rng, length=LENGTH):
    """Inputs and segment ids."""
    x = rng.normal(size=(BATCH, length, HIDDEN)).astype("float32")
    return x, rng.integers(2, size=(BATCH, length)).astype("int32")


def expected_biases(encoder, length, segment_ids):
    """The bias of each layer, or `None`."""
    biases = []
    key_length = encoder.projection_dim or length
    for i in range(encoder.num_layers):
        segments, positions = 0.0, 0.0
        if encoder.position_biases:
            shared = len(encoder.position_biases) == 1
            bias = encoder.position_biases[0 if shared else i]
            positions = expected_scores(bias, length, key_length)
        if encoder.segment_encoding == "per-head":
            embedding = to_numpy(encoder.segment_biases[i].segment_embedding)
            segments = reference.segment_bias(embedding, segment_ids)
        biases.append(sum_of(positions, segments))
    return biases


def sum_of(positions, others):
    """The sum of scores, the first of which may be a function of the states of a layer."""
    if callable(positions):
        return lambda *states: positions(*states) + others
    return positions + others


def expected_scores(bias, length, key_length=None):
    """The scores of a position bias, of a bias layer of this file or of the library."""
    if isinstance(bias, Slopes):
        distance = np.abs(np.arange(length)[:, None] - np.arange(length))
        return to_numpy(bias.slopes).reshape(1, -1, 1, 1) * distance
    return bias_layers.for_states(bias, length, key_length)


def expected_output(encoder, x, segment_ids=None, mask=None):
    """The encoder's output according to the reference; `mask` broadcasts to (B, H, T, S)."""
    if segment_ids is None:
        segment_ids = np.zeros(x.shape[:2], dtype="int64")
    output = expected_inputs(encoder, x, segment_ids)
    biases = expected_biases(encoder, x.shape[1], segment_ids)
    for i, (block, bias) in enumerate(zip(encoder.transformer_layers, biases, strict=True)):
        weights = block_weights(block)
        weights["attention"] |= arguments_of_scores(encoder, i, HIDDEN // NUM_HEADS)
        window = reference.window_mask(x.shape[1], of_layer(encoder.attention_windows, i))
        of_layers = window[None, None] & (True if mask is None else mask)
        options = {**options_of(encoder), "activation": reference.gelu_exact}
        output = reference.encoder_block(output, weights, bias, of_layers, **options)
    return normalized(encoder, output)


def options_of(stack):
    """Arguments of the reference for the blocks of a stack."""
    norm = reference.rms_norm if stack.normalization == "rms_norm" else reference.layer_norm
    return {"normalize_first": stack.normalize_first, "epsilon": EPSILON, "norm": norm}


def normalized(stack, x):
    """The output of the last block of a stack with the last normalization, if there is one."""
    weights = norm_weights("", stack.output_layer_norm).values()
    return options_of(stack)["norm"](x, *weights, EPSILON) if weights else x


def of_layer(values, index):
    """The value of an argument for a layer."""
    return values[index % len(values)] if isinstance(values, list) else values


def arguments_of_scores(stack, index, head_dim, with_positions=True):
    """What the arguments of a stack change in the scores of a layer."""
    arguments = {}
    if stack.max_wavelength is not None and with_positions:
        arguments["max_wavelength"] = of_layer(stack.max_wavelength, index)
    if str(stack.position_encoding).startswith("tupe") and with_positions:
        # Tokens and positions share the variance of the scores.
        arguments["scale"] = 1 / np.sqrt(2 * head_dim)
    if stack.attention_scale is not None:
        arguments["scale"] = stack.attention_scale
    return arguments


def expected_positions(stack, length, size):
    """The positions `(length, size)` at the input of a stack, or `None`."""
    layer = getattr(stack.input_encoding, "position_embedding", None)
    if isinstance(layer, Sinusoids):
        return reference.sinusoidal_positions(length, size)
    return None if layer is None else to_numpy(layer.position_embeddings)[:length]


def expected_inputs(encoder, x, segment_ids):
    """The inputs of the first block; every token of `x` is another word."""
    positions = expected_positions(encoder, *x.shape[1:])
    segments = encoder.segment_encoding == "input"
    if positions is None and not segments:
        return x
    return reference.bert_inputs(
        x.reshape(-1, x.shape[-1]),
        np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2]),
        position_embedding=positions,
        segment_embedding=to_numpy(encoder.input_encoding.weights[-1]) if segments else None,
        segment_ids=segment_ids if segments else None,
    )
