"""The contract of `DietEncoder` and `DietDecoder`, over every position encoding of the registry.

A new encoding needs no row. `ARGUMENTS` has what an encoding takes beside its name, and
`tests/layers/bias_layers.py` the scores of its bias by the paper.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    BiasedTransformerEncoder,
    CoordinateBias,
    DietDecoder,
    DietEncoder,
    RelativePositionBias,
    cache_positions,
)
from keras_diet.layers.attention import plan, prepared_terms
from keras_diet.layers.transformer.cached_positions import CachedPositionBias
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from tests.helpers import (
    assert_close,
    assert_weights_start_differently,
    check_config,
    check_layer,
    compiled_program,
    once,
    to_numpy,
)
from tests.layers import diet_decoders, diet_encoders
from tests.layers.bias_layers import Distances, expected_scores, reads_content
from tests.layers.diet_decoders import BATCH, MEMORY, PADDINGS, SOURCE_VALID, decode
from tests.layers.diet_encoders import (
    MASK,
    MAX_LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    VALID,
    make_inputs,
)

ARGUMENTS = {"diet_abs": {"rank": 5}, "diet_abs_input": {"rank": 5}, "shaw": {"max_distance": 3}}
NAMES = list(POSITION_ENCODINGS)
# One of each kind on every backend: a bias, its features, vectors of distances, angles, an input.
KINDS = ("diet_abs", "diet_rel", "shaw", "rotary", "input")
OTHERS = [name for name in [*NAMES, "layer"] if name not in KINDS]
# Each encoding with its ways of sharing, the default first.
CASES = [
    *((name, mode) for name in NAMES for mode in POSITION_ENCODINGS[name].sharing_modes or (None,)),
    ("layer", None),
]
FIRST_CASES = [next(case for case in CASES if case[0] == name) for name in KINDS]
# Encodings with a bias.
BIASED = [name for name in NAMES if POSITION_ENCODINGS[name].bias is not None]
# Biases that each layer computes from its own states.
OF_CONTENT = [name for name in BIASED if reads_content(POSITION_ENCODINGS[name])]
any_backend = pytest.mark.any_backend
# What trained encoders need. The values of the layers differ, and windows are shorter than inputs.
ADDITIONS = {
    "modern": {
        **{"gated": True, "use_bias": False, "normalization": "layer_norm_without_beta"},
        **{"normalize_first": True, "normalize_inputs": False, "attention_windows": (None, 3)},
    },
    "t5": {
        **{"gated": True, "normalization": "rms_norm", "attention_scale": 0.7},
        **{"attention_windows": (4, 3)},
    },
    "features": {"attention_implementation": "features"},
    "blocks": {"attention_implementation": "blockwise"},
}
# Encodings whose scores have another scale, or several products.
SCALED = ("shaw", "tupe_rel", "transformer_xl", "deberta", "deberta_v1")
# These run on every backend.
WITH_ADDITIONS = (("rotary", "modern"), ("diet_rel", "t5"))


def with_some_additions(names):
    """Every name by itself, and some with additions, which work in the same way with all."""
    some = (*WITH_ADDITIONS, ("diet_abs", "modern"), ("shaw", "t5"))
    cases = [*((name, None) for name in names), *(case for case in some if case[0] in names)]
    return pytest.mark.parametrize("name, additions", cases)


def arguments_of(name, max_length=MAX_LENGTH):
    if name == "layer":
        return {"position_encoding": Distances(NUM_HEADS, max_length, name="distances")}
    return {"position_encoding": name, **ARGUMENTS.get(name, {})}


def additions_of(name, additions):
    if additions is None:
        return {}
    wavelengths = {"max_wavelength": (7.0, 90.0)} if name == "rotary" else {}
    return {**ADDITIONS[additions], **wavelengths}


def make_encoder(name, rng, **kwargs):
    return diet_encoders.make_encoder(rng, **{**arguments_of(name), **kwargs})


def make_decoder(name, rng, **kwargs):
    arguments = arguments_of(name, diet_decoders.MAX_LENGTH)
    return diet_decoders.make_decoder(rng, **{**arguments, **kwargs})


def call_encoder(encoder, rng):
    x, segment_ids = make_inputs(rng)
    return encoder(x, segment_ids=segment_ids, padding_mask=VALID)


# === Against the reference ===


@pytest.mark.parametrize(
    "name, sharing", [*FIRST_CASES, *once(*(case for case in CASES if case not in FIRST_CASES))]
)
def test_encoder_equals_reference(rng, monkeypatch, name, sharing):
    # Both kinds of norms, and every place of segments.
    number, places = CASES.index((name, sharing)), ("per-head", "input", "none")
    arguments = {"normalize_first": number % 2 == 1, "segment_encoding": places[number % 3]}
    arguments |= {"num_segments": 3, "sharing": sharing, "attention_windows": (None, 3)}
    encoder = make_encoder(name, rng, **arguments)
    biases, counted = encoder.position_biases, []
    if name in BIASED:
        assert len(biases) == (1 if sharing == "layer-wise" else NUM_LAYERS)
        assert {bias.share_heads for bias in biases} == {sharing == "head-wise"}
    for bias in biases:
        monkeypatch.setattr(bias, "compute_scores", counting(bias, counted))
    x, _ = make_inputs(rng)
    segment_ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]])
    given_ids = None if arguments["segment_encoding"] == "none" else segment_ids
    output = encoder(x, segment_ids=given_ids, padding_mask=VALID)
    assert len({bias.name for bias in biases}) == len(biases)
    # Layers that share scores compute them once.
    times = NUM_LAYERS if name in OF_CONTENT and sharing == "layer-wise" else 1
    assert counted == [bias.name for bias in biases] * times
    expected = diet_encoders.expected_output(encoder, x, segment_ids, VALID[:, None, None])
    assert_close(output, expected)


def counting(bias, counted):
    """The function that computes the scores of a bias layer, which also notes its name."""
    compute_scores = bias.compute_scores

    def compute(*args):
        counted.append(bias.name)
        return compute_scores(*args)

    return compute


@pytest.mark.parametrize(
    "name, cross",
    [
        *((name, True) for name in KINDS),
        *once(*((name, True) for name in OTHERS), *((name, False) for name in (*KINDS, "layer"))),
    ],
)
def test_decoder_equals_reference(rng, name, cross):
    arguments = {"normalize_first": len(name) % 2 == 0, "cross_attention_positions": cross}
    decoder = make_decoder(name, rng, activation="tanh", **arguments)
    inputs = diet_decoders.make_inputs(rng)
    expected = diet_decoders.expected_output(decoder, *inputs)
    assert_close(decoder(*inputs, **PADDINGS), expected)
    cross = cross and not decoder.encoding.self_attention_only
    assert bool(decoder.cross_position_biases) == (cross and bool(decoder.position_biases))
    if name == "layer":
        # The first bias is the given layer. Cross-attention has a copy of it.
        assert decoder.position_biases == [decoder.position_encoding]
        assert decoder.position_encoding not in decoder.cross_position_biases


@pytest.mark.parametrize(
    "name, additions",
    [
        *WITH_ADDITIONS,
        *once(*((name, "modern") for name in KINDS if name != "rotary")),
        # A scale of the attention replaces that of the encoding.
        *once(*((name, "t5") for name in (*SCALED, "rotary", "input", "layer"))),
    ],
)
def test_additions_equal_reference(rng, name, additions):
    arguments = additions_of(name, additions)
    encoder, x = make_encoder(name, rng, **arguments), make_inputs(rng)[0]
    expected = diet_encoders.expected_output(encoder, x, mask=(VALID[:, None] & MASK)[:, None])
    # A padded query may have no key in its window.
    output = to_numpy(encoder(x, padding_mask=VALID, attention_mask=MASK))
    assert_close(output[VALID], expected[VALID])
    decoder = make_decoder(name, rng, activation="tanh", **arguments)
    inputs = diet_decoders.make_inputs(rng)
    assert_close(decoder(*inputs, **PADDINGS), diet_decoders.expected_output(decoder, *inputs))
    for stack in (encoder, decoder):
        norms = [
            getattr(block, f"{part}_layer_norm", "none in encoders")
            for block in stack.transformer_layers
            for part in ("self_attention", "cross_attention", "feedforward")
        ]
        assert [norm is None for norm in norms] == [additions == "modern", *[False] * 5]
        # All that is left are vectors of encodings.
        biases = {weight.path.split("/")[-2] for weight in stack.weights if weight.name == "bias"}
        assert bool(biases - {"position_bias"}) == arguments.get("use_bias", True)


@any_backend
def test_arguments_for_all_layers_and_patterns_that_repeat(rng, monkeypatch):
    masks, mask = [], prepared_terms.with_one_mask
    monkeypatch.setattr(
        prepared_terms, "with_one_mask", lambda *args: masks.append(args) or mask(*args)
    )
    patterns = [(3, 40.0), ((3, 3, 3), (40, 40)), ((3, 4), (7.0, 40.0, 90.0))]
    arguments = {"num_layers": 5, "segment_encoding": "none"}
    outputs, x = [], make_inputs(rng)[0]
    for windows, bases in patterns:
        arguments |= {"attention_windows": windows, "max_wavelength": bases}
        encoder = make_encoder("rotary", np.random.default_rng(3), **arguments)
        outputs.append(encoder(x))
        assert_close(outputs[-1], diet_encoders.expected_output(encoder, x))
    assert_close(outputs[0], outputs[1], 1e-6)
    # Layers with the same window share its mask.
    assert len(masks) == 1 + 1 + 2


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize(
    "name, implementation",
    [("rotary", "full"), ("diet_abs", "blockwise"), ("diet_rel", "blockwise")],
)
def test_one_graph_with_windows_and_masks_for_all_lengths(rng, monkeypatch, name, implementation):
    """A shorter block than the others, blocks of one size, and fewer queries than a block has."""
    import tensorflow as tf

    monkeypatch.setattr(plan, "BLOCK_SIZE", 3)
    arguments = {"attention_windows": (4, 3), "attention_implementation": implementation}
    encoder = make_encoder(name, rng, segment_encoding="none", **arguments)
    signature = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, None), "bool")]
    function = tf.function(lambda x, mask: encoder(x, attention_mask=mask), signature)
    for length in (7, 6, 2):
        (x, _), mask = make_inputs(rng, length), rng.random((BATCH, length, length)) < 0.7
        mask |= np.eye(length, dtype="bool")
        expected = diet_encoders.expected_output(encoder, x, mask=mask[:, None])
        assert_close(function(x, mask), expected)


# === Steps ===


@pytest.mark.parametrize(
    "name, additions",
    [
        *(("diet_abs", None), ("shaw", None), ("rotary", "modern")),
        # `test_decoder.py` has blocks on TensorFlow.
        pytest.param("diet_rel", "blocks", marks=pytest.mark.any_backend("jax")),
        *once(("diet_rel", "blocks"), ("diet_abs", "features"), ("diet_rel", "t5")),
        *once(*((name, None) for name in ("diet_rel", "rotary", "input", *OF_CONTENT, "layer"))),
    ],
)
def test_a_compiled_loop_equals_the_full_pass(rng, name, additions):
    """Step `i` is row `i`. The index is a tensor, and three targets share the keys of a source.

    `tests/layers/position/test_bias_layers.py` has the index of every bias.
    """
    decoder = make_decoder(name, rng, **additions_of(name, additions))
    _, source = diet_decoders.make_inputs(rng)
    target = rng.normal(size=(3 * BATCH, 5, diet_decoders.HIDDEN)).astype("float32")

    @compiled_program
    def both(target, source, valid):
        def step(index, state):
            outputs, memory = state
            token = ops.slice(target, (0, index, 0), (3 * BATCH, 1, diet_decoders.HIDDEN))
            output, memory = decoder(token, memory=memory, start_index=index)
            return ops.slice_update(outputs, (0, index, 0), output), memory

        memory = decoder.start_memory(3 * BATCH, MEMORY, source, valid)
        steps, _ = ops.fori_loop(0, 5, step, (ops.zeros_like(target), memory))
        repeated = (ops.repeat(each, 3, axis=0) for each in (source, valid))
        return steps, decoder(target, next(repeated), encoder_padding_mask=next(repeated))

    assert_close(*both(*map(ops.convert_to_tensor, (target, source, SOURCE_VALID))))


@any_backend
@with_some_additions([*NAMES, "layer"])
def test_steps_of_any_sizes_equal_the_full_pass(rng, name, additions):
    arguments = {"normalize_first": True, **additions_of(name, additions)}
    decoder = make_decoder(name, rng, **arguments)
    target, source = diet_decoders.make_inputs(rng)
    expected = decoder(target, source, encoder_padding_mask=SOURCE_VALID)
    memory = decoder.start_memory(BATCH, MEMORY, source, SOURCE_VALID)
    assert_close(decode(decoder, target, memory, (2, 1, 2))[0], expected)
    # The position matters, unless there is none.
    outputs = [decoder(target[:, 2:3], memory=memory, start_index=i)[0] for i in (2, 3)]
    difference = np.abs(to_numpy(outputs[0]) - to_numpy(outputs[1])).max()
    assert name == "none" or difference > 1e-4


# === Cached positions, implementations, recomputation ===


# One bias for all layers, with other terms and of other layers, and one for each.
@any_backend
@with_some_additions(["diet_abs", "diet_abs_input", "diet_rel", "tupe_rel", "layer"])
def test_cached_positions(rng, name, additions):
    encoder = make_encoder(name, rng, **additions_of(name, additions))
    cached = cache_positions(encoder)
    assert type(cached) is DietEncoder
    x, segment_ids = make_inputs(rng, MAX_LENGTH)
    assert_close(cached(x, segment_ids=segment_ids), encoder(x, segment_ids=segment_ids))
    for bias, copy in zip(encoder.position_biases, cached.position_biases, strict=True):
        assert type(copy) is CachedPositionBias
        expected = expected_scores(bias, MAX_LENGTH)
        assert_close(copy.scores, expected[0, : copy.num_score_heads])
    check_config(cached)
    decoder = make_decoder(name, rng, **additions_of(name, additions))
    target, source = diet_decoders.make_inputs(rng)
    expected = decoder(target, source, encoder_padding_mask=SOURCE_VALID)
    cached = cache_positions(decoder)
    assert_close(cached(target, source, encoder_padding_mask=SOURCE_VALID), expected)
    memory = cached.start_memory(BATCH, MEMORY, source, SOURCE_VALID)
    assert_close(decode(cached, target, memory, (2, 1, 2))[0], expected)


# Attention that has all scores at once.
AT_ONCE = ("shaw", "transformer_xl", "deberta", "deberta_v1")


@any_backend
@pytest.mark.parametrize(
    "name, implementation",
    [
        *((name, "features") for name in ("diet_abs", "input")),
        *((name, "blockwise") for name in [*NAMES, "layer"] if name not in AT_ONCE),
    ],
)
def test_implementations_are_equal(rng, monkeypatch, name, implementation):
    monkeypatch.setattr(plan, "BLOCK_SIZE", 2)
    outputs = []
    for each in (implementation, "full"):
        encoder = make_encoder(name, np.random.default_rng(3), attention_implementation=each)
        outputs.append(call_encoder(encoder, np.random.default_rng(5)))
    assert_close(*outputs)


# === Layers of Keras ===

COMMON = {
    "dropout": 0.3,
    "activation": "tanh",
    "layer_norm_epsilon": 1e-4,
    "kernel_initializer": keras.initializers.RandomNormal(stddev=0.3, seed=1),
    "bias_initializer": "ones",
    "normalize_first": True,
    "activation_dropout": 0.2,
    "attention_dropout": 0.1,
    "attention_implementation": "full",
    "recompute": "attention",
}
# With these values there are no biases of keys, which some tests expect to have no gradient.
WITHOUT_BIASES = {
    **{"gated": True, "use_bias": False, "normalization": "rms_norm", "normalize_inputs": False},
    **{"attention_windows": (None, 3), "attention_scale": 0.7},
}


@any_backend
@pytest.mark.parametrize("name", [*KINDS, "deberta", "layer"])
def test_configuration(name):
    """No argument has its default value."""
    wavelength = {"max_wavelength": (7.0, 90.0)} if name == "rotary" else {}
    arguments = {**arguments_of(name), **COMMON, **WITHOUT_BIASES, **wavelength}
    arguments |= {"max_sequence_length": MAX_LENGTH, "encode_inputs": False, "name": "stack"}
    for stack_class, own in (
        (DietEncoder, {"num_segments": 3, "segment_encoding": "input"}),
        (DietDecoder, {"cross_attention_positions": False}),
    ):
        stack = stack_class(2, NUM_HEADS, 11, **arguments, **own)
        check_config(stack)
        stack.build((2, 5, 6))
        block = stack.transformer_layers[1]
        assert (block.activation_dropout, block.recompute_attention) == (0.2, True)
        assert block.self_attention.dropout == 0.1, "another rate than that of sublayers"
        assert (block.gated, block.use_bias, block.normalization) == (True, False, "rms_norm")
        copy = stack.from_config(stack.get_config())
        copy.build((2, 5, 6))
        copy.set_weights(stack.get_weights())


PAIRS = np.random.default_rng(3).normal(size=(BATCH, 5, 5, 3)).astype("float32")
COORDINATES = {
    "position_encoding": CoordinateBias([RelativePositionBias(NUM_HEADS, max_length=3)]),
    "inputs": {"coordinates": np.array([[[2], [0], [1], [1], [2]]] * BATCH, "int32")},
}


@pytest.mark.parametrize(
    "name, num_layers, arguments, policies",
    [
        ("shaw", 1, {"sharing": "head-wise"}, ("mixed_bfloat16",)),
        *(
            pytest.param(*row, marks=any_backend)
            for row in (
                ("diet_abs", 2, {"sharing": "none"}, ("mixed_float16", "bfloat16")),
                ("t5", 2, {**WITHOUT_BIASES, "use_bias": True}, ("mixed_float16", "bfloat16")),
                ("diet_rel", 2, {"sharing": "layer-wise"}, ()),
                ("input", 1, {"segment_encoding": "input"}, ("mixed_float16",)),
                ("tupe_rel", 1, {"sharing": "head-wise"}, ("mixed_bfloat16",)),
                ("layer", 2, {"sharing": "none"}, ("bfloat16",)),
                ("diet_abs", 1, {"projection_dim": 4, "segment_encoding": "input"}, ()),
                ("none", 1, {"pair_dim": 3, "inputs": {"pairs": PAIRS}}, ()),
                ("layer", 2, {"sharing": "none", **COORDINATES}, ()),
            )
        ),
    ],
)
def test_encoder_as_a_layer(rng, name, num_layers, arguments, policies):
    x, _ = make_inputs(rng)
    # All positions are used, or theirs would have no gradient.
    sizes = {"num_segments": 3, "max_sequence_length": 5, "name": "encoder"}
    arguments = {**arguments_of(name, 5), **COMMON, **sizes, **arguments}
    inputs = arguments.pop("inputs", {})
    check_layer(
        *(DietEncoder(num_layers, NUM_HEADS, 11, **arguments), x),
        **inputs,
        # All pairs of segments occur, or theirs would have no gradient.
        segment_ids=np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]], "int32"),
        padding_mask=np.array([[True] * 5, [True] * 4 + [False]]),
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )


@pytest.mark.parametrize(
    "name, arguments, returns_scores, policies",
    [
        ("diet_abs", {"sharing": "none"}, True, ("mixed_bfloat16",)),
        *once(("sinusoidal", {"cross_attention_positions": False}, False, ())),
    ],
)
def test_decoder_as_a_layer(rng, name, arguments, returns_scores, policies):
    sizes = {"max_sequence_length": diet_decoders.SOURCE, "name": "decoder"}
    check_layer(
        DietDecoder(
            NUM_LAYERS, NUM_HEADS, 11, **arguments_of(name), **COMMON, **sizes, **arguments
        ),
        *diet_decoders.make_inputs(rng),
        **PADDINGS,
        return_attention_scores=returns_scores,
        zero_gradient=["key/bias"],
        policies=policies,
    )


@any_backend
@pytest.mark.usefixtures("keras_initializers")
def test_weights_of_one_shape_start_differently():
    """Kernels and biases. The projections and both dense layers have the same shapes."""
    arguments = {"sharing": "none", "bias_initializer": "random_normal"}
    stack = DietDecoder(2, 1, 6, max_sequence_length=6, **arguments)
    stack.build((2, 5, 6))
    assert_weights_start_differently(stack)


# === Frozen layers ===

COPIES = {
    "file": lambda model, path: model.save(path) or keras.saving.load_model(path),
    "clone": lambda model, path: keras.models.clone_model(model),
    "cache": lambda model, path: cache_positions(model),
}


@any_backend
@pytest.mark.parametrize("copy", COPIES.values(), ids=list(COPIES))
def test_what_is_frozen_inside_of_a_layer_stays_frozen(rng, tmp_path, copy):
    encoder = make_encoder("diet_rel", rng)
    block = BiasedTransformerEncoder(intermediate_dim=7, num_heads=NUM_HEADS)
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, block(encoder(inputs)))
    frozen = [encoder.transformer_layers[1], block.self_attention.query_dense]
    for layer in frozen:
        layer.trainable = False
    expected = len(model.trainable_weights)
    copied = copy(model, tmp_path / "model.keras")
    biases = sum("scores" in weight.path for weight in copied.weights)
    assert len(copied.trainable_weights) == expected - biases
    encoder, block = copied.layers[1:]
    assert [each.trainable for each in encoder.transformer_layers] == [True, False]
    assert not block.self_attention.query_dense.trainable
    assert block.self_attention.key_dense.trainable


@any_backend
def test_a_layer_that_is_not_built_keeps_its_frozen_layers(rng):
    encoder = make_encoder("diet_rel", rng)
    encoder.transformer_layers[1].trainable = False
    copy = DietEncoder.from_config(encoder.get_config())
    assert copy.get_config()["frozen_layers"] == ["transformer_layer_1"]


@any_backend
def test_symbolic_calls(rng):
    """With arguments by position, and for any length."""
    inputs, ids, mask = keras.Input((5, 6)), keras.Input((5,)), keras.Input((5,))
    output, scores = make_encoder("t5", rng)(inputs, ids, mask, return_attention_scores=True)
    assert output.shape == (None, 5, 6)
    assert [each.shape for each in scores] == [(None, NUM_HEADS, 5, 5)] * NUM_LAYERS
    target, source = keras.Input((5, 12)), keras.Input((4, 12))
    assert make_decoder("t5", rng)(target, source, mask).shape == (None, 5, 12)
    # Keras traces a length that is not known with 83 tokens, which are more than a stack may take.
    inputs, source = keras.Input((None, 12)), keras.Input((None, 12))
    encoder = DietEncoder(1, 3, 7, max_sequence_length=9)
    output, (scores,) = encoder(inputs, return_attention_scores=True)
    assert (output.shape, scores.shape) == ((None, None, 12), (None, 3, None, None))
    decoder = DietDecoder(1, 3, 7, max_sequence_length=9)
    output, (own,), (cross,) = decoder(inputs, source, return_attention_scores=True)
    assert output.shape == (None, None, 12)
    assert own.shape == cross.shape == (None, 3, None, None)
