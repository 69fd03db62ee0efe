"""The check of scores that the analyses of distances share."""

from typing import Any

import numpy as np


def checked_square(scores: Any) -> np.ndarray:
    """Return scores of shape `(..., T, T)` in float64, or raise a `ValueError`."""
    scores = np.asarray(scores, dtype="float64")
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2] or not scores.shape[-1]:
        raise ValueError(
            "`scores` must have the shape (..., T, T) with T > 0. Projected keys, such as "
            f"Linformer's, do not have a distance from a query. Received: shape={scores.shape}"
        )
    return scores
