"""The accuracy of tokens in batches of different lengths."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_diet")
class TokenAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """Keras's accuracy, where each token counts the same in batches of all lengths.

        accuracy = sum(w * correct) / sum(w)

    Keras takes the mean over the tokens of a sequence first. So it gives the tokens of shorter
    batches, as preprocessors with `length_buckets` make them, a larger weight.

    Args:
        name: str. Defaults to `"sparse_categorical_accuracy"`, the name in Keras.
        dtype: The dtype of the result, or `None`, which means `keras.config.floatx()`.
    """

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch.

        Args:
            y_true: Classes, integers of shape `(B, T)`.
            y_pred: Logits or probabilities of shape `(B, T, num_classes)`.
            sample_weight: Weights of shape `(B, T)`, or `None`, which means 1.
        """
        y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        if sample_weight is not None:
            sample_weight = ops.reshape(sample_weight, (-1,))
        rows = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
        return super().update_state(ops.reshape(y_true, (-1,)), rows, sample_weight)
