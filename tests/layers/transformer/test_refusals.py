"""What blocks and stacks refuse, because it would be silently wrong. One row for each check."""

import functools

import keras
import numpy as np
import pytest

from keras_diet import layers as L
from tests.layers.diet_encoders import Slopes

pytestmark = pytest.mark.any_backend
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 7, 15)).astype("float32")
SOURCE = RNG.normal(size=(2, 5, 13)).astype("float32")
IDS = np.zeros((2, 7), int)
ADDITIVE = -1e9
SYMBOLIC = keras.Input((7, 15)), keras.Input((5, 13))


# === Constructors ===


LINEAR = {"rope_type": "linear", "factor": 3.0}
SIZE, RATE, FLAG = "must be a positive integer", r"must be a number in \[0, 1\]", "must be one of"
ROWS = [
    ("intermediate_dim", 0, SIZE),
    ("num_heads", 2.5, SIZE),
    ("dropout", 1.5, RATE),
    ("activation_dropout", -0.1, RATE),
    ("attention_dropout", 1.1, RATE),
    ("layer_norm_epsilon", -1.0, "must be a positive, finite number"),
    ("gated", "swiglu", FLAG),
    ("normalization", "batch_norm", FLAG),
    ("head_dim", 0, SIZE),
    ("attention_windows", 0, SIZE),
    ("attention_windows", (None, 2.5), SIZE),
    ("attention_windows", (), "must have a value for each layer"),
    ("attention_scale", 0, "must be a positive, finite number"),
    ("rope_scaling", {"rope_type": "ntk", "factor": 2.0}, "'rope_type'.*must be one of.*'ntk'"),
    ("rope_scaling", {**LINEAR, "beta_fast": 2.0}, r"'linear' takes factor.*\['beta_fast'\]"),
    ("rope_scaling", ({"rope_type": "yarn", "factor": 2.0}, None), f"'original.*{SIZE}.*None"),
    ("num_layers", "2", SIZE),
    ("max_sequence_length", 0, SIZE),
    ("attention_implementation", "fast", FLAG),
    ("recompute", "layer", FLAG),
    ("rank", 0, SIZE),
    ("initial_score_stddev", 0.0, "must be a positive, finite number"),
    ("segment_encoding", "both", FLAG),
    ("num_segments", "2", SIZE),
    ("position_encoding", "xlnet", "must be one of.*'diet_abs'.*'t5'.*a bias layer"),
    ("position_encoding", L.AlibiPositionBias, "or a bias layer"),
]


@pytest.mark.parametrize("name, value, message", ROWS, ids=[row[0] for row in ROWS])
def test_arguments(name, value, message):
    arguments = {"num_layers": 1, "num_heads": 3, "intermediate_dim": 23}
    with pytest.raises(ValueError, match=f"(?s){message}") as error:
        L.DietEncoder(**{**arguments, name: value})
    assert name in str(error.value)


@pytest.mark.parametrize(
    "name, value, others",
    [
        ("normalize_inputs", False, {"normalize_first": True}),
        ("max_wavelength", (7.0, 90.0), {"position_encoding": "rotary"}),
        ("rope_scaling", (LINEAR, None), {"position_encoding": "rotary"}),
    ],
)
def test_what_differs_between_layers_needs_weights_of_each(name, value, others):
    with pytest.raises(ValueError, match=rf"With `share_layers=True`.*{name}.*must be.*{name}="):
        L.DietEncoder(2, 3, 23, share_layers=True, **{name: value}, **others)


# Arguments that an encoding does not use, or not with this value.
UNUSED = [
    ("diet_rel", "rank", 5),
    ("shaw", "projection_dim", 5),
    ("diet_abs", "max_distance", 5),
    ("sinusoidal", "max_wavelength", (7.0, 90.0)),
    ("diet_rel", "rope_scaling", LINEAR),
    ("tupe_abs", "initial_score_stddev", 0.3),
    ("rotary", "sharing", "none"),
    (Slopes(3), "rank", 5),
    ("shaw", "sharing", "none"),
    (Slopes(3), "sharing", "head-wise"),
]


@pytest.mark.parametrize("name, argument, value", UNUSED)
def test_arguments_that_an_encoding_does_not_use(name, argument, value):
    encoding = repr(name) if isinstance(name, str) else "a bias layer"
    message = rf"`{argument}` (is not supported.*{encoding}|must be one of).*{value!r}"
    with pytest.raises(ValueError, match=message):
        L.DietEncoder(
            1, 3, 23, position_encoding=name, segment_encoding="none", **{argument: value}
        )


# === Calls ===


@functools.cache
def encoder(**arguments):
    return L.DietEncoder(1, 3, 23, max_sequence_length=9, **arguments)


@functools.cache
def block():
    return L.BiasedTransformerEncoder(23, 3)


def built(layer):
    layer(X, SOURCE)
    return layer


@functools.cache
def decoder():
    return built(L.DietDecoder(1, 3, 23, max_sequence_length=9))


@functools.cache
def decoder_block():
    return built(L.BiasedTransformerDecoder(23, 3))


def start(make, **arguments):
    return make().start_memory(
        **{"batch_size": 2, "length": 8, "encoder_outputs": SOURCE, **arguments}
    )


def step(make, x=X[:, :2], start_index=1, **arguments):
    return make()(x, memory=start(make), start_index=start_index, **arguments)


