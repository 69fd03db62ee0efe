"""What attention refuses, because it would be silently wrong: one row for each check."""

import contextlib

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_diet.layers import (
    AttentionHook,
    BiasedMultiHeadAttention,
    BiasedTransformerEncoder,
    RelativeMultiHeadAttention,
    RelativePositionBias,
    ScoreTerms,
)
from keras_diet.layers.attention.score_terms import check_bias
from tests.helpers import assert_close
from tests.layers.attention.test_as_keras import Overriding
from tests.layers.attention.variants import (
    BATCH,
    HIDDEN,
    KEY_DIM,
    KEYS,
    MAX_LENGTH,
    NUM_HEADS,
    PAIRS,
    QUERIES,
    make,
    make_inputs,
    normal,
)

pytestmark = pytest.mark.any_backend
SCORES = (BATCH, NUM_HEADS, QUERIES, KEYS)


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


PLAIN = BiasedMultiHeadAttention
BIAS = ones(*SCORES)
FEATURES = ones(1, QUERIES, 1, 2), ones(1, KEYS, 1, 2)
LONG = ones(BATCH, MAX_LENGTH + 1, HIDDEN)
KEYS_AND_VALUES = (ones(BATCH, KEYS, NUM_HEADS, KEY_DIM),) * 2
PROJECTED = {"projected_keys": KEYS_AND_VALUES, "value": None}
HOOK = AttentionHook(scores=lambda scores: scores)


