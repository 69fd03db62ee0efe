"""BERT's rule for masked tokens, in NumPy."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_diet import validation


def mask_tokens(
    token_ids: Any,
    random_generator: np.random.Generator,
    *,
    vocabulary_size: int,
    mask_token_id: int,
    unselectable_token_ids: Iterable[int],
    pad_token_id: int = 0,
    mask_selection_rate: float = 0.15,
    mask_selection_length: int | None = None,
    mask_token_rate: float = 0.8,
    random_token_rate: float = 0.1,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Mask tokens for a masked language model, as BERT does.

    A sequence with `n` selectable tokens has exactly

        m = min(max(1, round(mask_selection_rate * n)), mask_selection_length)

    selected tokens (none if `n` is 0). They are chosen uniformly and without replacement. Each
    selected token becomes `mask_token_id` with probability `mask_token_rate`, becomes a random
    token with probability `random_token_rate`, and otherwise stays. Random tokens are uniform over
    the vocabulary without the unselectable ids. The original tokens are the labels.

    The result depends only on the arguments and is the same on every backend. This differs from
    `keras_hub.layers.MaskedLMMaskGenerator`. Its Python path draws from the global state of
    `random`, so a threaded loader is not reproducible, and it may select no token. Its TensorFlow
    path has another distribution.

    Args:
        token_ids: Integer array of shape `(..., L)`: sequences of `L` token ids.
        random_generator: `np.random.Generator`. The source of all randomness.
        vocabulary_size: int. Number of tokens in the vocabulary.
        mask_token_id: int. Id of `[MASK]`.
        unselectable_token_ids: Iterable of int. Ids that are never selected and never drawn as
            random tokens, such as the tokenizer's `special_token_ids`.
        pad_token_id: int. Id of `[PAD]`, which is always unselectable. Defaults to `0`.
        mask_selection_rate: float in (0, 1]. Fraction of the selectable tokens to select.
            Defaults to `0.15`.
        mask_selection_length: int or `None`. Length `M` of the outputs for selected tokens, and
            the largest number of selected tokens. Defaults to `None`, which means
            `ceil(mask_selection_rate * L)`. This is enough for every sequence.
        mask_token_rate: float in [0, 1]. Probability that a selected token becomes
            `mask_token_id`. Defaults to `0.8`.
        random_token_rate: float in [0, 1]. Probability that a selected token becomes a random
            token. Defaults to `0.1`.

    Returns:
        `(features, labels, sample_weight)`, as from `keras_hub.models.BertMaskedLMPreprocessor`.
        `features` contains the masked `"token_ids"`, `"segment_ids"` (zeros) and `"padding_mask"`
        (bool, false after the last token) of shape `(..., L)`, and the ascending
        `"mask_positions"` of shape `(..., M)`. `labels` and `sample_weight` have the shape
        `(..., M)`. Unused entries at the end have position, label and weight 0. Integers are int32
        and weights are float32.

    Raises:
        ValueError: If a rate or an id is out of range, the two token rates sum to more than 1, or
            the ids are not integers.

    Example:

    ```python
    features, labels, sample_weight = keras_diet.pretraining.mask_tokens(
        np.array([2, 5, 6, 7, 8, 9, 3, 0]),  # [CLS] and [SEP] are 2 and 3
        np.random.default_rng(0),
        vocabulary_size=10,
        mask_token_id=4,
        unselectable_token_ids=[0, 1, 2, 3, 4],
        mask_selection_rate=0.4,
    )
    labels.shape  # (4,), of which two are used
    ```

    References:
     - [Devlin et al., 2019](https://aclanthology.org/N19-1423/), section 3.1 and appendix A.1
     - [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1: new masks in each epoch
    """
    validation.rate("mask_token_rate", mask_token_rate)
    validation.rate("random_token_rate", random_token_rate)
    validation.rate("mask_selection_rate", mask_selection_rate)
    if mask_selection_rate == 0 or mask_token_rate + random_token_rate > 1:
        raise ValueError(
            "`mask_selection_rate` must be above 0, and `mask_token_rate + random_token_rate` at "
            f"most 1. Received: {mask_selection_rate}, {mask_token_rate} and {random_token_rate}"
        )
    unselectable = [*unselectable_token_ids, pad_token_id]
    _check_token_ids("`token_ids`", token_ids, vocabulary_size)
    _check_token_ids("The ids of special tokens", [mask_token_id, *unselectable], vocabulary_size)
    token_ids = np.asarray(token_ids, "int32")
    can_select = np.ones(vocabulary_size, "bool")
    can_select[unselectable] = False

    sequences = token_ids.reshape(-1, token_ids.shape[-1])
    length = mask_selection_length
    if length is None:
        length = math.ceil(mask_selection_rate * sequences.shape[1])
    length = validation.positive_int("mask_selection_length", length)
    positions, used = _select(can_select[sequences], mask_selection_rate, length, random_generator)
    labels = np.where(used, np.take_along_axis(sequences, positions, axis=1), 0)

    kind = random_generator.random(labels.shape)
    random_tokens = random_generator.choice(np.flatnonzero(can_select), labels.shape)
    new_tokens = np.where(kind < mask_token_rate + random_token_rate, random_tokens, labels)
    new_tokens = np.where(kind < mask_token_rate, mask_token_id, new_tokens)
    masked = sequences.copy()
    rows, places = np.nonzero(used)
    masked[rows, positions[rows, places]] = new_tokens[rows, places]

    features = {
        "token_ids": masked.reshape(token_ids.shape),
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": mask_before_padding(token_ids, pad_token_id),
        "mask_positions": _like(positions, token_ids, "int32"),
    }
    return features, _like(labels, token_ids, "int32"), _like(used, token_ids, "float32")


