"""Without a bias, `BiasedMultiHeadAttention` is `keras.layers.MultiHeadAttention`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet._compat import get_keras_mask
from keras_diet.layers import BiasedMultiHeadAttention, ScoreTerms
from tests.helpers import assert_close, randomize, to_numpy
from tests.layers.attention.variants import (
    BATCH,
    HIDDEN,
    KEY_DIM,
    KEYS,
    NUM_HEADS,
    PAIRS,
    QUERIES,
    VALID,
    make_inputs,
    normal,
)

any_backend = pytest.mark.any_backend
CONSTRUCTORS = {
    "plain": {},
    "value_dim": {"value_dim": 5},
    "no_bias": {"use_bias": False},
    "output_shape": {"output_shape": (3, 2)},
    "sliding_window": {"sliding_window": 2},
    "use_gate": {"use_gate": True},
    "dropout": {"dropout": 0.5},
}
QUERY_MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])
KEY_MASK = np.array([[True] * 7, [True] * 2 + [False] * 5])
# The second query of the second example may attend to no key.
NO_KEYS = PAIRS.copy()
NO_KEYS[1, 2] = False
# Call arguments besides query and value; "masked" names the inputs that carry a Keras mask.
CALLS = {
    "plain": {},
    "key": {"key": True},
    "no_keys": {"attention_mask": NO_KEYS},
    "no_keys_scores": {"attention_mask": NO_KEYS, "return_attention_scores": True},
    "mask_of_keys": {"attention_mask": PAIRS[:1, :1]},
    "mask_of_integers": {"attention_mask": PAIRS.astype("int32")},
    "mask_without_batch": {"attention_mask": PAIRS[0]},
    "causal": {"use_causal_mask": True},
    "causal_mask": {"use_causal_mask": True, "attention_mask": PAIRS},
    "masked_query": {"masked": ("query",), "key": True},
    "masked_all": {"masked": ("query", "value", "key"), "key": True, "use_causal_mask": True},
    "training": {"training": True, "masked": ("query", "value", "key"), "key": True},
    "explicit_masks": {"value_mask": VALID.tolist(), "key_mask": KEY_MASK, "key": True},
}


def make_pair(rng, query_shape=(BATCH, QUERIES, HIDDEN), value_shape=None, **kwargs):
    """Keras's layer and ours, with the same random weights."""
    pair = [
        layer_class(NUM_HEADS, KEY_DIM, name="attention", **kwargs)
        for layer_class in (keras.layers.MultiHeadAttention, BiasedMultiHeadAttention)
    ]
    for layer in pair:
        layer.build(query_shape, value_shape or (BATCH, KEYS, HIDDEN))
    randomize(pair[0], rng)
    pair[1].set_weights(pair[0].get_weights())
    return pair


