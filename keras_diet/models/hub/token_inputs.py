"""Checks of dictionaries of token ids, segments and masks, before a model reads them.

Keras sorts the keys of a dictionary and matches them with the inputs of a model by place, so a
wrong key would turn tokens into segments. Embeddings read an id out of range as another token, or
as zero.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_diet import validation
from keras_diet.models.hub.texts import holds_text, shape_of


@dataclasses.dataclass(frozen=True)
class TokenInput:
    """An input of a model: integers in `[0, limit)` of shape `(B, T)`.

    Attributes:
        limit: int or `None`. The number of values, or `None` if the model ignores them.
        description: str. What the values are, for messages.
        per_token: bool. Whether there is one value for each token.
    """

    limit: int | None
    description: str
    per_token: bool = True


def check_token_inputs(x: Any, inputs: Mapping[str, TokenInput]) -> None:
    """Raise a `ValueError` unless `x` holds the inputs of a model.

    Symbolic tensors and tensors on an accelerator have no values here, so only their names and
    shapes are checked.

    Args:
        x: What the user passes.
        inputs: `TokenInput` of each key.
    """
    if not isinstance(x, Mapping):
        raise ValueError(
            f"`x` must be a dictionary with the keys {_names(inputs)}. Received: {_kind(x)}. A "
            "task with a preprocessor takes text."
        )
    _check_keys(x, inputs)
    shapes = {name: _checked(name, x[name], expected) for name, expected in inputs.items()}
    per_token = {name: shape for name, shape in shapes.items() if inputs[name].per_token}
    # Sizes may be unknown or symbolic.
    known = {shape for shape in per_token.values() if all(isinstance(n, int) for n in shape)}
    if len(known - {()}) > 1:
        raise ValueError(
            f"{_names(per_token)} must have the same shape (batch_size, length). Received: "
            f"{', '.join(f'{name} of shape {shape}' for name, shape in per_token.items())}"
        )


def _check_keys(x, inputs):
    unknown = [name for name in x if name not in inputs]
    missing = [name for name in inputs if name not in x]
    if unknown or missing:
        problems = [f"unknown: {_names(unknown)}"] * bool(unknown)
        problems += [f"missing: {_names(missing)}"] * bool(missing)
        raise ValueError(
            f"`x` must have the keys {_names(inputs)}, and no others. Received: {_names(x)} "
            f"({'; '.join(problems)})"
        )


def _checked(name, value, expected):
    """Check one input and return its shape."""
    if not hasattr(value, "shape"):
        raise ValueError(
            f"`x[{name!r}]` must be an array or a tensor. Received: {type(value).__name__}. "
            "Convert lists with `np.array`."
        )
    if holds_text(value):
        raise ValueError(
            f"`x[{name!r}]` must hold integers. Received: text. Tokenize it, or use a task with a "
            "preprocessor."
        )
    shape = shape_of(value)
    has_rank = getattr(value.shape, "rank", 0) is not None
    if has_rank and len(shape) != 2:
        raise ValueError(
            f"`x[{name!r}]` must have the shape (batch_size, length). Received: shape={shape}. One "
            "example needs a batch axis of size 1."
        )
    values = validation.host_value(value)
    if values is not None and values.size and expected.limit is not None:
        _check_values(name, values, expected)
    return shape


def _check_values(name, values, expected):
    low, high = values.min(), values.max()
    # The first comparison fails for NaN.
    is_integer = values.dtype.kind in "iub" or bool(np.all(values == np.round(values)))
    if not is_integer or low < 0 or high >= expected.limit:
        raise ValueError(
            f"`x[{name!r}]` must hold {expected.description}. Received: dtype={values.dtype}, "
            f"values from {low} to {high}"
        )


def _names(names):
    return ", ".join(repr(name) for name in names)


def _kind(x):
    if holds_text(x):
        return "text"
    shape = shape_of(x)
    return f"{type(x).__name__} of shape {shape}" if shape else type(x).__name__


def ids_below(limit: int | None, argument: str, per_token: bool = True) -> TokenInput:
    """Return a `TokenInput` of integers in `[0, limit)`, where an argument sets the limit."""
    return TokenInput(limit, f"integers in [0, {argument}) = [0, {limit})", per_token)


PADDING_MASK = TokenInput(2, "1 for tokens and 0 for padding")
