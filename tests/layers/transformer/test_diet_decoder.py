"""`DietDecoder` in one pass: against the reference, its arguments and its errors."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import (
    BiasedMultiHeadAttention,
    DietDecoder,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
    cache_positions,
)
from tests.helpers import assert_close, check_layer, gradients, random_loss, to_numpy
from tests.layers.diet_decoders import (
    BATCH,
    HIDDEN,
    INTERMEDIATE,
    LENGTH,
    MAX_LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    PADDINGS,
    RANK,
    SOURCE,
    SOURCE_VALID,
    VALID,
    expected_output,
    make_decoder,
    make_inputs,
)
from tests.layers.diet_encoders import Distances, Slopes, name_of

# Encodings of each kind, with post-norm and pre-norm.
POSITIONS = [
    {"position_encoding": "diet_abs", "rank": RANK},
    {"position_encoding": "diet_rel", "normalize_first": True},
    {"position_encoding": "diet_rel", "cross_attention_positions": False},
    {"position_encoding": "t5", "sharing": "none"},
    {"position_encoding": "tupe_rel"},
    {"position_encoding": "tupe_abs", "cross_attention_positions": False},
    {"position_encoding": "shaw", "normalize_first": True},
    {"position_encoding": "shaw", "cross_attention_positions": False},
    {"position_encoding": "rotary"},
    {"position_encoding": "rotary", "cross_attention_positions": False},
    {"position_encoding": "transformer_xl", "normalize_first": True},
    {"position_encoding": "transformer_xl", "cross_attention_positions": False},
    {"position_encoding": "input"},
    {"position_encoding": "sinusoidal", "normalize_first": True},
    {"position_encoding": "diet_abs_input", "rank": RANK, "sharing": "head-wise"},
    {"position_encoding": "none"},
]


@pytest.mark.parametrize("positions", POSITIONS, ids=name_of)
def test_equals_reference(rng, positions):
    decoder = make_decoder(rng, activation="tanh", **positions)
    target, source = make_inputs(rng)
    expected = expected_output(decoder, target, source)
    assert_close(decoder(target, source, **PADDINGS), expected)


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
@pytest.mark.parametrize(
    "position_encoding, sharing, num_biases, num_weights",
    [
        # P_Q and P_K of 9 positions and rank 4; R of 17 distances; b of 32 bins.
        ("diet_abs", None, 1, 2 * 9 * 3 * 4),
        ("diet_abs", "none", NUM_LAYERS, 2 * 9 * 3 * 4),
        ("diet_rel", None, NUM_LAYERS, 17 * 3),
        ("diet_rel", "head-wise", NUM_LAYERS, 17),
        ("diet_rel", "layer-wise", 1, 17 * 3),
        ("t5", None, 1, 32 * 3),
    ],
)
def test_number_of_position_weights(position_encoding, sharing, num_biases, num_weights):
    counts = {}
    for cross in (True, False):
        decoder = DietDecoder(
            *(NUM_LAYERS, NUM_HEADS, INTERMEDIATE),
            position_encoding=position_encoding,
            sharing=sharing,
            cross_attention_positions=cross,
            max_sequence_length=MAX_LENGTH,
        )
        decoder.build((BATCH, LENGTH, HIDDEN))
        assert len(decoder.position_biases) == num_biases
        assert len(decoder.cross_position_biases) == num_biases * cross
        for bias in decoder.all_position_biases():
            assert bias.count_params() == num_weights
        counts[cross] = decoder.count_params()
    assert counts[True] - counts[False] == num_biases * num_weights


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


@pytest.mark.parametrize("position_encoding", ["diet_abs", "t5"])
def test_cached_positions(rng, position_encoding):
    decoder = make_decoder(rng, position_encoding=position_encoding)
    target, source = make_inputs(rng)
    cached = cache_positions(decoder)
    assert cached.cached_positions
    assert_close(cached(target, source, **PADDINGS), decoder(target, source, **PADDINGS))


@pytest.mark.parametrize("implementation", ["full", "features", "blockwise"])
def test_implementations(rng, implementation):
    decoder = make_decoder(rng, rank=RANK)
    target, source = make_inputs(rng)
    expected = to_numpy(decoder(target, source, **PADDINGS))
    decoder.attention_implementation = implementation
    assert_close(decoder(target, source, **PADDINGS), expected)


@pytest.mark.parametrize(
    "arguments, returns_scores, policies",
    [
        ({"rank": RANK, "sharing": "none"}, True, ("mixed_bfloat16",)),
        ({"position_encoding": "sinusoidal", "cross_attention_positions": False}, False, ()),
    ],
    ids=["diet_abs", "sinusoidal"],
)
def test_as_a_layer(rng, arguments, returns_scores, policies):
    decoder = DietDecoder(
        *(NUM_LAYERS, NUM_HEADS, INTERMEDIATE),
        max_sequence_length=SOURCE,
        dropout=0.3,
        activation="tanh",
        layer_norm_epsilon=1e-4,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=1),
        bias_initializer="ones",
        normalize_first=True,
        attention_implementation="full",
        name="decoder",
        **arguments,
    )
    check_layer(
        decoder,
        *make_inputs(rng),
        **PADDINGS,
        return_attention_scores=returns_scores,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )


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


def test_dropout(rng):
    decoder, (target, source) = make_decoder(rng, dropout=0.5), make_inputs(rng)
    first, second = (to_numpy(decoder(target, source, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-2
    assert_close(decoder(target, source), decoder(target, source, training=False), 1e-7)


REFUSED = {
    "projection_dim": ({"projection_dim": 4}, "no argument `projection_dim`: a projected key"),
    "segments": ({"segment_encoding": "input"}, "`segment_encoding`: a decoder has no segments"),
    "sharing": ({"position_encoding": "shaw", "sharing": "none"}, "`sharing` must be one of"),
    "rank": ({"position_encoding": "t5", "rank": 3}, "`rank` is not supported"),
    "name": ({"position_encoding": "tape"}, "`position_encoding` must be one of"),
    "rows": (
        {"position_encoding": Slopes(NUM_HEADS)},
        r"`rows\(query, key, start_index\)`.*Slopes",
    ),
    "features": (
        {"position_encoding": "diet_rel", "attention_implementation": "features"},
        "attention_implementation='features' needs",
    ),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_are_refused(rng, name):
    arguments, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make_decoder(rng, **arguments)


@pytest.mark.any_backend
def test_an_encoding_with_projected_keys_is_refused(rng, register):
    def linformer(sizes, **kwargs):
        return LinformerMultiHeadAttention(sizes.num_heads, sizes.head_dim, 9, 4, **kwargs)

    name = register(attention=linformer)
    with pytest.raises(ValueError, match="may not project keys along the sequence, as Linformer"):
        make_decoder(rng, position_encoding=name)


CALLS = {
    "target": (13, SOURCE, {}, "The target is longer than `max_sequence_length`.*length=13"),
    "source": (LENGTH, 13, {}, "The source is longer than `max_sequence_length`.*length=13"),
    "index": (LENGTH, SOURCE, {"start_index": 2}, "`start_index` needs a `memory`.*=2"),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_refused(rng, name):
    length, source_length, arguments, message = CALLS[name]
    inputs = np.zeros((BATCH, length, HIDDEN)), np.zeros((BATCH, source_length, 10))
    with pytest.raises(ValueError, match=message):
        make_decoder(rng)(*inputs, **arguments)


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
