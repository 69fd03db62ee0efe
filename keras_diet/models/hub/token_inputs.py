"""Checks of dictionaries of token ids, segments and masks, before a model reads them.

Keras sorts the keys of a dictionary and matches them with the inputs of a model by place, so one
key too many turns tokens into segments. Embeddings read an id out of range as another token, or as
zero.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras_diet import _arrays, validation


@dataclasses.dataclass(frozen=True)
class TokenInput:
    """An input of a model: integers in `[0, limit)` of shape `(B, T)`.

    Attributes:
        limit: int or `None`. The number of values, or `None` if the model ignores them.
        description: str. What the values are, for messages.
        positions_in: str or `None`. If the values are positions of tokens, the input that holds
            these tokens. Otherwise there is one value for each token.
        sequence: str. Which sequence the tokens belong to, if a model has several, such as a source
            and a target. All inputs of a sequence have the same shape. Defaults to `""`.
        check: Function of a name and an array, which raises a `ValueError`; or `None`. Defaults to
            `None`.
        is_optional: bool. Whether the input may be left out. Defaults to `False`.
    """

    limit: int | None
    description: str
    positions_in: str | None = None
    sequence: str = ""
    check: Callable[[str, Any], None] | None = None
    is_optional: bool = False


def check_token_inputs(x: Any, inputs: Mapping[str, TokenInput]) -> None:
    """Raise a `ValueError` unless `x` holds the inputs of a model.

    Symbolic tensors and tensors on an accelerator have no values here, so only their names and
    shapes are checked.

    Args:
        x: What the user passes.
        inputs: `TokenInput` of each key.
    """
    required = [name for name, expected in inputs.items() if not expected.is_optional]
    if not isinstance(x, Mapping) or not set(required) <= set(x) <= set(inputs):
        received = f"the keys {list(x)}" if isinstance(x, Mapping) else type(x).__name__
        optional = [name for name in inputs if name not in required]
        others = f"no others but {optional}" if optional else "no others"
        raise ValueError(
            f"`x` must be a dictionary with the keys {required}, and {others}. Received: "
            f"{received}. For text, build the task with a preprocessor."
        )
    shapes: dict[str, tuple[Any, ...]] = {}
    for name, expected in inputs.items():
        if name not in x:
            continue
        if expected.positions_in:
            length = tuple(x[expected.positions_in].shape)[-1]
            expected = ids_below(length, "length") if isinstance(length, int) else expected
        shape = _check_input(f"`x[{name!r}]`", x[name], expected)
        other = shapes.setdefault(expected.sequence, shape)
        if not inputs[name].positions_in and not _arrays.sizes_fit(shape, other):
            raise ValueError(
                f"`x[{name!r}]` must have the shape (batch_size, length) = {other} of the other "
                f"inputs. Received: shape={shape}"
            )


def _check_input(where, value, expected):
    shape = tuple(getattr(value, "shape", None) or ())
    if len(shape) != 2:
        raise ValueError(
            f"{where} must be an array of the shape (batch_size, length). Received: "
            f"{type(value).__name__}, shape={shape}"
        )
    if expected.check is not None:
        expected.check(where, value)
    values = validation.host_value(value)
    if values is None or not values.size or expected.limit is None:
        return shape
    is_number = values.dtype.kind in "iubf"
    if not is_number or not _arrays.are_integers_below(values, expected.limit):
        limits = f", values from {values.min()} to {values.max()}" if is_number else ""
        raise ValueError(
            f"{where} must hold {expected.description}. Received: dtype={values.dtype}{limits}"
        )
    return shape


def ids_below(limit: int | None, name: str, positions_in: str | None = None) -> TokenInput:
    """Return a `TokenInput` of integers in `[0, limit)`, where the limit has a name."""
    return TokenInput(limit, f"integers in [0, {name}) = [0, {limit})", positions_in)


PADDING_MASK = TokenInput(2, "1 for tokens and 0 for padding")
DOCUMENT_IDS = TokenInput(
    None, "the ids of documents", check=validation.document_ids, is_optional=True
)
