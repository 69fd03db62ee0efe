"""`score_terms` and `attention_plan`, and subclasses that override `_compute_attention`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AbsolutePositionBias,
    AttentionHook,
    BiasedMultiHeadAttention,
    LinformerMultiHeadAttention,
)
from keras_diet.layers.attention.lowering import lower_shared_terms
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import ScoreTerms
from tests.helpers import assert_close, randomize, to_numpy

BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM = 2, 5, 11, 3, 4
VALID = np.array([[True] * 3 + [False] * 2, [True] * 5])
MASK = np.random.default_rng(3).random((BATCH, LENGTH, LENGTH)) < 0.6
MASK[:, :, 0] = True


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make(rng, attention_class=BiasedMultiHeadAttention, *args, **kwargs):
    attention = attention_class(NUM_HEADS, KEY_DIM, *args, **kwargs)
    attention.build((BATCH, LENGTH, HIDDEN), (BATCH, LENGTH, HIDDEN))
    return randomize(attention, rng)


@pytest.mark.parametrize("returns_scores", [False, True])
def test_terms_equal_the_arguments(rng, returns_scores):
    attention, x = make(rng), normal(rng, BATCH, LENGTH, HIDDEN)
    bias = normal(rng, NUM_HEADS, LENGTH, LENGTH)
    features = normal(rng, 1, LENGTH, NUM_HEADS, 2), normal(rng, BATCH, LENGTH, 1, 2)
    terms = ScoreTerms(
        bias=bias,
        features=(features,),
        padding_mask=ops.convert_to_tensor(VALID),
        attention_mask=MASK,
        is_causal=True,
        sliding_window=3,
    )
    found = attention(x, x, score_terms=terms, return_attention_scores=returns_scores)
    attention._sliding_window = 3
    expected = attention(
        x,
        x,
        attention_bias=bias,
        attention_features=features,
        attention_mask=MASK,
        value_mask=VALID,
        use_causal_mask=True,
        return_attention_scores=returns_scores,
    )
    # Padded queries may attend to no key.
    keras.tree.map_structure(lambda a, b: assert_close(a, b), *map(only_valid, (found, expected)))


def only_valid(outputs):
    output = outputs[0] if isinstance(outputs, tuple) else outputs
    return to_numpy(output)[VALID]


@pytest.mark.parametrize(
    "plan",
    [
        AttentionPlan("scores"),
        AttentionPlan("scores", low_rank="tensor"),
        AttentionPlan("kernel"),
        AttentionPlan("kernel", bias="features"),
        AttentionPlan("kernel", low_rank="tensor"),
        AttentionPlan("scores", masks_padding=True),
        AttentionPlan("scores", bias="rows", block_size=2),
        AttentionPlan("kernel", bias="features", block_size=3),
    ],
    ids=str,
)
def test_every_plan_has_the_same_output(rng, plan):
    attention, x = make(rng), normal(rng, BATCH, LENGTH, HIDDEN)
    layer = AbsolutePositionBias(NUM_HEADS, 7, rank=2)
    layer.build()
    randomize(layer, rng)
    features = normal(rng, 1, LENGTH, NUM_HEADS, 3), normal(rng, BATCH, LENGTH, 1, 3)
    terms = ScoreTerms(
        bias=layer, features=(features,), padding_mask=ops.convert_to_tensor(VALID), is_causal=True
    )
    lowered = lower_shared_terms(terms, plan, x, None, "float32")
    found = attention(x, x, score_terms=lowered, attention_plan=plan)
    expected = attention(
        x,
        x,
        attention_bias=layer,
        attention_features=features,
        value_mask=VALID,
        use_causal_mask=True,
    )
    assert_close(found, expected)


def test_a_long_call_without_block_size_is_at_once(rng, monkeypatch):
    """Only a stack of blocks chooses blocks."""
    for name in ("LONG", "LONG_WITH_KERNEL"):
        monkeypatch.setattr(f"keras_diet.layers.attention.plan.{name}", LENGTH)
    attention, x, sizes = make(rng), normal(rng, BATCH, LENGTH, HIDDEN), []
    hook = AttentionHook(scores=lambda scores: sizes.append(scores.shape[2]) or scores)
    monkeypatch.setattr("keras_diet.layers.attention.plan.BLOCK_SIZE", 2)
    attention(x, x, attention_hook=hook)
    assert sizes == [LENGTH]


def test_linformer_takes_padding_from_the_terms(rng):
    attention = make(rng, LinformerMultiHeadAttention, 7, 2)
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    terms = ScoreTerms(padding_mask=ops.convert_to_tensor(VALID))
    expected = to_numpy(attention(x, x, value_mask=VALID))
    assert_close(attention(x, x, score_terms=terms), expected)
    assert np.abs(to_numpy(attention(x, x)) - expected).max() > 1e-2


def test_a_query_without_keys_has_no_probability(rng):
    """As in Keras's layer, where scores are computed."""
    attention, x = make(rng), normal(rng, BATCH, LENGTH, HIDDEN)
    mask = MASK.copy()
    mask[1, 2] = False
    bias = normal(rng, NUM_HEADS, LENGTH, LENGTH)
    for arguments in ({}, {"attention_bias": bias}):
        output, scores = attention(
            x, x, attention_mask=mask, return_attention_scores=True, **arguments
        )
        sums = to_numpy(scores).sum(axis=-1)
        expected = np.ones_like(sums)
        expected[1, :, 2] = 0
        assert_close(sums, expected)
        assert_close(to_numpy(output)[1, 2], to_numpy(attention.output_dense.bias))


