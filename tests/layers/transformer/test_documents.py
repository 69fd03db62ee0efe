"""Several documents in a sequence: every encoding computes what it computes for each by itself."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_diet import _backend
from keras_diet import layers as L
from keras_diet.layers.attention import dot_product, plan, prepared_terms
from keras_diet.layers.attention.score_terms import positions_in_documents
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from tests.helpers import (
    assert_close,
    compiled_program,
    gradients,
    once,
    randomize,
    to_numpy,
    weighted_sum,
)
from tests.layers import diet_encoders
from tests.layers.attention.test_as_keras import Overriding
from tests.layers.bias_layers import Distances, is_distance_only, reads_content
from tests.layers.diet_encoders import HIDDEN, NUM_HEADS, Slopes

# Documents of 3, 1, 4, 2 and 5 tokens, and padding.
IDS = np.array([[3, 3, 3, 1, 7, 7, 7, 7, 0], [2, 2, 5, 5, 5, 5, 5, 0, 0]], "int32")
DOCUMENTS = [(row, IDS[row] == number) for row, number in [(0, 3), (0, 1), (0, 7), (1, 2), (1, 5)]]
BATCH, LENGTH = IDS.shape
LONGEST = 5
NAMES = list(POSITION_ENCODINGS)
LAYERS = {
    # Positions above the threshold, where FIRE does not depend on the distance only.
    "near_fire": lambda: L.FirePositionBias(NUM_HEADS, threshold=1, max_length=LENGTH),
    "rows": lambda: Distances(NUM_HEADS, LENGTH),
    "minimal": lambda: Slopes(NUM_HEADS),
    "of_keys": lambda: OfKeys(),
}
any_backend = pytest.mark.any_backend


class OfKeys(keras.layers.Layer):
    """Scores of the positions of keys, for all heads and queries."""

    def call(self, query):
        return ops.cast(_backend.arange(ops.shape(query)[1])[None, None, None], query.dtype)


# Columns of positions, and scores of pairs.
ON_EACH_BACKEND = ("diet_abs", "near_fire")


def make_encoder(rng, name="diet_abs", **kwargs):
    encoding = LAYERS[name]() if name in LAYERS else name
    arguments = {"position_encoding": encoding, "max_sequence_length": LENGTH, **kwargs}
    return diet_encoders.make_encoder(rng, **arguments)


def make_inputs(rng):
    x = rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float32")
    return x, rng.integers(2, size=(BATCH, LENGTH)).astype("int32")


def separated(packed):
    """An array `(B, T, ...)` as one row for each document, with zeros behind it."""
    rows = np.zeros((len(DOCUMENTS), LONGEST, *packed.shape[2:]), packed.dtype)
    for row, (sequence, at) in zip(rows, DOCUMENTS, strict=True):
        row[: at.sum()] = packed[sequence, at]
    return rows


VALID = separated(np.ones((BATCH, LENGTH), "bool"))


def outputs_of_documents(encoder, x, segment_ids, **arguments):
    """The outputs for each document as a sequence of its own, without those for padding."""
    output = encoder(
        separated(x), segment_ids=separated(segment_ids), padding_mask=VALID, **arguments
    )
    return to_numpy(output)[VALID]


def gradients_of(encoder, x, factors, **arguments):
    """The gradients of the sum of outputs times factors, by the inputs and the weights."""
    x = keras.Variable(x)
    return gradients(
        lambda: weighted_sum(encoder(x.value, **arguments), factors),
        [x, *encoder.trainable_weights],
    )


# === Every encoding ===


@pytest.mark.parametrize(
    "name",
    [*ON_EACH_BACKEND, *once(*(n for n in [*NAMES, *LAYERS] if n not in ON_EACH_BACKEND))],
)
def test_outputs_and_gradients_equal_those_of_separate_sequences(rng, name):
    encoder = make_encoder(rng, name)
    x, segment_ids = make_inputs(rng)
    factors = rng.normal(size=x.shape).astype("float32") * (IDS > 0)[..., None]
    arguments = {"segment_ids": segment_ids, "document_ids": IDS}
    found = gradients_of(encoder, x, factors, **arguments)
    call = compiled_program(
        lambda x, ids: encoder(x, segment_ids=segment_ids, document_ids=ids), jit_compile=True
    )
    assert_close(
        separated(to_numpy(call(x, IDS)))[VALID], outputs_of_documents(encoder, x, segment_ids)
    )
    arguments = {"segment_ids": separated(segment_ids), "padding_mask": VALID}
    expected = gradients_of(encoder, separated(x), separated(factors), **arguments)
    assert_close(separated(found[0])[VALID], expected[0][VALID], 1e-5)
    for weight, actual, wanted in zip(
        encoder.trainable_weights, found[1:], expected[1:], strict=True
    ):
        scale = max(np.abs(wanted).max(), 1.0)
        assert np.abs(actual - wanted).max() < 1e-5 * scale, weight.path


@any_backend
@pytest.mark.parametrize("implementation", ["full", "blockwise"])
def test_the_angles_of_documents_do_not_grow_with_their_number(rng, implementation):
    # Large angles are rounded. The first one of a head is a whole number, which is exact.
    arguments = {"max_sequence_length": 2048, "attention_implementation": implementation}
    encoder = L.DietEncoder(1, 2, 7, position_encoding="rotary", **arguments)
    x = rng.normal(size=(32, 64, 32)).astype("float32")
    encoder.build(x.shape)
    randomize(encoder, rng)
    ids = np.repeat(np.arange(1, 33, dtype="int32"), 64)[None]
    found = encoder(x.reshape(1, 2048, 32), document_ids=ids)
    assert_close(ops.reshape(found, x.shape), encoder(x))


# === Programs, masks, terms ===


PROGRAMS = [
    *(("full", name) for name in ("diet_abs", "diet_rel", "near_fire", "minimal", "input")),
    *(("features", name) for name in ("diet_abs", "rotary")),
    *(("blockwise", name) for name in ("diet_abs", "diet_rel", "near_fire", "input")),
]


@any_backend
@pytest.mark.parametrize("implementation, name", PROGRAMS)
def test_programs_and_masks(rng, monkeypatch, name, implementation):
    # The last block is shorter, or as long as the others.
    monkeypatch.setattr(plan, "BLOCK_SIZE", 4 if "diet" in name else 3)
    arguments = {"attention_implementation": implementation, "attention_windows": (None, 3)}
    encoder, (x, segment_ids) = make_encoder(rng, name, **arguments), make_inputs(rng)
    for causal in (False, True):
        options = {"use_causal_mask": causal}
        expected = outputs_of_documents(encoder, x, segment_ids, **options)
        found = encoder(x, segment_ids=segment_ids, document_ids=IDS, **options)
        assert_close(separated(to_numpy(found))[VALID], expected)
    # A key that a mask excludes is excluded.
    pairs = rng.random((BATCH, LENGTH, LENGTH)) < 0.6
    pairs |= np.eye(LENGTH, dtype="bool")
    masks = {"attention_mask": pairs, "padding_mask": IDS != 1}
    found = to_numpy(encoder(x, segment_ids=segment_ids, document_ids=IDS, **masks))
    for row, at in DOCUMENTS:
        if at.sum() > 1:
            expected = encoder(
                *(x[None, row, at], segment_ids[None, row, at]),
                attention_mask=pairs[None, row][:, at][:, :, at],
            )
            assert_close(found[row, at], to_numpy(expected)[0])


@any_backend
def test_blocks_need_no_mask_of_all_pairs(rng, monkeypatch):
    monkeypatch.setattr(prepared_terms, "with_one_mask", None)
    encoder = make_encoder(rng, attention_implementation="blockwise", attention_windows=3)
    assert encoder(make_inputs(rng)[0], document_ids=IDS).shape == (BATCH, LENGTH, HIDDEN)


@any_backend
@pytest.mark.parametrize("name", [name for name in NAMES if POSITION_ENCODINGS[name].bias])
def test_scores_of_the_batch_exist_only_where_positions_need_them(rng, monkeypatch, name):
    monkeypatch.setattr(plan, "kernel_takes_bias", lambda *args: False)
    lowered, lower = [], dot_product.lower_scores

    def recorded(query, key, terms):
        lowered.append((query, lower(query, key, terms)))
        return lowered[-1][1]

    monkeypatch.setattr(dot_product, "lower_scores", recorded)
    encoder = make_encoder(rng, name, segment_encoding="none")
    encoder(make_inputs(rng)[0], document_ids=IDS)
    for query, terms in lowered:
        assert terms.attention_mask.shape == (BATCH, 1, LENGTH, LENGTH)
        if name.startswith("diet_abs"):
            # Columns, of the rank of the scores.
            assert terms.bias is None
            assert query.shape[-1] == 2 * HIDDEN // NUM_HEADS
        else:
            encoding = POSITION_ENCODINGS[name]
            is_one = is_distance_only(encoding) and not reads_content(encoding)
            batch = 1 if is_one else BATCH
            assert terms.bias.shape == (batch, NUM_HEADS, LENGTH, LENGTH)


@pytest.mark.any_backend("torch")
@pytest.mark.parametrize("windows, number", [(None, 1), ((None, 3, 3), 2)])
@pytest.mark.parametrize("name", ["t5", "tupe_abs", "diet_rel"])
def test_a_kernel_gets_one_tensor_for_layers_with_the_same_bias_and_window(
    rng, monkeypatch, name, windows, number
):
    given, attend = [], _backend.fused_attention
    monkeypatch.setattr(
        _backend,
        "fused_attention",
        lambda *args, **terms: given.append(terms) or attend(*args, **terms),
    )
    arguments = {"num_layers": 4, "segment_encoding": "none", "attention_windows": windows}
    encoder, (x, _) = make_encoder(rng, name, **arguments), make_inputs(rng)
    for causal in (False, True):
        given.clear()
        encoder(x, padding_mask=IDS != 1, document_ids=IDS, use_causal_mask=causal)
        assert {terms["mask"] for terms in given} == {None}
        # Without sharing, each layer has scores of its own.
        tensors = {terms["bias"].data_ptr() for terms in given}
        assert len(tensors) == (4 if name == "diet_rel" else number)


@any_backend
@pytest.mark.parametrize("name", ["diet_abs", "t5", "near_fire"])
def test_cached_positions(rng, name):
    encoder = make_encoder(rng, name)
    cached = L.cache_positions(encoder)
    assert cached.position_biases[0].distance_only == (name == "t5")
    x, _ = make_inputs(rng)
    assert_close(cached(x, document_ids=IDS), encoder(x, document_ids=IDS))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("near_fire", marks=pytest.mark.any_backend("tensorflow")),
        *once("near_fire", "diet_abs", "rotary"),
    ],
)
def test_lengths_that_are_not_known_and_half_precision(rng, name):
    encoder = make_encoder(rng, name)
    inputs = [keras.Input((None, HIDDEN)), keras.Input((None,), dtype="int32")]
    model = keras.Model(inputs, encoder(inputs[0], document_ids=inputs[1]))
    x, _ = make_inputs(rng)
    expected = to_numpy(encoder(x, document_ids=IDS))
    assert_close(model.predict([x, IDS], verbose=0), expected)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        signature = [tf.TensorSpec([None, None, HIDDEN]), tf.TensorSpec([None, None], "int32")]
        call = tf.function(lambda x, ids: model([x, ids]), signature)
        assert_close(call(x, IDS), expected)
    half = make_encoder(rng, name, dtype="mixed_bfloat16")
    half.set_weights(encoder.get_weights())
    assert np.abs(to_numpy(half(x, document_ids=IDS)) - expected)[IDS > 0].mean() < 0.05


# === Layers of users ===


@any_backend
def test_an_overridden_method_gets_a_mask(rng, register):
    encoder = make_encoder(rng, register(attention=Overriding), segment_encoding="none")
    plain = make_encoder(rng, "none", segment_encoding="none")
    plain.set_weights(encoder.get_weights())
    x, _ = make_inputs(rng)
    assert_close(encoder(x, document_ids=IDS), plain(x, document_ids=IDS))


class OfInputs(keras.layers.Layer):
    """Scores that depend on the inputs."""

    def call(self, query):
        return ops.matmul(query, ops.swapaxes(query, 1, 2))[:, None]


@any_backend
def test_scores_of_inputs_are_refused(rng, monkeypatch):
    x, _ = make_inputs(rng)
    encoder = make_encoder(rng, position_encoding=OfInputs())
    with pytest.raises(ValueError, match=r"must depend on positions only.*shape=\(2, 1, 9, 9\)"):
        encoder(x, document_ids=IDS)
    with monkeypatch.context() as patch:
        patch.setattr(OfInputs, "reads_content", True, raising=False)
        with pytest.raises(ValueError, match=r"must depend on positions only"):
            encoder(x[:1], document_ids=IDS[:1])
    monkeypatch.setattr(OfInputs, "distance_only", True, raising=False)
    found = separated(to_numpy(encoder(x, document_ids=IDS)))[VALID]
    assert_close(found, outputs_of_documents(encoder, x, np.zeros_like(IDS)))


@any_backend
@pytest.mark.parametrize("with_bias", [False, True])
def test_terms_of_a_layer_on_its_own(rng, with_bias):
    attention = L.BiasedMultiHeadAttention(NUM_HEADS, 2)
    attention.build((BATCH, LENGTH, HIDDEN), (BATCH, LENGTH, HIDDEN))
    bias, (x, _) = LAYERS["near_fire"]() if with_bias else None, make_inputs(rng)
    # The kernel has a causal mask of its own.
    terms = L.ScoreTerms(bias=bias, is_causal=True)
    causal = np.tril(np.ones((BATCH, NUM_HEADS, LENGTH, LENGTH), "bool"))
    for block_size, masks in itertools.product(
        (None, 4), ({}, {"is_causal": False, "attention_mask": causal})
    ):
        of_documents = terms.replace(document_ids=IDS, **masks)
        found = to_numpy(attention(x, x, score_terms=of_documents, block_size=block_size))
        for row, at in DOCUMENTS:
            document = x[None, row, at]
            assert_close(found[None, row, at], attention(document, document, score_terms=terms))


@any_backend
def test_a_rotation_gets_the_positions_of_queries_and_keys(rng):
    seen, (x, _) = [], make_inputs(rng)
    hook = L.AttentionHook(rotation=lambda heads, at: seen.append(to_numpy(at)) or heads)
    attention = L.BiasedMultiHeadAttention(NUM_HEADS, 2)
    attention(x[:, :2], x, start_index=5, attention_hook=hook)
    for found, expected in zip(seen, ([5, 6], np.arange(LENGTH)), strict=True):
        np.testing.assert_array_equal(found, expected)
    seen.clear()
    attention(x, x, score_terms=L.ScoreTerms(document_ids=IDS), attention_hook=hook)
    expected = [[0, 1, 2, 0, 0, 1, 2, 3, 0], [0, 1, 0, 1, 2, 3, 4, 0, 1]]
    np.testing.assert_array_equal(seen, [expected, expected])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_positions(lengths):
    # JAX compiles a program for each number of tokens.
    lengths = [*lengths, 24 - sum(lengths)]
    ids = np.repeat(np.arange(len(lengths)) % 3, lengths)
    expected = np.concatenate([np.arange(length) for length in lengths])
    found = positions_in_documents(ops.convert_to_tensor(np.stack([ids, 5 + 0 * ids]), "int32"))
    np.testing.assert_array_equal(to_numpy(found), [expected, np.arange(len(ids))])
