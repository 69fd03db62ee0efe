"""Segments of packed sequences."""

import numbers
from typing import Any

import numpy as np

from keras_diet import validation
from keras_diet.pretraining.masking import integer_array


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
    token_ids = integer_array("token_ids", token_ids)
    for name, token_id in (("sep_token_id", sep_token_id), ("pad_token_id", pad_token_id)):
        if not isinstance(token_id, numbers.Integral) or token_id < 0:
            raise ValueError(
                f"`{name}` must be an integer that is not negative. Received: {name}={token_id!r}."
                " Pass the id that the tokenizer has."
            )
    if sep_token_id == pad_token_id:
        raise ValueError(
            "`sep_token_id` and `pad_token_id` must be different. Received: "
            f"{sep_token_id} for both. Pass the ids that the tokenizer has."
        )
    is_separator = token_ids == sep_token_id
    separators_before = np.cumsum(is_separator, axis=-1) - is_separator
    segments = np.minimum(separators_before, num_segments - 1)
    return np.where(token_ids == pad_token_id, 0, segments).astype("int32")
