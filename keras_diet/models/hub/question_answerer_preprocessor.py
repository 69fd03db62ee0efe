"""From questions and contexts to windows and the places of answers, for any model family."""

import functools
from typing import Any

import keras
import numpy as np
from keras_hub.models import Preprocessor

from keras_diet import validation
from keras_diet._compat import convert_preprocessing_outputs_python
from keras_diet.models.hub.answer_labels import (
    START,
    TEXT,
    as_string,
    check_answers,
    token_spans,
)
from keras_diet.models.hub.graph_checks import is_in_graph
from keras_diet.models.hub.host_data import map_parts
from keras_diet.models.hub.labels import check_shape_of_weights
from keras_diet.models.hub.length_buckets import shortened
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.question_windows import (
    QuestionWindows,
    make_windows,
)
from keras_diet.models.hub.texts import as_batch, check_texts_are_not_blank, is_one_text, is_pair
from keras_diet.types import Config

# BERT's windows of 384 tokens begin 128 tokens apart.
_DOC_STRIDE, _WINDOWS_PER_LENGTH = 128, 3
_ANSWERS = (TEXT, START)
_INPUTS = {"token_ids": "int32", "segment_ids": "int32", "padding_mask": "bool"}


class _WithTokenizer(Preprocessor):
    """KerasHub's base class of all preprocessors, whose constructor takes no tokenizer."""

    def __init__(self, tokenizer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer


class HubQuestionAnswererPreprocessor(HubPreprocessor, _WithTokenizer):
    """A preprocessor that cuts contexts into windows, each after its question.

    KerasHub has no such preprocessor. Put this class after the mixin of a family. The tokenizer of
    the family needs `tokenize_with_offsets`.

    Args:
        tokenizer: The tokenizer.
        sequence_length: int. The length of a window with its question. Defaults to `384`.
        doc_stride: int. The distance in tokens between the beginnings of two windows of a context.
            Defaults to `128`.
        **kwargs: Keyword arguments of `HubPreprocessor`.
    """

    converts_labels = True

    def __init__(
        self,
        tokenizer: Any,
        sequence_length: int = 384,
        doc_stride: int = _DOC_STRIDE,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, **kwargs)
        if not hasattr(tokenizer, "tokenize_with_offsets"):
            raise ValueError(
                "`tokenizer` must have `tokenize_with_offsets`, as the tokenizers of keras_diet "
                f"have. Received: {type(tokenizer).__name__}. Make a "
                f"`{self.tokenizer_cls.__name__}` with the same vocabulary."
            )
        self.sequence_length = sequence_length
        self.doc_stride = doc_stride

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        lengths = {"sequence_length": self.sequence_length, "doc_stride": self.doc_stride}
        return {**super().get_config(), **lengths}

    def check_arguments(self) -> None:
        """Raise a `ValueError` if no question and context fit into a window."""
        super().check_arguments()
        validation.positive_int("doc_stride", self.doc_stride)

    # === Checks ===

    def check_texts(self, x: Any) -> None:
        """Raise a `ValueError` unless `x` holds questions and as many contexts."""
        if not is_pair(x) or len(x) != 2:
            received = type(x).__name__
            if isinstance(x, tuple):
                kinds = ", ".join(type(part).__name__ for part in x)
                received = f"a tuple of {len(x)} parts ({kinds})"
            raise ValueError(
                "`x` must be a tuple (questions, contexts) of strings, or of batches of strings. "
                f"Received: {received}. Put all questions and all contexts into a list each, and "
                "answers into `y`."
            )
        super().check_texts(x)
        for i in range(2):
            check_texts_are_not_blank(x[i], f"x[{i}]")

    def check_labels(self, x: Any, y: Any) -> None:
        """Raise a `ValueError` unless each answer is in its context, where its start says."""
        check_answers(x[1], y)

    # === Windows ===

    def windows(self, questions: Any, contexts: Any) -> QuestionWindows:
        """Return the windows of questions and contexts that were checked before.

        Args:
            questions: A batch of strings.
            contexts: A batch of strings.
        """
        if not self.built:
            self.build(None)
        tokens = self._tokens([as_string(text) for part in (questions, contexts) for text in part])
        number = len(tokens) // 2
        return make_windows(
            [token_ids for token_ids, _ in tokens[:number]],
            tokens[number:],
            self.tokenizer,
            self.sequence_length,
            self.doc_stride,
        )

    def _tokens(self, texts):
        # Several questions have the same context.
        different = list(dict.fromkeys(texts))
        found = self.tokenizer.tokenize_with_offsets(different)
        tokens = dict(zip(different, found, strict=True))
        return [tokens[text] for text in texts]

    def expanded(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return the windows of all examples, with the places of answers and with weights.

        A weight of an example becomes the weight of all of its windows.
        """
        check_shape_of_weights(sample_weight, 1)
        if any(map(is_in_graph, x)):
            return self._expanded_in_graph(x, y, sample_weight)
        if is_one_text(x):
            x = as_batch(x)
            y, sample_weight = map_parts(lambda part: [part], (y, sample_weight))
        windows = self.windows(*x)
        labels = None if y is None else windows.positions(token_spans(y, windows.offsets))
        weights = map_parts(lambda part: np.asarray(part)[windows.examples], sample_weight)
        return windows.inputs, labels, weights

    def _expanded_in_graph(self, x, y, sample_weight):
        """Expand tensors in a graph of TensorFlow, which calls Python for each batch."""
        import tensorflow as tf

        if x[0].shape.rank == 0:
            one = functools.partial(tf.expand_dims, axis=0)
            x, y, sample_weight = (map_parts(one, part) for part in (x, y, sample_weight))

        def expand(questions, contexts, *answers):
            texts = questions.tolist(), contexts.tolist()
            labels = dict(zip(_ANSWERS, answers, strict=True)) if answers else None
            self.check_texts(texts)
            if labels:
                labels[TEXT] = labels[TEXT].tolist()
                self.check_labels(texts, labels)
            # The rows of the examples take the place of their weights.
            found, labels, rows = self.expanded(texts, labels, np.arange(len(texts[0])))
            return [*(found[name] for name in _INPUTS), *(labels or {}).values(), rows]

        answers = [] if y is None else [y[name] for name in _ANSWERS]
        dtypes = [*_INPUTS.values(), *["int32"] * len(answers), "int64"]
        outputs = tf.numpy_function(expand, [*x, *answers], dtypes, stateful=False)
        for i, array in enumerate(outputs):
            array.set_shape((None, self.sequence_length) if i < len(_INPUTS) else (None,))
        inputs = dict(zip(_INPUTS, outputs, strict=False))
        *positions, rows = outputs[len(_INPUTS) :]
        labels = dict(zip(("start", "end"), positions, strict=True)) if answers else None
        return inputs, labels, map_parts(lambda part: tf.gather(part, rows), sample_weight)

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return the result of `expanded` as tensors, with labels at one of the lengths."""
        # Predictions of several batches become one array, so they have the same length.
        if self.length_buckets and y is not None:
            x = shortened(x, self.lengths)
        batch = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
        if any(map(is_in_graph, keras.tree.flatten(batch))):
            return batch
        return convert_preprocessing_outputs_python(batch)

    @classmethod
    def _add_missing_kwargs(cls, loader: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Shorten the default stride of a new preprocessor with its windows."""
        kwargs = super()._add_missing_kwargs(loader, kwargs)
        stride = kwargs["sequence_length"] // _WINDOWS_PER_LENGTH
        kwargs.setdefault("doc_stride", min(_DOC_STRIDE, stride))
        return kwargs
