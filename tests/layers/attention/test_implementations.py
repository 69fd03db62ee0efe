"""Every way to compute attention gives the same outputs; which one `"auto"` takes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend
from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    DietEncoder,
    RelativePositionBias,
    cache_positions,
)
from keras_diet.layers.attention import attention_implementation, biased_multi_head_attention
from keras_diet.layers.attention.attention_implementation import has_features
from keras_diet.layers.transformer import diet_encoder
from tests.helpers import assert_close, compiled, gradients, to_numpy, weighted_sum
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    Slopes,
    expected_output,
    make_encoder,
    make_inputs,
)
from tests.models.tiny import random_inputs, randomize_weights, tiny_backbone

BACKEND = keras.backend.backend()
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
BLOCK_SIZE = 3
IMPLEMENTATIONS = ("full", "features", "blockwise")
LOW_RANK = {"position_encoding": "diet_abs", "rank": 5}
HEAD_WISE = {"position_encoding": "diet_abs", "rank": 2, "sharing": "head-wise"}
RELATIVE = {"position_encoding": "diet_rel", "sharing": "head-wise"}
NAMED = {name: {"position_encoding": name} for name in ("input", "none", "t5", "tupe_rel")}
CASES = [
    (LOW_RANK, ("features", "blockwise")),
    (HEAD_WISE, ("features",)),
    (RELATIVE, ("blockwise",)),
    (NAMED["none"], ("blockwise",)),
    (NAMED["tupe_rel"], ("blockwise",)),
]


def case_id(value):
    return "-".join(map(str, value.values() if isinstance(value, dict) else value))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(diet_encoder, "BLOCK_SIZE", BLOCK_SIZE)


def make_pair(rng, name, **kwargs):
    """Two encoders with the same weights; the first computes all scores at once."""
    full = make_encoder(rng, attention_implementation="full", **kwargs)
    other = make_encoder(rng, attention_implementation=name, **kwargs)
    other.set_weights(full.get_weights())
    return full, other


def assert_same_gradients(rng, encoder, others):
    """Compare outputs and gradients of encoders, each of them called in its turn."""
    x, segment_ids = make_inputs(rng)
    inputs = keras.Variable(x)
    # The gradient of the loss by these is the output; that of padding is nobody's.
    random = keras.Variable(rng.normal(size=x.shape) * VALID[..., None])

    def gradients_of(encoder):
        def loss():
            output = encoder(
                ops.convert_to_tensor(inputs), segment_ids=segment_ids, padding_mask=VALID
            )
            return weighted_sum(output, random)

        found = gradients(loss, [inputs, random, *encoder.trainable_variables])
        found[1] = found[1][VALID]
        return found

    expected = gradients_of(encoder)
    weights = [inputs, random, *encoder.trainable_variables]
    for other in others:
        other.set_weights(encoder.get_weights())
        for weight, found, wanted in zip(weights, gradients_of(other), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5, err_msg=weight.path)
            assert weight.path.endswith("key/bias") or np.abs(found).max() > 1e-4, weight.path


@pytest.mark.parametrize("positions, names", CASES, ids=case_id)
def test_outputs_and_gradients_are_the_same(rng, positions, names):
    full, *others = (
        make_encoder(rng, attention_implementation=name, **positions) for name in ("full", *names)
    )
    assert_same_gradients(rng, full, others)


def compute_as_on_tpus(monkeypatch):
    monkeypatch.setattr(_backend, "adds_inside_softmax", lambda: True)
    monkeypatch.setattr(_backend, "has_fused_attention", lambda dtype, head_dim: False)


@pytest.mark.parametrize("positions", [LOW_RANK, RELATIVE, NAMED["none"]], ids=case_id)
def test_segments_and_padding_may_be_added_as_on_tpus(rng, monkeypatch, positions):
    append = biased_multi_head_attention.append_features
    appended = []

    def encoders():
        compute_as_on_tpus(monkeypatch)
        monkeypatch.setattr(
            biased_multi_head_attention,
            "append_features",
            lambda *tensors: appended.append(tensors) or append(*tensors),
        )
        yield make_encoder(rng, attention_implementation="full", **positions)
        assert not appended
        yield make_encoder(rng, attention_implementation="blockwise", **positions)
        assert appended

    as_columns = make_encoder(rng, attention_implementation="full", **positions)
    assert_same_gradients(rng, as_columns, encoders())
    appended.clear()
    x, segment_ids = make_inputs(rng)
    as_columns(x, segment_ids=segment_ids, padding_mask=VALID, training=True)
    assert appended


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_added_as_on_tpus_in_half_precision(rng, monkeypatch, dtype):
    x, segment_ids = make_inputs(rng)
    encoder = make_encoder(rng, dtype=dtype, **LOW_RANK)
    expected = encoder(x, segment_ids=segment_ids, padding_mask=VALID)
    compute_as_on_tpus(monkeypatch)
    found = encoder(x, segment_ids=segment_ids, padding_mask=VALID)
    assert_close(to_numpy(found)[VALID], to_numpy(expected)[VALID], 0.05)


@pytest.mark.parametrize(
    "positions, name, segment_encoding",
    [
        (NAMED["none"], "features", "per-head"),
        (NAMED["none"], "features", "none"),
        (NAMED["none"], "blockwise", "none"),
        (NAMED["input"], "features", "per-head"),
        (NAMED["t5"], "blockwise", "per-head"),
        (LOW_RANK, "features", "none"),
        (RELATIVE, "blockwise", "input"),
    ],
    ids=lambda value: value if isinstance(value, str) else case_id(value),
)
def test_outputs_equal_reference(rng, positions, name, segment_encoding):
    encoder = make_encoder(
        rng, **positions, attention_implementation=name, segment_encoding=segment_encoding
    )
    x, segment_ids = make_inputs(rng)
    inputs = {} if segment_encoding == "none" else {"segment_ids": segment_ids}
    output = compiled(lambda: encoder(x, padding_mask=VALID, **inputs))()
    expected = expected_output(encoder, x, **inputs, mask=VALID[:, None, None])
    assert_close(to_numpy(output)[VALID], expected[VALID], 1e-4)


@pytest.mark.parametrize(
    "positions, name",
    [(LOW_RANK, "features"), (RELATIVE, "blockwise")],
    ids=lambda value: value if isinstance(value, str) else case_id(value),
)
def test_masks(rng, positions, name):
    full, other = make_pair(rng, name, **positions)
    x, segment_ids = make_inputs(rng)
    mask = rng.random((BATCH, LENGTH, LENGTH)) < 0.6
    mask[:, range(LENGTH), range(LENGTH)] = True
    arguments = {
        "segment_ids": segment_ids,
        "padding_mask": VALID,
        "attention_mask": mask,
        "use_causal_mask": True,
    }
    output = to_numpy(compiled(lambda: other(x, **arguments))())
    visible = mask[:, None] & VALID[:, None, None] & np.tri(LENGTH, dtype="bool")
    assert_close(output[VALID], expected_output(full, x, segment_ids, visible)[VALID], 1e-4)


@pytest.mark.parametrize("name", ["features", "blockwise", "auto"])
def test_scores_that_are_asked_for(rng, name):
    full, other = make_pair(rng, name, position_encoding="diet_abs")
    x, segment_ids = make_inputs(rng)
    arguments = {"segment_ids": segment_ids, "padding_mask": VALID}
    output, scores = other(x, return_attention_scores=True, **arguments)
    expected, expected_scores = full(x, return_attention_scores=True, **arguments)
    assert_close(output, expected)
    assert len(scores) == NUM_LAYERS
    for layer_scores, expected_layer_scores in zip(scores, expected_scores, strict=True):
        assert tuple(layer_scores.shape) == (BATCH, NUM_HEADS, LENGTH, LENGTH)
        assert_close(layer_scores, expected_layer_scores)
    assert_close(to_numpy(other(x, **arguments))[VALID], to_numpy(output)[VALID])


@keras.saving.register_keras_serializable("keras_diet_tests")
class BlockSlopes(Slopes):
    """A user's own bias that knows the rows of a block."""

    def call(self, query, key=None, start_index=0):
        key = query if key is None else key
        i = ops.arange(ops.shape(query)[1]) + start_index
        distance = ops.abs(i[:, None] - ops.arange(ops.shape(key)[1])[None, :])
        return ops.reshape(self.slopes, (1, -1, 1, 1)) * ops.cast(distance, self.compute_dtype)


