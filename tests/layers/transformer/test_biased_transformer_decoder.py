"""`BiasedTransformerDecoder` against the reference, in one pass and in steps."""

import keras
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import (
    BiasedMultiHeadAttention,
    BiasedTransformerDecoder,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
    ScoreTerms,
)
from tests import reference
from tests.helpers import (
    HALF_POLICIES,
    assert_close,
    check_layer,
    decoder_block_weights,
    randomize,
    to_numpy,
)

BATCH, LENGTH, SOURCE, NUM_HEADS, HIDDEN, SOURCE_DIM, INTERMEDIATE = 2, 5, 7, 3, 6, 10, 11
# The second target and the second source end with padding.
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
SOURCE_VALID = np.array([[True] * 7, [True] * 4 + [False] * 3])
PADDINGS = {"padding_mask": VALID, "encoder_padding_mask": SOURCE_VALID}
norms = pytest.mark.parametrize("normalize_first", [False, True], ids=["post_norm", "pre_norm"])


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make(rng, **kwargs):
    block = BiasedTransformerDecoder(INTERMEDIATE, NUM_HEADS, **kwargs)
    block.build((BATCH, LENGTH, HIDDEN), (BATCH, SOURCE, SOURCE_DIM))
    return randomize(block, rng, 0.6)


def make_inputs(rng):
    """Target, source, and a bias for each attention sublayer."""
    biases = {
        "attention_bias": normal(rng, BATCH, NUM_HEADS, LENGTH, LENGTH),
        "cross_attention_bias": normal(rng, BATCH, NUM_HEADS, LENGTH, SOURCE),
    }
    return normal(rng, BATCH, LENGTH, HIDDEN), normal(rng, BATCH, SOURCE, SOURCE_DIM), biases


def decode(block, target, memory, sizes, padding_mask=None):
    """The outputs of steps of these sizes, one after the other."""
    outputs, start = [], 0
    for size in sizes:
        step = target[:, start : start + size]
        output, memory = block(step, memory=memory, start_index=start, padding_mask=padding_mask)
        outputs.append(to_numpy(output))
        start += size
    return np.concatenate(outputs, axis=1)


@norms
@pytest.mark.parametrize("kind", ["biased", "shaw"])
def test_equals_reference(rng, kind, normalize_first):
    attentions = {}
    if kind == "shaw":
        attentions = {
            "self_attention": RelativeMultiHeadAttention(NUM_HEADS, 2, max_distance=3),
            "cross_attention": RelativeMultiHeadAttention(NUM_HEADS, 4, max_distance=5),
        }
    options = {"normalize_first": normalize_first}
    block = make(rng, activation="tanh", layer_norm_epsilon=0.3, **attentions, **options)
    target, source, biases = make_inputs(rng)
    expected = reference.decoder_block(
        target,
        source,
        decoder_block_weights(block),
        *biases.values(),
        VALID[:, None, None],
        SOURCE_VALID[:, None, None],
        epsilon=0.3,
        activation=np.tanh,
        **options,
    )
    assert_close(block(target, source, **biases, **PADDINGS), expected)
    integers = {name: mask.astype("int32") for name, mask in PADDINGS.items()}
    assert_close(block(target, source, **biases, **integers), expected)
    terms = ScoreTerms(biases["attention_bias"], padding_mask=VALID, is_causal=True)
    cross_terms = ScoreTerms(biases["cross_attention_bias"], padding_mask=SOURCE_VALID)
    found = block(target, source, score_terms=terms, cross_score_terms=cross_terms)
    assert_close(found, expected)


