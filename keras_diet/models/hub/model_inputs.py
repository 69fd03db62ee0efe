"""The inputs of models: checks of token ids, documents in a sequence, texts of an example."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import _backend, validation
from keras_diet.data.columns import host_column, map_columns
from keras_diet.types import Columns, Tensor

# === Checks ===
# Keras sorts the keys of a dictionary and matches them with the inputs of a model by place, so one
# key too many turns tokens into segments. Embeddings read an id out of range as another token, or
# as zero.


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
        if not inputs[name].positions_in and not validation.sizes_fit(shape, other):
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
    if not is_number or not validation.are_integers_below(values, expected.limit):
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


# === Documents in a sequence ===


class DocumentInputs:
    """A mixin for a functional model that may also get `"document_ids"`.

    A batch of a preprocessor with `packed=True` also has `"document_first_tokens"`, as from
    `pack_documents`. Then the outputs have a row for each document, not for each sequence.

    The graph of the model, its files and its exports have the other inputs only. With documents the
    model calls its layers in `outputs_of`.
    """

    # Whether the model has outputs for each token. If not, the ids alone raise a `ValueError`.
    takes_documents = True
    # The outputs for inputs by name, of which `document_ids` may be left out.
    outputs_of: Any

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Return the outputs."""
        model: Any = super()
        if not _has_documents(inputs):
            return model.call(inputs, training=training, mask=mask)
        if not self.takes_documents and "document_first_tokens" not in inputs:
            raise ValueError(
                f"`document_ids` would be ignored by a {type(self).__name__}, which has one result "
                "for a sequence. Received: document_ids. Pass each document as a sequence."
            )
        tensors = {name: ops.convert_to_tensor(x, "int32") for name, x in inputs.items()}
        return self.outputs_of(**tensors)

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs."""
        model: Any = super()
        if not _has_documents(inputs):
            return model.compute_output_spec(inputs, *args, **kwargs)
        spec = model.compute_output_spec(without_documents(inputs), *args, **kwargs)
        if "document_first_tokens" in inputs:
            shape = (*inputs["document_first_tokens"].shape, *spec.shape[1:])
            spec = keras.KerasTensor(shape, spec.dtype)
        return spec

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds. Documents are an input of models that take them."""
        model: Any = super()
        inputs = dict(model.token_inputs)
        if not self.takes_documents:
            del inputs["document_ids"]
        return inputs


def without_documents(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that the graph of a model has."""
    names = ("document_ids", "document_first_tokens")
    return {name: x for name, x in inputs.items() if name not in names}


def gather_tokens(values: Tensor, tokens: Tensor) -> Tensor:
    """Return the values of some tokens.

    Args:
        values: Tensor of shape `(B, T, d)`.
        tokens: Integers of any shape, the flat indices of tokens, `row * T + column`.

    Returns:
        A tensor of the shape of `tokens`, with a last axis of size `d`.
    """
    return ops.take(ops.reshape(values, (-1, values.shape[-1])), tokens, axis=0)


def rows_of_documents(values: Tensor, document_ids: Tensor, first_tokens: Tensor) -> Tensor:
    """Return a row with the values of each document, and zeros behind them.

    Args:
        values: Tensor of shape `(B, T, d)`.
        document_ids: Integers of shape `(B, T)`, another one for each of `N` documents.
        first_tokens: Integers of shape `(N,)`, the flat indices of their first tokens.

    Returns:
        A tensor of shape `(N, T, d)`.
    """
    number, length = ops.shape(document_ids)
    tokens = ops.expand_dims(first_tokens, 1) + _backend.arange(length)
    tokens = ops.minimum(tokens, number * length - 1)
    ids = ops.take(ops.reshape(document_ids, (-1,)), tokens, axis=0)
    is_same = ops.expand_dims(ops.equal(ids, ids[:, :1]), -1)
    return ops.where(is_same, gather_tokens(values, tokens), 0)


def _has_documents(inputs):
    return isinstance(inputs, Mapping) and "document_ids" in inputs


# === Texts of an example ===


class TextsOfExamples:
    """A mixin for a task that also takes arrays `(n, k, T)`, for the `k` texts of `n` examples.

    Put it before the mixins of tasks. Outputs `(B, d)` become `(n, k, d)`.
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Return the outputs."""
        model: Any = super()
        if len(inputs["token_ids"].shape) != 3:
            return model.call(inputs, training=training, mask=mask)
        number, num_texts, length = ops.shape(inputs["token_ids"])
        rows = {key: ops.reshape(ids, (-1, length)) for key, ids in inputs.items()}
        outputs = self.call(rows, training)
        return ops.reshape(outputs, (number, num_texts, outputs.shape[-1]))

    def make_batch(self, rows: Columns, generator: np.random.Generator) -> tuple[Any, ...]:
        """Return the arrays that the model takes. An example may have several texts, in a row."""
        model: Any = super()
        x, *targets = rows
        if not (isinstance(x, np.ndarray) and x.ndim > 1):
            return model.make_batch(rows, generator)
        inputs, *others = model.make_batch((self.texts_of_rows(x), *targets), generator)
        if "document_first_tokens" in inputs:
            first_tokens = inputs["document_first_tokens"].reshape(len(x), -1)
            return {**inputs, "document_first_tokens": first_tokens}, *others
        return map_columns(lambda ids: ids.reshape(len(x), -1, ids.shape[-1]), inputs), *others

    def texts_of_rows(self, rows: np.ndarray) -> Any:
        """Return the inputs of the preprocessor for the texts of examples, one after another."""
        return rows.reshape(-1).tolist()


def rows_of_texts(x: Any) -> Any:
    """Return arrays of token ids `(n, k, T)` as `(n * k, T)`, and others as they are."""

    def rows(ids):
        is_flat = getattr(ids, "ndim", 2) != 3
        return ids if is_flat else host_column(ids).reshape(-1, ids.shape[-1])

    return map_columns(rows, x)