def test_bias_layer_of_the_user(rng):
    x, segment_ids = make_inputs(rng)
    encoder = make_encoder(
        rng, position_encoding=BlockSlopes(NUM_HEADS), attention_implementation="blockwise"
    )
    plain = make_encoder(rng, position_encoding=Slopes(NUM_HEADS), attention_implementation="full")
    plain.set_weights(encoder.get_weights())
    output = compiled(lambda: encoder(x, segment_ids=segment_ids))()
    assert_close(output, plain(x, segment_ids=segment_ids))


def test_cached_positions_in_blocks(rng):
    from keras_diet.layers import cache_positions

    _, encoder = make_pair(rng, "blockwise", position_encoding="diet_rel")
    x, segment_ids = make_inputs(rng)
    expected = compiled(lambda: encoder(x, segment_ids=segment_ids))()
    cache_positions(encoder)
    assert_close(compiled(lambda: encoder(x, segment_ids=segment_ids))(), expected)


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("features", {"position_encoding": "diet_rel"}),
        ("features", {"position_encoding": "t5"}),
        ("features", {"position_encoding": "tupe_abs"}),
        ("features", {"position_encoding": "shaw"}),
        ("features", {"projection_dim": 4, "segment_encoding": "input"}),
        ("features", {"position_encoding": Slopes(NUM_HEADS)}),
        ("blockwise", {"position_encoding": "shaw"}),
        ("blockwise", {"projection_dim": 4, "segment_encoding": "input"}),
        ("blockwise", {"position_encoding": Slopes(NUM_HEADS)}),
    ],
    ids=str,
)
def test_what_an_encoding_cannot_do_is_refused(rng, name, arguments):
    works = "Pass 'auto', 'full' or 'blockwise'" if name == "features" else "Pass 'auto' or 'full'"
    match = f"attention_implementation='{name}' needs.*{works}.*Received"
    with pytest.raises(ValueError, match=match):
        make_encoder(rng, attention_implementation=name, **arguments)
    make_encoder(rng, attention_implementation="full", **arguments)
    make_encoder(rng, attention_implementation="auto", **arguments)


