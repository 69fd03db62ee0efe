"""Metrics of answers to questions, of scored pairs of texts, and of retrieval."""

from keras_diet.metrics.answer_metrics import (
    mlqa_metrics,
    normalize_mlqa,
    normalize_squad,
    squad_metrics,
)
from keras_diet.metrics.embedding_metrics import correlation_metrics, retrieval_metrics

__all__ = [
    "correlation_metrics",
    "mlqa_metrics",
    "normalize_mlqa",
    "normalize_squad",
    "retrieval_metrics",
    "squad_metrics",
]
