"""Losses of embeddings: numbers, gradients, weights, equal texts, and sentence-transformers."""

import inspect

import keras
import numpy as np
import pytest

from keras_diet.training import (
    CoSENTLoss,
    CosineSimilarityLoss,
    EmbeddingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from tests.helpers import assert_close, floatx, gradients, once, to_numpy

# Text 1 is the positive of two anchors, and text 0 the anchor of two examples and the positive of
# the last one. Text 5 is a positive, and a hard negative of another example.
IDS = np.array([[0, 1, 2], [3, 1, 4], [0, 5, 6], [7, 8, 5], [9, 0, 10]])
# Which positives and hard negatives of the five examples are negatives of each anchor.
OF_ANCHORS = ["00010 11101", "00111 11111", "00010 11101", "11101 11111", "11110 11111"]
# Which anchors are negatives of each positive.
OF_POSITIVES = ["00011", "00011", "01011", "11101", "01010"]
# The last two differ less than numbers in bfloat16.
SCORES = np.array([0.5, -0.25, 0.5, 1.0, 0.501])
WEIGHTS = np.array([1.0, 0.5, 2.0, 0.0, 3.0])
LOSSES = {
    "pairs": (MultipleNegativesRankingLoss(3.0), IDS[:, :2]),
    "triplets": (MultipleNegativesRankingLoss(3.0), IDS),
    "symmetric": (MultipleNegativesRankingLoss(3.0, symmetric=True), IDS),
    "cosine": (CosineSimilarityLoss(), SCORES),
    "cosent": (CoSENTLoss(3.0), SCORES),
    "matryoshka": (MatryoshkaLoss(CoSENTLoss(3.0), (7, 4), (1.0, 0.5)), SCORES),
}


def embeddings_of(labels, rng, dim=7):
    """Embeddings of the texts of examples. Short ones and long ones."""
    shape = (len(labels), labels.shape[1] if labels.ndim == 2 else 2, 1)
    return rng.normal(size=(*shape[:2], dim)) * np.resize([1.0, 0.01, 3.0], shape)


def reference(name, embeddings, weights):
    """The loss by its equation, in float64."""
    if name == "matryoshka":
        parts = (reference("cosent", embeddings[..., :dim], weights) for dim in (7, 4))
        return next(parts) + 0.5 * next(parts)
    units = embeddings / np.linalg.norm(embeddings, axis=-1, keepdims=True)
    if name in ("cosine", "cosent"):
        cosines = np.einsum("id,id->i", units[:, 0], units[:, 1])
        if name == "cosine":
            return np.sum(weights * (cosines - SCORES) ** 2) / np.sum(weights)
        pairs = [(i, j) for i in range(5) for j in range(5) if SCORES[i] > SCORES[j]]
        wrong = [weights[i] * weights[j] * np.exp(3 * (cosines[j] - cosines[i])) for i, j in pairs]
        return np.log(1 + sum(wrong))
    anchors, positives = units[:, 0], units[:, 1]
    candidates = np.concatenate([units[:, m] for m in range(1, units.shape[1])])
    directions = [(anchors, positives, candidates, OF_ANCHORS)]
    if name == "symmetric":
        directions.append((positives, anchors, anchors, OF_POSITIVES))
    losses = []
    for left, right, others, table in directions:
        for i in range(5):
            kept = [bit == "1" for bit in table[i].replace(" ", "")][: len(others)]
            factors = kept * np.tile(weights, len(others) // 5)
            right_one = np.exp(3 * left[i] @ right[i])
            total = right_one + np.sum(factors * np.exp(3 * others @ left[i]))
            losses.append(weights[i] * np.log(total / right_one))
    return sum(losses) / np.sum(weights) / len(directions)


@pytest.mark.parametrize("weights", [WEIGHTS, *once(np.ones(5))], ids=["weights", "equal"])
@pytest.mark.parametrize("name", LOSSES)
def test_numbers_and_gradients(name, weights, rng):
    loss, labels = LOSSES[name]
    embeddings = embeddings_of(labels, rng)
    given = None if np.all(weights == 1) else weights
    expected = reference(name, embeddings, weights)
    variable = keras.Variable(embeddings.astype("float32"))
    assert_close(loss(labels, variable.value, given), expected)
    step = 1e-6
    slopes = np.zeros_like(embeddings)
    for index in np.ndindex(embeddings.shape):
        ahead, behind = embeddings.copy(), embeddings.copy()
        ahead[index] += step
        behind[index] -= step
        difference = reference(name, ahead, weights) - reference(name, behind, weights)
        slopes[index] = difference / (2 * step)
    found = gradients(lambda: loss(labels, variable.value, given), [variable])[0]
    assert_close(found, slopes)
    assert np.abs(found).max() > 1e-2


@pytest.mark.parametrize("name", LOSSES)
def test_weights_count_examples(name, rng):
    """An example with the weight 2 counts as twice the example, and with 0 it is left out."""
    loss, labels = LOSSES[name]
    embeddings = embeddings_of(labels, rng)
    rows, weights = [0, 1, 2, 2, 4], np.array([1, 1, 2, 0, 1])
    expected = loss(labels[rows], embeddings[rows])
    labels = labels.copy()
    labels[3] = 50 if labels.ndim == 2 else np.nan
    embeddings[3] = 0
    column = labels if labels.ndim == 2 else labels[:, None]
    assert_close(loss(labels, embeddings, weights), expected)
    assert_close(loss(column, embeddings, weights[:, None]), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite(name, rng):
    """Where all texts and scores are equal, and their embeddings zero."""
    loss, labels = LOSSES[name]
    variable = keras.Variable(0 * embeddings_of(labels, rng))
    assert np.isfinite(gradients(lambda: loss(0 * labels, variable.value), [variable])[0]).all()


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision(name, rng):
    """The loss of embeddings in bfloat16 is the loss of these numbers in float32."""
    loss, labels = LOSSES[name]
    embeddings = keras.ops.cast(embeddings_of(labels, rng), "bfloat16")
    with floatx("bfloat16"):
        found = type(loss).from_config(loss.get_config())(labels, embeddings)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    assert_close(found, loss(labels, to_numpy(embeddings)))


@pytest.mark.any_backend
def test_equals_sentence_transformers(rng):
    import torch

    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses

    labels = {"pairs": np.arange(10).reshape(5, 2), "triplets": np.arange(15).reshape(5, 3)}
    symmetric = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    references = {
        "pairs": losses.MultipleNegativesRankingLoss(None, 3.0),
        "triplets": losses.MultipleNegativesRankingLoss(None, 3.0),
        "symmetric": losses.MultipleNegativesRankingLoss(None, 3.0, **symmetric),
        "cosine": losses.CosineSimilarityLoss(None),
        "cosent": losses.CoSENTLoss(None, 3.0),
    }
    for name, theirs in references.items():
        y = labels.get(name, labels["triplets"] if name == "symmetric" else SCORES)
        embeddings = embeddings_of(y, rng)
        columns = [torch.tensor(part) for part in embeddings.swapaxes(0, 1)]
        expected = theirs.compute_loss_from_embeddings(columns, torch.tensor(y))
        assert_close(LOSSES[name][0](y, embeddings), expected, 1e-6)
    assert MultipleNegativesRankingLoss().scale == references["pairs"].__class__(None).scale
    assert CoSENTLoss().scale == losses.CoSENTLoss(None).scale


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["symmetric", "cosine", "cosent", "matryoshka"])
def test_config(name):
    loss = LOSSES[name][0]
    config = {**loss.get_config(), "name": "mine"}
    assert config.keys() == inspect.signature(type(loss)).parameters.keys()
    if "reduction" in config:
        config["reduction"] = "sum"
    restored = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(type(loss).from_config(config))
    )
    assert restored.get_config() == config


class AnyNumber(EmbeddingLoss):
    """A loss of a user that takes any number of texts."""

    num_texts = None


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "loss, labels, shape, message",
    [
        (MultipleNegativesRankingLoss(), IDS[:, :2], (10, 7), r"y_true.shape=\(5, 2\).*\(10, 7\)"),
        (MultipleNegativesRankingLoss(), IDS[:, :2], (5, 3, 7), r"shape \(n, k\).*\(5, 3, 7\)"),
        (MultipleNegativesRankingLoss(), IDS[:, 0], (5, 2, 7), r"y_true.shape=\(5,\)"),
        (CosineSimilarityLoss(), SCORES, (10, 7), r"shape \(n, 2, d\).*shape=\(10, 7\)"),
        (CoSENTLoss(), SCORES, (5, 3, 7), r"embeddings of 2 texts .*shape=\(5, 3, 7\)"),
        (LOSSES["matryoshka"][0], SCORES, (10, 7), r"shape \(n, 2, d\).*shape=\(10, 7\)"),
        (AnyNumber(), SCORES, (5, 2, 1, 7), r"shape \(n, k, d\).*shape=\(5, 2, 1, 7\)"),
    ],
)
def test_other_shapes_of_embeddings(loss, labels, shape, message, rng):
    with pytest.raises(ValueError, match=message):
        loss(labels, rng.normal(size=shape))


@pytest.mark.any_backend
def test_refused_arguments():
    for loss in (MultipleNegativesRankingLoss, CoSENTLoss):
        with pytest.raises(ValueError, match=r"`scale` must be .*scale=0"):
            loss(scale=0)
    with pytest.raises(ValueError, match="`dims`"):
        MatryoshkaLoss(CoSENTLoss(), (3, 0))
