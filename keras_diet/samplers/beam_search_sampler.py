"""Beam search with GNMT's length penalty."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import keras_hub
from keras import ops, tree

from keras_diet import _backend, validation
from keras_diet._recording import RecordableFunction
from keras_diet.layers.configuration import FromArguments
from keras_diet.samplers import hypotheses
from keras_diet.samplers.hypotheses import NOTHING, Candidates, Finished, Live, Step
from keras_diet.types import Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class BeamSearchSampler(FromArguments, keras_hub.samplers.Sampler):
    """Searches for the most probable sequences, with GNMT's length penalty.

    A sequence `Y` that is generated for a prompt `X` has the score

        score(Y) = log P(Y | X) / ((5 + len(Y)) / 6)^alpha

    `len(Y)` counts the generated tokens, with the end token. `alpha` is `length_penalty`.

    In each step, the sampler extends every live sequence of a row by every token, and sorts the
    results by `log P`. Of the first `num_beams`, those with a stop token are finished. They move to
    a pool, which keeps the `num_beams` finished sequences with the best scores. The first
    `num_beams` without a stop token are the next live sequences.

    The search for a row ends at the maximum length, or when no live sequence can get a better score
    than the finished one. If no sequence is finished then, the best live one is the result.

    The result for a row does not depend on the other rows. Of two equal sums of log-probabilities,
    the one of the better live sequence is first. If that is the same, it is the one of the token
    with the larger logit, or else with the lower id.

    Args:
        num_beams: int. Number of live sequences, and of finished ones that are kept. At most the
            size of the vocabulary. Defaults to `10`.
        length_penalty: float. `alpha`, at least 0. With 0 the score is `log P`. Larger values
            favour longer sequences. Defaults to `0.6`.
        return_all_beams: bool. Whether to return all sequences of the pool with their scores. The
            search for a row then ends when no live sequence can enter the pool. `generate` of a
            task needs `False`, the default.

    Call arguments:
        next: Function `(prompt, cache, index) -> (logits, hidden_states, cache)` that returns the
            logits of the token at `index`. It gets a prompt of `B * num_beams` rows, in which the
            beams of a row are neighbours. A `functools.partial` of a method of `model`, with
            tensors as keywords, is recorded on PyTorch. The method must not look at the values of
            tensors: `ops.take(prompt, index, axis=1)` is right, and `prompt[:, index]` is not.
        prompt: Integer tensor `(B, T)`. Tokens are generated from `index` on.
        cache: Structure of tensors whose first axis is the batch, or `None`. They are repeated for
            the beams once, and reordered in each step. `next` gets other tensors, such as the keys
            of a source, from an enclosing scope or as keywords of the `functools.partial`. Defaults
            to `None`.
        index: int or scalar tensor. The first position to generate. Defaults to `0`.
        mask: Boolean tensor `(B, T)`, true for tokens of the prompt, which stay as they are.
            Defaults to `None`, which means no such tokens from `index` on.
        stop_token_ids: Sequence of ints, or `None`. Tokens that end a sequence. Defaults to `None`.
        hidden_states: Not used.
        model: The model that `next` calls, or `None`. Needed for compiled functions on JAX.

    Returns:
        The best sequence of each row, an integer tensor `(B, T)`. After its end token, a sequence
        keeps the values of `prompt`. With `return_all_beams=True`, a pair: sequences
        `(B, num_beams, T)` and scores `(B, num_beams)`. Finished sequences are first, sorted by
        score. Unfinished ones follow, also sorted by score. Missing ones have the score `-inf`.

    Raises:
        ValueError: If `num_beams` is not a positive integer, if `length_penalty` is negative or
            not finite, or if `return_all_beams` is not a bool.

    Example:

    ```python
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=20, num_layers=1, num_heads=2, hidden_dim=4, intermediate_dim=8,
        max_sequence_length=10,
    )
    causal_lm = keras_hub.models.GPT2CausalLM(backbone)
    causal_lm.compile(sampler=keras_diet.samplers.BeamSearchSampler(num_beams=4))
    prompt = {
        "token_ids": np.array([[5, 7, 0, 0, 0, 0]]),
        "padding_mask": np.array([[1, 1, 0, 0, 0, 0]]),
    }
    output = causal_lm.generate(prompt, stop_token_ids=(1,))
    ```

    References:
     - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 7
    """

    def __init__(
        self, num_beams: int = 10, length_penalty: float = 0.6, return_all_beams: bool = False
    ) -> None:
        super().__init__()
        self.num_beams = validation.positive_int("num_beams", num_beams)
        self.length_penalty = validation.not_negative_number("length_penalty", length_penalty)
        self.return_all_beams = return_all_beams

    def __call__(
        self,
        next: Callable[..., Any],
        prompt: Tensor,
        cache: Any = None,
        index: int | Tensor = 0,
        mask: Tensor | None = None,
        stop_token_ids: Sequence[int] | None = None,
        hidden_states: Any = None,
        model: Any = None,
    ) -> Any:
        prompt = ops.convert_to_tensor(prompt)
        index = ops.cast(index, "int32")
        stops = () if stop_token_ids is None else tuple(stop_token_ids)
        generated = hypotheses.count_generated(prompt, index, mask)
        cache = () if cache is None else repeat_cache(cache, self.num_beams, ops.shape(prompt)[0])
        live, finished = hypotheses.start(prompt, self.num_beams)
        done = ops.zeros_like(prompt[:, 0], dtype="bool")

        def cond(live, finished, done, cache, index):
            return ops.logical_not(ops.all(done))

        def step(next, generated, live, finished, done, cache, index):
            sequences = ops.reshape(live.sequences, (-1, ops.shape(live.sequences)[-1]))
            logits, _, cache = next(sequences, cache, index)
            # Enough extensions that `num_beams` of them do not end.
            logits = ops.cast(logits, "float32")
            logits = ops.reshape(logits, (-1, self.num_beams, logits.shape[-1]))
            count = self.num_beams * min(1 + len(stops), logits.shape[-1])
            candidates = hypotheses.extend(live, logits, count)
            here = generated.at(index)
            finished = self._finish(live, finished, candidates, stops, here, done)
            live, beams = self._next_live(live, candidates, stops, here)
            done = ops.logical_or(done, self._cannot_improve(live, finished, generated.total))
            cache = reorder_cache(cache, beams)
            return live, finished, done, cache, index + 1

        body: Callable[..., Any] = functools.partial(step, next)
        if isinstance(next, RecordableFunction):
            name = (type(self), *self.get_config().items(), stops)
            # The cache is a copy for the beams, of which only the next step needs anything.
            body = next.recorded(name, step, donated=5)
        body = functools.partial(body, generated)

        live, finished, *_ = self.run_loop(
            cond,
            body,
            loop_vars=(live, finished, done, cache, index),
            maximum_iterations=ops.cast(ops.shape(prompt)[1], "int32") - index,
            model=model,
        )
        scores = live.log_probs / self._penalty(generated.total)
        sequences, scores = hypotheses.fill_with_live(finished, live, scores)
        return (sequences, scores) if self.return_all_beams else sequences[:, 0]

    def _finish(
        self,
        live: Live,
        finished: Finished,
        candidates: Candidates,
        stops: Sequence[int],
        step: Step,
        done: Tensor,
    ) -> Finished:
        """Move those of the first `num_beams` candidates that end to the pool."""
        # XLA sorts all candidates if only a part of the result of `top_k` is read. So this masks
        # the other candidates, and does not cut them off.
        first = _backend.arange(candidates.tokens.shape[1]) < self.num_beams
        active = ops.logical_and(step.generates, ops.logical_not(ops.expand_dims(done, 1)))
        ends = hypotheses.ends_with(candidates, stops)
        ends = ops.logical_and(ends, ops.logical_and(first, active))
        scores = ops.where(ends, candidates.log_probs / self._penalty(step.length), NOTHING)
        sequences = hypotheses.append(live.sequences, candidates, step.position)
        return hypotheses.keep_best(finished, sequences, scores)

    def _next_live(
        self, live: Live, candidates: Candidates, stops: Sequence[int], step: Step
    ) -> tuple[Live, Tensor]:
        """Return the next live sequences, and the beams that they extend."""
        ends = hypotheses.ends_with(candidates, stops)
        chosen = hypotheses.choose_live(candidates, ends, self.num_beams)
        # At a token of the prompt, all beams stay as they are.
        beams = ops.where(step.generates, chosen.beams, _backend.arange(self.num_beams))
        log_probs = ops.where(step.generates, chosen.log_probs, live.log_probs)
        chosen = Candidates(log_probs, beams, chosen.tokens)
        return Live(hypotheses.append(live.sequences, chosen, step.position), log_probs), beams

    def _cannot_improve(self, live: Live, finished: Finished, total: Tensor) -> Tensor:
        """Return for which rows no live sequence can get into the result.

        `log P` never increases. The penalty increases with the length, so a negative `log P` gets
        its best score at the maximum length.
        """
        bound = live.log_probs[:, 0] / self._penalty(total)[:, 0]
        return bound <= finished.scores[:, -1 if self.return_all_beams else 0]

    def _penalty(self, length: Tensor) -> Tensor:
        return hypotheses.length_penalty(length, self.length_penalty)


# === The cache of the model ===


def repeat_cache(cache: Any, num_beams: int, batch_size: int | Tensor) -> Any:
    """Return a copy of the cache with each row repeated for its beams."""

    def repeat(tensor):
        shape = tuple(tensor.shape)
        if not shape or (isinstance(batch_size, int) and shape[0] not in (None, batch_size)):
            raise ValueError(
                "The first axis of each tensor in `cache` must be the batch. "
                f"Received: a tensor of shape {shape} for a `prompt` of {batch_size} rows. "
                "Transpose it, or let `next` read it from an enclosing scope."
            )
        # With one beam, PyTorch returns the tensor of the caller.
        return ops.copy(ops.repeat(tensor, num_beams, axis=0))

    return tree.map_structure(repeat, cache)


def reorder_cache(cache: Any, beams: Tensor) -> Any:
    """Return the cache for the chosen beams.

    Args:
        cache: Nest of tensors with `B K` rows, in which the beams of a row are neighbours.
        beams: Tensor `(B, K)`. The beam of the row that each new beam extends.
    """
    batch_size, num_beams = ops.shape(beams)
    first = ops.expand_dims(num_beams * _backend.arange(batch_size), 1)
    indices = ops.reshape(first + ops.cast(beams, "int32"), (-1,))
    return tree.map_structure(lambda tensor: ops.take(tensor, indices, axis=0), cache)
