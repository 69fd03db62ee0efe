"""Texts: which values are texts, and lists of strings for them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_diet.data.columns import holds_text, host_column

_REMEDY = (
    "Leave out rows without a text. For pairs of texts pass a tuple (first, second) of two lists. "
    "For token ids, build the task with `preprocessor=None`."
)


def texts_of(values: Any, name: str = "x") -> list[str]:
    """Return a list of strings.

    Args:
        values: A string, or a list, an array, a tensor or another column of strings or bytes.
        name: str. The name of the values in messages. Defaults to `"x"`.

    Raises:
        ValueError: If something is not text, with its row. A missing value would otherwise become
            the word "nan", and a number its digits.
    """
    rows = host_column([values] if isinstance(values, (str, bytes)) else values)
    rows = rows.tolist() if isinstance(rows, np.ndarray) else rows
    rows = [rows] if isinstance(rows, (str, bytes)) else rows
    if not isinstance(rows, list):
        received = type(values).__name__
        raise ValueError(f"`{name}` must hold strings. Received: {received}. {_REMEDY}")
    texts = [row.decode() if isinstance(row, bytes) else row for row in rows]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not is_unicode(text):
            kind = "Unicode, not half of a surrogate pair" if isinstance(text, str) else "strings"
            raise ValueError(
                f"`{name}` must hold {kind}. Received: {text!r:.50} in row {row}. {_REMEDY}"
            )
    return texts


def is_unicode(text):
    """Return whether a string has no half of a pair of surrogates, which tokenizers refuse."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_one_text(x: Any) -> bool:
    """Return whether `x` is the text or the texts of one example, without a batch axis."""
    if isinstance(x, (tuple, Mapping)):
        parts = x.values() if isinstance(x, Mapping) else x
        return len(parts) > 0 and all(map(is_one_text, parts))
    return isinstance(x, (str, bytes)) or (getattr(x, "shape", None) == () and holds_text(x))


def is_pair(x: Any) -> bool:
    """Return whether `x` is a tuple of texts, and not an element `(x, y)` of a dataset."""
    return (
        isinstance(x, tuple)
        and len(x) > 1
        and all(not isinstance(part, tuple) and holds_text(part) for part in x)
    )
