"""Metrics of answers to questions, as their data sets define them."""

from keras_diet.metrics.answer_metrics import (
    mlqa_metrics,
    normalize_mlqa,
    normalize_squad,
    squad_metrics,
)

__all__ = ["mlqa_metrics", "normalize_mlqa", "normalize_squad", "squad_metrics"]