@pytest.mark.parametrize("name", ["flash", None, "Full", 3])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=f"attention_implementation.*'blockwise'.*{name!r}"):
        DietEncoder(1, 1, 3, attention_implementation=name)


def chosen(encoder, length, training=False):
    implementation = encoder._implementation(keras.KerasTensor((None, length, HIDDEN)), training)
    assert implementation in IMPLEMENTATIONS
    return implementation


# Without a fused kernel, and with one: positions, and what is chosen from a length on.
CHOICES = [
    ({"position_encoding": "diet_abs"}, "blockwise", "features"),
    ({"position_encoding": "none"}, "blockwise", "features"),
    ({"position_encoding": "diet_rel"}, "blockwise", "blockwise"),
    ({"position_encoding": "tupe_rel"}, "blockwise", "blockwise"),
    ({"position_encoding": Slopes(NUM_HEADS)}, "full", "full"),
    ({"position_encoding": "shaw"}, "full", "full"),
    ({"projection_dim": 4, "segment_encoding": "none"}, "full", "full"),
]


@pytest.mark.parametrize("fused", [False, True, None])
@pytest.mark.parametrize("arguments, unfused_choice, fused_choice", CHOICES, ids=str)
def test_choice(rng, monkeypatch, arguments, unfused_choice, fused_choice, fused):
    monkeypatch.setattr(attention_implementation, "LONG", 5)
    monkeypatch.setattr(attention_implementation, "LONG_FUSED", 7)
    if fused is None:
        # As the backend is.
        fused = _backend.has_fused_attention("float32", HIDDEN // NUM_HEADS)
    else:
        monkeypatch.setattr(_backend, "has_fused_attention", lambda dtype, head_dim: fused)
    monkeypatch.setattr(_backend, "has_fused_gradient_of_bias", lambda: True)
    encoder = make_encoder(rng, max_sequence_length=11, dropout=0.1, **arguments)
    first, choice = (7, fused_choice) if fused else (5, unfused_choice)
    assert [chosen(encoder, length) for length in (first - 1, first)] == ["full", choice]
    # An unknown length may be short.
    assert chosen(encoder, None) == "full"
    # Fused kernels drop no probabilities.
    assert [chosen(encoder, length, training=True) for length in (4, 5)] == ["full", unfused_choice]


@pytest.mark.parametrize("limit, choice", [(16, "features"), (8, "blockwise"), (2, "blockwise")])
def test_features_need_a_kernel_that_takes_heads_so_large(rng, monkeypatch, limit, choice):
    monkeypatch.setattr(attention_implementation, "LONG", 5)
    monkeypatch.setattr(attention_implementation, "LONG_FUSED", 7)
    monkeypatch.setattr(_backend, "has_fused_attention", lambda dtype, size: size <= limit)
    monkeypatch.setattr(_backend, "has_fused_gradient_of_bias", lambda: True)
    # Heads of 2, two segments and padding, and 5 features of positions, in multiples of 8.
    assert HIDDEN // NUM_HEADS == 2
    encoder = make_encoder(rng, max_sequence_length=11, position_encoding="diet_abs", rank=5)
    assert chosen(encoder, 7) == choice
    # Segments and padding alone.
    assert chosen(encoder, 6) == ("full" if limit >= 8 else "blockwise")


@pytest.mark.skipif(BACKEND != "torch", reason="its kernel on CPUs takes no bias with a gradient")
def test_training_without_dropout_has_no_kernel_for_the_bias(rng, monkeypatch):
    import torch

    monkeypatch.setattr(attention_implementation, "LONG", 5)
    monkeypatch.setattr(attention_implementation, "LONG_FUSED", 7)
    learned, none = (
        make_encoder(rng, position_encoding=encoding) for encoding in ("diet_abs", "none")
    )
    assert [chosen(encoder, 6) for encoder in (learned, none)] == ["features", "full"]
    with torch.no_grad():
        assert chosen(learned, 6) == "full"
    learned.trainable = False
    assert chosen(learned, 6) == "full"


@pytest.mark.parametrize("call", ["training", "inference"])
def test_blocks_drop_cached_scores_in_training(rng, call):
    x = rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float32")
    bias = AbsolutePositionBias(NUM_HEADS, LENGTH, rank=3)
    attention = BiasedMultiHeadAttention(NUM_HEADS, 2)
    attention(x, x, attention_bias=bias, block_size=2)
    bias.cache_scores()
    attention(x, x, attention_bias=bias, block_size=2, training=call == "training")
    assert bias.has_cached_scores == (call == "inference")


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="has a fused kernel here")
def test_without_a_kernel_for_float16_there_are_blocks(rng, monkeypatch):
    monkeypatch.setattr(attention_implementation, "LONG", 5)
    monkeypatch.setattr(attention_implementation, "LONG_FUSED", 5)
    choices = [
        chosen(make_encoder(rng, dtype=dtype), 5) for dtype in ("mixed_bfloat16", "mixed_float16")
    ]
    assert choices == ["features", "blockwise"]


