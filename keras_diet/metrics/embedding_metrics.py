"""Correlations of scored pairs, and recall, reciprocal ranks and gains of retrieval."""

from collections.abc import Collection, Mapping, Sequence
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
    similarities: Any,
    relevant: Sequence[Collection[int] | Mapping[int, float]],
    k: Sequence[int] = (1, 5, 10),
) -> dict[str, float]:
    """Return recall, reciprocal rank and normalized gain of the documents found for queries.

    The documents of a query are sorted by their similarity. Of equal ones, the one with the smaller
    index is first. With the gain `g_r` of the document at rank `r`, and the gains `g*_r` in the
    best order, the metrics are means over the queries:

        recall@k = |relevant documents with a rank of at most k| / |relevant documents|
        mrr@k    = 1 / rank of the first relevant document, or 0 if the rank is larger than k
        ndcg@k   = sum_{r <= k} g_r / log2(r + 1) / sum_{r <= k} g*_r / log2(r + 1)

    Args:
        similarities: Numbers of shape `(num_queries, num_documents)`, as from
            `DietBertTextEmbedder.similarity`, or as from `DietBertTextReranker.predict` with the
            same number of texts for each query.
        relevant: For each query, the indices of its relevant documents, or a dictionary from them
            to their gains, which are positive. Without a dictionary, gains are 1.
        k: The numbers of documents that count, increasing. Defaults to `(1, 5, 10)`. With the
            number of documents, `mrr@k` is the mean reciprocal rank without a limit.

    Returns:
        Dictionary of `"recall@k"`, `"mrr@k"` and `"ndcg@k"` for each `k`, from 0 to 1.

    Raises:
        ValueError: If there are not as many lists of documents as queries, if a query has no
            relevant document, if a gain is not positive, or if `k` is not positive or does not
            increase.

    Example:

    ```python
    similarities = np.array([[0.9, 0.2, 0.4], [0.8, 0.1, 0.3]])
    keras_diet.metrics.retrieval_metrics(similarities, [[0], [2]], k=(2,))
    # {"recall@2": 1.0, "mrr@2": 0.75, "ndcg@2": 0.815}
    ```

    References:
     - [Voorhees, 1999](https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf): reciprocal ranks
     - [Järvelin and Kekäläinen, 2002](https://doi.org/10.1145/582415.582418): gains
     - [Thakur et al., 2021](https://arxiv.org/abs/2104.08663): retrieval with embeddings
    """
    cutoffs = validation.increasing_ints("k", k)
    names = [f"{name}@{cutoff}" for cutoff in cutoffs for name in ("recall", "mrr", "ndcg")]
    metrics = dict.fromkeys(names, 0.0)
    rows = keras.ops.convert_to_numpy(similarities)
    for query, (row, documents) in enumerate(zip(rows, relevant, strict=True)):
        if not len(documents):
            raise ValueError(
                "Each query must have a relevant document. Received: no documents for query "
                f"{query}. Leave the query out."
            )
        given = documents if isinstance(documents, Mapping) else dict.fromkeys(documents, 1.0)
        gains = np.array(list(given.values()), "float64")
        if not np.all(gains > 0):
            raise ValueError(
                f"The gains of relevant documents must be positive. Received: {given} for query "
                f"{query}. Leave out documents that are not relevant."
            )
        order = np.argsort(-row.astype("float64"), kind="stable")
        ranks = 1 + np.argsort(order)[list(given)]
        best, discounted = -np.sort(-gains), gains / np.log2(ranks + 1)
        ideal = best / np.log2(np.arange(len(best)) + 2)
        for cutoff in cutoffs:
            found = ranks <= cutoff
            metrics[f"recall@{cutoff}"] += float(np.mean(found))
            metrics[f"mrr@{cutoff}"] += float(1 / ranks.min()) if found.any() else 0.0
            metrics[f"ndcg@{cutoff}"] += float(np.sum(discounted[found]) / np.sum(ideal[:cutoff]))
    return {name: float(value / len(rows)) for name, value in metrics.items()}
