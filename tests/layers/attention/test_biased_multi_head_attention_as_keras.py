"""Without a bias, `BiasedMultiHeadAttention` is `keras.layers.MultiHeadAttention`."""

import keras
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask
from keras_diet.layers import BiasedMultiHeadAttention
from tests.helpers import assert_close, randomize, to_numpy

BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS, HEAD_DIM = 2, 5, 7, 6, 3, 2
CONSTRUCTORS = {
    "plain": {},
    "value_dim": {"value_dim": 5},
    "no_bias": {"use_bias": False},
    "output_shape": {"output_shape": 11},
    "output_shape_tuple": {"output_shape": (3, 2)},
    "sliding_window": {"sliding_window": 2},
    "use_gate": {"use_gate": True},
    "dropout": {"dropout": 0.5},
    "attention_axes": {"attention_axes": 1},
}
MASK = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.6
MASK[:, range(QUERIES), range(QUERIES)] = True
QUERY_MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])
VALUE_MASK = np.array([[True] * 4 + [False] * 3, [True] * 7])
KEY_MASK = np.array([[True] * 7, [True] * 2 + [False] * 5])
# Call arguments besides query and value; "masked" names the inputs that carry a Keras mask.
CALLS = {
    "plain": {},
    "key": {"key": True},
    "scores": {"return_attention_scores": True},
    "mask": {"attention_mask": MASK},
    "mask_scores": {"attention_mask": MASK, "return_attention_scores": True},
    "mask_of_keys": {"attention_mask": MASK[:1, :1]},
    "mask_of_one_example": {"attention_mask": MASK[:1]},
    "mask_without_batch": {"attention_mask": MASK[0]},
    "mask_of_integers": {"attention_mask": MASK.astype("int32")},
    "causal": {"use_causal_mask": True},
    "causal_scores": {"use_causal_mask": True, "return_attention_scores": True},
    "causal_mask": {"use_causal_mask": True, "attention_mask": MASK},
    "masked_query": {"masked": ("query",), "key": True},
    "masked_value": {"masked": ("value",), "attention_mask": MASK},
    "masked_all": {"masked": ("query", "value", "key"), "key": True, "use_causal_mask": True},
    "explicit_masks": {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK, "key_mask": KEY_MASK},
    "explicit_key_mask": {"key": True, "key_mask": KEY_MASK, "use_causal_mask": True},
}


