"""Segments of packed sequences."""

from typing import Any

import numpy as np

from keras_diet import validation


def number_segments(
    token_ids: Any, sep_token_id: int, pad_token_id: int = 0, num_segments: int = 2
) -> np.ndarray:
    """Number the parts of a sequence that end with a separator, as BERT numbers two sentences.

    `[CLS] a a [SEP] b [SEP]` becomes `0 0 0 0 1 1`.

    The segment of a token is the number of separators before it, at most `num_segments - 1`.
    Padding belongs to segment 0. `pack_sentences` puts a separator between documents, so each
    document in its sequences is a segment. `[CLS] premise [SEP] hypothesis [SEP]` has the same
    segments as in BERT.

    Args:
        token_ids: Integer array of shape `(..., L)`.
        sep_token_id: int. Id of `[SEP]`.
        pad_token_id: int. Id of `[PAD]`. Defaults to `0`.
        num_segments: int. Number of segments. Defaults to `2`.

    Returns:
        int32 array of shape `(..., L)`.

    Raises:
        ValueError: If `num_segments` is not a positive integer.

    Example:

    ```python
    keras_diet.pretraining.number_segments(np.array([2, 5, 6, 3, 7, 3, 0]), sep_token_id=3)
    # array([0, 0, 0, 0, 1, 1, 0], dtype=int32)
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3
    """
    num_segments = validation.positive_int("num_segments", num_segments)
    is_separator = np.asarray(token_ids) == sep_token_id
    separators_before = np.cumsum(is_separator, axis=-1) - is_separator
    segments = np.minimum(separators_before, num_segments - 1)
    return np.where(np.asarray(token_ids) == pad_token_id, 0, segments).astype("int32")
