"""Beam search for one row, as a slow Python loop written from the definition.

`log_probs_of` is a function from a tuple of tokens to the log-probabilities of the next token, an
array `(V,)`. A result is a list of pairs `(score, tokens)`, best first. Nothing stops early, so
that this search also checks the condition under which the library stops.
"""

import numpy as np


def score(log_prob, length, alpha):
    """Wu et al. 2016, equation 14, without coverage: `log P / ((5 + |Y|) / 6)^alpha`."""
    return log_prob / ((5 + length) / 6) ** alpha


def beam_search(log_probs_of, prompt, max_length, num_beams, alpha, stops):
    """The results of a beam search: finished ones first, then live ones in the empty places."""
    live, finished = [(0.0, tuple(prompt))], []
    for length in range(1, max_length - len(prompt) + 1):
        candidates = [
            (log_prob + each, (*tokens, token))
            for log_prob, tokens in live
            for token, each in enumerate(log_probs_of(tokens))
        ]
        candidates = [candidate for candidate in candidates if candidate[0] > -np.inf]
        # Sorting is stable: of equal candidates, the one of the first beam and token is first.
        candidates.sort(key=lambda candidate: -candidate[0])
        finished += [
            (score(log_prob, length, alpha), tokens)
            for log_prob, tokens in candidates[:num_beams]
            if tokens[-1] in stops
        ]
        finished = sorted(finished, key=lambda pair: -pair[0])[:num_beams]
        live = [candidate for candidate in candidates if candidate[1][-1] not in stops][:num_beams]
    unfinished = [
        (score(log_prob, max_length - len(prompt), alpha), tokens) for log_prob, tokens in live
    ]
    return [*finished, *unfinished][:num_beams]
