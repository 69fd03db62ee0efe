"""Beam search, against its definition."""

import itertools

import keras_hub
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_diet.samplers import BeamSearchSampler
from keras_diet.samplers.beam_search_sampler import repeat_cache
from tests.helpers import assert_close, floatx, to_numpy
from tests.samplers.reference import beam_search, score
from tests.samplers.tables import Tables, compiled_search, model_of, padded


def random_tables(rng, batch_size, vocabulary_size, scale=1.5):
    size = vocabulary_size
    return Tables(rng.normal(scale=scale, size=(batch_size, size, size, size)))


def expected_beams(tables, prompts, max_length, num_beams, alpha, stops):
    """The results of the reference: padded sequences `(B, K, T)` and scores `(B, K)`."""
    sequences = np.zeros((len(prompts), num_beams, max_length), "int32")
    scores = np.full((len(prompts), num_beams), -np.inf)
    for row, prompt in enumerate(prompts):
        beams = beam_search(
            tables.log_probs_of(row), prompt, max_length, num_beams, alpha, set(stops)
        )
        for k, (value, tokens) in enumerate(beams):
            sequences[row, k, : len(tokens)] = tokens
            scores[row, k] = value
    return sequences, scores


PROMPTS = [(4, 6), (3, 2, 4, 0), (6, 0, 2), (4, 2, 2, 2, 6, 0, 0, 4), (2, 2, 5)]


def test_few_beams_are_the_search_of_the_definition(rng):
    num_beams, alpha = 3, 0.6
    # Three stop tokens, so that each of them counts.
    prompts, max_length, stops = PROMPTS * 8, 11, (3, 5, 1)
    tables = random_tables(rng, len(prompts), 7)
    tables.logits[::5, ..., stops[:2]] = -np.inf
    tables.logits[1::5, ..., stops] -= 2.0
    expected = expected_beams(tables, prompts, max_length, num_beams, alpha, stops)
    token_ids, mask = padded(prompts, max_length)
    search = compiled_search(BeamSearchSampler(num_beams, alpha, return_all_beams=True), stops)
    sequences, scores = search(tables, token_ids, 2, mask)
    assert_close(scores, expected[1])
    # Sequences with the same pairs of tokens in another order have equal scores. Rounding decides.
    gaps = np.abs(np.diff(expected[1], axis=1, prepend=np.inf, append=-np.inf)) > 1e-4
    is_clear = gaps[:, :-1] & gaps[:, 1:]
    # The last of several beams may tie with a sequence that is not kept.
    is_clear[:, max(1, num_beams - 1) :] = False
    np.testing.assert_array_equal(sequences[is_clear], expected[0][is_clear])
    assert is_clear.mean() > 0.6


def test_row_that_has_ended_does_not_change(rng):
    tables = random_tables(rng, 2, 5)
    tables.logits[..., 3] = -5.0
    expected, _ = expected_beams(tables, [(2, 0), (2, 0)], 9, 3, 0.0, (3,))
    # The first row ends at once, and what the model returns afterwards has no meaning.
    tables.logits[0, 0] = np.nan
    tables.logits[0, 2, 0, 3] = 9.0
    sampler = BeamSearchSampler(3, 0.0)
    output = compiled_search(sampler, (3,))(tables, [[2, 0, 0, 0, 0, 0, 0, 0, 0]] * 2, 2)
    np.testing.assert_array_equal(output, [[2, 0, 3, 0, 0, 0, 0, 0, 0], expected[1, 0]])
    assert 3 not in output[1, :5], "the second row ends as early as the first one"


def test_floatx_does_not_change_a_search(rng):
    """With 16 bits, Keras counts in int16 by default, which TensorFlow does not add to int32."""
    tables, (prompts, _) = random_tables(rng, 2, 7), padded([(2,), (4, 6)], 7)
    sampler = BeamSearchSampler(3, return_all_beams=True)
    expected = compiled_search(sampler, (5,))(tables, prompts, 2)
    with floatx("bfloat16"):
        actual = compiled_search(sampler, (5,))(tables, prompts, 2)
    for left, right in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(left, right)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(seed=st.integers(0, 10**6), num_beams=st.integers(1, 5), data=st.data())
