"""Correlations of scored pairs, and recall and reciprocal ranks of retrieval."""

from collections.abc import Collection, Sequence
from typing import Any

import keras
import numpy as np

from keras_diet import validation


def correlation_metrics(scores: Any, similarities: Any) -> dict[str, float]:
    """Return the correlations of Pearson and of Spearman between scores and similarities.

        r = sum_i dx_i dy_i / sqrt(sum_i dx_i^2 sum_i dy_i^2)
        dx_i = x_i - mean(x)        dy_i = y_i - mean(y)

    Spearman's correlation is `r` of the ranks. Equal numbers have the mean of their ranks.

    Args:
        scores: Numbers of shape `(n,)` or `(n, 1)`, e.g. the scores of STS-B.
        similarities: Numbers of the same length, e.g. the cosines of pairs of embeddings.

    Returns:
        Dictionary of `"pearson"` and `"spearman"`, both from -1 to 1. They are NaN if all scores or
        all similarities are equal, or if one of them is NaN.

    Raises:
        ValueError: If the lengths differ.

    Example:

    ```python
    a, b = np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([[0.8, 0.6], [-0.6, 0.8]])
    keras_diet.metrics.correlation_metrics([4.5, 1.0], np.sum(a * b, axis=-1))["pearson"]  # 1.0
    ```

    References:
     - [Spearman, 1904](https://doi.org/10.2307/1412159)
     - [Reimers et al., 2016](https://aclanthology.org/C16-1009/): which one to report
    """
    x, y = (
        np.asarray(keras.ops.convert_to_numpy(values), "float64").reshape(-1)
        for values in (scores, similarities)
    )
    return {"pearson": _pearson(x, y), "spearman": _pearson(_ranks(x), _ranks(y))}


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    # Without the first number, equal numbers are exactly 0.
    x, y = (values - values[0] for values in (x, y))
    x, y = x - np.mean(x), y - np.mean(y)
    with np.errstate(invalid="ignore"):
        return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each number, from 1. Equal numbers have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return np.where(np.isnan(values), np.nan, ranks)


def retrieval_metrics(
    similarities: Any, relevant: Sequence[Collection[int]], k: Sequence[int] = (1, 5, 10)
) -> dict[str, float]:
    """Return recall and the mean reciprocal rank of the documents found for queries.

    The documents of a query are sorted by their similarity. Of equal ones, the one with the smaller
    index is first. Both metrics are means over the queries:

        recall@k = |relevant documents with a rank of at most k| / |relevant documents|
        mrr@k    = 1 / rank of the first relevant document, or 0 if the rank is larger than k

    Args:
        similarities: Numbers of shape `(num_queries, num_documents)`, as from
            `DietBertTextEmbedder.similarity`.
        relevant: For each query, the indices of its relevant documents.
        k: The numbers of documents that count, increasing. Defaults to `(1, 5, 10)`. With the
            number of documents, `mrr@k` is the mean reciprocal rank without a limit.

    Returns:
        Dictionary of `"recall@k"` and `"mrr@k"` for each `k`, from 0 to 1.

    Raises:
        ValueError: If there are not as many lists of documents as queries, if a query has no
            relevant document, or if `k` is not positive or does not increase.

    Example:

    ```python
    similarities = np.array([[0.9, 0.2, 0.4], [0.8, 0.1, 0.3]])
    keras_diet.metrics.retrieval_metrics(similarities, [[0], [2]], k=(1, 2))
    # {"recall@1": 0.5, "mrr@1": 0.5, "recall@2": 1.0, "mrr@2": 0.75}
    ```

    References:
     - [Voorhees, 1999](https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf): reciprocal ranks
     - [Thakur et al., 2021](https://arxiv.org/abs/2104.08663): retrieval with embeddings
    """
    cutoffs = validation.increasing_ints("k", k)
    metrics = {f"{name}@{cutoff}": 0.0 for cutoff in cutoffs for name in ("recall", "mrr")}
    rows = keras.ops.convert_to_numpy(similarities)
    for query, (row, documents) in enumerate(zip(rows, relevant, strict=True)):
        if not len(documents):
            raise ValueError(
                "Each query must have a relevant document. Received: no documents for query "
                f"{query}. Leave the query out."
            )
        order = np.argsort(-row.astype("float64"), kind="stable")
        ranks = np.sort(1 + np.argsort(order)[np.unique(list(documents))])
        for cutoff in cutoffs:
            metrics[f"recall@{cutoff}"] += np.sum(ranks <= cutoff) / len(ranks)
            metrics[f"mrr@{cutoff}"] += 1 / ranks[0] if ranks[0] <= cutoff else 0
    return {name: float(value / len(rows)) for name, value in metrics.items()}
