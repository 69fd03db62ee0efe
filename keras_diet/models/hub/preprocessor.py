"""The base classes of preprocessors, and which of them fits a task and a backbone."""

import itertools
import os
import sys
from typing import Any, Self

import keras
import numpy as np
from keras_hub.models import Preprocessor

from keras_diet import validation
from keras_diet.data.columns import (
    host_column,
    in_graph,
    is_one_text,
    is_pair,
    map_columns,
    number_of_rows,
    texts_of,
)
from keras_diet.layers.configuration import constructor_arguments, with_arguments
from keras_diet.models.hub.labels import numbers_of
from keras_diet.models.hub.presets import finish_replacing
from keras_diet.models.hub.token_rows import pack_documents, pack_segments
from keras_diet.training.trainers import divides_rows
from keras_diet.types import Columns, Config

# KerasHub's names for the lengths of sequences that a preprocessor makes.
# The last one is an alias in encoder-decoders.
SEQUENCE_LENGTHS = ("encoder_sequence_length", "decoder_sequence_length", "sequence_length")
# Texts that are tokenized at a time. `tokenizers` returns kilobytes for each.
_TEXTS = 1024


class TokenPreprocessor(Preprocessor):
    """A preprocessor of KerasHub, for tasks that KerasHub does not have.

    Args:
        tokenizer: A tokenizer.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    def __init__(self, tokenizer: Any, sequence_length: int = 512, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length


class HostPreprocessor:
    """What tasks ask a preprocessor, which works on the host in two steps.

        columns(x, y, sample_weight)   checks what a user passes: columns with a row a sequence
        make_batch(rows, generator)    makes arrays of some rows

    `fit`, `evaluate` and `predict` call the first one once, and the second one for each batch.
    """

    # Whether the preprocessor makes the labels from the text.
    makes_labels = False
    # Whether `y` holds what users write, such as texts, and the preprocessor makes labels of it.
    converts_labels = False
    # Whether the tokenizer turns the tokens that a model generates into texts.
    makes_texts = False
    # Whether several texts share a sequence.
    packed = False
    # Lengths to which batches may be padded.
    length_buckets: tuple[int, ...] | None = None
    # The lengths that batches may have, from short to long, if the preprocessor tells them.
    lengths: tuple[int, ...] = ()
    tokenizer: Any
    columns: Any
    make_batch: Any

    def tokenized(self, x: Any) -> Any:
        """Return columns of texts as `make_batch` takes them without tokenizing, if it can."""
        return x


class ForeignPreprocessor(HostPreprocessor):
    """A function, or a preprocessor of KerasHub, which makes tensors.

    Args:
        task: The task whose `preprocessor` it is.
    """

    def __init__(self, task: Any) -> None:
        self.preprocess_samples = task.preprocess_samples
        self.tokenizer = getattr(task.preprocessor, "tokenizer", None)

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return what a user passes as columns."""
        x = map_columns(lambda part: [part] if is_one_text(part) else host_column(part), x)
        number_of_rows(x=x, y=y, sample_weight=sample_weight)
        return x, y, sample_weight

    def make_batch(self, rows: Columns, generator: np.random.Generator | None = None) -> Columns:
        """Return what the preprocessor makes, as arrays."""
        batch = self.preprocess_samples(*rows)
        return map_columns(host_column, keras.utils.unpack_x_y_sample_weight(batch))