@pytest.mark.any_backend
def test_any_row_is_the_search_of_the_definition_alone_and_in_company(seed, num_beams, data):
    """Rounded logits give many ties, in one row and between rows."""
    rng = np.random.default_rng(seed)
    stops = tuple(data.draw(st.sets(st.integers(0, 4), max_size=4)))
    alpha = data.draw(st.sampled_from([0.0, 0.6, 1.9]))
    prompts = [(2, 0), (4, 1, 3), (0, 0, 4, 2)]
    tables = Tables(np.round(2 * rng.normal(size=(3, 5, 5, 5))))
    tables.logits[1, ..., list(stops)] = -np.inf
    search = compiled_search(BeamSearchSampler(num_beams, alpha, return_all_beams=True), stops)
    token_ids, mask = padded(prompts, 7)
    sequences, scores = search(tables, token_ids, 2, mask)
    expected = expected_beams(tables, prompts, 7, num_beams, alpha, stops)
    # The rounding of sums decides between equal sequences, so scores are compared.
    assert_close(scores, expected[1])
    best = compiled_search(BeamSearchSampler(num_beams, alpha), stops)(tables, token_ids, 2, mask)
    np.testing.assert_array_equal(best, sequences[:, 0])
    for row, prompt in enumerate(prompts):
        alone = search(tables.rows([row]), token_ids[[row]], len(prompt), mask[[row]])
        assert_close(alone[1][0], scores[row], 1e-6)


@pytest.mark.any_backend
def test_given_tokens_may_follow_generated_ones(rng):
    """Beams keep their sequences and log-probabilities at a token that is given."""
    tables = random_tables(rng, 5, 27)
    # As many tokens as beams, of which three are possible.
    tables.logits[..., 3:] = -np.inf
    token_ids = np.array([[2, 1, 0, 1, 0, 0]] * 5, "int32")
    mask = np.array([[True, True, False, True, False, False]] * 5)
    sampler = BeamSearchSampler(27, 0.6, return_all_beams=True)
    sequences, scores = compiled_search(sampler)(tables, token_ids, 2, mask)
    for row in range(5):
        function = tables.log_probs_of(row)
        expected = {}
        for a, b, c in itertools.product(range(3), repeat=3):
            tokens = (2, 1, a, 1, b, c)
            sums = sum(function(tokens[:i])[tokens[i]] for i in (2, 4, 5))
            expected[tokens] = score(sums, 3, 0.6)
        best = sorted(expected, key=expected.get, reverse=True)
        np.testing.assert_array_equal(sequences[row], best)
        assert_close(scores[row], [expected[tokens] for tokens in best], 1e-5)


@pytest.mark.any_backend
def test_scores_of_half_precision_logits_are_exact(rng):
    logits = rng.normal(size=(1, 5)).astype("float16")

    def next(prompt, cache, index):
        return ops.repeat(ops.convert_to_tensor(logits), 2, axis=0), None, cache

    sampler = BeamSearchSampler(2, 0.0, return_all_beams=True)
    _, scores = sampler(next, np.zeros((1, 4), "int32"), index=1)
    exact = logits[0].astype("float64")
    best = np.sort(exact - np.log(np.exp(exact).sum()))[::-1]
    assert_close(scores[0], [3 * best[0], 2 * best[0] + best[1]], 1e-5)


def count_steps(tables, sampler, max_length, **kwargs):
    """The number of calls of `next`. PyTorch runs each step in Python."""
    count = 0

    def next(prompt, cache, index):
        nonlocal count
        count += 1
        row = ops.arange(len(prompt)) // sampler.num_beams
        return ops.convert_to_tensor(tables.logits[:, 0, 0])[row], None, cache

    prompt = np.zeros((len(tables.logits), max_length), "int32")
    sampler(next, prompt, index=1, stop_token_ids=(3,), **kwargs)
    return count


@pytest.mark.any_backend
def test_search_stops_when_no_live_beam_can_win():
    logits = np.zeros((2, 1, 1, 5))
    logits[..., 3] = 1.0
    log_probs = logits[0, 0, 0] - np.log(np.exp(logits[0, 0, 0]).sum())
    end, other = log_probs[3], log_probs[0]
    max_length, alpha = 40, 1.3
    # After `t` tokens, the best live log-probability is `t * other`.
    bounds = [score(t * other, max_length - 1, alpha) for t in range(1, max_length)]
    expected = 1 + next(i for i, bound in enumerate(bounds) if bound <= score(end, 1, alpha))
    assert 2 < expected < max_length - 2
    assert count_steps(Tables(logits), BeamSearchSampler(2, alpha), max_length) == expected
    assert count_steps(Tables(logits), BeamSearchSampler(2, 0.0), max_length) == 1
    # A live sequence that can only be equal does not win.
    tie = np.zeros((1, 1, 1, 5))
    tie[..., (0, 3)] = 5.0
    assert count_steps(Tables(tie), BeamSearchSampler(2, 0.0), max_length) == 1
    # The pool of all beams has to be full, and its worst score counts.
    every = BeamSearchSampler(2, 0.0, return_all_beams=True)
    assert count_steps(Tables(logits), every, max_length) == 2
    # The slowest row decides.
    logits[1, ..., 3] = -9.0
    assert count_steps(Tables(logits), BeamSearchSampler(2, alpha), max_length) > expected


