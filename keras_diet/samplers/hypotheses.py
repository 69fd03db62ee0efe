"""One step of beam search, as pure functions of the hypotheses.

`B` is the number of rows, `K` of beams, `V` of tokens in the vocabulary, and `T` is the length of
the sequences. A hypothesis of log-probability `-inf` stands where no sequence is yet.
"""

from collections.abc import Sequence
from typing import NamedTuple

from keras import ops

from keras_diet import _backend
from keras_diet.types import Tensor

NOTHING = float("-inf")


class Live(NamedTuple):
    """The hypotheses that the search extends, best first."""

    sequences: Tensor  # (B, K, T)
    log_probs: Tensor  # (B, K)


class Finished(NamedTuple):
    """The best hypotheses with an end token, best first."""

    sequences: Tensor  # (B, K, T)
    scores: Tensor  # (B, K)


class Candidates(NamedTuple):
    """Live hypotheses extended by one token, most probable first."""

    log_probs: Tensor  # (B, C)
    beams: Tensor  # (B, C), the live hypothesis that is extended
    tokens: Tensor  # (B, C)


class Step(NamedTuple):
    """What one step does in each row."""

    position: Tensor  # (B, T), true at the position of the step if the row generates a token there
    generates: Tensor  # (B, 1), whether it does. If not, a token of the prompt stands there
    length: Tensor  # (B, 1), number of generated tokens, with the one of this step


class GeneratedTokens(NamedTuple):
    """The generated tokens of each row, whose prompts may have different lengths."""

    positions: Tensor  # (B, T), the position of each token
    generated: Tensor  # (B, T), whether it is generated
    lengths: Tensor  # (B, T), number of generated tokens up to it
    total: Tensor  # (B, 1), number of generated tokens

    def at(self, index: int | Tensor) -> Step:
        """Return the step at position `index`."""
        here = self.positions == index
        position = ops.logical_and(here, self.generated)
        length = ops.sum(ops.where(here, self.lengths, 0), axis=1, keepdims=True)
        return Step(position, ops.any(position, axis=1, keepdims=True), length)


def count_generated(prompt: Tensor, index: int | Tensor, mask: Tensor | None) -> GeneratedTokens:
    """Return the tokens to generate.

    Args:
        prompt: Tensor `(B, T)`.
        index: int or scalar tensor. The first position that may be generated.
        mask: Boolean tensor `(B, T)`, true for tokens of the prompt; or `None`.
    """
    positions = ops.cumsum(ops.ones_like(prompt, dtype="int32"), axis=1) - 1
    generated = positions >= index
    if mask is not None:
        generated = ops.logical_and(generated, ops.logical_not(ops.cast(mask, "bool")))
    lengths = ops.cumsum(ops.cast(generated, "int32"), axis=1)
    return GeneratedTokens(positions, generated, lengths, ops.max(lengths, axis=1, keepdims=True))


def start(prompt: Tensor, num_beams: int) -> tuple[Live, Finished]:
    """Return the hypotheses before the first step: one live beam, and nothing finished."""
    sequences = ops.repeat(ops.expand_dims(prompt, 1), num_beams, axis=1)
    nothing = ops.full_like(sequences[:, :, 0], NOTHING, dtype="float32")
    first = _backend.arange(num_beams) == 0
    return Live(sequences, ops.where(first, 0.0, nothing)), Finished(sequences, nothing)


def length_penalty(length: Tensor, alpha: float) -> Tensor:
    """Return GNMT's `((5 + length) / 6)^alpha`."""
    return ((5.0 + ops.cast(length, "float32")) / 6.0) ** alpha


def extend(live: Live, logits: Tensor, count: int) -> Candidates:
    """Return the `count` most probable extensions.

    Of two equal ones the lower beam is first. In one beam it is the token with the larger logit, or
    else the lower token.

    Args:
        live: The hypotheses to extend.
        logits: Tensor `(B, K, V)`, the logits of the next token.
        count: int. At most `K V`.
    """
    num_beams, vocabulary_size = logits.shape[1:]
    # The best of each beam first: one choice among all `K V` logits takes longer.
    per_beam = min(count, vocabulary_size)
    log_probs, tokens = _backend.top_k(logits, per_beam)
    log_probs = log_probs - ops.logsumexp(logits, axis=-1, keepdims=True)
    sums = ops.reshape(ops.expand_dims(live.log_probs, -1) + log_probs, (-1, num_beams * per_beam))
    sums, chosen = _backend.top_k(sums, count)
    tokens = ops.reshape(ops.cast(tokens, "int32"), (-1, num_beams * per_beam))
    tokens = _backend.take_along_axis(tokens, chosen, axis=1)
    return Candidates(sums, ops.cast(chosen, "int32") // per_beam, tokens)


def ends_with(candidates: Candidates, stop_token_ids: Sequence[int]) -> Tensor:
    """Return which candidates end with a stop token, `(B, C)`."""
    ends = ops.zeros_like(candidates.tokens, dtype="bool")
    for token in stop_token_ids:
        ends = ops.logical_or(ends, candidates.tokens == token)
    return ends


def choose_live(candidates: Candidates, ends: Tensor, num_beams: int) -> Candidates:
    """Return the first `num_beams` candidates that do not end."""
    count = candidates.tokens.shape[1]
    rank = _backend.arange(count) + count * ops.cast(ends, "int32")
    _, chosen = ops.top_k(-rank, num_beams)
    return Candidates(*(_backend.take_along_axis(each, chosen, axis=1) for each in candidates))


def append(sequences: Tensor, candidates: Candidates, position: Tensor) -> Tensor:
    """Return the sequences of the candidates, `(B, C, T)`.

    Args:
        sequences: Tensor `(B, K, T)`, the live sequences.
        candidates: Candidates of shape `(B, C)`.
        position: Boolean tensor `(B, T)`, true where the new token belongs.
    """
    extended = _backend.take_along_axis(sequences, ops.expand_dims(candidates.beams, -1), axis=1)
    tokens = ops.expand_dims(ops.cast(candidates.tokens, sequences.dtype), -1)
    return ops.where(ops.expand_dims(position, 1), tokens, extended)


def keep_best(finished: Finished, sequences: Tensor, scores: Tensor) -> Finished:
    """Return the best `K` of the finished and some new hypotheses. Of equal ones the older wins."""
    num_beams = finished.scores.shape[1]
    sequences = ops.concatenate([finished.sequences, sequences], axis=1)
    scores = ops.concatenate([finished.scores, scores], axis=1)
    scores, indices = _backend.top_k(scores, num_beams)
    indices = ops.expand_dims(indices, -1)
    return Finished(_backend.take_along_axis(sequences, indices, axis=1), scores)


def fill_with_live(finished: Finished, live: Live, live_scores: Tensor) -> Finished:
    """Return the finished hypotheses, followed by the best live ones up to `K`."""
    num_beams = finished.scores.shape[1]
    rank = ops.expand_dims(_backend.arange(num_beams), 0)
    count = ops.sum(ops.cast(finished.scores > NOTHING, "int32"), axis=1, keepdims=True)
    indices = ops.where(rank < count, rank, num_beams + rank - count)
    sequences = ops.concatenate([finished.sequences, live.sequences], axis=1)
    scores = ops.concatenate([finished.scores, live_scores], axis=1)
    return Finished(
        _backend.take_along_axis(sequences, ops.expand_dims(indices, -1), axis=1),
        _backend.take_along_axis(scores, indices, axis=1),
    )
