"""The parts of a step of beam search that have rules of their own."""

import numpy as np
import pytest
from keras import ops

from keras_diet.samplers import hypotheses
from keras_diet.samplers.hypotheses import Candidates, Finished, GeneratedTokens, Live
from tests.helpers import assert_close


def tensors(group, *arrays):
    return group(*(ops.convert_to_tensor(np.asarray(array)) for array in arrays))


def arrays(group):
    return [ops.convert_to_numpy(each) for each in group]


def test_length_penalty_is_the_one_of_gnmt():
    actual = hypotheses.length_penalty(ops.convert_to_tensor([1, 7, 13]), 0.6)
    assert_close(actual, np.array([1.0, 2.0**0.6, 3.0**0.6]), 1e-6)


def test_extensions_are_ordered_by_sum_then_beam_then_token():
    live = tensors(Live, np.zeros((1, 2, 3), "int32"), np.array([[-1.0, -2.0]], "float32"))
    # The exponentials of each beam sum to 8, so its log-probabilities are `logits - log 8`.
    logits = np.array([[np.log([2, 4, 2]), np.log([2, 2, 4]) + 3]], "float32")
    extensions = hypotheses.extend(live, ops.convert_to_tensor(logits), 5)
    log_probs, beams, tokens = arrays(extensions)
    assert_close(log_probs, -np.log([[2, 4, 4, 2 * np.e, 4 * np.e]]) - 1, 1e-6)
    np.testing.assert_array_equal(beams, [[0, 0, 0, 1, 1]])
    np.testing.assert_array_equal(tokens, [[1, 0, 2, 2, 0]])


def test_of_equal_extensions_the_one_of_the_lower_beam_is_first():
    live = tensors(Live, np.zeros((1, 3, 3), "int32"), np.full((1, 3), -1.5, "float32"))
    logits = np.broadcast_to(np.array([0.0, 2.0, 2.0, 0.0], "float32"), (1, 3, 4))
    _, beams, tokens = arrays(hypotheses.extend(live, ops.convert_to_tensor(logits), 8))
    np.testing.assert_array_equal(beams, [[0, 0, 1, 1, 2, 2, 0, 0]])
    np.testing.assert_array_equal(tokens, [[1, 2, 1, 2, 1, 2, 0, 3]])


def test_live_candidates_keep_their_order():
    tokens = [[7, 3, 5, 3, 6, 2]]
    log_probs = np.array([[-1, -2, -3, -4, -5, -6]], "float32")
    candidates = tensors(Candidates, log_probs, [[0, 1, 1, 2, 2, 0]], tokens)
    ends = hypotheses.ends_with(candidates, (3, 2))
    np.testing.assert_array_equal(ops.convert_to_numpy(ends), [[0, 1, 0, 1, 0, 1]])
    log_probs, beams, tokens = arrays(hypotheses.choose_live(candidates, ends, 3))
    np.testing.assert_array_equal(log_probs, [[-1, -3, -5]])
    np.testing.assert_array_equal(beams, [[0, 1, 2]])
    np.testing.assert_array_equal(tokens, [[7, 5, 6]])


def test_older_hypotheses_win_ties_in_the_pool():
    scores = np.array([[-1.0, -3.0]], "float32")
    finished = tensors(Finished, [[[1, 1], [2, 2]]], scores)
    new = np.array([[[3, 3], [4, 4]]]), np.array([[-1.0, -3.0]], "float32")
    sequences, scores = arrays(hypotheses.keep_best(finished, *map(ops.convert_to_tensor, new)))
    np.testing.assert_array_equal(sequences, [[[1, 1], [3, 3]]])
    np.testing.assert_array_equal(scores, [[-1, -1]])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_live_hypotheses_fill_the_empty_places(count):
    scores = np.array([[-1.0, -2.0, -3.0]], "float32")
    pool = np.where(np.arange(3) < count, scores, -np.inf).astype("float32")
    finished = tensors(Finished, [[[1], [2], [3]]], pool)
    live = tensors(Live, [[[4], [5], [6]]], np.zeros((1, 3), "float32"))
    live_scores = ops.convert_to_tensor(scores / 2)
    sequences, filled = arrays(hypotheses.fill_with_live(finished, live, live_scores))
    expected = [*[1, 2, 3][:count], 4, 5, 6][:3]
    np.testing.assert_array_equal(sequences[0, :, 0], expected)
    np.testing.assert_array_equal(filled[0], [*scores[0, :count], *scores[0] / 2][:3])


def test_tokens_of_the_prompt_are_not_counted():
    mask = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], "bool")
    generated = GeneratedTokens(ops.zeros((3, 5), "int32"), 2, ops.convert_to_tensor(mask))
    np.testing.assert_array_equal(ops.convert_to_numpy(generated.total), [[3], [1], [3]])
    position, generates, length = arrays(generated.at(3))
    np.testing.assert_array_equal(position, np.array([[0, 0, 0, 1, 0], [0] * 5, [0, 0, 0, 1, 0]]))
    np.testing.assert_array_equal(generates, [[1], [0], [1]])
    np.testing.assert_array_equal(length[[0, 2]], [[2], [2]])
