"""Models, batches and a training loop for the comparison of one device with several."""

import keras
import numpy as np

from keras_diet.models import DietBertBackbone, DietBertMaskedLM, DietBertTextEmbedder
from keras_diet.training import CoSENTLoss, MultipleNegativesRankingLoss
from tests.helpers import to_numpy
from tests.models.tiny import randomize_weights

# `tests/models/test_layout_map.py` has the weights of other encodings.
NUM_LAYERS = 1
# Masked tokens of each sequence of a batch. The halves of the batch have different numbers.
UNEQUAL = (1, 1, 1, 1, 3, 3, 3, 3)
STEPS = 3
BATCH_SIZE = 8
LENGTH = 13
# Model parallelism needs heads, hidden size and intermediate size that 4 divides. It does not
# divide the vocabulary and the number of positions.
SIZES = {
    "vocabulary_size": 31,
    "num_heads": 4,
    "hidden_dim": 24,
    "intermediate_dim": 20,
    "max_sequence_length": LENGTH,
    "dropout": 0.0,
}


def make_masked_lm():
    """A masked LM with the same weights in every call. Its pooler is not trained."""
    backbone = DietBertBackbone(**SIZES, num_layers=NUM_LAYERS, position_encoding="diet_abs")
    backbone.pooled_dense.trainable = False
    masked_lm = randomize_weights(DietBertMaskedLM(backbone, compile=False))
    # Adam would hide a wrong scale of the gradients.
    masked_lm.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9))
    return masked_lm


def make_batches(masked_tokens=3):
    """Inputs, labels and weights of `STEPS` batches, half of each with padding.

    Args:
        masked_tokens: Number of masked tokens of each sequence, up to 3: an integer, or one integer
            for each sequence of a batch.
    """
    rng = np.random.default_rng(29)
    shape = (STEPS * BATCH_SIZE, LENGTH)
    lengths = np.where(np.arange(shape[0]) % 2, LENGTH, LENGTH - 4)[:, None]
    padding_mask = np.arange(LENGTH) < lengths
    inputs = {
        "token_ids": np.where(padding_mask, rng.integers(1, SIZES["vocabulary_size"], shape), 0),
        "segment_ids": np.where(padding_mask, np.sort(rng.integers(0, 2, shape)), 0),
        "padding_mask": padding_mask,
        "mask_positions": np.sort([rng.permutation(LENGTH - 4)[:3] for _ in range(shape[0])]),
    }
    inputs = {name: array.astype("int32") for name, array in inputs.items()}
    labels = rng.integers(1, SIZES["vocabulary_size"], (shape[0], 3)).astype("int32")
    masked_tokens = np.resize(masked_tokens, BATCH_SIZE)
    weights = np.tile(np.arange(3) < masked_tokens[:, None], (STEPS, 1)).astype("float32")

    def step(array, i):
        return array[i * BATCH_SIZE : (i + 1) * BATCH_SIZE]

    return [
        (
            {name: step(array, i) for name, array in inputs.items()},
            step(labels, i),
            step(weights, i),
        )
        for i in range(STEPS)
    ]


def fit(masked_lm, batches):
    """Train with `fit`, one epoch for each batch, and return the losses of all steps."""
    options = {"batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0}
    losses = []
    for inputs, labels, weights in batches:
        history = masked_lm.fit(inputs, labels, sample_weight=weights, **options)
        losses += history.history["loss"]
    return losses


# Pairs of both halves of a batch have the same text, and scores that a half alone orders otherwise.
PAIRS = {
    "multiple_negatives": [[0, 1], [2, 3], [4, 5], [6, 7], [0, 8], [9, 6], [10, 11], [12, 13]],
    "cosent": [0.5, 3.0, 2.5, 1.0, 2.0, 0.25, 4.0, 1.5],
}


def make_embedder(name):
    """An embedder for pairs, with the same weights in every call."""
    backbone = DietBertBackbone(**SIZES, num_layers=1)
    backbone.pooled_dense.trainable = False
    embedder = randomize_weights(DietBertTextEmbedder(backbone, num_chunks=2))
    losses = {
        "multiple_negatives": MultipleNegativesRankingLoss(5.0, symmetric=True),
        "cosent": CoSENTLoss(5.0),
    }
    embedder.compile(keras.optimizers.SGD(0.05), losses[name])
    return embedder


def pair_batch(name):
    """Inputs `(8, 2, T)` of eight pairs, labels and weights."""
    first, second, _ = make_batches()
    inputs = {
        key: np.stack([first[0][key], second[0][key]], axis=1)
        for key in ("token_ids", "segment_ids", "padding_mask")
    }
    labels = np.array(PAIRS[name])
    return inputs, labels, np.array([1, 2, 1, 1, 0, 3, 1, 0.5], "float32")


def train_embedder(name="multiple_negatives"):
    """The losses of three steps of `fit` on the same pairs, and sums of some weights."""
    embedder, (x, y, weights) = make_embedder(name), pair_batch(name)
    options = {"sample_weight": weights, "batch_size": BATCH_SIZE, "verbose": 0}
    losses = embedder.fit(x, y, epochs=STEPS, **options).history["loss"]
    losses.append(embedder.evaluate(x, y, **options))
    return [*losses, *(float(np.abs(to_numpy(w)).sum()) for w in embedder.weights[:5])]


def predictions(masked_lm):
    """The outputs of `predict`, whose first batch of two can be divided among devices."""
    first, second = (inputs for inputs, _, _ in make_batches()[:2])
    inputs = {name: np.concatenate([first[name], second[name][:3]]) for name in first}
    return masked_lm.predict(inputs, BATCH_SIZE, verbose=0).tolist()
