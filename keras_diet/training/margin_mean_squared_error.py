"""Squared error of the differences of scores."""

from typing import Any

import keras
from keras import ops

from keras_diet import _arrays
from keras_diet.types import Tensor


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
        if not _arrays.sizes_fit(*shapes) or len(shapes[1]) != 2 or shapes[1][1] == 1:
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
