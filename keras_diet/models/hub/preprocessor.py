"""The base class of preprocessors."""

import inspect
import os
from typing import Any, Self

import keras
from keras_hub.models import Backbone, Preprocessor, Tokenizer

from keras_diet import validation
from keras_diet.models.hub.host_data import as_list, map_parts
from keras_diet.models.hub.labels import check_labels_are_not_text
from keras_diet.models.hub.length_buckets import check_buckets, shortened
from keras_diet.models.hub.texts import (
    check_batch,
    check_lengths,
    check_texts_are_flat,
    check_texts_are_strings,
    is_one_text,
    is_pair,
)
from keras_diet.types import Config

# KerasHub's names for the lengths of sequences that a preprocessor makes.
# The last one is an alias in encoder-decoders.
SEQUENCE_LENGTHS = ("encoder_sequence_length", "decoder_sequence_length", "sequence_length")


class HubPreprocessor(Preprocessor):
    """A `keras_hub.models.Preprocessor` that takes a tuple of texts as one input.

    KerasHub takes the second element of a tuple, `preprocessor((a, b))`, for labels, because
    datasets hold examples and labels in this way. Labels are never text, so here a tuple of texts
    holds the segments of one input. Input that cannot be right raises a `ValueError`.

    Args:
        *args: Arguments of the preprocessor of KerasHub.
        length_buckets: tuple of int or `None`. Lengths to which batches may be padded, besides
            `sequence_length`. A batch gets the smallest length that holds its longest text, so
            batches of short texts take less time. Compilers compile one program for each length.
            Defaults to `None`, which means that all batches have `sequence_length`.
        **kwargs: Keyword arguments of the preprocessor of KerasHub.
    """

    # Whether the preprocessor makes the labels from the text.
    makes_labels = False
    # Whether `y` holds what users write, such as texts, and the preprocessor makes labels of it.
    converts_labels = False
    # Whether labels and weights have the length of a sequence.
    labels_per_token = False
    # Whether a tuple of texts is one input. Otherwise it is an element of a dataset.
    takes_tuples = True
    # Whether the tokenizer turns the tokens that a model generates into texts.
    makes_texts = False
    # The special tokens of a text, and one token.
    shortest_sequence = 1

    def __init__(
        self, *args: Any, length_buckets: tuple[int, ...] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(self.tokenizer, Tokenizer):
            raise ValueError(
                "`tokenizer` must be a tokenizer of keras_diet or KerasHub. Received: "
                f"{_kind(self.tokenizer)}. Make one from the vocabulary, or load it with "
                "`from_preset`."
            )
        if not isinstance(length_buckets, tuple | list | None):
            raise ValueError(
                "`length_buckets` must be a tuple of lengths, or `None`. Received: "
                f"length_buckets={length_buckets!r}. Put a single length into a tuple."
            )
        self.length_buckets = length_buckets and tuple(length_buckets)

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        is_all = y is None and sample_weight is None
        if is_all and isinstance(x, tuple) and not (self.takes_tuples and is_pair(x)):
            # An element of a dataset: examples, perhaps with labels and weights.
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(x)
        x, y = self.joined(x, y)
        x, y = map_parts(as_list, (x, y))
        self.check_texts(x)
        check_labels_are_not_text(y)
        if not is_one_text(x):
            check_lengths(x=x, y=y, sample_weight=sample_weight)
        if self.converts_labels and y is not None:
            self.check_labels(x, y)
        return self.preprocess(*self.expanded(x, y, sample_weight))

    def expanded(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return what batches are made of: by default, the examples.

        Several sequences of an example must become rows before they are shuffled and batched.
        """
        return x, y, sample_weight

    def preprocess(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return what calling the preprocessor returns, for the result of `expanded`."""
        self.check_left_out(y, sample_weight)
        return super().__call__(x, y=y, sample_weight=sample_weight)

    def check_left_out(self, y: Any, sample_weight: Any) -> None:
        """Raise a `ValueError` for labels or weights that the preprocessor would replace."""
        if self.makes_labels and (y is not None or sample_weight is not None):
            check_labels_are_not_text(y)
            raise ValueError(
                f"`y` and `sample_weight` must be `None`, because `{type(self).__name__}` makes "
                "them. Received: labels or weights beside the text. Pass the text only."
            )

    def joined(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return `x` with all texts, and `y` without texts. By default, labels are not texts."""
        return x, y

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        outputs = self.packed(x, y, sample_weight)
        if not self.length_buckets:
            return outputs
        return shortened(outputs, self.lengths, self.labels_per_token)

    def packed(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """Return sequences of full length. KerasHub makes them by default."""
        return super().call(x, y=y, sample_weight=sample_weight)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that a batch may have, from short to long."""
        longest = max(getattr(self, name, None) or 0 for name in SEQUENCE_LENGTHS)
        return (*(self.length_buckets or ()), longest)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        return {**super().get_config(), "length_buckets": self.length_buckets}

    def build(self, input_shape: Any) -> None:
        """Check the arguments and create the sublayers."""
        self.check_arguments()
        super().build(input_shape)

    def check_arguments(self) -> None:
        """Raise a `ValueError` if no text fits, or if the tokenizer adds special tokens."""
        for name in ("add_bos", "add_eos", "sequence_length"):
            value = getattr(self.tokenizer, name, None)
            if value:
                raise ValueError(
                    "`tokenizer` must not add special tokens or padding, because the preprocessor "
                    f"does. Received: tokenizer.{name}={value}. Make a tokenizer without it."
                )
        for name in SEQUENCE_LENGTHS:
            length = getattr(self, name, None)
            if (
                length is not None
                and validation.positive_int(name, length) < self.shortest_sequence
            ):
                raise ValueError(
                    f"`{name}` must be at least {self.shortest_sequence}, the number of special "
                    f"tokens and one token. Received: {name}={length}"
                )
        if self.length_buckets:
            check_buckets(self.length_buckets, self.shortest_sequence, self.lengths[-1])

    def check_texts(self, x: Any) -> None:
        """Raise a `ValueError` if `x` cannot be a batch of texts or of tuples of texts."""
        check_batch(x)
        # Without `split`, the tokenizer takes lists of words for texts.
        if getattr(self.tokenizer, "split", True):
            check_texts_are_flat(x)
            check_texts_are_strings(x)

    def check_labels(self, x: Any, y: Any) -> None:
        """Raise a `ValueError` unless `y` holds what the preprocessor makes labels of."""
        raise NotImplementedError

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        config_file: str = "preprocessor.json",
        **kwargs: Any,
    ) -> Self:
        """Load the preprocessor from a preset, as `keras_hub.models.Preprocessor.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            config_file: str. The file with the configuration. Defaults to `"preprocessor.json"`.
            **kwargs: Arguments of the constructor to change.

        Raises:
            ValueError: If files are missing or damaged.
        """
        return super().from_preset(os.fspath(preset), config_file=config_file, **kwargs)

    @classmethod
    def _add_missing_kwargs(cls, loader: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Shorten the default lengths of a new preprocessor to the longest of the backbone."""
        longest = loader.config.get("config", {}).get("max_sequence_length")
        for name in SEQUENCE_LENGTHS:
            default = _default(cls, name)
            # A class of a user may have no default, or `None`.
            if longest is not None and isinstance(default, int):
                kwargs.setdefault(name, min(default, longest))
        return super()._add_missing_kwargs(loader, kwargs)


def _kind(value):
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _default(cls: type, name: str) -> Any:
    """Return the default of an argument of the constructor, in the first class that names it."""
    for base in cls.__mro__:
        constructor = vars(base).get("__init__")
        parameters = inspect.signature(constructor).parameters if constructor else {}
        if name in parameters:
            return parameters[name].default
    return None


def check_preprocessor_class(preprocessor: Any, task: Any) -> None:
    """Raise a `ValueError` if a preprocessor belongs to another task.

    Preprocessors of KerasHub, layers and functions are not checked.

    Args:
        preprocessor: What the user passes.
        task: The task.
    """
    expected = task.preprocessor_cls
    belongs_elsewhere = isinstance(preprocessor, (HubPreprocessor, Tokenizer, type)) or not (
        preprocessor is None or callable(preprocessor)
    )
    if expected and belongs_elsewhere and not isinstance(preprocessor, expected):
        raise ValueError(
            f"`preprocessor` must be a `{expected.__name__}`, a function, or `None`. Received: "
            f"{_kind(preprocessor)}. Make one from the tokenizer: `{expected.__name__}(tokenizer)`."
        )


def check_preprocessor_is_no_function(preprocessor: Any) -> None:
    """Raise a `ValueError` if a preprocessor is a function, which has no configuration to save."""
    if preprocessor is not None and not hasattr(preprocessor, "get_config"):
        raise ValueError(
            "`preprocessor` must be a preprocessor or `None` to save or rebuild a task. Received: "
            f"{_kind(preprocessor)}. Set `task.preprocessor = None`, and set the function on the "
            "new task."
        )


def check_preprocessor_fits(preprocessor: Any, backbone: Backbone) -> None:
    """Raise a `ValueError` if a preprocessor makes inputs that a backbone cannot take.

    Args:
        preprocessor: Any preprocessor, or `None`.
        backbone: A backbone. Its `max_sequence_length` and `vocabulary_size` are the limits.
    """
    if isinstance(preprocessor, HubPreprocessor):
        preprocessor.check_arguments()
    for name in SEQUENCE_LENGTHS:
        length = getattr(preprocessor, name, None) or 0
        if length > backbone.max_sequence_length:
            raise ValueError(
                "The preprocessor makes longer sequences than the backbone takes. "
                f"Received: preprocessor.{name}={length}, "
                f"backbone.max_sequence_length={backbone.max_sequence_length}. "
                f"Choose a smaller `{name}`."
            )
    size = _vocabulary_size(getattr(preprocessor, "tokenizer", None))
    if size is not None and size > backbone.vocabulary_size:
        raise ValueError(
            "The preprocessor has tokens without an embedding in the backbone. "
            f"Received: backbone.vocabulary_size={backbone.vocabulary_size} and a "
            f"tokenizer of {size} tokens. Use a backbone with a larger `vocabulary_size`."
        )
    makes_texts = getattr(preprocessor, "makes_texts", False)
    if makes_texts and size is not None and size < backbone.vocabulary_size:
        raise ValueError(
            "The backbone may generate tokens that the tokenizer does not know. "
            f"Received: backbone.vocabulary_size={backbone.vocabulary_size} and a "
            f"tokenizer of {size} tokens. Use a backbone with `vocabulary_size={size}`."
        )


def _vocabulary_size(tokenizer: Any) -> int | None:
    if tokenizer is None:
        return None
    try:
        return tokenizer.vocabulary_size()
    except ValueError:
        # KerasHub reads the vocabulary of a preset after it has built the model.
        return None