@pytest.mark.any_backend("jax")
def test_xla_does_not_sort_all_candidates(rng):
    import jax

    def function(logits):
        def next(prompt, cache, index):
            return logits + ops.cast(index, "float32"), None, cache

        return BeamSearchSampler(3)(next, np.zeros((2, 5), "int32"), stop_token_ids=(4,))

    program = jax.jit(function).lower(rng.normal(size=(6, 700)).astype("float32")).compile()
    assert "TopK" in program.as_text()
    assert "2,2100]{1,0}) sort(" not in program.as_text()


@pytest.mark.any_backend("tensorflow")
def test_batch_and_length_may_be_unknown_in_a_graph(rng):
    import tensorflow as tf

    tables = random_tables(rng, 3, 5)
    sampler = BeamSearchSampler(3, 0.6, return_all_beams=True)

    @tf.function(input_signature=[tf.TensorSpec((None, None), "int32")])
    def generate(prompt):
        next, cache = model_of(tf.constant(tables.logits), prompt, 2)
        return sampler(next, prompt, cache, index=2, stop_token_ids=(1,))

    prompts = [(2, 4), (3, 3), (4, 0)]
    sequences, scores = generate(padded(prompts, 7)[0])
    expected = expected_beams(tables, prompts, 7, 3, 0.6, (1,))
    np.testing.assert_array_equal(sequences, expected[0])
    assert_close(scores, expected[1])


def test_equal_candidates_have_an_order():
    # All tokens are equally probable, and 2 ends.
    tables = Tables(np.zeros((2, 5, 5, 5)))
    # In the second row, 0 and 2 are equal, and 2 is certain after 0.
    tables.logits[1, ..., (1, 3, 4)] = tables.logits[1, :, 0, 0] = -np.inf
    search = compiled_search(BeamSearchSampler(3, 0.0, return_all_beams=True), (2,))
    sequences, scores = search(tables, [[4, 4, 9, 9, 9]] * 2, 2)
    # 0, 1 and the end are the first candidates. Then 00, 01 and 0 with the end are.
    expected = [[4, 4, 2, 9, 9], [4, 4, 0, 2, 9], [4, 4, 0, 0, 2]]
    np.testing.assert_array_equal(sequences[0], expected)
    np.testing.assert_array_equal(sequences[1, :2], expected[:2])
    assert_close(scores[0], -np.log(5) * np.array([1, 2, 3]))
    assert_close(scores[1, :2], -np.log([2, 2]))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_beams": 0}, "`num_beams` must be a positive integer"),
        ({"length_penalty": -0.1}, "`length_penalty`.*-0.1"),
    ],
    ids=str,
)
def test_refusals(rng, arguments, message):
    tables = random_tables(rng, 1, 5)
    with pytest.raises(ValueError, match=message):
        compiled_search(BeamSearchSampler(**arguments))(tables, [[0, 0, 0, 0]], 2)


@pytest.mark.any_backend
def test_sampler_has_an_equal_copy():
    arguments = {"num_beams": 3, "length_penalty": 1.5, "return_all_beams": True}
    sampler = BeamSearchSampler(**arguments)
    samplers = keras_hub.samplers
    copy = samplers.deserialize(samplers.serialize(sampler))
    assert type(copy) is BeamSearchSampler
    assert copy.get_config() == arguments


# === The cache of the model ===


@pytest.mark.any_backend("torch")
@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_cache_of_the_caller_is_copied(num_beams):
    cache = ops.ones((1, 2))
    repeated = repeat_cache(cache, num_beams, 1)
    repeated += 1.0
    np.testing.assert_array_equal(to_numpy(cache), np.ones((1, 2)))
    assert tuple(repeated.shape) == (num_beams, 2)


@pytest.mark.any_backend
@pytest.mark.parametrize("shape", [(), (3,), (1, 2), (4, 2)])
def test_tensors_without_the_batch_first_are_refused(shape):
    with pytest.raises(ValueError, match=r"first axis.*`cache`.*Received: a tensor of shape"):
        repeat_cache({"keys": ops.zeros(shape)}, 3, 2)
