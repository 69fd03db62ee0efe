"""Embeddings of texts with a DietBert backbone."""

import functools
import zlib
from typing import Any

import keras
import numpy as np
from keras import ops
from keras_hub.models import TextEmbedder, TextEmbedderPreprocessor

from keras_diet import validation
from keras_diet.data.columns import holds_text, is_columns, number_of_rows, texts_of
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.layers.transformer.recomputed_call import call_in_chunks
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import TEXT_EMBEDDER
from keras_diet.models.hub.labels import is_of_keras, of_output
from keras_diet.models.hub.model_inputs import TextsOfExamples, gather_tokens, rows_of_texts
from keras_diet.models.hub.preprocessor import PackingPreprocessor
from keras_diet.models.hub.task import HubTask
from keras_diet.training.embedding_losses import EmbeddingLoss, unit_vectors
from keras_diet.types import Columns, Config, Tensor


def _mean(hidden_states: Tensor, mask: Tensor) -> Tensor:
    mask = ops.cast(mask, hidden_states.dtype)
    return ops.sum(hidden_states * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1)


def _cls(hidden_states: Tensor, mask: Tensor) -> Tensor:
    return hidden_states[:, 0]


def _max(hidden_states: Tensor, mask: Tensor) -> Tensor:
    mask = ops.cast(mask, "bool")
    largest = ops.max(ops.where(mask, hidden_states, -float("inf")), axis=1)
    # A text of nothing but padding gets zeros, as from the mean.
    return ops.where(ops.any(mask, axis=1), largest, 0.0)


POOLING = {"mean": _mean, "cls": _cls, "max": _max}


