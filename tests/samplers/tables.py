"""Random models whose next token depends on the last two tokens, as tables."""

import keras
import numpy as np
from keras import ops, tree

from tests.helpers import compiled_program


class Tables:
    """One model for each row: the logits of the next token for each pair of tokens.

    Args:
        logits: Array `(B, V, V, V)`, by row, the token before the last one, and the last token.
    """

    def __init__(self, logits):
        self.logits = logits.astype("float32")

    def log_probs_of(self, row):
        """The log-probabilities of one row, for the reference."""

        def function(tokens):
            logits = self.logits[row][tokens[-2]][tokens[-1]].astype("float64")
            shifted = logits - logits.max()
            return shifted - np.log(np.exp(shifted).sum())

        return function

    def rows(self, rows):
        """The tables of some rows."""
        return Tables(self.logits[rows])


def compiled_search(sampler, stop_token_ids=None):
    """A compiled function `(tables, prompt, index, mask=None)` that returns arrays.

    It is traced once for all tables of one shape. The prompts have at least two tokens.
    """

    @compiled_loop
    def function(logits, prompt, index, mask):
        next, cache = model_of(logits, prompt, index)
        return sampler(next, prompt, cache, index, mask=mask, stop_token_ids=stop_token_ids)

    def search(tables, prompt, index, mask=None):
        prompt = np.asarray(prompt, "int32")
        mask = np.zeros(prompt.shape, "bool") if mask is None else mask
        outputs = function(tables.logits, prompt, np.asarray(index, "int32"), mask)
        return tree.map_structure(ops.convert_to_numpy, outputs)

    return search


def model_of(logits, prompt, index):
    """`next` and `cache` for a sampler.

    The token before the last one comes from the cache, so it has to follow its beam. The number of
    the row passes through the cache and does not change.
    """
    size = logits.shape[-1]
    flat = ops.reshape(logits, (-1, size))

    def next(prompt, cache, index):
        last = ops.take(prompt, index - 1, axis=1)
        context = (cache["row"] * size + cache["before"]) * size + last
        return ops.take(flat, context, axis=0), None, {"row": cache["row"], "before": last}

    rows = ops.arange(ops.shape(prompt)[0], dtype="int32")
    return next, {"row": rows, "before": ops.take(prompt, index - 2, axis=1)}


def compiled_loop(function):
    """`function`, compiled on TensorFlow and JAX, with arrays as arguments."""
    program = compiled_program(function, autograph=False)
    if keras.backend.backend() != "torch":
        return program
    return lambda *arrays: program(*map(ops.convert_to_tensor, arrays))


def padded(prompts, max_length):
    """Prompts of different lengths as `token_ids` and `mask`, `(B, T)`."""
    token_ids = np.zeros((len(prompts), max_length), "int32")
    mask = np.zeros((len(prompts), max_length), "bool")
    for row, prompt in enumerate(prompts):
        token_ids[row, : len(prompt)] = prompt
        mask[row, : len(prompt)] = True
    return token_ids, mask