def call(layer, key=False, masked=(), **kwargs):
    """The outputs for the same inputs in every call, as a tuple of one or two."""
    rng = np.random.default_rng(3)
    inputs = dict(zip(("query", "value"), make_inputs(rng), strict=True))
    if key:
        inputs["key"] = normal(rng, BATCH, KEYS, HIDDEN)
    masks = {"query": QUERY_MASK, "value": VALID, "key": KEY_MASK}
    for name in masked:
        inputs[name] = keras.layers.Masking()(np.where(masks[name][..., None], inputs[name], 0))
    outputs = layer(**inputs, **kwargs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def assert_equal_outputs(actual, expected):
    for actual_tensor, expected_tensor in zip(actual, expected, strict=True):
        assert_close(actual_tensor, expected_tensor, 1e-6)


@pytest.mark.parametrize(
    "constructor, arguments",
    [
        *(("plain", arguments) for arguments in CALLS if arguments != "training"),
        *((constructor, "masked_all") for constructor in CONSTRUCTORS if constructor != "plain"),
        ("use_gate", "no_keys_scores"),
        *(("dropout", arguments) for arguments in ("no_keys", "no_keys_scores", "mask_of_keys")),
        ("dropout", "training"),
    ],
)
def test_equals_keras(rng, constructor, arguments):
    # The same seed, so that the same probabilities are dropped in training.
    theirs, ours = make_pair(rng, seed=7, **CONSTRUCTORS[constructor])
    arguments = CALLS[arguments]
    # On JAX Keras's fused attention refuses `value_dim`; asked for scores, Keras computes it.
    asks = keras.backend.backend() == "jax" and theirs.value_dim != theirs.key_dim
    expected = call(theirs, **arguments, **({"return_attention_scores": True} if asks else {}))
    actual = call(ours, **arguments)
    assert_equal_outputs(actual, expected[: len(actual)])
    masks = [get_keras_mask(output) for output in (actual[0], expected[0])]
    if "query" in arguments.get("masked", ()):
        for mask in masks:
            np.testing.assert_array_equal(to_numpy(mask), QUERY_MASK)
    else:
        assert masks == [None, None]


@any_backend
@pytest.mark.parametrize(
    "axes, shape", [(1, (2, 5, 3, 3)), ((1, 2), (2, 3, 5, 3, 5))], ids=["one axis", "two axes"]
)
def test_several_axes_equal_keras(rng, axes, shape):
    """Scores are (batch, other axes, heads, query axes, key axes). The mask has no heads."""
    query, value = (normal(rng, 2, 3, 5, HIDDEN) for _ in range(2))
    pair = make_pair(rng, query.shape, value.shape, attention_axes=axes, dropout=0.5, seed=7)
    options = {"attention_mask": rng.random(shape) < 0.7, "return_attention_scores": True}
    for training in (False, True):
        expected, actual = (layer(query, value, training=training, **options) for layer in pair)
        assert_equal_outputs(actual, expected)


@any_backend
@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_weights_and_configurations_are_those_of_keras(rng, constructor):
    kwargs = CONSTRUCTORS[constructor]
    theirs, ours = make_pair(rng, **kwargs)
    expected, actual = (
        [(weight.path, weight.shape, weight.dtype) for weight in layer.weights]
        for layer in (theirs, ours)
    )
    assert actual == expected
    config = ours.get_config()
    assert "scale" not in config
    assert {**theirs.get_config(), "flash_attention": None} == config
    from_ours = keras.layers.MultiHeadAttention.from_config(config)
    from_theirs = BiasedMultiHeadAttention.from_config(theirs.get_config())
    assert from_ours.get_config() == theirs.get_config()
    assert from_theirs.get_config() == config


class Overriding(BiasedMultiHeadAttention):
    """Overrides the method that Keras documents."""

    def _compute_attention(self, query, key, value, attention_mask=None, *args, **kwargs):
        self.mask = attention_mask
        return super()._compute_attention(query, key, value, attention_mask, *args, **kwargs)


@any_backend
@pytest.mark.parametrize("returns_scores", [False, True])
def test_an_overridden_method_gets_one_mask(rng, returns_scores):
    plain = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, sliding_window=3)
    overriding = Overriding(NUM_HEADS, KEY_DIM, sliding_window=3)
    inputs = make_inputs(rng)
    options = {"return_attention_scores": returns_scores}
    arguments = {"attention_mask": PAIRS, "value_mask": VALID, "use_causal_mask": True}
    expected = plain(*inputs, **arguments, **options)
    overriding.build(*(x.shape for x in inputs))
    overriding.set_weights(plain.get_weights())
    distance = np.arange(QUERIES)[:, None] - np.arange(KEYS)
    window = (distance >= 0) & (distance < 3)
    # A stack of blocks passes its masks as terms.
    terms = ScoreTerms(
        padding_mask=ops.convert_to_tensor(VALID), attention_mask=PAIRS, is_causal=True
    )
    for masks in (arguments, {"score_terms": terms}):
        overriding.mask = None
        found = overriding(*inputs, **masks, **options)
        keras.tree.map_structure(assert_close, found, expected)
        np.testing.assert_array_equal(to_numpy(overriding.mask), PAIRS & VALID[:, None] & window)
