"""JAX's attention kernel for TPUs, interpreted on a CPU, and how the layers use it."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention, DietEncoder
from keras_diet.layers.attention import dot_product, plan, query_blocks
from keras_diet.layers.attention.splash_attention import splash_attention
from tests.helpers import assert_close, gradients, to_numpy, weighted_sum
from tests.layers.diet_encoders import HIDDEN, LENGTH, make_encoder, make_inputs

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="a kernel of JAX, for TPUs"
)
BATCH, NUM_HEADS, KEY_DIM = 2, 2, 8
KERAS_LAYER = "keras.src.layers.attention.multi_head_attention"


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


@pytest.fixture
def on_tpus(monkeypatch):
    """As if JAX computed there."""
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")


@pytest.fixture
def calls(monkeypatch, on_tpus):
    """The kernels made, by their masks; they are interpreted."""
    from jax.experimental.pallas.ops.tpu import splash_attention

    made, make = [], splash_attention.make_splash_mha

    def make_interpreted(mask, **kwargs):
        made.append(mask)
        return make(mask, interpret=True, **kwargs)

    monkeypatch.setattr(splash_attention, "make_splash_mha", make_interpreted)
    return made


def attention_of_heads(query, key, value, is_causal):
    scores = ops.einsum("bthd,bshd->bhts", query, key)
    if is_causal:
        allowed = np.tril(np.ones(scores.shape[-2:], "bool"))
        scores = ops.where(allowed, scores, -1e9)
    return ops.einsum("bhts,bshd->bthd", ops.softmax(scores), value)


@pytest.mark.parametrize(
    "length, key_length, is_causal",
    [
        (5, 130, False),
        (130, 130, True),
        (1100, 300, True),
        # Some blocks of keys have no query.
        (600, 1100, True),
    ],
)
def test_outputs_and_gradients_are_those_of_scores(rng, calls, length, key_length, is_causal):
    """Also for lengths that must be padded, and for values of another size than keys."""
    heads = [
        keras.Variable(normal(rng, BATCH, size, NUM_HEADS, dim))
        for size, dim in ((length, 12), (key_length, 12), (key_length, 3))
    ]
    random = normal(rng, BATCH, length, NUM_HEADS, 3)

    def attend(*heads):
        return splash_attention(*heads, None, 0.3, is_causal)

    def attend_by_scores(query, *heads):
        return attention_of_heads(0.3 * query, *heads, is_causal)

    def loss(attend):
        return weighted_sum(attend(*map(ops.convert_to_tensor, heads)), random)

    expected = gradients(functools.partial(loss, attend_by_scores), heads)
    found = gradients(functools.partial(loss, attend), heads)
    assert calls
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    tensors = [ops.convert_to_tensor(tensor) for tensor in heads]
    assert_close(attend(*tensors), attend_by_scores(*tensors))


def terms_of(rng, name):
    """Arguments of a call, each the same for all queries of a sequence."""
    mask = np.array([[[True] * 4 + [False] * 2], [[True] * 6]])
    features = tuple(normal(rng, *shape) for shape in ((1, 6, 1, 3), (BATCH, 6, NUM_HEADS, 3)))
    bias = normal(rng, BATCH, NUM_HEADS, 1, 6)
    terms = {
        "nothing": {},
        "features": {"attention_features": features},
        "mask": {"attention_mask": mask},
        "bias": {"attention_bias": bias},
        "bias of keys": {"attention_bias": normal(rng, 6)},
        "number": {"attention_bias": np.float32(0.5)},
        "causal": {"use_causal_mask": True},
    }
    together = ("features", "mask", "bias")
    terms["all"] = {name: term for kind in together for name, term in terms[kind].items()}
    return terms[name]


def with_and_without(rng, request, terms, dtype=None, **kwargs):
    """A layer's outputs on the CPU; the layer, its inputs, and the kernels it makes "on TPUs"."""
    x = normal(rng, BATCH, 6, HIDDEN)
    attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, value_dim=3, dtype=dtype, **kwargs)
    wanted, attention.flash_attention = attention.flash_attention, None
    expected = attention(x, x, **terms)
    attention.flash_attention = wanted
    return expected, attention, x, request.getfixturevalue("calls")