class HubPreprocessor(HostPreprocessor, Preprocessor):
    """A `keras_hub.models.Preprocessor` that works on the host.

    Calling the preprocessor does both steps of `HostPreprocessor`. A graph of TensorFlow, such as
    in `tf.data`, calls it as a Python function. There, each row of the inputs must become a row of
    the outputs.

    KerasHub takes the second element of a tuple, `preprocessor((a, b))`, for labels, because
    datasets hold examples and labels in this way. Labels are never text, so here a tuple of texts
    holds the segments of one input.

    Args:
        *args: Arguments of the preprocessor of KerasHub.
        length_buckets: tuple of int or `None`. Lengths to which batches may be padded, besides
            `sequence_length`. A batch gets the smallest length that holds its longest text, so
            batches of short texts take less time. Compilers compile one program for each length.
            Defaults to `None`, which means that all batches have `sequence_length`.
        **kwargs: Keyword arguments of the preprocessor of KerasHub.
    """

    # Whether a tuple of texts is one input. Otherwise it is an element of a dataset.
    takes_tuples = True

    def __init__(
        self, *args: Any, length_buckets: tuple[int, ...] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if length_buckets is not None:
            length_buckets = validation.increasing_ints("length_buckets", length_buckets)
        self.length_buckets = length_buckets
        validation.plain_tokenizer(self.tokenizer)

    # === Data ===

    def tokenized(self, x: Any) -> Any:
        """Return columns with an array of tokens for each text."""

        def tokens_of(texts):
            parts = (texts[i : i + _TEXTS] for i in range(0, len(texts), _TEXTS))
            rows = itertools.chain.from_iterable(map(self.tokenizer.tokenize, parts))
            return [np.asarray(row, "int32") for row in rows]

        return map_columns(tokens_of, x)

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return NumPy arrays for a batch, or for one example without a batch axis."""
        is_all = y is None and sample_weight is None
        if is_all and isinstance(x, tuple) and not (self.takes_tuples and is_pair(x)):
            # An element of a dataset: examples, perhaps with labels and weights.
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(x)
        if in_graph():
            return self.map_in_graph(x, y, sample_weight)
        is_one = self.is_one(x)
        if is_one:
            x, y, sample_weight = map_columns(lambda part: [part], (x, y, sample_weight))
        batch = self.make_batch(self.columns(x, y, sample_weight))
        if is_one:
            batch = map_columns(lambda array: array[0], batch)
        return keras.utils.pack_x_y_sample_weight(*batch)

    def map_in_graph(self, *parts: Any) -> Any:
        """Return what the preprocessor makes in a graph of TensorFlow, which calls it in Python."""
        tf = sys.modules["tensorflow"]

        def example_of(tensor):
            shape = [size or 1 for size in tensor.shape]
            if tensor.dtype == "string":
                return np.full(shape, "a").tolist()
            return np.zeros(shape, tensor.dtype.as_numpy_dtype)

        # An example tells the shapes. The number of rows may be open.
        with tf.init_scope():
            example = self(*map_columns(example_of, parts))
        tensors: list[Any] = []
        map_columns(tensors.append, parts)

        def call(*arrays):
            remaining = iter(arrays)
            return keras.tree.flatten(self(*map_columns(lambda _: next(remaining), parts)))

        leaves = keras.tree.flatten(example)
        outputs = tf.numpy_function(call, tensors, [leaf.dtype for leaf in leaves])
        for output, leaf in zip(outputs, leaves, strict=True):
            output.set_shape([*tensors[0].shape[:1], *leaf.shape[tensors[0].shape.rank :]])
        return keras.tree.pack_sequence_as(example, outputs)

    def is_one(self, x: Any) -> bool:
        """Return whether `x` is one example, without a batch axis."""
        return is_one_text(x)

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return what a user passes as columns with one row for each sequence, after checking it.

        Args:
            x: Texts, or a tuple of texts for several segments.
            y: Numbers, or `None`.
            sample_weight: Numbers, or `None`.

        Returns:
            A tuple `(x, y, sample_weight)` of lists and arrays, and of tuples and dictionaries of
            them, or `None`.

        Raises:
            ValueError: If a text is missing, or if the columns have different numbers of rows.
        """
        if self.makes_labels and (y is not None or sample_weight is not None):
            raise ValueError(
                f"`y` and `sample_weight` must be `None`, because `{type(self).__name__}` makes "
                "them. Received: labels or weights beside the text."
            )
        if getattr(self.tokenizer, "split", True):
            x = (
                tuple(texts_of(part, f"x[{i}]") for i, part in enumerate(x))
                if isinstance(x, tuple)
                else texts_of(x)
            )
        y = map_columns(lambda column: numbers_of(column, "y"), y)
        sample_weight = map_columns(lambda w: numbers_of(w, "sample_weight"), sample_weight)
        number_of_rows(x=x, y=y, sample_weight=sample_weight)
        return x, y, sample_weight

    def make_batch(self, rows: Columns, generator: np.random.Generator | None = None) -> Columns:
        """Return the inputs, labels and weights of the model for some rows of the columns.

        Args:
            rows: Some rows of what `columns` returns. The texts may be what `tokenized` makes.
            generator: The random numbers of the batch. `None` if nothing is random.

        Returns:
            A tuple of NumPy arrays, dictionaries of them, or `None`.
        """
        x, y, sample_weight = rows
        segments = [
            # A call of the layer would handle every token as an input.
            texts if isinstance(texts[0], np.ndarray) else self.tokenizer.tokenize(texts)
            for texts in (x if isinstance(x, tuple) else (x,))
        ]
        inputs = pack_segments(segments, self.tokenizer, self.lengths, self.truncate)
        return inputs, y, sample_weight

    @property
    def lengths(self) -> tuple[int, ...]:  # type: ignore[override]
        """The lengths that a batch may have, from short to long."""
        longest = max(getattr(self, name, None) or 0 for name in SEQUENCE_LENGTHS)
        return (*(n for n in self.length_buckets or () if n <= longest), longest)

    # === Arguments and files ===

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        # A user may have set a smaller `sequence_length` since.
        buckets = self.lengths[:-1] or None
        return with_arguments({**super().get_config(), "length_buckets": buckets}, self)

    @classmethod
    def from_preset(cls, preset: str | os.PathLike[str], **kwargs: Any) -> Self:
        """Load the preprocessor from a preset, as `keras_hub.models.Preprocessor.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            **kwargs: `config_file`, and arguments of the constructor to change.

        Raises:
            ValueError: If files are missing or damaged.
        """
        finish_replacing(preset)
        return super().from_preset(os.fspath(preset), **kwargs)

    @classmethod
    def _add_missing_kwargs(cls, loader: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Shorten the default lengths of a new preprocessor to the longest of the backbone."""
        longest = loader.config.get("config", {}).get("max_sequence_length")
        for name, argument in constructor_arguments(cls).items():
            # A class of a user may have no default, or `None`.
            if name in SEQUENCE_LENGTHS and longest and isinstance(argument.default, int):
                kwargs.setdefault(name, min(argument.default, longest))
        return super()._add_missing_kwargs(loader, kwargs)


class PackingPreprocessor(HubPreprocessor):
    """A `HubPreprocessor` that may put several texts into one sequence.

    Args:
        *args: Arguments of `HubPreprocessor`.
        packed: bool. Whether the texts of a batch share sequences. A text has its own special
            tokens and its own `"document_ids"`, so it sees no other text. Defaults to `False`: a
            text has its own sequence.
        **kwargs: Keyword arguments of `HubPreprocessor`.
    """

    def __init__(self, *args: Any, packed: bool = False, **kwargs: Any) -> None:
        self.packed = packed
        super().__init__(*args, **kwargs)
        if self.packed and self.length_buckets:
            raise ValueError(
                "`packed=True` fills sequences of the full length, so `length_buckets` must be "
                f"`None`. Received: length_buckets={self.length_buckets}"
            )

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return NumPy arrays for a batch. A batch that is packed cannot be made text by text."""
        if self.packed and (in_graph() or self.is_one(x[0] if isinstance(x, tuple) else x)):
            raise ValueError(
                "`packed=True` needs a batch of texts outside of a graph. Received: one text, or "
                "tensors in a graph of TensorFlow, such as in `tf.data`. Pass batches of texts to "
                "the task."
            )
        return super().__call__(x, y, sample_weight)

    def make_batch(self, rows: Columns, generator: np.random.Generator | None = None) -> Columns:
        """Return the inputs of the model, with several texts in a row if they are packed."""
        inputs, y, sample_weight = super().make_batch(rows, generator)
        return self.pack(inputs), y, sample_weight

    def pack(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return arrays with a row for each text as they are, or as from `pack_documents`."""
        return pack_documents(arrays, self.tokenizer.pad_token_id) if self.packed else arrays


def checked_preprocessor(task: Any, method: str) -> Any:
    """Return the preprocessor of a task, which the method needs.

    Raises:
        ValueError: If the task has none or another one, or if it does not fit the backbone.
    """
    preprocessor = task.preprocessor
    if not isinstance(preprocessor, task.preprocessor_cls):
        raise ValueError(
            f"`{method}` needs a preprocessor, a `{task.preprocessor_cls.__name__}`. Received: "
            f"preprocessor={preprocessor}"
        )
    check_preprocessor_fits(task)
    return preprocessor


def check_preprocessor_fits(task: Any) -> None:
    """Raise a `ValueError` if the preprocessor of a task makes inputs that it cannot take.

    Args:
        task: A task. The `max_sequence_length` and the `vocabulary_size` of its backbone are the
            limits.
    """
    if task.preprocessor is None:
        return
    host = task.host_preprocessor
    if host.packed and divides_rows(task):
        raise ValueError(
            "`packed=True` needs batches that are whole, because their texts and their "
            "sequences differ in number. Received: a strategy with several replicas, or "
            "several processes of JAX. Use a preprocessor with `packed=False`."
        )
    longest = task.backbone.max_sequence_length
    if host.lengths and host.lengths[-1] > longest:
        raise ValueError(
            "The sequences of the preprocessor are too long for the backbone. Received: "
            f"sequences of {host.lengths[-1]} tokens and backbone.max_sequence_length={longest}. "
            f"Use a preprocessor with `sequence_length={longest}`."
        )
    limit = task.backbone.vocabulary_size
    size = _vocabulary_size(host.tokenizer) or limit
    # A model that generates texts must not generate unknown tokens.
    if size > limit or (host.makes_texts and size < limit):
        raise ValueError(
            "The tokenizer does not fit the embedding of the backbone. Received: "
            f"backbone.vocabulary_size={limit} and a tokenizer of {size} tokens. Use a backbone "
            f"with `vocabulary_size={size}`."
        )


def _vocabulary_size(tokenizer: Any) -> int | None:
    try:
        return None if tokenizer is None else tokenizer.vocabulary_size()
    except ValueError:
        # KerasHub reads the vocabulary of a preset after it has built the model.
        return None
