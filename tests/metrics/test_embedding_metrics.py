"""Correlations, and measures of retrieval."""

import numpy as np
import pytest
import sklearn.metrics
from scipy import stats

from keras_diet.metrics import correlation_metrics, retrieval_metrics

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("number", [2, 17, 400])
def test_correlations_equal_scipy(number, rng):
    """With ties in both columns, unless there are two pairs."""
    scores = np.round(rng.normal(size=number), 0 if number > 2 else 5)
    similarities = np.round(scores**3 + 5 * rng.normal(size=number), 1 if number > 2 else 5)
    found = correlation_metrics(scores[:, None], similarities.astype("float32"))
    similarities = similarities.astype("float32")
    pearson, spearman = stats.pearsonr(scores, similarities), stats.spearmanr(scores, similarities)
    assert found["pearson"] == pytest.approx(pearson.statistic, abs=1e-9)
    assert found["spearman"] == pytest.approx(spearman.statistic, abs=1e-12)
    assert found["pearson"] != pytest.approx(found["spearman"], abs=1e-3) or number == 2


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1], [0.1, np.nan, 0.3]])
def test_correlations_that_are_not_defined(values):
    assert all(np.isnan(list(correlation_metrics([1, 2, 4], values).values())))


def test_correlations_need_equal_lengths():
    with pytest.raises(ValueError, match="mismatch"):
        correlation_metrics([1.0, 2.0, 3.0], [1.0])


# Document 2 and document 4 are equally similar to the first query.
SIMILARITIES = [[0.1, 0.9, 0.5, 0.7, 0.5], [0.4, 0.3, 0.2, 0.1, 0.0], [-3, -1, -2, -5, -4]]


def test_retrieval():
    # The ranks of the relevant documents are 4 and 1, 5, and 2 and 3.
    two = 1 + gain(2)
    found = retrieval_metrics(SIMILARITIES, [{4, 1}, [4], np.array([0, 2, 2])], k=(1, 2, 4, 5))
    assert found == pytest.approx(
        {
            "recall@1": (1 / 2 + 0 + 0) / 3,
            "mrr@1": (1 + 0 + 0) / 3,
            "ndcg@1": (1 + 0 + 0) / 3,
            "recall@2": (1 / 2 + 0 + 1 / 2) / 3,
            "mrr@2": (1 + 0 + 1 / 2) / 3,
            "ndcg@2": (1 / two + 0 + gain(2) / two) / 3,
            "recall@4": (1 + 0 + 1) / 3,
            "mrr@4": (1 + 0 + 1 / 2) / 3,
            "ndcg@4": ((1 + gain(4)) / two + 0 + (gain(2) + gain(3)) / two) / 3,
            "recall@5": (1 + 1 + 1) / 3,
            "mrr@5": (1 + 1 / 5 + 1 / 2) / 3,
            "ndcg@5": ((1 + gain(4)) / two + gain(5) + (gain(2) + gain(3)) / two) / 3,
        }
    )
    # The odd documents are equal, and better than the others.
    equal = retrieval_metrics([np.arange(400) % 2], [[301]], k=(150, 151))
    assert (equal["recall@150"], equal["recall@151"]) == (0, 1)
    assert list(retrieval_metrics(SIMILARITIES, [[0]] * 3)) == [
        f"{name}@{k}" for k in (1, 5, 10) for name in ("recall", "mrr", "ndcg")
    ]


def gain(rank):
    return 1 / np.log2(rank + 1)


def test_graded_gains():
    """As in scikit-learn, which sorts all documents. Document 1 has the rank 1, document 0 5."""
    gains = {0: 3.0, 1: 0.5, 3: 2.0}
    row = np.array([gains.get(i, 0) for i in range(5)])
    scores = [0.1, 0.9, 0.5, 0.7, 0.4]
    found = retrieval_metrics([scores], [gains], k=(2, 5))
    for k in (2, 5):
        expected = sklearn.metrics.ndcg_score([row], [scores], k=k)
        assert found[f"ndcg@{k}"] == pytest.approx(expected)
    assert found["recall@2"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "relevant, error, message",
    [
        ([[0], [], [1]], ValueError, "no documents for query 1"),
        ([[0], {1: 2.0, 3: 0.0}, [1]], ValueError, "must be positive.*for query 1"),
        ([[0], [1]], ValueError, "shorter"),
        ([[0], [1], [5]], IndexError, "out of bounds"),
    ],
)
def test_relevant_documents_that_cannot_be_right(relevant, error, message):
    with pytest.raises(error, match=message):
        retrieval_metrics(SIMILARITIES, relevant)