every_term = pytest.mark.parametrize(
    "name", ["nothing", "features", "mask", "bias", "bias of keys", "number", "causal", "all"]
)


@every_term
def test_layer_calls_the_kernel_if_asked_for(rng, request, name):
    terms = terms_of(rng, name)
    expected, attention, x, calls = with_and_without(rng, request, terms, flash_attention=True)
    assert_close(attention(x, x, **terms), expected)
    assert_close(attention(x, x, **terms, training=True), expected)
    assert [mask.shape for mask in calls] == [(NUM_HEADS, 128, 128)] * 2


@every_term
def test_layer_calls_the_kernel_for_many_keys(rng, request, monkeypatch, name):
    terms = terms_of(rng, name)
    # Keras's layer without a bias takes no kernel if it has dropout and a mask.
    dropout = 0.0 if name == "mask" else 0.1
    expected, attention, x, calls = with_and_without(rng, request, terms, dropout=dropout)
    monkeypatch.setattr(plan, "LONG_ON_TPU", 7)
    assert_close(attention(x, x, **terms), expected)
    assert not calls
    monkeypatch.setattr(plan, "LONG_ON_TPU", 6)
    assert_close(attention(x, x, **terms), expected)
    assert [mask.shape for mask in calls] == [(NUM_HEADS, 128, 128)]
    # It drops no probabilities.
    attention(x, x, **terms, training=True)
    assert len(calls) == (2 if dropout == 0 else 1)


def test_few_queries_have_few_scores(rng, monkeypatch, calls):
    monkeypatch.setattr(plan, "LONG_ON_TPU", 6)
    x = normal(rng, BATCH, 6, HIDDEN)
    attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM)
    attention(x[:, :5], x)
    assert not calls
    attention(x, x)
    assert calls


def test_keras_can_forbid_it(rng, monkeypatch, calls):
    monkeypatch.setattr(plan, "LONG_ON_TPU", 6)
    x = normal(rng, BATCH, 6, HIDDEN)
    with monkeypatch.context() as patch:
        # As after `keras.config.disable_flash_attention()`, which cannot be undone.
        patch.setattr(f"{KERAS_LAYER}.is_flash_attention_enabled", lambda: False)
        attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM)
    attention(x, x)
    assert not calls
    BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM)(x, x)
    assert calls


@pytest.mark.parametrize(
    "term, received",
    [
        ({"attention_bias": np.zeros((6, 6), "float32")}, "a bias for each query"),
        ({"attention_mask": np.ones((1, 6, 6), "bool")}, "a mask for each query"),
        ({"block_size": 3}, "block_size=3"),
    ],
    ids=str,
)
def test_layer_does_without_where_the_kernel_cannot(rng, request, monkeypatch, term, received):
    monkeypatch.setattr(plan, "LONG_ON_TPU", 6)
    expected, attention, x, calls = with_and_without(rng, request, term)

    def refuse(*args, **kwargs):
        raise AssertionError("Keras's kernel would attend causally here, and add no bias")

    monkeypatch.setattr(ops, "dot_product_attention", refuse)
    assert_close(attention(x, x, **term), expected)
    assert not calls
    attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, flash_attention=True)
    with pytest.raises(
        ValueError, match=rf"On TPUs flash attention.*flash_attention=True.*{received}"
    ):
        attention(x, x, **term)


def test_kernel_in_bfloat16(rng, request):
    terms = terms_of(rng, "all")
    expected, attention, x, calls = with_and_without(
        rng, request, terms, dtype="mixed_bfloat16", flash_attention=True
    )
    found = attention(x, x, **terms)
    assert calls
    assert found.dtype == "bfloat16"
    assert_close(found, expected, 0.05)