def terms(**arguments):
    return {"score_terms": ScoreTerms(**arguments)}


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        # A mask that is not 0 or 1, or has another shape.
        ("biased", {"attention_mask": np.full((BATCH, QUERIES, KEYS), -1e9)}, "values from -1000"),
        ("biased", {"attention_mask": ones(BATCH, KEYS)}, "shape=(2, 7)"),
        ("biased", {"key_mask": ones(1, BATCH, KEYS)}, "`key_mask` must have ... shape=(1, 2, 7)"),
        ("biased", {"value_mask": ones(3, KEYS, dtype="bool")}, "shape=(3, 7)"),
        ("linformer", {"value_mask": ones(BATCH, 6)}, "`value_mask` must have ... shape=(2, 6)"),
        ("biased", terms(attention_mask=ones(BATCH, QUERIES, 6)), "`attention_mask` ... (2, 5, 6)"),
        ("biased", terms(padding_mask=ones(BATCH, 6)), "`padding_mask` must have ... shape=(2, 6)"),
        # A bias that is a mask, or has another shape.
        ("biased", {"attention_bias": PAIRS[:, None]}, "`attention_bias` must be ... dtype=bool"),
        ("biased", {"attention_bias": ones(KEYS, QUERIES)}, "broadcastable ... shape=(7, 5)"),
        ("linformer", {"attention_bias": BIAS}, "(2, 3, 5, 2). Received: shape="),
        # The position of the first query.
        (
            "biased",
            {"start_index": -3, "use_causal_mask": True},
            "not negative ... start_index=-3",
        ),
        # Arguments that would be ignored.
        (
            "biased",
            {**terms(), "attention_bias": BIAS, "use_causal_mask": True},
            "the arguments attention_bias, use_causal_mask. Received: both",
        ),
        ("biased", {"projected_keys": KEYS_AND_VALUES}, "`projected_keys` replace the argument"),
        ("biased", {**PROJECTED, "key": BIAS[:, 0]}, "replace ... value=NoneType, key="),
        ("linformer", PROJECTED, "Linformer takes none"),
        ("linformer", {"attention_mask": PAIRS}, "`attention_mask` is not supported by Linformer"),
        ("linformer", {"use_causal_mask": True}, "`use_causal_mask` is not supported"),
        ("linformer", terms(attention_mask=PAIRS), "`attention_mask` is not supported"),
        ("linformer", terms(sliding_window=2), "`sliding_window` is not supported"),
        ("linformer", terms(document_ids=ones(2, 7)), "`document_ids` is not supported"),
        ("linformer", {"value": LONG}, "key is longer than `sequence_length` ... length=14"),
        ("shaw", {"block_size": 2}, "`block_size` needs ... RelativeMultiHeadAttention"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_calls_that_are_refused(rng, name, arguments, message):
    query, value = make_inputs(rng)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make(name, rng)(**{"query": query, "value": value, **arguments})
    received = str(error.value)
    for part in message.split(" ... "):
        assert part in received
        received = received[received.index(part) :]


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("biased", {"scale": -1.0}, "`scale` must be"),
        ("shaw", {"max_distance": 0}, "`max_distance` must be"),
        ("linformer", {"projection_dim": 0}, "`projection_dim` must be"),
        ("linformer", {"sliding_window": 2}, "`sliding_window` is not supported by Linformer"),
        ("rotary", {"max_wavelength": 0}, "`max_wavelength` must be"),
        ("rotary", {"key_dim": 5}, r"`key_dim` must be even.*=5.*hidden_dim / num_heads"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_constructor_arguments_that_are_refused(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(name, **arguments)


GRID = ones(BATCH, 3, 5, HIDDEN)
ALL_TERMS = {
    "attention_bias": ones(5),
    "attention_features": FEATURES,
    "block_size": 3,
    "start_index": 2,
    "attention_hook": HOOK,
    "projected_keys": KEYS_AND_VALUES,
    "use_causal_mask": True,
}


@pytest.mark.parametrize(
    "attention, call, names",
    [
        (PLAIN(3, 4, scale=0.5), ALL_TERMS, {*ALL_TERMS, "scale"}),
        (
            PLAIN(3, 4),
            terms(bias=ones(5), sliding_window=3, is_causal=True, document_ids=ones(2, 3)),
            {"attention_bias", "sliding_window", "use_causal_mask", "document_ids"},
        ),
        (PLAIN(3, 4, sliding_window=3, attention_axes=2), {}, {"sliding_window"}),
        # Variants would ignore what makes them variants.
        (RelativeMultiHeadAttention(3, 4, 3), {}, {"attention_hook"}),
        (Overriding(3, 4), {"attention_hook": HOOK}, {"attention_hook"}),
    ],
    ids=["arguments", "terms", "window", "variant", "overriding"],
)
def test_keras_computes_attention_with_masks_only(attention, call, names):
    x = GRID[:, 0] if isinstance(attention, Overriding) else GRID
    with pytest.raises(ValueError, match=r"takes masks only,.*Received: .* in ") as error:
        attention(x, x, **call)
    received = str(error.value).split("Received: ")[1].split(" in ")[0]
    assert set(received.split(", ")) == names


@pytest.mark.parametrize("attention", [PLAIN(NUM_HEADS, KEY_DIM), BiasedTransformerEncoder(11, 1)])
def test_a_layer_is_no_argument_in_a_functional_model(attention):
    """The model would neither train nor save its weights."""
    inputs, layer = keras.Input((QUERIES, HIDDEN)), RelativePositionBias(NUM_HEADS, MAX_LENGTH)
    arguments = (inputs,) if isinstance(attention, BiasedTransformerEncoder) else (inputs, inputs)
    for option in ({"attention_bias": layer}, terms(bias=layer)):
        with pytest.raises(ValueError, match="In a functional model `attention_bias` must be"):
            attention(*arguments, **option)


@pytest.mark.parametrize("block_size", [None, 2])
def test_scores_of_a_bias_layer_are_numbers(rng, block_size):
    """Booleans would be cast to 0 and 1."""

    class Allowed(keras.layers.Layer):
        def call(self, query, key=None):
            return self.rows(query, query, 0)

        def rows(self, query, key, start_index):
            return ops.ones((1, 1, query.shape[1], KEYS), "bool")

    x = normal(rng, BATCH, KEYS, HIDDEN)
    with pytest.raises(ValueError, match=r"must return numbers.*Received: booleans"):
        make("biased", rng)(x, x, attention_bias=Allowed(), block_size=block_size)


def test_blocks_build_the_layer_of_the_bias(rng):
    attention, x = make("biased", rng), normal(rng, BATCH, KEYS, HIDDEN)
    terms = ScoreTerms(bias=RelativePositionBias(NUM_HEADS, KEYS), is_causal=True)
    found = attention(x, x, score_terms=terms, block_size=3)
    assert_close(found, attention(x, x, score_terms=terms))


def test_a_bias_layer_without_rows_begins_at_zero(rng):
    class Zeros(keras.layers.Layer):
        def call(self, query, key=None):
            return ops.zeros((1, 1, query.shape[1], KEYS))

    attention, x = make("biased", rng), normal(rng, BATCH, KEYS, HIDDEN)
    assert_close(attention(x, x, attention_bias=Zeros()), attention(x, x))
    with pytest.raises(ValueError, match=r"needs a method `rows\(.*start_index=4"):
        attention(x[:, :1], x, attention_bias=Zeros(), start_index=4)


sizes = st.sampled_from([1, 2, 3, 5, 7, 11])


@settings(deadline=None, max_examples=20, derandomize=True)
@given(shape=st.lists(sizes, max_size=5))
def test_a_bias_fits_if_numpy_broadcasts_it_to_the_scores(shape):
    try:
        fits = np.broadcast_shapes(shape, SCORES) == SCORES
    except ValueError:
        fits = False
    message = r"`attention_bias` must be.*= \(2, 3, 5, 7\)\. Received"
    with contextlib.nullcontext() if fits else pytest.raises(ValueError, match=message):
        check_bias(ones(*shape), SCORES)
