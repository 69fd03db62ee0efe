"""Checks of dictionaries of token ids, segments and masks, before a model reads them.

Keras sorts the keys of a dictionary and matches them with the inputs of a model by place, so one
key too many turns tokens into segments. Embeddings read an id out of range as another token, or as
zero.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_diet import _arrays, validation
from keras_diet.models.hub.graph_checks import are_integers_in_graph, check_in_graph, is_in_graph
from keras_diet.models.hub.listed import listed
from keras_diet.models.hub.texts import holds_text, shape_of


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
        has_labels: bool. Whether a sparse loss expects a label for each of the values. Defaults to
            `False`.
    """

    limit: int | None
    description: str
    positions_in: str | None = None
    sequence: str = ""
    has_labels: bool = False


def check_ids(name: str, value: Any, expected: TokenInput) -> None:
    """Raise a `ValueError` unless an argument can be one input of a model."""
    _checked(f"`{name}`", value)
    _check_values(f"`{name}`", value, expected)


def check_token_inputs(
    x: Any, inputs: Mapping[str, TokenInput], when_graphs_run: bool = False
) -> None:
    """Raise a `ValueError` unless `x` holds the inputs of a model.

    Symbolic tensors and tensors on an accelerator have no values here, so only their names and
    shapes are checked.

    Args:
        x: What the user passes.
        inputs: `TokenInput` of each key.
        when_graphs_run: bool. Whether a graph of TensorFlow, such as that of `tf.data`, checks
            values and raises a `tf.errors.InvalidArgumentError`. A model does not check them in
            each step. Defaults to `False`.
    """
    if not isinstance(x, Mapping):
        raise ValueError(
            f"`x` must be a dictionary with the keys {listed(inputs)}. Received: {_kind(x)}. A "
            "task with a preprocessor takes text."
        )
    _check_keys(x, inputs)
    shapes = {name: _checked(f"`x[{name!r}]`", x[name]) for name in inputs}
    for sequence in {expected.sequence: None for expected in inputs.values()}:
        _check_same_shape(
            {
                name: shape
                for name, shape in shapes.items()
                if inputs[name].sequence == sequence and not inputs[name].positions_in
            }
        )
    _check_same_batch_size({expected.sequence: shapes[name] for name, expected in inputs.items()})
    for name, expected in inputs.items():
        where, expected = f"`x[{name!r}]`", _limited(expected, shapes)
        _check_values(where, x[name], expected)
        if when_graphs_run and is_in_graph(x[name]) and expected.limit is not None:
            _check_values_in_graph(where, x[name], expected)


def _check_same_shape(shapes):
    # Sizes may be unknown or symbolic.
    known = {shape for shape in shapes.values() if all(isinstance(n, int) for n in shape)}
    if len(known - {()}) > 1:
        raise ValueError(
            f"{listed(shapes)} must have the same shape (batch_size, length). Received: "
            f"{', '.join(f'{name} of shape {shape}' for name, shape in shapes.items())}. Pad or "
            "cut them."
        )


def _check_same_batch_size(shapes):
    sizes = {name: shape[0] for name, shape in shapes.items() if shape}
    if len({size for size in sizes.values() if isinstance(size, int)}) > 1:
        received = ", ".join(f"{size} in the inputs of the {name}" for name, size in sizes.items())
        raise ValueError(
            f"All inputs must have the same batch size. Received: {received}. Pass as many targets "
            "as sources."
        )


def _limited(expected, shapes):
    """Positions are limited by the length of the batch, if it is known."""
    length = shapes[expected.positions_in][-1] if expected.positions_in else None
    if not isinstance(length, int):
        return expected
    return ids_below(length, "length")


def _check_keys(x, inputs):
    unknown = [name for name in x if name not in inputs]
    missing = [name for name in inputs if name not in x]
    if unknown or missing:
        problems = [f"unknown: {listed(unknown)}"] * bool(unknown)
        problems += [f"missing: {listed(missing)}"] * bool(missing)
        raise ValueError(
            f"`x` must have the keys {listed(inputs)}, and no others. Received: {listed(x)} "
            f"({'; '.join(problems)}). Rename or remove keys."
        )


def _checked(where, value):
    """Check the kind of one input and return its shape."""
    if not hasattr(value, "shape"):
        raise ValueError(
            f"{where} must be an array or a tensor. Received: {type(value).__name__}. "
            "Convert lists with `np.array`."
        )
    if holds_text(value):
        raise ValueError(
            f"{where} must hold integers. Received: text. Tokenize it, or use a task with a "
            "preprocessor."
        )
    shape = shape_of(value)
    has_rank = getattr(value.shape, "rank", 0) is not None
    if has_rank and len(shape) != 2:
        raise ValueError(
            f"{where} must have the shape (batch_size, length). Received: shape={shape}. One "
            "example needs a batch axis of size 1."
        )
    if shape[1:] == (0,):
        raise ValueError(
            f"{where} must hold at least one value for each example. Received: shape={shape}."
            " Remove such batches."
        )
    return shape


def _check_values(where, value, expected):
    values = validation.host_value(value)
    if values is None or not values.size or expected.limit is None:
        return
    if values.dtype.kind not in "iubf":
        raise ValueError(
            f"{where} must hold {expected.description}. Received: dtype={values.dtype}. "
            "Convert it to integers."
        )
    if not _arrays.are_integers_below(values, expected.limit):
        raise ValueError(
            f"{where} must hold {expected.description}. Received: dtype={values.dtype}, "
            f"values from {values.min()} to {values.max()}. Correct these values."
        )


def _check_values_in_graph(where, value, expected):
    message = f"{where} must hold {expected.description}. Received:"
    if not value.dtype.is_bool:
        check_in_graph(are_integers_in_graph(value, expected.limit), message, value)


def _kind(x):
    if holds_text(x):
        return "text"
    shape = shape_of(x)
    return f"{type(x).__name__} of shape {shape}" if shape else type(x).__name__


def ids_below(limit: int | None, name: str, positions_in: str | None = None) -> TokenInput:
    """Return a `TokenInput` of integers in `[0, limit)`, where the limit has a name."""
    return TokenInput(limit, f"integers in [0, {name}) = [0, {limit})", positions_in)


PADDING_MASK = TokenInput(2, "1 for tokens and 0 for padding")