POSITIONS = {
    "diet_abs": {"position_encoding": "diet_abs", "rank": 5},
    "input": {"position_encoding": "input"},
    "none": {"position_encoding": "none", "segment_encoding": "none"},
}
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])


@pytest.mark.parametrize("name", POSITIONS)
def test_features_attend_by_the_kernel_from_some_length_on(rng, request, monkeypatch, name):
    positions = POSITIONS[name]
    x, segment_ids = make_inputs(rng)
    if positions.get("segment_encoding") == "none":
        segment_ids = None
    encoder = make_encoder(rng, dropout=0.1, attention_implementation="features", **positions)
    expected = to_numpy(encoder(x, segment_ids=segment_ids, padding_mask=VALID))
    calls = request.getfixturevalue("calls")
    encoder(x, segment_ids=segment_ids, padding_mask=VALID)
    assert not calls
    monkeypatch.setattr(plan, "LONG_ON_TPU", LENGTH)
    found = to_numpy(encoder(x, segment_ids=segment_ids, padding_mask=VALID))
    assert_close(found[VALID], expected[VALID])
    assert len(calls) == encoder.num_layers


@pytest.mark.parametrize("name", [*POSITIONS, "diet_rel"])
def test_auto_does_not_choose_what_nobody_has_measured(rng, monkeypatch, calls, name):
    monkeypatch.setattr(plan, "LONG", LENGTH)
    monkeypatch.setattr(plan, "LONG_ON_TPU", LENGTH)
    positions = POSITIONS.get(name, {"position_encoding": name})
    encoder = make_encoder(rng, **positions)
    x, _ = make_inputs(rng)
    block_sizes = []
    attend = query_blocks.attend_in_blocks
    monkeypatch.setattr(
        dot_product,
        "attend_in_blocks",
        lambda *arguments: block_sizes.append(arguments[-1]) or attend(*arguments),
    )
    encoder(x, padding_mask=VALID)
    assert not calls
    assert block_sizes == [plan.BLOCK_SIZE] * encoder.num_layers


def program_for_tpus(encoder, length, gradient, training):
    """The program that JAX hands to the compiler for TPUs, which is not needed for it."""
    import jax

    weights = [variable.value for variable in encoder.trainable_variables]
    others = [variable.value for variable in encoder.non_trainable_variables]
    inputs = np.zeros((1, length, 64), "float32"), np.zeros((1, length), "int32")

    def total(weights, x, segment_ids):
        output, _ = encoder.stateless_call(
            weights, others, x, segment_ids, padding_mask=segment_ids < 1, training=training
        )
        return ops.sum(output)

    function = jax.jit(jax.grad(total) if gradient else total)
    return function.trace(weights, *inputs).lower(lowering_platforms=("tpu",)).as_text()


def long_encoder(**kwargs):
    encoder = DietEncoder(2, 4, 32, max_sequence_length=2048, rank=8, dropout=0.1, **kwargs)
    encoder.build((None, None, 64))
    return encoder


@pytest.mark.usefixtures("on_tpus")
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_program_of_a_long_sequence_has_the_kernel_and_no_scores(gradient):
    encoder = long_encoder(attention_implementation="features")
    program = program_for_tpus(encoder, 2048, gradient, training=False)
    # Layers share a function; the gradient has two kernels, of queries and of keys and values.
    assert program.count("@tpu_custom_call") == (3 if gradient else 1)
    assert "2048x2048" not in program


@pytest.mark.usefixtures("on_tpus")
@pytest.mark.parametrize("training", [False, True])
def test_program_of_a_short_sequence_adds_segments_and_padding_at_inference(training):
    program = program_for_tpus(long_encoder(), 128, gradient=False, training=training)
    assert "@tpu_custom_call" not in program
    # Columns make heads of 16 larger.
    assert ("128x24x" in program or "128x4x24x" in program) == training