SHAPE, VALUES = "must have the shape", "must be True or 1"
IGNORED = "`segment_ids` would be ignored"
CALLS = {
    "projection_dim": (
        lambda: L.DietEncoder(1, 3, 23, projection_dim=5),
        "needs.* segment_encoding='input'.*projection_dim=5.*'per-head'",
    ),
    "projection_dim 0": (
        lambda: L.DietEncoder(1, 3, 23, projection_dim=0, segment_encoding="none"),
        "`projection_dim` must be a positive integer",
    ),
    "projected windows": (
        lambda: L.DietEncoder(
            1, 3, 23, projection_dim=5, segment_encoding="none", attention_windows=3
        ),
        "`attention_windows=None`.*projection_dim=5, .*attention_windows=3",
    ),
    "wavelength": (
        lambda: L.DietEncoder(1, 3, 23, "rotary", max_wavelength=(10, -1)),
        "`max_wavelength` must be a positive, finite number.*-1",
    ),
    "heads": (lambda: L.DietEncoder(1, 4, 23)(X), "divisible by `num_heads`.*=15, num_heads=4"),
    "length": (lambda: encoder()(np.zeros((2, 10, 15))), "longer than `max_sequence.*length=10"),
    "ids shape": (
        lambda: encoder(segment_encoding="input")(X, IDS[:, :6]),
        r"`segment_ids` must be an array.*shape=\(2, 6\)",
    ),
    "ids range": (
        lambda: encoder(segment_encoding="input")(X, IDS + 2),
        r"`segment_ids` must be integers.*2\)",
    ),
    "ids ignored": (lambda: encoder(segment_encoding="none")(X, IDS), IGNORED),
    "ids encoded": (
        lambda: encoder(segment_encoding="input", encode_inputs=False)(X, IDS),
        f"{IGNORED}.*encode_inputs=False",
    ),
    "documents shape": (
        lambda: encoder()(X, document_ids=IDS[:, :6]),
        r"`document_ids` must be an array.*shape=\(2, 6\)",
    ),
    "negative document": (
        lambda: encoder()(X, document_ids=IDS - 1),
        "`document_ids` must be integers from 0 on.*values from -1 to -1",
    ),
    "split document": (
        lambda: encoder()(X, document_ids=np.array([[0, 2, 0, 3, 3, 0, 0], [1, 1, 2, 2, 1, 0, 0]])),
        r"the tokens of a document next to each other.*\[1, 1, 2, 2, 1, 0, 0\]",
    ),
    "projected documents": (
        lambda: encoder(projection_dim=5, segment_encoding="none")(X, document_ids=IDS),
        "`document_ids` need `projection_dim=None`.*projection_dim=5",
    ),
    "padding shape": (lambda: encoder()(X, padding_mask=np.ones((2, 6), bool)), SHAPE),
    "attention additive": (
        lambda: encoder()(X, attention_mask=np.full((2, 7, 7), ADDITIVE)),
        VALUES,
    ),
    "block padding": (lambda: block()(X, padding_mask=np.ones((2, 6), bool)), SHAPE),
    "block terms": (
        lambda: block()(X, padding_mask=IDS + 1, score_terms=L.ScoreTerms()),
        "`score_terms` replaces the arguments",
    ),
    "target length": (
        lambda: decoder()(np.zeros((2, 10, 15)), SOURCE),
        "target is longer than `max_sequence_length`.*10",
    ),
    "memory length": (
        lambda: start(decoder, length=10),
        "target is longer than `max_sequence_length`.*10",
    ),
    "index": (lambda: decoder()(X, SOURCE, start_index=2), "`start_index` needs a `memory`.*=2"),
    "end": (lambda: step(decoder, start_index=7), "must fit into the memory.*start_index=7"),
    "targets": (lambda: step(decoder, x=X[:1, :2]), r"must fit into the memory.*\(1, 2, 15\)"),
    "source mask": (
        lambda: step(decoder, encoder_padding_mask=np.ones((2, 5), bool)),
        "A memory holds the padding of the source",
    ),
    "source padding": (
        lambda: decoder()(X, SOURCE, encoder_padding_mask=np.full((2, 5), ADDITIVE)),
        f"`encoder_padding_mask` {VALUES}",
    ),
    "memory padding": (
        lambda: start(decoder, encoder_padding_mask=np.full((2, 5), ADDITIVE)),
        f"`encoder_padding_mask` {VALUES}",
    ),
    "decoder block terms": (
        lambda: decoder_block()(X, SOURCE, padding_mask=IDS + 1, score_terms=L.ScoreTerms()),
        "`score_terms` replaces the arguments padding_mask",
    ),
    "decoder block position and terms": (
        lambda: step(decoder_block, score_terms=L.ScoreTerms()),
        "`score_terms` replaces the arguments start_index",
    ),
    "decoder block end of terms": (
        lambda: step(decoder_block, start_index=0, score_terms=L.ScoreTerms(start_index=7)),
        "must fit into the memory.*start_index=7",
    ),
    "decoder block cross terms": (
        lambda: decoder_block()(
            X,
            SOURCE,
            cross_attention_bias=np.zeros((1, 3, 7, 5)),
            cross_score_terms=L.ScoreTerms(),
        ),
        "`cross_score_terms` replaces the arguments cross_attention_bias",
    ),
    "decoder block symbolic": (
        lambda: decoder_block()(*SYMBOLIC, cross_attention_bias=L.AlibiPositionBias(3)),
        "In a functional model `attention_bias` must be a tensor",
    ),
}


@pytest.mark.parametrize("call, message", CALLS.values(), ids=list(CALLS))
def test_calls(call, message):
    with pytest.raises((ValueError, IndexError), match=f"(?s){message}"):
        call()
