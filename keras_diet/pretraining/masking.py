"""BERT's rule for masked tokens, in NumPy."""

import math
import numbers

import numpy as np

from keras_diet import validation


def mask_tokens(
    token_ids,
    random_generator,
    *,
    vocabulary_size,
    mask_token_id,
    unselectable_token_ids,
    pad_token_id=0,
    mask_selection_rate=0.15,
    mask_selection_length=None,
    mask_token_rate=0.8,
    random_token_rate=0.1,
):
    """Mask tokens for a masked language model, as BERT does.

    Of the `n` selectable tokens in a sequence exactly

        m = min(max(1, round(mask_selection_rate * n)), mask_selection_length)

    are selected (none if `n` is 0), uniformly and without replacement. Each of them becomes
    `mask_token_id` with probability `mask_token_rate`, a random token with probability
    `random_token_rate`, and otherwise stays. Random tokens are uniform over the vocabulary
    without the unselectable ids. The original tokens are the labels.

    Unlike `keras_hub.layers.MaskedLMMaskGenerator`, whose Python path draws from the global state
    of `random` (not reproducible in a threaded loader), may select nothing and differs in
    distribution from its TensorFlow path, the result depends only on the arguments and is the
    same on every backend.

    Args:
        token_ids: Integer array of shape `(..., L)`: sequences of `L` token ids.
        random_generator: `np.random.Generator`. The source of all randomness.
        vocabulary_size: int. Number of tokens in the vocabulary.
        mask_token_id: int. Id of `[MASK]`.
        unselectable_token_ids: Iterable of int. Ids that are never selected and never drawn as
            random tokens: the tokenizer's `special_token_ids`.
        pad_token_id: int. Id of `[PAD]`, always unselectable. Defaults to `0`.
        mask_selection_rate: float in (0, 1]. Part of the selectable tokens to select.
            Defaults to `0.15`.
        mask_selection_length: int or `None`. Length `M` of the outputs over selected tokens, and
            the most that are selected. Defaults to `None`, which means
            `ceil(mask_selection_rate * L)`, enough for every sequence.
        mask_token_rate: float in [0, 1]. Defaults to `0.8`.
        random_token_rate: float in [0, 1]. Defaults to `0.1`.

    Returns:
        `(features, labels, sample_weight)`, as `keras_hub.models.BertMaskedLMPreprocessor` gives
        it. `features` holds the masked `"token_ids"`, `"segment_ids"` (zeros) and
        `"padding_mask"` (bool), all `(..., L)`, and `"mask_positions"` `(..., M)`, ascending.
        `labels` and `sample_weight` are `(..., M)`. Unused places at the end have position,
        label and weight 0. Integers are int32, weights float32.

    Raises:
        ValueError: If a rate or an id is out of range, the two token rates sum to more than 1,
            every id is unselectable, or an argument has the wrong type.

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
    labels.shape  # (4,), of which two are in use
    ```

    References:
     - [Devlin et al., 2019](https://aclanthology.org/N19-1423/), section 3.1 and appendix A.1
     - [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1: masks anew in each epoch
    """
    check_rates(mask_selection_rate, mask_token_rate, random_token_rate)
    token_ids = checked_token_ids(token_ids, vocabulary_size)
    unselectable = [*unselectable_token_ids, pad_token_id]
    can_select = _selectable_table(vocabulary_size, mask_token_id, unselectable)

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
        "padding_mask": token_ids != pad_token_id,
        "mask_positions": _like(positions, token_ids, "int32"),
    }
    return features, _like(labels, token_ids, "int32"), _like(used, token_ids, "float32")


def check_rates(mask_selection_rate, mask_token_rate, random_token_rate):
    """Raise a `ValueError` unless the three rates of `mask_tokens` are possible."""
    rates = {
        "mask_selection_rate": mask_selection_rate,
        "mask_token_rate": mask_token_rate,
        "random_token_rate": random_token_rate,
    }
    for name, rate in rates.items():
        if not isinstance(rate, numbers.Real) or not 0 <= rate <= 1:
            raise ValueError(f"`{name}` must lie in [0, 1]. Received: {name}={rate!r}")
    if mask_selection_rate == 0:
        raise ValueError("`mask_selection_rate` must be above 0, or nothing is left to predict.")
    if mask_token_rate + random_token_rate > 1:
        raise ValueError(
            "`mask_token_rate` and `random_token_rate` must sum to at most 1. Received: "
            f"mask_token_rate={mask_token_rate}, random_token_rate={random_token_rate}"
        )


def checked_token_ids(token_ids, vocabulary_size):
    """Return `token_ids` as an int32 array, or raise a `ValueError` if they are none."""
    vocabulary_size = validation.positive_int("vocabulary_size", vocabulary_size)
    token_ids = np.asarray(token_ids)
    if token_ids.dtype.kind not in "iu" or token_ids.ndim == 0 or token_ids.size == 0:
        raise ValueError(
            "`token_ids` must be a non-empty array of integers of shape (..., L). "
            f"Received: shape={token_ids.shape}, dtype={token_ids.dtype}"
        )
    low, high = token_ids.min(), token_ids.max()
    if low < 0 or high >= vocabulary_size:
        raise ValueError(
            f"`token_ids` must lie in [0, vocabulary_size) = [0, {vocabulary_size}). "
            f"Received ids from {low} to {high}: were they made with another vocabulary?"
        )
    return token_ids.astype("int32", copy=False)


def _selectable_table(vocabulary_size, mask_token_id, unselectable_token_ids):
    for token_id in [mask_token_id, *unselectable_token_ids]:
        if not isinstance(token_id, numbers.Integral) or not 0 <= token_id < vocabulary_size:
            raise ValueError(
                "`mask_token_id`, `pad_token_id` and `unselectable_token_ids` must be integers in "
                f"[0, vocabulary_size) = [0, {vocabulary_size}). Received: {token_id!r}"
            )
    selectable = np.ones(vocabulary_size, dtype="bool")
    selectable[unselectable_token_ids] = False
    if not selectable.any():
        raise ValueError(
            "`unselectable_token_ids` must leave tokens to select. Received: all "
            f"{vocabulary_size} ids of the vocabulary."
        )
    return selectable


def _select(can_select, rate, length, random_generator):
    """Return positions `(B, length)`, ascending, and a mask of the places that are in use."""
    available = can_select.sum(axis=1)
    wanted = np.clip(np.rint(rate * available), 1, length)
    wanted = np.minimum(wanted, available)

    num_sequences, sequence_length = can_select.shape
    # The tokens with the smallest random numbers are a uniform choice without replacement.
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