def test_scores_on_request(rng):
    block, (target, source, biases) = make(rng), make_inputs(rng)
    output, scores, cross_scores = block(
        target, source, **biases, **PADDINGS, return_attention_scores=True
    )
    assert_close(output, block(target, source, **biases, **PADDINGS))
    weights = decoder_block_weights(block)
    _, expected = reference.multi_head_attention(
        target,
        target,
        weights["attention"],
        bias=biases["attention_bias"],
        mask=VALID[:, None, None] & np.tri(LENGTH, dtype="bool"),
        return_scores=True,
    )
    assert_close(scores, expected)
    cross_scores = to_numpy(cross_scores)
    assert cross_scores.shape == (BATCH, NUM_HEADS, LENGTH, SOURCE)
    assert_close(cross_scores.sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))
    assert not cross_scores[1, ..., 4:].any()


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 3)], ids=str)
def test_steps_equal_the_full_pass(rng, sizes):
    block = make(
        rng,
        normalize_first=True,
        self_attention=RelativeMultiHeadAttention(NUM_HEADS, 2, max_distance=3),
        cross_attention=RelativeMultiHeadAttention(NUM_HEADS, 4, max_distance=5),
    )
    target, source, _ = make_inputs(rng)
    memory = block.start_memory(BATCH, LENGTH + 2, source)
    assert_close(decode(block, target, memory, sizes), block(target, source))


def test_scores_and_padding_of_a_step(rng):
    block, (target, source, _) = make(rng), make_inputs(rng)
    output, scores, cross_scores = block(
        target, source, padding_mask=VALID, return_attention_scores=True
    )
    memory = block.start_memory(BATCH, LENGTH, source)
    _, memory = block(target[:, :3], memory=memory, padding_mask=VALID)
    arguments = {"padding_mask": VALID, "return_attention_scores": True}
    step = block(target[:, 3:], memory=memory, start_index=3, **arguments)
    assert_close(step[0], output[:, 3:])
    assert_close(step[1], scores[:, :, 3:])
    assert_close(step[2], cross_scores[:, :, 3:])


def test_steps_with_values_of_another_size_than_keys(rng):
    attention = BiasedMultiHeadAttention(NUM_HEADS, 2, value_dim=5, name="self_attention")
    block, (target, source, _) = make(rng, self_attention=attention), make_inputs(rng)
    memory = block.start_memory(BATCH, LENGTH, source)
    assert_close(decode(block, target, memory, (2, 3)), block(target, source))


def test_a_memory_for_two_targets_of_each_source(rng):
    block, (target, source, _) = make(rng), make_inputs(rng)
    targets = np.concatenate([target, normal(rng, *target.shape)])
    memory = block.start_memory(2 * BATCH, LENGTH, source)
    found = decode(block, targets, memory, (LENGTH,))
    assert_close(found, block(targets, np.repeat(source, 2, axis=0)))


def test_keras_masks_are_paddings(rng):
    block, (target, source, _) = make(rng), make_inputs(rng)
    expected = block(target, source, **PADDINGS)
    target, source = map(keras.ops.convert_to_tensor, (target, source))
    set_keras_mask(target, keras.ops.convert_to_tensor(VALID))
    set_keras_mask(source, keras.ops.convert_to_tensor(SOURCE_VALID))
    output = block(target, source)
    assert_close(output, expected, 1e-6)
    for tensor, mask in [(target, VALID), (source, SOURCE_VALID), (output, VALID)]:
        assert np.array_equal(to_numpy(get_keras_mask(tensor)), mask)


def test_a_step_reads_no_keras_mask(rng):
    """It would have a value for each token of the step, not for each position of the memory."""
    block, (target, source, _) = make(rng), make_inputs(rng)
    memory = block.start_memory(BATCH, LENGTH, source)
    step = keras.ops.convert_to_tensor(target[:, :1])
    expected, _ = block(step, memory=memory)
    set_keras_mask(step, keras.ops.convert_to_tensor(np.array([[True], [False]])))
    assert_close(block(step, memory=memory)[0], expected, 1e-6)


@pytest.mark.parametrize(
    "normalize_first, return_attention_scores, policies",
    [(True, False, HALF_POLICIES), (False, True, ())],
)
def test_as_a_layer(rng, normalize_first, return_attention_scores, policies):
    block = BiasedTransformerDecoder(
        INTERMEDIATE,
        NUM_HEADS,
        dropout=0.3,
        activation="tanh",
        layer_norm_epsilon=1e-4,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=1),
        bias_initializer="ones",
        normalize_first=normalize_first,
        cross_attention=BiasedMultiHeadAttention(NUM_HEADS, 4, name="cross_attention"),
        name="block",
    )
    target, source, biases = make_inputs(rng)
    check_layer(
        block,
        target,
        source,
        **biases,
        **PADDINGS,
        return_attention_scores=return_attention_scores,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )


