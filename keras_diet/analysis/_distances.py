"""What the analyses of distances have in common."""

import numpy as np


def checked_square(scores):
    """Return scores of queries and as many keys in float64."""
    scores = np.asarray(scores, dtype="float64")
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2] or not scores.shape[-1]:
        raise ValueError(
            "`scores` must have the shape (..., T, T): keys that are projected, as Linformer's, "
            f"have no distance from a query. Received: {scores.shape}"
        )
    return scores