def make_pair(rng, query_shape=(BATCH, QUERIES, HIDDEN), value_shape=None, **kwargs):
    """Keras's layer and ours, with the same random weights."""
    pair = [
        layer_class(NUM_HEADS, HEAD_DIM, name="attention", **kwargs)
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
    inputs = {
        "query": rng.normal(size=(BATCH, QUERIES, HIDDEN)).astype("float32"),
        "value": rng.normal(size=(BATCH, KEYS, HIDDEN)).astype("float32"),
    }
    if key:
        inputs["key"] = rng.normal(size=(BATCH, KEYS, HIDDEN)).astype("float32")
    masks = {"query": QUERY_MASK, "value": VALUE_MASK, "key": KEY_MASK}
    for name in masked:
        inputs[name] = keras.layers.Masking()(np.where(masks[name][..., None], inputs[name], 0))
    outputs = layer(**inputs, **kwargs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def assert_equal_outputs(actual, expected):
    assert len(actual) == len(expected)
    for actual_tensor, expected_tensor in zip(actual, expected, strict=True):
        assert_close(actual_tensor, expected_tensor, 1e-6)


# Every call with the two layers that attend in different ways, and some calls with all layers.
CASES = [(constructor, arguments) for constructor in ("plain", "dropout") for arguments in CALLS]
CASES += [
    (constructor, arguments)
    for constructor in CONSTRUCTORS
    for arguments in ("plain", "mask_scores", "causal", "masked_all", "explicit_masks")
    if (constructor, arguments) not in CASES
]


@pytest.mark.parametrize("constructor, arguments", CASES)
def test_equals_keras(rng, constructor, arguments):
    theirs, ours = make_pair(rng, **CONSTRUCTORS[constructor])
    expected = call(theirs, **keras_arguments(theirs, CALLS[arguments]))
    actual = call(ours, **CALLS[arguments])
    assert_equal_outputs(actual, expected[: len(actual)])


def keras_arguments(layer, arguments):
    """On JAX Keras's fused attention refuses `value_dim`; asked for scores, Keras computes it."""
    if keras.backend.backend() == "jax" and layer.value_dim != layer.key_dim:
        return {**arguments, "return_attention_scores": True}
    return arguments


@pytest.mark.parametrize("arguments", ["plain", "mask", "scores", "causal", "masked_all"])
@pytest.mark.parametrize("constructor", ["plain", "use_gate"])
def test_training_with_dropout_equals_keras(rng, constructor, arguments):
    pair = make_pair(rng, dropout=0.5, seed=7, **CONSTRUCTORS[constructor])
    expected, actual = (call(layer, training=True, **CALLS[arguments]) for layer in pair)
    assert_equal_outputs(actual, expected)
    at_inference = to_numpy(call(pair[1], **CALLS[arguments])[0])
    assert np.abs(to_numpy(actual[0]) - at_inference).max() > 1e-2


GRIDS = {
    "plain": {},
    "scores": {"return_attention_scores": True},
    "dropout": {"dropout": 0.5, "seed": 7, "training": True, "return_attention_scores": True},
    "mask": {"mask": True},
}


@pytest.mark.parametrize(
    "attention_axes, arguments",
    [
        *((axes, "plain") for axes in (None, 1, 2, (2,), (1, 2), (-2,))),
        *((axes, name) for axes in (1, 2, (1, 2)) for name in ("scores", "dropout", "mask")),
    ],
)
def test_attention_axes_of_grids_equal_keras(rng, attention_axes, arguments):
    arguments = GRIDS[arguments]
    constructor = {key: arguments[key] for key in ("dropout", "seed") if key in arguments}
    options = {key: arguments[key] for key in arguments if key not in (*constructor, "mask")}
    query, value = (rng.normal(size=(2, 3, 5, HIDDEN)).astype("float32") for _ in range(2))
    pair = make_pair(rng, query.shape, value.shape, attention_axes=attention_axes, **constructor)
    if "mask" in arguments:
        # Scores are (batch, other axes, heads, query axes, key axes); the mask has no heads.
        shapes = {(1,): (2, 5, 3, 3), (2,): (2, 3, 5, 5), (1, 2): (2, 3, 5, 3, 5)}
        mask = rng.random(shapes[pair[1].attention_axes]) < 0.7
        options["attention_mask"] = mask
    expected, actual = (layer(query, value, **options) for layer in pair)
    as_tuple = "return_attention_scores" in options
    assert_equal_outputs(actual if as_tuple else (actual,), expected if as_tuple else (expected,))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("return_attention_scores", [False, True])
def test_fully_masked_rows_equal_keras(rng, dropout, return_attention_scores):
    pair = make_pair(rng, dropout=dropout)
    mask = MASK.copy()
    mask[1, 2] = False
    options = {"attention_mask": mask, "return_attention_scores": return_attention_scores}
    assert_equal_outputs(call(pair[1], **options), call(pair[0], **options))


@pytest.mark.parametrize("arguments", [name for name in CALLS if "masked" in CALLS[name]])
def test_output_carries_the_mask_of_the_query(rng, arguments):
    expected, actual = (
        get_keras_mask(call(layer, **CALLS[arguments])[0]) for layer in make_pair(rng)
    )
    if "query" in CALLS[arguments]["masked"]:
        np.testing.assert_array_equal(to_numpy(actual), QUERY_MASK)
        np.testing.assert_array_equal(to_numpy(expected), QUERY_MASK)
    else:
        assert actual is None
        assert expected is None


def test_mask_of_an_embedding_equals_keras(rng):
    tokens = np.array([[3, 1, 2, 0, 0], [2, 2, 1, 3, 0]])
    embedding = keras.layers.Embedding(5, HIDDEN, mask_zero=True)
    pair = make_pair(rng)
    expected, actual = (layer(x, x) for layer in pair for x in [embedding(tokens)])
    assert_close(actual, expected, 1e-6)
    unmasked = to_numpy(embedding(tokens))
    assert np.abs(to_numpy(pair[1](unmasked, unmasked)) - to_numpy(actual)).max() > 1e-4


@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_weights_equal_those_of_keras(rng, constructor):
    pair = make_pair(rng, **CONSTRUCTORS[constructor])
    expected, actual = (
        [(weight.path, weight.shape, weight.dtype) for weight in layer.weights] for layer in pair
    )
    assert actual == expected
    assert len(actual) == {"no_bias": 4, "use_gate": 10}.get(constructor, 8)


@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_configurations_are_interchangeable(constructor):
    kwargs = {**CONSTRUCTORS[constructor], "name": "attention"}
    theirs = keras.layers.MultiHeadAttention(NUM_HEADS, HEAD_DIM, **kwargs)
    ours = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM, **kwargs)
    assert {**theirs.get_config(), "flash_attention": None} == ours.get_config()
    from_ours = keras.layers.MultiHeadAttention.from_config(ours.get_config())
    from_theirs = BiasedMultiHeadAttention.from_config(theirs.get_config())
    assert from_ours.get_config() == theirs.get_config()
    assert from_theirs.get_config() == ours.get_config()


class Holder(keras.Model):
    """A model that holds an attention layer as an attribute."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.built = True


@pytest.mark.parametrize("source, target", [(0, 1), (1, 0)], ids=["from_keras", "to_keras"])
def test_checkpoints_are_interchangeable(rng, tmp_path, source, target):
    pair = make_pair(rng)
    Holder(pair[source]).save_weights(tmp_path / "model.weights.h5")
    expected = call(pair[source])
    randomize(pair[target], rng)
    Holder(pair[target]).load_weights(tmp_path / "model.weights.h5")
    assert_equal_outputs(call(pair[target]), expected)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_heads": 0},
        {"num_heads": 2.5},
        {"key_dim": -1},
        {"value_dim": 0},
        {"value_dim": "2"},
        {"output_shape": 2.5},
        {"attention_axes": "ab"},
        {"sliding_window": 0},
        {"sliding_window": 1.5},
        {"flash_attention": True, "dropout": 0.5},
        {"unknown": 1},
    ],
    ids=lambda kwargs: "-".join(f"{key}={value}" for key, value in kwargs.items()),
)
def test_constructor_errors_equal_those_of_keras(kwargs):
    expected, actual = (
        error_of(lambda cls=layer_class: cls(**{"num_heads": 2, "key_dim": 3, **kwargs}))
        for layer_class in (keras.layers.MultiHeadAttention, BiasedMultiHeadAttention)
    )
    assert actual == expected


@pytest.mark.parametrize("error", ["key_length", "hidden_dim", "flash_scores"])
def test_call_errors_equal_those_of_keras(rng, error):
    pair = make_pair(rng, flash_attention=error == "flash_scores")
    if error == "key_length":
        # Keras compares the lengths of keys and values only when it builds.
        pair = [type(layer).from_config(layer.get_config()) for layer in pair]
    query = np.ones((BATCH, QUERIES, HIDDEN), "float32")
    value = np.ones((BATCH, KEYS, HIDDEN + (error == "hidden_dim")), "float32")
    options = {
        "key_length": {"key": np.ones((BATCH, KEYS + 1, HIDDEN), "float32")},
        "flash_scores": {"return_attention_scores": True},
        "hidden_dim": {},
    }[error]
    expected, actual = (
        error_of(lambda layer=layer: layer(query, value, **options)) for layer in pair
    )
    assert actual == expected


def error_of(function):
    """Type and text of the error that `function` raises, without the class's name and arguments."""
    with pytest.raises(Exception) as info:  # noqa: PT011 - Keras decides which.
        function()
    text = str(info.value).split("Arguments received by")[0]
    return info.type, text.replace("BiasedMultiHeadAttention", "MultiHeadAttention")