class Doubled(AbsolutePositionBias):
    """Its features are those of its base class, its scores are not."""

    def compute_scores(self, query_length, key_length, start_index):
        return 2 * super().compute_scores(query_length, key_length, start_index)


class WithFeaturesOfItsOwn(Doubled):
    def features(self, query, key=None, start_index=0):
        query, key = super().features(query, key, start_index)
        return 2 * query, key


class NamedFeatures(Doubled):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.features = 8


@pytest.mark.parametrize(
    "bias, fits",
    [
        (AbsolutePositionBias, True),
        (Doubled, False),
        (WithFeaturesOfItsOwn, True),
        (NamedFeatures, False),
        (RelativePositionBias, False),
    ],
)
def test_features_of_a_base_class_are_not_taken_for_those_of_other_scores(rng, bias, fits):
    arguments = {"rank": 3} if issubclass(bias, AbsolutePositionBias) else {}
    layer = bias(NUM_HEADS, max_length=LENGTH, **arguments)
    assert has_features(layer) == fits
    x, segment_ids = make_inputs(rng)
    full, *others = [
        make_encoder(rng, position_encoding=layer, attention_implementation=name)
        for name in ("full", "blockwise", *(["features"] if fits else []))
    ]
    expected = full(x, segment_ids=segment_ids)
    for encoder in others:
        encoder.set_weights(full.get_weights())
        assert_close(encoder(x, segment_ids=segment_ids), expected)


