"""The default loss of tasks with a label for each token."""

from typing import Any

import keras


def token_loss(loss: Any, from_logits: bool = True) -> Any:
    """Return the cross-entropy averaged over tokens for `"auto"`, and another loss as it is.

    KerasHub's default is a mean over all labels, also over those with weight 0.
    """
    if not (isinstance(loss, str) and loss == "auto"):
        return loss
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=from_logits, reduction="mean_with_sample_weight"
    )
