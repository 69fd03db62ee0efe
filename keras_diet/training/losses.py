"""Losses that Keras lacks: smoothed labels, and margins between scores."""

from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.configuration import FromArguments
from keras_diet.types import Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class SmoothedCategoricalCrossentropy(FromArguments, keras.losses.SparseCategoricalCrossentropy):
    """Cross-entropy of integer labels and logits, with label smoothing.

    With the logits `z` of `V` classes, the label `y` and `e = label_smoothing`:

        loss = -(1 - e) log p_y - e / V * sum_k log p_k        p = softmax(z)

    This equals `keras.losses.CategoricalCrossentropy` with one-hot labels, which would need a
    tensor of the size of the logits. Tensor2Tensor spreads `e` over the other `V - 1` classes only
    and subtracts a constant. For a large vocabulary this is almost the same.

    Args:
        label_smoothing: float in [0, 1]. Defaults to `0.1`.
        reduction: As in `keras.losses.Loss`. Defaults to `"mean_with_sample_weight"`, the mean over
            the labels, weighted by `sample_weight`.
        name: str. Defaults to `"smoothed_categorical_crossentropy"`.
        ignore_class: int or `None`. A label that counts as if its weight were 0. Defaults to
            `None`.

    Call arguments:
        y_true: Integers of shape `(...)` or `(..., 1)`.
        y_pred: Logits of shape `(..., V)`.
        sample_weight: Weights of shape `(...)`, or `None`. Where the weight is 0, the label may
            have any value.

    Returns:
        The loss, a scalar unless `reduction` is `None`. It is NaN for a label outside the classes
        whose weight is not 0.

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
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(True, ignore_class, reduction=reduction, name=name)
        self.label_smoothing = validation.rate("label_smoothing", label_smoothing)

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Any:
        """Return the loss of all labels."""
        labels, y_pred = ops.cast(y_true, "int32"), ops.convert_to_tensor(y_pred)
        if len(labels.shape) == len(y_pred.shape):
            labels = ops.squeeze(labels, -1)
        kept = ops.ones_like(labels, keras.config.floatx())
        if self.ignore_class is not None:
            kept = ops.cast(ops.not_equal(labels, self.ignore_class), kept.dtype)
        weights = kept
        if sample_weight is not None:
            # It may have one more axis of size 1, or the first axes of the labels only.
            given = ops.convert_to_tensor(sample_weight, kept.dtype)
            if len(given.shape) > len(labels.shape):
                given = ops.squeeze(given, -1)
            while len(given.shape) < len(labels.shape):
                given = ops.expand_dims(given, -1)
            weights = weights * given
        if self.ignore_class is not None and self.reduction in ("mean", "sum_over_batch_size"):
            # As in Keras, the mean is over the labels that are not ignored.
            weights = ops.divide_no_nan(weights, ops.mean(kept))
        labels = ops.where(ops.equal(weights, 0), 0, labels)
        return super().__call__(labels, y_pred, weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each label."""
        labels = ops.cast(y_true, "int32")
        is_class = ops.logical_and(labels >= 0, labels < y_pred.shape[-1])
        places = ops.expand_dims(ops.where(is_class, labels, 0), -1)
        log_sum = ops.logsumexp(y_pred, axis=-1)
        of_label = ops.squeeze(ops.take_along_axis(y_pred, places, axis=-1), -1)
        mean = ops.mean(y_pred, axis=-1)
        loss = log_sum - (1 - self.label_smoothing) * of_label - self.label_smoothing * mean
        return ops.where(is_class, loss, float("nan"))


@keras.saving.register_keras_serializable(package="keras_diet")
class MarginMeanSquaredError(keras.losses.Loss):
    """Squared error of margins: how much better the first text of a query is than the others.

    A teacher has the scores `t_i1, ..., t_ik` of the texts of a query, and the model the scores
    `s_i1, ..., s_ik`:

        loss_i = 1 / (k - 1) * sum_{j > 1} ((s_i1 - s_ij) - (t_i1 - t_ij))^2

    Only differences count, so the scores of the model may have another zero.

    Args:
        reduction: As in `keras.losses.Loss`. Defaults to `"mean_with_sample_weight"`.
        name: str. Defaults to `"margin_mean_squared_error"`.

    Call arguments:
        y_true: Scores of the teacher, of shape `(n, k)`.
        y_pred: Scores of shape `(n, k)`, with `k` of at least 2.
        sample_weight: Weights of shape `(n,)`, or `None`.

    Returns:
        The loss, a scalar unless `reduction` is `None`.

    Raises:
        ValueError: If the shapes differ, or if a query has a single text.

    Example:

    ```python
    loss = keras_diet.training.MarginMeanSquaredError()
    loss(np.array([[8.0, 3.0]]), np.array([[2.0, -1.0]]))  # (3 - 5)^2
    ```

    References:
     - [Hofstätter et al., 2020](https://arxiv.org/abs/2010.02666), equation 7
    """

    def __init__(
        self,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "margin_mean_squared_error",
    ) -> None:
        super().__init__(name=name, reduction=reduction)

    def __call__(self, y_true: Any, y_pred: Tensor, sample_weight: Tensor | None = None) -> Any:
        """Return the loss of all queries."""
        shapes = tuple(y_true.shape), tuple(y_pred.shape)
        if not validation.sizes_fit(*shapes) or len(shapes[1]) != 2 or shapes[1][1] == 1:
            raise ValueError(
                "`y_true` and `y_pred` must have the shape (n, k), for the scores of k texts of "
                "each query, with k of at least 2. Pass several texts of each query, and a score "
                f"of each. Received: y_true.shape={shapes[0]}, y_pred.shape={shapes[1]}"
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each query."""
        errors = ops.cast(y_pred, self.dtype) - ops.cast(y_true, self.dtype)
        return ops.mean(ops.square(errors[:, :1] - errors[:, 1:]), axis=-1)
