"""Random models whose next token depends on the last two tokens, as tables."""

import keras
import numpy as np
from keras import ops

from keras_diet.samplers import BeamSearchSampler


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


def next_of(logits):
    """`next` for a sampler. The last two tokens come from the cache, so they must follow beams."""
    batch_size, size = logits.shape[0], logits.shape[-1]
    flat = ops.reshape(logits, (-1, size))

    def next(prompt, cache, index):
        row, before = cache["row"], cache["before"]
        last = ops.take(prompt, index - 1, axis=1)
        logits = ops.take(flat, (row * size + before) * size + last, axis=0)
        return logits, None, {"row": row, "before": last}

    return next, ops.arange(batch_size, dtype="int32")


def search(sampler, tables, prompt, index, **kwargs):
    """Search with one compiled function. The prompt has at least two tokens."""
    prompt = np.asarray(prompt, "int32")
    before = prompt[:, index - 2]

    def function(logits, prompt, before):
        next, row = next_of(logits)
        cache = {"row": row, "before": before}
        return sampler(next, prompt, cache=cache, index=index, **kwargs)

    outputs = compiled_loop(function)(tables.logits, prompt, before)
    if isinstance(sampler, BeamSearchSampler) and sampler.return_all_beams:
        return tuple(ops.convert_to_numpy(output) for output in outputs)
    return ops.convert_to_numpy(outputs)


def compiled_loop(function):
    """`function`, compiled on TensorFlow and JAX, with arrays as arguments."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.jit(function)
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function)
    return lambda *arrays: function(*(ops.convert_to_tensor(array) for array in arrays))