class Recorded(BiasedMultiHeadAttention):
    """Overrides the method that Keras documents."""

    def _compute_attention(self, query, key, value, attention_mask=None, *args, **kwargs):
        self.mask = attention_mask
        return super()._compute_attention(query, key, 2 * value, attention_mask, *args, **kwargs)


@pytest.mark.parametrize("returns_scores", [False, True])
def test_override_gets_one_mask(rng, returns_scores):
    attention, plain = make(rng, Recorded, sliding_window=3), make(rng, sliding_window=3)
    plain.set_weights(attention.get_weights())
    plain.value_dense.kernel.assign(2 * to_numpy(plain.value_dense.kernel))
    plain.value_dense.bias.assign(2 * to_numpy(plain.value_dense.bias))
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    arguments = {"use_causal_mask": True, "return_attention_scores": returns_scores}
    found = attention(x, x, value_mask=VALID, attention_mask=MASK, **arguments)
    expected = plain(x, x, value_mask=VALID, attention_mask=MASK, **arguments)
    keras.tree.map_structure(assert_close, found, expected)
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    window = (distance >= 0) & (distance < 3)
    np.testing.assert_array_equal(to_numpy(attention.mask), MASK & VALID[:, None] & window)
    # Padding from a stack of blocks.
    attention(x, x, score_terms=ScoreTerms(padding_mask=ops.convert_to_tensor(VALID)))
    window = np.abs(distance) < 3
    np.testing.assert_array_equal(to_numpy(attention.mask), VALID[:, None] & window)
    attention(x, x, score_terms=ScoreTerms())
    np.testing.assert_array_equal(to_numpy(attention.mask)[0], window)


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"attention_bias": np.ones((LENGTH,), "float32")}, "attention_bias"),
        (
            {"attention_features": (np.ones((1, LENGTH, 1, 2), "float32"),) * 2},
            "attention_features",
        ),
        ({"start_index": 3}, "start_index"),
        ({"block_size": 2}, "block_size"),
        ({"attention_hook": AttentionHook(scores=lambda scores: scores)}, "attention_hook"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_override_refuses_other_terms(rng, arguments, name):
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    match = f"`_compute_attention` of a subclass takes.*Received: {name} for Recorded"
    with pytest.raises(ValueError, match=match):
        make(rng, Recorded)(x, x, **arguments)


@pytest.mark.parametrize(
    "name, value",
    [
        ("attention_bias", np.ones((LENGTH, LENGTH), "float32")),
        ("attention_mask", MASK),
        ("use_causal_mask", True),
        ("start_index", 2),
    ],
)
def test_arguments_that_the_terms_replace_are_refused(rng, name, value):
    attention, x = make(rng), normal(rng, BATCH, LENGTH, HIDDEN)
    with pytest.raises(ValueError, match=f"`score_terms` replaces.*{name}"):
        attention(x, x, score_terms=ScoreTerms(), **{name: value})


def test_plan_and_terms_of_a_user(rng):
    attention, x = make(rng), normal(rng, BATCH, LENGTH, HIDDEN)
    terms = ScoreTerms(bias=AbsolutePositionBias(NUM_HEADS, LENGTH, rank=2))
    plan = attention.plan(terms, x.shape, x.shape)
    found = attention(x, x, score_terms=terms, attention_plan=plan)
    assert_close(found, attention(x, x, attention_bias=terms.bias))


def test_a_bias_layer_in_the_terms_of_a_functional_model_is_refused():
    inputs = keras.Input((LENGTH, HIDDEN))
    terms = ScoreTerms(bias=AbsolutePositionBias(NUM_HEADS, LENGTH, rank=2))
    with pytest.raises(ValueError, match="In a functional model"):
        BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM)(inputs, inputs, score_terms=terms)