@pytest.mark.parametrize("name", ["blockwise", "features"])
def test_cached_positions_are_used_and_dropped(rng, name):
    encoder = make_encoder(rng, **LOW_RANK, attention_implementation=name)
    (bias,) = encoder.position_biases
    x, segment_ids = make_inputs(rng)
    expected = to_numpy(encoder(x, segment_ids=segment_ids))
    cache_positions(encoder)
    assert_close(encoder(x, segment_ids=segment_ids), expected)
    # Other scores, to see that they are used.
    bias._cached_scores = 2 * bias._cached_scores
    assert np.abs(to_numpy(encoder(x, segment_ids=segment_ids)) - expected).max() > 1e-3
    encoder(x, segment_ids=segment_ids, training=True)
    assert not bias.has_cached_scores
    assert_close(encoder(x, segment_ids=segment_ids), expected)


def test_short_sequences_are_computed_at_once(rng):
    assert 512 <= attention_implementation.LONG <= attention_implementation.LONG_FUSED
    encoder = make_encoder(rng, max_sequence_length=512)
    assert chosen(encoder, 512) == chosen(encoder, None) == "full"


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_what_is_asked_for_is_chosen(rng, monkeypatch, name):
    monkeypatch.setattr(attention_implementation, "LONG", 5)
    monkeypatch.setattr(attention_implementation, "LONG_FUSED", 5)
    encoder = make_encoder(rng, attention_implementation=name, dropout=0.1)
    for length in (2, 7, None):
        assert chosen(encoder, length) == chosen(encoder, length, training=True) == name


def test_auto_of_a_long_sequence(rng, monkeypatch):
    full, auto = make_pair(rng, "auto", position_encoding="diet_abs")
    x, segment_ids = make_inputs(rng)
    expected = compiled(lambda: full(x, segment_ids=segment_ids, padding_mask=VALID))()
    for name in ("LONG", "LONG_FUSED"):
        monkeypatch.setattr(attention_implementation, name, LENGTH)
    assert chosen(auto, LENGTH) != "full"
    output = compiled(lambda: auto(x, segment_ids=segment_ids, padding_mask=VALID))()
    assert_close(to_numpy(output)[VALID], to_numpy(expected)[VALID])


def test_training_with_dropout(rng):
    """A step of `fit` as the backend compiles it, for a length that is not known before."""
    encoder = make_encoder(
        rng, position_encoding="diet_rel", attention_implementation="blockwise", dropout=0.1
    )
    inputs, segment_ids = keras.Input((None, HIDDEN)), keras.Input((None,), dtype="int32")
    model = keras.Model([inputs, segment_ids], encoder(inputs, segment_ids=segment_ids))
    model.compile("sgd", "mse", jit_compile=BACKEND == "jax")
    before = [to_numpy(weight).copy() for weight in encoder.trainable_variables]
    x, segment_ids = make_inputs(rng)
    assert np.isfinite(model.train_on_batch([x, segment_ids], x))
    for weight, old in zip(encoder.trainable_variables, before, strict=True):
        new = to_numpy(weight)
        assert np.isfinite(new).all()
        assert weight.path.endswith("key/bias") or np.abs(new - old).max() > 0, weight.path


@pytest.mark.parametrize("name", ["auto", *IMPLEMENTATIONS])
def test_configuration_round_trip(name):
    encoder = DietEncoder(1, 1, 3, attention_implementation=name)
    assert encoder.get_config()["attention_implementation"] == name
    copy = DietEncoder.from_config(encoder.get_config())
    assert copy.attention_implementation == name
    assert DietEncoder(1, 1, 3).attention_implementation == "auto"


def test_saved_backbone(rng, tmp_path):
    backbone = randomize_weights(tiny_backbone(attention_implementation="blockwise"))
    inputs = random_inputs(rng)
    expected = backbone(inputs)
    backbone.save(tmp_path / "backbone.keras")
    loaded = keras.saving.load_model(tmp_path / "backbone.keras")
    assert loaded.attention_implementation == "blockwise"
    assert loaded.get_layer("encoder").attention_implementation == "blockwise"
    full = tiny_backbone(attention_implementation="full")
    full.set_weights(backbone.get_weights())
    valid = inputs["padding_mask"].astype("bool")
    for other in (loaded, full):
        for name, output in keras.tree.map_structure(to_numpy, other(inputs)).items():
            if name == "sequence_output":
                assert_close(output[valid], to_numpy(expected[name])[valid], 1e-4)
            else:
                assert_close(output, expected[name], 1e-4)