def _pool_documents(mode, hidden_states, padding_mask, document_ids, first_tokens):
    """Return the pooled hidden states of each document, in the shape of `first_tokens`."""
    if mode == "cls":
        return gather_tokens(hidden_states, first_tokens)
    number, size = ops.shape(ops.reshape(first_tokens, (-1,)))[0], hidden_states.shape[-1]
    ids = ops.reshape(document_ids * padding_mask, (-1,))

    def reduce(function, values):
        # Padding has the id 0.
        values = ops.reshape(values, (-1, values.shape[-1]))
        return function(values, ids, num_segments=number + 1)[1:]

    if mode == "max":
        pooled = reduce(ops.segment_max, hidden_states)
    else:
        mask = ops.expand_dims(ops.cast(padding_mask, hidden_states.dtype), -1)
        pooled = reduce(ops.segment_sum, hidden_states) / reduce(ops.segment_sum, mask)
    return ops.reshape(pooled, (*ops.shape(first_tokens), size))


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextEmbedderPreprocessor(
    PackingPreprocessor, DietBertPreprocessor, TextEmbedderPreprocessor
):
    """Tokenize and pack raw texts, or pairs of texts, for embedding.

    This is `keras_hub.models.BertTextEmbedderPreprocessor` for DietBert models. The input is
    `[CLS]`, then the tokens of each text followed by `[SEP]`, then padding. Unlike in KerasHub, a
    tuple of texts is always a pair. To embed texts one by one, pass a list.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`, `DietBertSentencePieceTokenizer` or
            `HuggingFaceTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `256`.
        truncate: `"round_robin"` or `"waterfall"`. How several texts are shortened to fit.
            Defaults to `"round_robin"`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch may be padded, if
            they hold its longest text. Defaults to `None`: all batches have `sequence_length`.
        packed: bool. Whether the texts of a batch share sequences. A text sees no other text, so
            the outputs are the same. Defaults to `False`: a text has its own sequence.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A string, a batch of strings, or a tuple of them for texts of several segments.
        y: Labels, which are returned unchanged. They must not be text.
        sample_weight: Weights of the examples, which are returned unchanged.

    Returns:
        NumPy arrays: a dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(B, sequence_length)`. With labels, a tuple of the dictionary, `y` and, if given,
        `sample_weight`. With `packed`, there are fewer rows, `"document_ids"` that number the texts
        from 1 on, and `"document_first_tokens"` `(B,)`, the flat indices of `[CLS]`.

    Raises:
        ValueError: If a text is missing, for an empty batch, and for segments, labels or weights of
            another number than texts. With `packed`, for `length_buckets`, for a single text and
            in a graph of TensorFlow.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    preprocessor = keras_diet.models.DietBertTextEmbedderPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
    )
    x = preprocessor(["the quick fox", "the foxes"])
    ```

    References:
     - [Reimers and Gurevych, 2019](https://aclanthology.org/D19-1410/)
    """


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextEmbedder(TextsOfExamples, DietBertTask, TextEmbedder):
    """A DietBert backbone that turns a text into one vector.

    Its conventions are the same as in `keras_hub.models.BertTextEmbedder`. With the hidden states
    `h_t` and the padding mask `m_t`, the embedding is

        mean:  e = sum_t m_t h_t / sum_t m_t      cls:  e = h_0      max:  e = max_{t: m_t = 1} h_t

    With `normalize` it is `e / |e|`, so inner products are cosines. With a `preprocessor`, `fit`,
    `evaluate`, `predict` and `encode_text` take raw strings.

    Call `compile` with a loss before `fit`, because embedders do not have a default loss.
    `keras_diet.training` has losses for pairs and triplets of texts. With such an `EmbeddingLoss`,
    `compile` takes no metrics of Keras, `fit` and `evaluate` take a tuple of lists, and each text
    has its own embedding:

    | loss | `x` | `y` |
    |---|---|---|
    | `MultipleNegativesRankingLoss` | `(anchors, positives)` and any hard negatives | `None` |
    | `CosineSimilarityLoss` | `(first, second)` | scores in [-1, 1] |
    | `CoSENTLoss` | `(first, second)` | scores |

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertTextEmbedderPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        pooling_mode: `"mean"`, `"cls"` or `"max"`, as above. Defaults to `"mean"`.
        normalize: bool. Whether embeddings have length one. Defaults to `True`.
        num_chunks: int or `None`. Number of parts of a batch that training embeds one after
            another. Only one part at a time is in memory, because each is computed again for its
            gradient (GradCache). So batches can be large, and losses see all of their texts. The
            gradients equal those of the whole batch. Defaults to `None`: one part, computed once.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary. The arrays may have a second axis for the texts of an
            example: `(n, k, T)`.

    Returns:
        Embeddings of shape `(B, hidden_dim)`, or `(n, k, hidden_dim)`.

    Raises:
        ValueError: If `pooling_mode` is unknown, or if the preprocessor has more tokens than
            the backbone. `fit`, `evaluate` and `predict` raise it for an empty batch
            and for more texts than segments.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    embedder = keras_diet.models.DietBertTextEmbedder(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        keras_diet.models.DietBertTextEmbedderPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
        ),
    )
    query = embedder.encode_text("the fox", verbose=0)
    documents = embedder.encode_documents(["the quick fox", "the foxes"], verbose=0)
    best = embedder.similarity(query, documents)  # (1, 2)
    ```

    References:
     - [Reimers and Gurevych, 2019](https://aclanthology.org/D19-1410/)
     - [Gao et al., 2021](https://arxiv.org/abs/2101.06983): GradCache
    """

    preprocessor_cls = DietBertTextEmbedderPreprocessor
    output_kind = "embeddings"
    trained_head = TEXT_EMBEDDER

    @takes_arguments_of(HubTask)
    def __init__(
        self,
        backbone: DietBertBackbone,
        preprocessor: keras.layers.Layer | None = None,
        pooling_mode: str = "mean",
        normalize: bool = True,
        num_chunks: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.pooling_mode = validation.choice("pooling_mode", pooling_mode, tuple(POOLING))
        self.normalize = normalize
        self.num_chunks = num_chunks
        super().__init__(backbone, preprocessor, **kwargs)

    @property
    def num_chunks(self) -> int | None:
        """Number of parts of a batch in training. After a change, steps are compiled again."""
        return self._num_chunks

    @num_chunks.setter
    def num_chunks(self, num_chunks: int | None) -> None:
        self._num_chunks = validation.optional_positive_int("num_chunks", num_chunks)
        self.forget_steps()

    def outputs_of(self, document_first_tokens: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Return the embedding of each sequence, or of each document."""
        hidden_states = self.backbone(inputs)["sequence_output"]
        return self.pool(hidden_states, document_first_tokens, **inputs)

    def pool(
        self, hidden_states: Tensor, document_first_tokens: Tensor | None = None, **inputs: Tensor
    ) -> Tensor:
        """Return the embedding of each sequence, or of each document, from its hidden states."""
        mask = inputs["padding_mask"]
        # Sums of many numbers, and their squares, would overflow in half precision.
        hidden_states = ops.cast(hidden_states, "float32")
        if document_first_tokens is None:
            embeddings = POOLING[self.pooling_mode](hidden_states, ops.expand_dims(mask, -1))
        else:
            documents = (inputs["document_ids"], document_first_tokens)
            embeddings = _pool_documents(self.pooling_mode, hidden_states, mask, *documents)
        if self.normalize:
            embeddings = unit_vectors(embeddings)
        return ops.cast(embeddings, self.backbone.compute_dtype)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        embed = functools.partial(super().call, training=training, mask=mask)
        # The texts of examples come again as rows.
        is_rows = len(inputs["token_ids"].shape) == 2
        if training and self.num_chunks is not None and is_rows:
            if "document_first_tokens" in inputs:
                raise ValueError(
                    "`num_chunks` divides the sequences of a batch, where the texts of an example "
                    f"may be in several. Received: num_chunks={self.num_chunks} with a "
                    "preprocessor with `packed=True`. Use `packed=False` or `num_chunks=None`."
                )
            return call_in_chunks(self, inputs, self.num_chunks, embed)
        return embed(inputs)

    # === Data ===

    @property
    def _embedding_loss(self):
        """The loss, if it takes several texts of each example."""
        loss = of_output(self.loss, None) if self.compiled else None
        return loss if isinstance(loss, EmbeddingLoss) else None

    @property
    def makes_labels(self) -> bool:
        """Whether the labels come from the texts, so that users pass none."""
        loss = self._embedding_loss
        return loss is not None and loss.takes_ids and self.preprocessor is not None

    def columns_of_examples(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return the data of `fit` and `evaluate`. With an `EmbeddingLoss`, `x` is `(n, k)`.

        Raises:
            ValueError: If the loss takes other texts or other labels.
        """
        loss = self._embedding_loss
        if loss is None:
            return self.columns(x, y, sample_weight)
        name, number = type(loss).__name__, len(x) if isinstance(x, tuple) else 1
        if number < 2 or loss.num_texts not in (None, number):
            example = "(anchors, positives)" if loss.takes_ids else "(first, second)"
            received = f"a tuple of {number}" if isinstance(x, tuple) else type(x).__name__
            hint = "`y` holds text: the second texts belong into `x`. " if holds_text(y) else ""
            raise ValueError(
                f"With `{name}`, `x` must be a tuple of {loss.num_texts or '2 or more'} lists of "
                f"texts. Pass `x={example}`. {hint}Received: x={received}. Batches of a dataset, "
                f"and `validation_data`, are `({example},)` or `({example}, y)`."
            )
        if (y is None) is not loss.takes_ids:
            remedy = "Leave `y` out: the texts are enough" if loss.takes_ids else "Pass scores"
            raise ValueError(f"{remedy}, with `{name}`. Received: y={y!r:.50}")
        texts = [texts_of(part, f"x[{i}]") for i, part in enumerate(x)]
        y, sample_weight = self.checked_targets(y, sample_weight)
        number_of_rows(x=tuple(texts), y=y, sample_weight=sample_weight)
        rows = np.array(list(zip(*texts, strict=True)), dtype=object)
        if y is None:
            # Other processes find the same ids. Two different texts that have one id are not
            # negatives of each other.
            ids = np.array([zlib.crc32(text.encode()) for text in rows.flat], "uint32")
            y = ids.view("int32").reshape(rows.shape)
        self._check_labels(y, sample_weight)
        return rows, y, sample_weight

    def _check_labels(self, y, sample_weight):
        loss = self._embedding_loss
        if loss is not None and y is not None:
            # Where the weight is 0, the label may have any value.
            is_used = True if sample_weight is None else np.reshape(sample_weight, -1) != 0
            loss.check_labels(np.where(is_used, y.T, 0).T)

    def class_weight_of(self, class_weight: Any, y: Any = None) -> dict[int, float] | None:
        """Return the weights of classes by index, as other tasks.

        Raises:
            ValueError: With an `EmbeddingLoss`, whose labels are not classes.
        """
        if class_weight is not None and self._embedding_loss is not None:
            raise ValueError(
                "`class_weight` must be `None` with a loss of embeddings, whose examples have no "
                f"classes. Received: class_weight={class_weight!r}. Pass `sample_weight`."
            )
        return super().class_weight_of(class_weight, y)

    def checked_ids(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return arrays of token ids, `(n, k, T)` for the texts of examples, after checking them.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        _, y, sample_weight = super().checked_ids(rows_of_texts(x), y, sample_weight)
        self._check_labels(y, sample_weight)
        return x, y, sample_weight

    def batches(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return texts as batches of arrays, as other tasks.

        Raises:
            ValueError: If the last batch has a single pair, and the loss needs the pairs of others.
        """
        data = super().batches(x, *args, **kwargs)
        if self.makes_labels and is_columns(x) and kwargs.get("labels", True):
            ids, size = data.source.columns[1], data.source.batch_size
            self._embedding_loss.check_labels(ids[-(len(ids) % size or size) :])
        return data

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile`.

        Raises:
            ValueError: For metrics of Keras with an `EmbeddingLoss`.
        """
        of_keras = keras.tree.flatten([given.get("metrics"), given.get("weighted_metrics")])
        # Without a loss, Keras keeps that of an earlier call.
        loss = of_output(given.get("loss"), None) or self._embedding_loss
        if isinstance(loss, EmbeddingLoss) and any(map(is_of_keras, of_keras)):
            raise ValueError(
                "Metrics of Keras cannot read the embeddings of several texts of an example. "
                "Received: `metrics` with a loss of embeddings. Measure with `keras_diet.metrics`."
            )
        return given

    def encode_text(
        self,
        text: str | list[str],
        batch_size: int | None = None,
        verbose: Any = "auto",
        callbacks: Any = None,
    ) -> Tensor:
        """Return the embedding of each text, in the order of the texts.

        Texts of about as many tokens share a batch, the longest ones first. With `length_buckets`
        of the preprocessor, the batches of short texts are short.

        Args:
            text: A string, or a list of strings.
            batch_size: As in `predict`. Defaults to `None`, which means 32.
            verbose: As in `predict`. Defaults to `"auto"`, which shows a progress bar.
            callbacks: As in `predict`. Defaults to `None`.

        Returns:
            An array of shape `(num_texts, hidden_dim)`.
        """
        return self.predict_sorted(texts_of(text, "text"), batch_size, verbose, callbacks)

    def encode_documents(self, documents: str | list[str], **kwargs: Any) -> Tensor:
        """Return the embeddings of one text or of several texts, as `encode_text`.

        Args:
            documents: A string, or a list of strings.
            **kwargs: Keyword arguments of `encode_text`.
        """
        return self.encode_text(documents, **kwargs)

    def similarity(self, query_embeddings: Tensor, document_embeddings: Tensor) -> Tensor:
        """Return the inner products of embeddings. With `normalize` they are cosines.

        Args:
            query_embeddings: Embeddings `(num_queries, hidden_dim)`.
            document_embeddings: Embeddings `(num_documents, hidden_dim)`.

        Returns:
            A tensor of shape `(num_queries, num_documents)`.
        """
        return ops.matmul(query_embeddings, ops.transpose(document_embeddings))