def mask_before_padding(token_ids: np.ndarray, pad_token_id: int) -> np.ndarray:
    """Return booleans that are true up to the last token of a sequence that is not padding.

    Padding is at the end. Inside of a text, the padding token is a token like others.

    Args:
        token_ids: Integers of shape `(..., L)`.
        pad_token_id: The id of the padding token.
    """
    token_ids = np.asarray(token_ids)
    positions = np.arange(token_ids.shape[-1])
    last = np.max(np.where(token_ids != pad_token_id, positions, -1), axis=-1, keepdims=True)
    return positions <= last


def _check_token_ids(name: str, token_ids: Any, vocabulary_size: int) -> None:
    """Raise a `ValueError` unless ids are integers in `[0, vocabulary_size)`."""
    token_ids = np.asarray(token_ids)
    is_integer = token_ids.dtype.kind in "iu"
    if not is_integer or token_ids.min() < 0 or token_ids.max() >= vocabulary_size:
        received = f"{token_ids.min()} to {token_ids.max()}" if is_integer else token_ids.dtype
        raise ValueError(
            f"{name} must be integers in [0, vocabulary_size) = [0, {vocabulary_size}). "
            f"Received: {received}. Use the vocabulary that made them."
        )


def _select(can_select, rate, length, random_generator):
    """Return ascending positions `(B, length)`, and a mask of the entries that are used."""
    available = can_select.sum(axis=1)
    wanted = np.clip(np.rint(rate * available), 1, length)
    wanted = np.minimum(wanted, available)

    num_sequences, sequence_length = can_select.shape
    # Taking the tokens with the smallest random numbers is uniform and without replacement.
    order = np.where(can_select, random_generator.random(can_select.shape), 2.0)
    most = min(length, sequence_length)
    nearest = np.argpartition(order, most - 1, axis=1)[:, :most]
    ranks = np.argsort(np.take_along_axis(order, nearest, axis=1), axis=1)
    nearest = np.take_along_axis(nearest, ranks, axis=1)

    positions = np.full((num_sequences, length), sequence_length)
    positions[:, :most] = nearest
    used = np.arange(length) < wanted[:, np.newaxis]
    positions = np.sort(np.where(used, positions, sequence_length), axis=1)
    return np.where(used, positions, 0), used


def _like(values, token_ids, dtype):
    return values.reshape(*token_ids.shape[:-1], values.shape[1]).astype(dtype)
