"""Losses of embeddings of texts, which compare the texts of an example and of other examples."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.configuration import FromArguments
from keras_diet.types import Tensor


class EmbeddingLoss(FromArguments, keras.losses.Loss):
    """Base class of losses of examples that have several texts each.

    With such a loss, `DietBertTextEmbedder.fit` takes the texts of examples as a tuple of lists,
    and embeds each text alone. A subclass implements `call(y_true, y_pred)`, which returns the loss
    of each example. It may implement `check_labels(labels)`, which `fit` and `evaluate` call before
    the first step, and for each batch of a dataset of texts.

    Args:
        reduction: As in `keras.losses.Loss`. Defaults to `"mean_with_sample_weight"`.
        name: str or `None`. Defaults to `None`.

    Attributes:
        num_texts: int or `None`. Number `k` of the texts of an example. `None` means any number.
        takes_ids: bool. Whether `y_true` holds the ids of the texts, of shape `(n, k)`, which `fit`
            makes. Equal texts have equal ids. Otherwise it holds the scores that the user passes.

    Call arguments:
        y_true: Ids of shape `(n, k)`, or scores of shape `(n,)`.
        y_pred: Embeddings of shape `(n, k, d)`, for the `k` texts of `n` examples.
        sample_weight: Weights of shape `(n,)`, or `None`.

    Raises:
        ValueError: If `y_pred` has another shape.

    Example:

    ```python
    @keras.saving.register_keras_serializable(package="example")
    class TripletLoss(keras_diet.training.EmbeddingLoss):
        num_texts, takes_ids = 3, True

        def call(self, y_true, y_pred):
            near = keras.ops.norm(y_pred[:, 0] - y_pred[:, 1], axis=-1)
            far = keras.ops.norm(y_pred[:, 0] - y_pred[:, 2], axis=-1)
            return keras.ops.relu(near - far + 5.0)

    loss = TripletLoss()
    loss(np.array([[0, 1, 2]]), np.array([[[0.0, 1.0], [0.0, 2.0], [3.0, 1.0]]]))  # 3.0
    ```
    """

    num_texts: int | None = 2
    takes_ids = False

    def __init__(
        self, reduction: str | None = "mean_with_sample_weight", name: str | None = None
    ) -> None:
        # In float32 at least.
        dtype = keras.backend.result_type(keras.config.floatx(), "float32")
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def __call__(self, y_true: Any, y_pred: Tensor, sample_weight: Tensor | None = None) -> Any:
        """Return the loss of all examples."""
        shape = tuple(y_pred.shape)
        if not validation.sizes_fit(shape, (None, self.num_texts, None)):
            raise ValueError(
                f"`y_pred` must have the shape (n, {self.num_texts or 'k'}, d), for the embeddings "
                f"of {self.num_texts or 'k'} texts of n examples. Received: y_pred.shape={shape}"
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def check_labels(self, labels: np.ndarray) -> None:
        """Raise a `ValueError` if the labels of some examples cannot be right."""
        if np.any(np.isnan(labels)):
            row = np.argwhere(np.isnan(labels))[0][0]
            raise ValueError(f"Each example must have a score. Received: NaN in row {row}")

    def log_weights(self, labels: Tensor, sample_weight: Tensor | None) -> Tensor:
        """Return the logarithms of the weights, of the shape `(n,)` of the labels."""
        if sample_weight is None:
            return ops.zeros_like(labels, self.dtype)
        return ops.log(ops.reshape(ops.convert_to_tensor(sample_weight, self.dtype), (-1,)))


def unit_vectors(embeddings: Tensor) -> Tensor:
    """Return embeddings of length one. `ops.normalize` has the gradient NaN where they are zero."""
    squares = ops.sum(ops.square(embeddings), axis=-1, keepdims=True)
    # The embedding of a text of nothing but padding is zero.
    return embeddings / ops.sqrt(ops.maximum(squares, 1e-12))


def _cosines(embeddings: Tensor) -> Tensor:
    embeddings = unit_vectors(embeddings)
    return ops.sum(embeddings[:, 0] * embeddings[:, 1], axis=-1)


def _cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    """Return `-log(exp(p_i) / (exp(p_i) + sum_j exp(n_ij)))` for each row."""
    positive = ops.expand_dims(positive, -1)
    negatives = ops.reshape(negatives, (ops.shape(positive)[0], -1))
    logits = ops.concatenate([positive, negatives], axis=1)
    return ops.logsumexp(logits, axis=1) - positive[:, 0]


@keras.saving.register_keras_serializable(package="keras_diet")
class MultipleNegativesRankingLoss(EmbeddingLoss):
    """Cross-entropy of the right text among the texts of a batch: in-batch negatives, InfoNCE.

    An example is an anchor `a_i`, its positive `p_i`, and no, one or several hard negatives. The
    candidates of an anchor are the positives and hard negatives of all examples. With the set
    `N_i` of candidates that are negatives of `a_i`:

        s(a, c) = scale * cos(a, c)
        loss_i  = -log(exp(s(a_i, p_i)) / (exp(s(a_i, p_i)) + sum_{c in N_i} w_c exp(s(a_i, c))))

    `symmetric` takes the mean of `loss_i` and the loss of finding `a_i` among all anchors, where
    `M_i` is the set of anchors that are negatives of `p_i`:

        -log(exp(s(a_i, p_i)) / (exp(s(a_i, p_i)) + sum_{a in M_i} w_a exp(s(a, p_i))))

    The ids in `y_true` say which texts are equal. Embeddings cannot say it, because dropout gives a
    text another embedding in each place. Two texts are negatives unless they are equal, or are
    anchor and positive of an example of the batch.

    `w` is the weight of the example of a text. So an example with the weight 2 counts as if it were
    in the batch twice, and an example with the weight 0 as if it were not there.

    Args:
        scale: float. Inverse of the temperature. Defaults to `20.0`.
        symmetric: bool. Whether positives look for their anchors, too. Defaults to `False`.
        reduction: As in `keras.losses.Loss`. Defaults to `"mean_with_sample_weight"`.
        name: str. Defaults to `"multiple_negatives_ranking_loss"`.

    Call arguments:
        y_true: Integers of shape `(n, k)`, the ids of the `k` texts of each example: anchor,
            positive, hard negatives. Texts have the same id if they are equal.
        y_pred: Embeddings of shape `(n, k, d)`, in the order of the ids.
        sample_weight: Weights of shape `(n,)`, not negative, or `None`.

    Returns:
        The loss, a scalar unless `reduction` is `None`.

    Raises:
        ValueError: If `scale` is not positive, or if `y_true` does not have the ids of all texts.
            `fit` and `evaluate` raise it for a single pair, which has no negatives.

    Example:

    ```python
    loss = keras_diet.training.MultipleNegativesRankingLoss()
    embeddings = np.array([[[1.0, 0.0], [0.8, 0.6]], [[0.0, 1.0], [0.6, 0.8]]])
    loss(np.array([[0, 1], [2, 3]]), embeddings)
    ```

    References:
     - [Henderson et al., 2017](https://arxiv.org/abs/1705.00652), section 4.4
     - [van den Oord et al., 2018](https://arxiv.org/abs/1807.03748), equation 4
     - [Reimers and Gurevych, 2019](https://aclanthology.org/D19-1410/): the package
       sentence-transformers has this loss
    """

    num_texts = None
    takes_ids = True

    def __init__(
        self,
        scale: float = 20.0,
        symmetric: bool = False,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "multiple_negatives_ranking_loss",
    ) -> None:
        super().__init__(reduction, name)
        self.scale = validation.positive_number("scale", scale)
        self.symmetric = symmetric

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Any:
        """Return the loss of all examples."""
        ids, y_pred, sample_weight = _backend.rows_of_all_devices(y_true, y_pred, sample_weight)
        shapes = tuple(ids.shape), tuple(y_pred.shape)
        if not validation.sizes_fit((*shapes[0], None), shapes[1]):
            raise ValueError(
                "`y_true` must have the shape (n, k), and `y_pred` the shape (n, k, d), for k "
                f"texts of n examples. Received: y_true.shape={shapes[0]}, y_pred.shape={shapes[1]}"
            )
        anchors, positives, candidates = ids[:, 0], ids[:, 1], ids[None, :, 1:]
        has_anchor = ops.cast(anchors[:, None] == anchors, self.dtype)
        is_positive = ops.cast(positives[:, None, None] == candidates, self.dtype)
        # Whether an anchor has a candidate as its positive somewhere in the batch.
        is_positive = ops.einsum("ij,jlm->ilm", has_anchor, is_positive) > 0
        is_no_negative = ops.logical_or(is_positive, anchors[:, None, None] == candidates)
        mask = ops.where(is_no_negative, -float("inf"), 0.0)
        log_weights = self.log_weights(ids[:, 0], sample_weight)
        return super().__call__((mask, log_weights), y_pred, sample_weight)

    def check_labels(self, labels: np.ndarray) -> None:
        """Raise a `ValueError` for the ids of a single pair."""
        if labels.shape == (1, 2):
            raise ValueError(
                "Each batch must have two pairs or more, because a single pair has no negatives. "
                "Received: a batch of one pair. Pass another `batch_size`, another number of pairs,"
                " or hard negatives."
            )

    def call(self, y_true: tuple[Tensor, Tensor], y_pred: Tensor) -> Tensor:
        """Return the loss of each example, for a mask `(n, n, k - 1)` and logarithmic weights."""
        mask, log_weights = y_true
        embeddings = unit_vectors(y_pred)
        anchors, candidates = embeddings[:, 0], embeddings[:, 1:]
        positive = self.scale * ops.sum(anchors * candidates[:, 0], axis=-1)
        negatives = self.scale * ops.einsum("id,jmd->ijm", anchors, candidates) + mask
        loss = _cross_entropy(positive, negatives + ops.expand_dims(log_weights, -1))
        if self.symmetric:
            of_positives = ops.transpose(negatives[:, :, 0]) + log_weights
            loss = (loss + _cross_entropy(positive, of_positives)) / 2
        return loss


@keras.saving.register_keras_serializable(package="keras_diet")
class CosineSimilarityLoss(EmbeddingLoss):
    """Squared error of the cosines of pairs of texts.

    With the embeddings `a_i` and `b_i` of a pair and its score `y_i`:

        loss_i = (cos(a_i, b_i) - y_i)^2

    `keras.losses.CosineSimilarity` is another loss. It compares outputs with vectors as labels.

    Args:
        reduction: As in `keras.losses.Loss`. Defaults to `"mean_with_sample_weight"`.
        name: str. Defaults to `"cosine_similarity_loss"`.

    Call arguments:
        y_true: Scores in [-1, 1], of shape `(n,)` or `(n, 1)`.
        y_pred: Embeddings of shape `(n, 2, d)`.
        sample_weight: Weights of shape `(n,)`, or `None`. Where the weight is 0, the score may have
            any value.

    Returns:
        The loss, a scalar unless `reduction` is `None`.

    Raises:
        ValueError: `fit` and `evaluate` raise it if a score is not in [-1, 1].

    Example:

    ```python
    loss = keras_diet.training.CosineSimilarityLoss()
    embeddings = np.array([[[1.0, 0.0], [0.8, 0.6]], [[0.0, 1.0], [0.6, 0.8]]])
    loss(np.array([1.0, 0.5]), embeddings)
    ```

    References:
     - [Reimers and Gurevych, 2019](https://aclanthology.org/D19-1410/), section 3
    """

    def __init__(
        self,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "cosine_similarity_loss",
    ) -> None:
        super().__init__(reduction, name)

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Any:
        """Return the loss of all pairs."""
        scores = ops.reshape(ops.convert_to_tensor(y_true, self.dtype), (-1,))
        if sample_weight is not None:
            weights = ops.reshape(ops.convert_to_tensor(sample_weight), (-1,))
            scores = ops.where(weights == 0, 0.0, scores)
        return super().__call__(scores, y_pred, sample_weight)

    def check_labels(self, labels: np.ndarray) -> None:
        """Raise a `ValueError` if a score is not in [-1, 1]."""
        if not np.all(np.abs(labels) <= 1):
            raise ValueError(
                "Scores of `CosineSimilarityLoss` must be in [-1, 1], like cosines. Received: "
                f"values from {labels.min()} to {labels.max()}. Divide the scores, e.g. those of "
                "STS-B by 5, or use `CoSENTLoss`, which takes all scores."
            )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each pair, for embeddings `(n, 2, d)`."""
        return ops.square(_cosines(y_pred) - y_true)


@keras.saving.register_keras_serializable(package="keras_diet")
class CoSENTLoss(EmbeddingLoss):
    """Loss of the order of the cosines of pairs of texts (consistent sentence embedding).

    A batch of pairs with the cosines `c_i` and the scores `y_i` has one loss. It grows with all
    pairs whose order is wrong:

        loss = log(1 + sum_{i, j: y_i > y_j} w_i w_j exp(scale * (c_j - c_i)))

    Only the order of the scores counts. An example with the weight 2 counts as if it were in the
    batch twice, and an example with the weight 0 as if it were not there.

    Args:
        scale: float. Inverse of the temperature. Defaults to `20.0`.
        name: str. Defaults to `"cosent_loss"`.

    Call arguments:
        y_true: Scores of shape `(n,)` or `(n, 1)`.
        y_pred: Embeddings of shape `(n, 2, d)`.
        sample_weight: Weights of shape `(n,)`, not negative, or `None`.

    Returns:
        The loss, a scalar. It is 0 if all scores are equal.

    Raises:
        ValueError: If `scale` is not positive.

    Example:

    ```python
    loss = keras_diet.training.CoSENTLoss()
    embeddings = np.array([[[1.0, 0.0], [0.8, 0.6]], [[0.0, 1.0], [0.6, 0.8]]])
    loss(np.array([5.0, 3.0]), embeddings)
    ```

    References:
     - [Su, 2022](https://kexue.fm/archives/8847)
     - [Huang et al., 2024](https://doi.org/10.1109/TASLP.2024.3402087)
    """

    def __init__(self, scale: float = 20.0, name: str = "cosent_loss") -> None:
        super().__init__("sum_over_batch_size", name)
        self.scale = validation.positive_number("scale", scale)

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Any:
        """Return the loss of the batch."""
        scores = ops.reshape(ops.convert_to_tensor(y_true), (-1,))
        scores, y_pred, sample_weight = _backend.rows_of_all_devices(scores, y_pred, sample_weight)
        log_weights = self.log_weights(scores, sample_weight)
        of_pairs = log_weights[:, None] + log_weights
        log_weights = ops.where(scores[:, None] > scores, of_pairs, -float("inf"))
        return super().__call__(log_weights, y_pred)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of the batch in the shape `(1,)`, for logarithmic weights `(n, n)`."""
        cosines = self.scale * _cosines(y_pred)
        differences = ops.reshape(cosines - cosines[:, None] + y_true, (1, -1))
        return _cross_entropy(ops.zeros_like(differences[:, 0]), differences)


@keras.saving.register_keras_serializable(package="keras_diet")
class MatryoshkaLoss(EmbeddingLoss):
    """Loss of embeddings of which any of several first parts serves as an embedding.

    With a loss `L`, the embeddings `e` and the sizes `d_1, ..., d_m`:

        loss = sum_i w_i L(y, e[:d_i])

    After the training, the first `d_i` numbers of an embedding, normalized again, are a smaller
    embedding.

    Args:
        loss: The loss of each part, such as `MultipleNegativesRankingLoss()`.
        dims: Sequence of int. The sizes of the parts. One of them should be the size of the
            embeddings.
        weights: Sequence of float or `None`. The weights `w_i`. Defaults to `None`, which means 1.

    Call arguments:
        y_true: As in `loss`.
        y_pred: As in `loss`, with at least as many features as the largest part.
        sample_weight: As in `loss`.

    Raises:
        ValueError: If a size is not positive, if there are not as many weights as sizes, or if the
            embeddings are smaller than a part.

    Example:

    ```python
    loss = keras_diet.training.MatryoshkaLoss(
        keras_diet.training.CosineSimilarityLoss(), dims=(3, 2)
    )
    embeddings = np.array([[[1.0, 0.0, 0.0], [0.8, 0.6, 0.0]]])
    loss(np.array([0.9]), embeddings)  # (0.8 - 0.9)^2 for each size
    ```

    References:
     - [Kusupati et al., 2022](https://arxiv.org/abs/2205.13147), equation 1
    """

    def __init__(
        self,
        loss: EmbeddingLoss,
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
        name: str = "matryoshka_loss",
    ) -> None:
        super().__init__(loss.reduction, name)
        self.loss = loss
        self.num_texts, self.takes_ids = loss.num_texts, loss.takes_ids
        self.dims = [validation.positive_int("dims", dim) for dim in dims]
        self.weights = [1.0] * len(self.dims) if weights is None else list(map(float, weights))

    def check_labels(self, labels: np.ndarray) -> None:
        """Check labels as the loss of each part."""
        self.loss.check_labels(labels)

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> Any:
        """Return the weighted sum of the losses of the parts."""
        if max(self.dims) > y_pred.shape[-1]:
            raise ValueError(
                f"`dims` must not exceed the size of the embeddings, {y_pred.shape[-1]}. Received: "
                f"dims={self.dims}"
            )
        return sum(
            weight * self.loss(y_true, y_pred[..., :dim], sample_weight)
            for dim, weight in zip(self.dims, self.weights, strict=True)
        )
