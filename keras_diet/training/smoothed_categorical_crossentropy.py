"""Cross-entropy with smoothed labels."""

import keras
from keras import ops

from keras_diet import validation
from keras_diet.types import Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class SmoothedCategoricalCrossentropy(keras.losses.SparseCategoricalCrossentropy):
    """Cross-entropy of integer labels and logits, with label smoothing.

    With the logits `z` of `V` classes, the label `y` and `e = label_smoothing`:

        loss = -(1 - e) log p_y - e / V * sum_k log p_k        p = softmax(z)

    This equals `keras.losses.CategoricalCrossentropy` with one-hot labels, which would need a
    tensor of the size of the logits. Tensor2Tensor spreads `e` over the other `V - 1` classes only
    and subtracts a constant. For a large vocabulary this is almost the same.

    Args:
        label_smoothing: float in [0, 1]. Defaults to `0.1`.
        reduction: As in `keras.losses.Loss`. Defaults to `"mean_with_sample_weight"`, the mean over
            labels whose weight is not 0.
        name: str. Defaults to `"smoothed_categorical_crossentropy"`.

    Call arguments:
        y_true: Integers of shape `(...)` or `(..., 1)`.
        y_pred: Logits of shape `(..., V)`.
        sample_weight: Weights of shape `(...)`, or `None`.

    Returns:
        The loss, a scalar unless `reduction` is `None`.

    Raises:
        ValueError: If `label_smoothing` is not in [0, 1].

    Example:

    ```python
    loss = keras_diet.training.SmoothedCategoricalCrossentropy(0.1)
    loss(np.array([2]), np.array([[0.0, 0.0, 4.0]]))
    ```

    References:
     - [Szegedy et al., 2016](https://arxiv.org/abs/1512.00567), section 7
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "smoothed_categorical_crossentropy",
    ) -> None:
        super().__init__(from_logits=True, reduction=reduction, name=name)
        self.label_smoothing = validation.rate("label_smoothing", label_smoothing)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each label."""
        labels = ops.cast(y_true, "int32")
        if len(labels.shape) < len(y_pred.shape):
            labels = ops.expand_dims(labels, -1)
        log_sum = ops.logsumexp(y_pred, axis=-1)
        of_label = ops.squeeze(ops.take_along_axis(y_pred, labels, axis=-1), -1)
        mean = ops.mean(y_pred, axis=-1)
        return log_sum - (1 - self.label_smoothing) * of_label - self.label_smoothing * mean

    def get_config(self) -> Config:
        """Return the arguments of the constructor."""
        return {
            "label_smoothing": self.label_smoothing,
            "reduction": self.reduction,
            "name": self.name,
        }
