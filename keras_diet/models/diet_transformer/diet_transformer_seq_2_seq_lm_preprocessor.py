"""From pairs of raw texts to the inputs of `DietTransformerSeq2SeqLM`, and back to texts."""

import operator
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras_hub.models import Seq2SeqLMPreprocessor

from keras_diet.data.columns import is_one_text, number_of_rows, texts_of
from keras_diet.models.diet_transformer.diet_transformer_backbone import DietTransformerBackbone
from keras_diet.models.diet_transformer.diet_transformer_tokenizer import DietTransformerTokenizer
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.token_rows import mask_of_rows, padded
from keras_diet.types import Columns, Tensor

# KerasHub's names.
SOURCE, TARGET = "encoder_text", "decoder_text"

# What `rows_of_tokens` returns.
SOURCE_TOKENS, TARGET_TOKENS = "encoder_tokens", "decoder_tokens"

# Tensor2Tensor searches for translations up to this number of tokens longer than their sources.
_EXTRA_LENGTH = 50


@keras.saving.register_keras_serializable(package="keras_diet")
class DietTransformerSeq2SeqLMPreprocessor(HubPreprocessor, Seq2SeqLMPreprocessor):
    """Tokenize and pack sources and targets for translation.

    For source tokens `s` and target tokens `t`, this makes:

        encoder_token_ids = s_1, ..., s_n, end
        decoder_token_ids = start, t_1, ..., t_m
        labels            = t_1, ..., t_m, end

    and padding after them. The source has no start token, as in Tensor2Tensor and Marian. Weights
    are 1 for labels and 0 for padding.

    To train, a longer source or target is cut off before its end token. A warning has the number of
    such pairs, in a dataset of those in one batch. To generate, it is an error, unless
    `truncate=True`.

    Args:
        tokenizer: A `keras_diet.models.DietTransformerTokenizer`.
        encoder_sequence_length: int. Longest source, in tokens with the end token. Defaults to
            `256`.
        decoder_sequence_length: int. Longest target, in tokens with the end token. Defaults to
            `256`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch may be padded, if
            they hold its longest source and target. Defaults to `None`: all batches have full
            length.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: Sources: a string, or a batch of strings. Or a dictionary of sources and targets with
            the keys `"encoder_text"` and `"decoder_text"`, as in KerasHub.
        y: Targets: as many strings as `x` has. `None` if `x` is a dictionary. A dataset holds
            elements `(sources, targets)`.
        sample_weight: Must be `None`. The preprocessor makes the weights.

    Returns:
        A tuple `(x, y, sample_weight)`. `x` is a dictionary of `"encoder_token_ids"` and
        `"encoder_padding_mask"` of shape `(B, encoder_sequence_length)`, and `"decoder_token_ids"`
        and `"decoder_padding_mask"` of shape `(B, decoder_sequence_length)`. `y` holds the labels
        and `sample_weight` the weights, of shape `(B, decoder_sequence_length)`.

    Raises:
        ValueError: For an empty batch, for sources and targets of unequal
            number, for missing targets, and for a `sample_weight` that is not `None`. In a graph of
            TensorFlow, such as in `tf.data`, nothing is checked.

    Example:

    ```python
    sources = ["the quick fox", "the slow dog"]
    targets = ["der schnelle Fuchs", "der langsame Hund"]
    tokenizer = keras_diet.models.DietTransformerTokenizer.from_texts(sources + targets, 40)
    preprocessor = keras_diet.models.DietTransformerSeq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=16, decoder_sequence_length=16
    )
    x, y, sample_weight = preprocessor(sources, targets)
    inputs = preprocessor.generate_preprocess(sources)
    preprocessor.generate_postprocess(inputs)
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    backbone_cls = DietTransformerBackbone
    tokenizer_cls = DietTransformerTokenizer
    makes_labels = True
    converts_labels = True
    takes_tuples = False
    makes_texts = True

    def __init__(
        self,
        tokenizer: DietTransformerTokenizer,
        encoder_sequence_length: int = 256,
        decoder_sequence_length: int = 256,
        length_buckets: tuple[int, ...] | None = None,
        **kwargs: Any,
    ) -> None:
        lengths = (encoder_sequence_length, decoder_sequence_length)
        super().__init__(tokenizer, *lengths, length_buckets=length_buckets, **kwargs)

    # === Training ===

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return a dictionary of sources and targets, after checking them."""
        if sample_weight is not None:
            raise ValueError(
                "`y` and `sample_weight` must be `None`, because the preprocessor makes the "
                f"weights. Received: {type(sample_weight).__name__}. Pass the texts only."
            )
        return self._checked_pairs(x if y is None else {SOURCE: x, TARGET: y}), None, None

    def _checked_pairs(self, x):
        if not isinstance(x, Mapping) or set(x) != {SOURCE, TARGET}:
            keys = f" with the keys {list(x)}" if isinstance(x, Mapping) else ""
            raise ValueError(
                f"A model needs sources and targets. Received: x of type {type(x).__name__}{keys}, "
                f"and no y. Pass sources as `x` and targets as `y`, or a dictionary with the keys "
                f"{SOURCE!r} and {TARGET!r}. To get targets for sources, call `generate`."
            )
        pairs = {name: texts_of(x[name], name) for name in (SOURCE, TARGET)}
        number_of_rows(**pairs)
        return pairs

    def make_batch(self, rows: Columns, generator: np.random.Generator | None = None) -> Columns:
        """Return inputs, labels and weights for some sources and targets."""
        sources, targets = self._tokens(rows[0])
        lengths = self.encoder_sequence_length, self.decoder_sequence_length
        longest = [1 + max(map(len, rows)) for rows in (sources, targets)]
        if any(map(operator.gt, longest, lengths)):
            # Without numbers of the batch, Python shows it once.
            warnings.warn(
                f"Some pairs are cut to encoder_sequence_length={lengths[0]} and "
                f"decoder_sequence_length={lengths[1]} tokens with the end token. Remove these "
                "pairs, or choose larger lengths. `generate` refuses such a source without "
                "`truncate=True`.",
                stacklevel=2,
            )
        if self.length_buckets:
            # Compilers compile one program for each length, not for each pair of lengths.
            size = max(map(min, longest, lengths))
            bucket = next((n for n in self.lengths if n >= size), self.lengths[-1])
            lengths = tuple(min(bucket, length) for length in lengths)
        inputs = self._inputs(sources, targets, *lengths)
        ended = self._ended(targets, lengths[1])
        labels = padded(ended, lengths[1:], self.tokenizer.pad_token_id)
        return inputs, labels, inputs["decoder_padding_mask"]

    def _tokens(self, x):
        # A call of the layer would take longer.
        return self.tokenizer.tokenize(x[SOURCE]), self.tokenizer.tokenize(x[TARGET])

    def _ended(self, rows, length):
        """Return rows of tokens with end tokens, and cut long rows."""
        return [[*row[: length - 1], self.tokenizer.end_token_id] for row in rows]

    def _inputs(self, sources, targets, source_length, target_length):
        """Return sources with end tokens, and targets with start tokens."""
        ended, pad = self._ended(sources, source_length), self.tokenizer.pad_token_id
        started = [[self.tokenizer.start_token_id, *row[: target_length - 1]] for row in targets]
        return {
            "encoder_token_ids": padded(ended, [source_length], pad),
            "encoder_padding_mask": mask_of_rows(ended, source_length),
            "decoder_token_ids": padded(started, [target_length], pad),
            "decoder_padding_mask": mask_of_rows(started, target_length),
        }

    # === Generation ===

    def generate_preprocess(
        self,
        x: Any,
        *,
        encoder_sequence_length: int | None = None,
        decoder_sequence_length: int | None = None,
        sequence_length: int | None = None,
        truncate: bool = False,
    ) -> dict[str, Tensor]:
        """Return the inputs for generation: sources, and the beginnings of their targets.

        Args:
            x: Sources: a string, or a batch of strings. Or a dictionary with `"encoder_text"` and,
                if targets have given beginnings, with these prompts as `"decoder_text"`.
            encoder_sequence_length: int or `None`. Longest source, in tokens with the end token.
                Defaults to `None`, which means that of the constructor. With `length_buckets`,
                shorter sources are padded to the smallest bucket that holds them.
            decoder_sequence_length: int or `None`. The length of the targets with start token and
                prompt. Defaults to `None`, which means that of the constructor. With
                `length_buckets`, the default is smaller if the sources are short: 50 tokens more
                than the padded sources, as in Tensor2Tensor, plus the longest prompt.
            sequence_length: Another name of `decoder_sequence_length`, as in KerasHub.
            truncate: bool. Whether a source or a prompt that is too long is cut. Defaults to
                `False`: it is an error.

        Raises:
            ValueError: If a source is empty, if a source or a prompt is too long, or if
                `decoder_sequence_length` has no room for a token.
        """
        is_one = is_one_text(x)
        source_length = _first(encoder_sequence_length, self.encoder_sequence_length)
        max_length = _first(decoder_sequence_length, sequence_length)
        if not (isinstance(x, Mapping) and SOURCE_TOKENS in x):
            x = self.rows_of_tokens(x, source_length, max_length, truncate)
        rows = x[SOURCE_TOKENS], x[TARGET_TOKENS]
        longest_source, longest_prompt = (max(map(len, each)) for each in rows)
        lengths = (*(self.length_buckets or ()), source_length)
        # An end token follows.
        bucket = min(length for length in lengths if length > longest_source)
        if max_length is None:
            max_length = self.decoder_sequence_length
            if self.length_buckets:
                max_length = min(max_length, bucket + _EXTRA_LENGTH + longest_prompt)
        inputs = self._inputs(*rows, bucket, max_length)
        inputs = {name: array[0] if is_one else array for name, array in inputs.items()}
        return keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)

    def rows_of_tokens(
        self,
        x: Any,
        source_length: int | None = None,
        max_length: int | None = None,
        truncate: bool = False,
    ) -> dict[str, list[list[int]]]:
        """Return the tokens of each source and of each prompt, and check their numbers.

        Args:
            x: As in `generate_preprocess`.
            source_length: int or `None`. Longest source with the end token. Defaults to `None`,
                which means that of the constructor.
            max_length: int or `None`. Longest target with the start token. Defaults to `None`,
                which means that of the constructor.
            truncate: As in `generate_preprocess`.
        """
        x = x if isinstance(x, Mapping) else {SOURCE: x}
        if set(x) == {SOURCE}:
            x = {SOURCE: x[SOURCE], TARGET: [""] * len(texts_of(x[SOURCE], SOURCE))}
        sources, prompts = self._tokens(self._checked_pairs(x))
        # An end token follows the source.
        longest_source = _first(source_length, self.encoder_sequence_length) - 1
        # A start token before the prompt, and a token after it.
        longest_prompt = _first(max_length, self.decoder_sequence_length) - 2
        if truncate:
            sources = [row[:longest_source] for row in sources]
            prompts = [row[: max(longest_prompt, 0)] for row in prompts]
        _check_numbers(SOURCE, sources, 1, longest_source, "encoder_sequence_length")
        _check_numbers(TARGET, prompts, 0, longest_prompt, "max_length")
        return {SOURCE_TOKENS: sources, TARGET_TOKENS: prompts}

    def generate_postprocess(self, x: Mapping[str, Tensor]) -> Any:
        """Return the texts of generated tokens, without special tokens and padding.

        Args:
            x: Dictionary with `"decoder_token_ids"` and `"decoder_padding_mask"` of shape `(T,)`,
                `(B, T)`, or with more axes, for example for several beams of a source. Tokens after
                the first end token are left out.

        Returns:
            A string, or nested lists of strings for all axes but the last one.
        """
        return self._text(
            keras.ops.convert_to_numpy(x["decoder_token_ids"]),
            keras.ops.convert_to_numpy(x["decoder_padding_mask"]).astype(bool),
        )

    def _text(self, token_ids: np.ndarray, padding_mask: np.ndarray) -> Any:
        if token_ids.ndim > 1:
            return [self._text(*row) for row in zip(token_ids, padding_mask, strict=True)]
        tokens = token_ids[padding_mask].tolist()
        if self.tokenizer.end_token_id in tokens:
            tokens = tokens[: tokens.index(self.tokenizer.end_token_id)]
        return self.tokenizer.detokenize([t for t in tokens if t != self.tokenizer.start_token_id])


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _check_numbers(
    name: str, rows: list[list[int]], shortest: int, longest: int, argument: str
) -> None:
    """Raise a `ValueError` that names the first text with too few or too many tokens."""
    for row, tokens in enumerate(rows):
        if not shortest <= len(tokens) <= longest:
            raise ValueError(
                f"`{name}` must have {shortest} to {longest} tokens, because `{argument}` includes "
                f"special tokens. Received: {len(tokens)} tokens in row {row}. Change the text, "
                f"choose another `{argument}`, or cut long texts with `truncate=True`."
            )
