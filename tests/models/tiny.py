"""Small DietBert models, inputs and texts for the tests of the model family.

Sizes are distinct primes wherever the model permits, so that a swapped axis fails.
"""

import numpy as np
from keras import ops

from keras_diet.models import DietBertBackbone

SIZES = {
    "vocabulary_size": 31,
    "num_layers": 2,
    "num_heads": 3,
    "hidden_dim": 15,
    "intermediate_dim": 23,
    "max_sequence_length": 13,
}
# BERT, with positions and segments at the input.
AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [
    *SPECIAL_TOKENS,
    *("the", "a", "quick", "brown", "fox", "##es", "jump", "##ed", "over", "lazy", "dog", "##s"),
    *("slow", "red", "cat", "sleep", "##ing", "on", "mat", "bird", "sing", "in", "tree", "."),
    *("tall", "and"),
]
TEXTS = [
    "the quick brown fox jumped over the lazy dogs .",
    "a slow red cat sleeping on the mat .",
    "the birds sing in a tall tree .",
    "foxes and cats sleep .",
    "the dog jumped in the tree and the bird .",
]

assert len(VOCABULARY) == SIZES["vocabulary_size"]


def tiny_backbone(**arguments):
    """A `DietBertBackbone` of `SIZES`, without dropout, with `arguments` on top."""
    return DietBertBackbone(**{**SIZES, "dropout": 0.0, **arguments})


def random_inputs(rng, batch_size=2, length=11, num_segments=2):
    """Inputs of a backbone: the last example is full, each one before it is 3 tokens shorter."""
    segment_ids = np.sort(rng.integers(0, num_segments, (batch_size, length)), axis=1)
    token_ids = rng.integers(1, SIZES["vocabulary_size"], (batch_size, length))
    valid = _valid_lengths(batch_size, length)
    padding_mask = np.arange(length) < valid[:, None]
    return {
        "token_ids": np.where(padding_mask, token_ids, 0).astype("int32"),
        "segment_ids": np.where(padding_mask, segment_ids, 0).astype("int32"),
        "padding_mask": padding_mask.astype("int32"),
    }


def random_masked_inputs(rng, batch_size=2, length=11, num_slots=5):
    """Inputs, labels and weights of a masked LM: the first example fills 2 slots, each next 3."""
    inputs = random_inputs(rng, batch_size, length)
    positions = [
        np.sort(rng.permutation(valid)[:num_slots]) for valid in _valid_lengths(batch_size, length)
    ]
    labels = rng.integers(1, SIZES["vocabulary_size"], (batch_size, num_slots))
    filled = np.arange(num_slots) < np.array([[2]] + [[3]] * (batch_size - 1))
    inputs["mask_positions"] = np.where(filled, positions, 0).astype("int32")
    return inputs, np.where(filled, labels, 0).astype("int32"), filled.astype("float32")


def _valid_lengths(batch_size, length):
    return np.maximum(length - 3 * np.arange(batch_size)[::-1], 1)


def randomize_weights(model, seed=0):
    """Give every weight of `model` large random values, the same on any backend; return it."""
    rng = np.random.default_rng(seed)
    model.set_weights(
        [
            rng.normal(loc=float("gamma" in weight.path), scale=0.3, size=weight.shape)
            for weight in model.weights
        ]
    )
    return model


def draw_with_numpy(initializer, shape, dtype=None, **kwargs):
    """Stand-in for `TruncatedNormal.__call__`: JAX compiles Keras's own for each shape (0.5 s)."""
    low, high = initializer.mean - 2 * initializer.stddev, initializer.mean + 2 * initializer.stddev
    values = np.clip(np.random.normal(initializer.mean, initializer.stddev, shape), low, high)
    return ops.convert_to_tensor(values.astype("float32"), dtype=dtype)