@pytest.mark.any_backend
def test_symbolic_outputs_of_a_step(rng):
    block, (target, source, _) = make(rng), make_inputs(rng)
    memory = block.start_memory(BATCH, LENGTH + 2, source)
    options = {"start_index": 2, "return_attention_scores": True}
    outputs = block(target, memory=memory, **options)
    symbolic = keras.tree.map_structure(
        lambda x: keras.KerasTensor(x.shape, dtype=keras.backend.standardize_dtype(x.dtype)),
        (target, memory),
    )
    spec = block.compute_output_spec(symbolic[0], memory=symbolic[1], **options)
    keras.tree.map_structure(lambda x, y: assert_same_shape(x, y), spec, outputs)
    assert block.compute_output_shape(target.shape, source.shape) == target.shape


def assert_same_shape(symbolic, tensor):
    assert tuple(symbolic.shape) == tuple(tensor.shape)


CALLS = {
    "neither": (lambda block, x, y: block(x), "either `encoder_outputs` or a `memory`.*neither"),
    "both": (
        lambda block, x, y: block(x, y, memory=block.start_memory(BATCH, LENGTH, y)),
        "either `encoder_outputs` or a `memory`.*both",
    ),
    "no_memory": (lambda block, x, y: block(x, y, start_index=3), "needs a `memory`.*=3"),
    "too_long": (
        lambda block, x, y: block(x, memory=block.start_memory(BATCH, 7, y), start_index=3),
        r"fit into the memory.*start_index=3, inputs.shape=\(2, 5, 6\).* of 7 positions",
    ),
    "negative": (
        lambda block, x, y: block(x, memory=block.start_memory(BATCH, 7, y), start_index=-1),
        "positions from 0 on.*start_index=-1",
    ),
    "batch_size": (
        lambda block, x, y: block.start_memory(3, LENGTH, y),
        r"multiple of the number of sources.*batch_size=3, .*\(2, 7, 10\)",
    ),
    "length": (lambda block, x, y: block.start_memory(BATCH, 0, y), "`length` must be a positive"),
    "terms": (
        lambda block, x, y: block(x, y, padding_mask=VALID, score_terms=ScoreTerms()),
        "`score_terms` replaces the arguments padding_mask",
    ),
    "values": (
        lambda block, x, y: block.self_attention(
            x, x, projected_keys=block.self_attention.project_keys(x)
        ),
        "`projected_keys` replace the argument `value`",
    ),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_refused(rng, name):
    call, message = CALLS[name]
    target, source, _ = make_inputs(rng)
    with pytest.raises(ValueError, match=message):
        call(make(rng), *map(keras.ops.convert_to_tensor, (target, source)))


@pytest.mark.any_backend
def test_attention_that_is_refused():
    linformer = LinformerMultiHeadAttention(NUM_HEADS, 2, LENGTH, 4)
    for attention in (linformer, keras.layers.MultiHeadAttention(NUM_HEADS, 2)):
        with pytest.raises(ValueError, match=r"`cross_attention` must derive .* as Linformer does"):
            BiasedTransformerDecoder(11, NUM_HEADS, cross_attention=attention)
    x = keras.ops.zeros((BATCH, LENGTH, HIDDEN))
    linformer.build(x.shape, x.shape)
    with pytest.raises(ValueError, match=r"`projected_keys` replace .* Linformer takes none"):
        linformer(x, None, projected_keys=(x, x))
    with pytest.raises(ValueError, match=r"num_heads=5, cross_attention\.num_heads=3"):
        BiasedTransformerDecoder(11, 5, cross_attention=BiasedMultiHeadAttention(3, 2))
    with pytest.raises(ValueError, match="built=False"):
        BiasedTransformerDecoder(11, 3).start_memory(BATCH, LENGTH, np.zeros((2, 7, 10)))
