"""Embeddings of texts with a DietBert backbone."""

from typing import Any

import keras
from keras import ops
from keras_hub.models import TextEmbedder, TextEmbedderPreprocessor

from keras_diet import validation
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import NO_HEAD
from keras_diet.models.hub.losses import warn_if_loss_does_not_fit
from keras_diet.types import Config, Tensor


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


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextEmbedderPreprocessor(DietBertPreprocessor, TextEmbedderPreprocessor):
    """Tokenize and pack raw texts, or pairs of texts, for embedding.

    This is `keras_hub.models.BertTextEmbedderPreprocessor` for DietBert models. The packed input is
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
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A string, a batch of strings, or a tuple of them for texts of several segments.
        y: Labels, which are returned unchanged. They must not be text.
        sample_weight: Weights of the examples, which are returned unchanged.

    Returns:
        NumPy arrays: a dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(B, sequence_length)`. With labels, a tuple of the dictionary, `y` and, if given,
        `sample_weight`.

    Raises:
        ValueError: If a text is missing, for an empty batch, and for segments, labels or weights of
            another number than texts.

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
class DietBertTextEmbedder(DietBertTask, TextEmbedder):
    """A DietBert backbone that turns a text into one vector.

    Its conventions are the same as in `keras_hub.models.BertTextEmbedder`. With the hidden states
    `h_t` and the padding mask `m_t`, the embedding is

        mean:  e = sum_t m_t h_t / sum_t m_t      cls:  e = h_0      max:  e = max_{t: m_t = 1} h_t

    With `normalize` it is `e / |e|`, so inner products are cosines. With a `preprocessor`, `fit`,
    `evaluate`, `predict` and `encode_text` take raw strings.

    Call `compile` with a loss before `fit`, because embedders do not have a default loss. For
    pairs and triplets of texts, `keras_diet.training` has losses. They take the texts of an example
    in adjacent rows.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertTextEmbedderPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        pooling_mode: `"mean"`, `"cls"` or `"max"`, as above. Defaults to `"mean"`.
        normalize: bool. Whether embeddings have length one. Defaults to `True`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary.

    Returns:
        Embeddings of shape `(B, hidden_dim)`.

    Raises:
        ValueError: If `pooling_mode` is unknown, or if the preprocessor has more tokens or longer
            sequences than the backbone. `fit`, `evaluate` and `predict` raise it for an empty batch
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
    """

    preprocessor_cls = DietBertTextEmbedderPreprocessor
    trained_head = NO_HEAD

    def __init__(
        self,
        backbone: DietBertBackbone,
        preprocessor: keras.layers.Layer | None = None,
        pooling_mode: str = "mean",
        normalize: bool = True,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        validation.choice("pooling_mode", pooling_mode, tuple(POOLING))

        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor

        # === Functional Model ===
        hidden_states = backbone(backbone.input)["sequence_output"]
        mask = ops.expand_dims(backbone.input["padding_mask"], -1)
        # Sums of many numbers, and their squares, would overflow in half precision.
        embeddings = POOLING[pooling_mode](ops.cast(hidden_states, "float32"), mask)
        if normalize:
            # `ops.normalize` has the gradient NaN for a row of padding, whose embedding is zero.
            squares = ops.sum(ops.square(embeddings), axis=-1, keepdims=True)
            embeddings = embeddings / ops.sqrt(ops.maximum(squares, 1e-12))
        super().__init__(
            inputs=backbone.input,
            outputs=ops.cast(embeddings, backbone.compute_dtype),
            compile=compile,
            name=name,
            trainable=trainable,
        )

        # === Config ===
        self.pooling_mode = pooling_mode
        self.normalize = validation.boolean("normalize", normalize)

    def compile(
        self, optimizer: Any = "auto", loss: Any = None, *, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Configure training, as `keras_hub.models.TextEmbedder.compile`.

        A loss that takes probabilities gives a warning, because the model returns embeddings.

        Args:
            optimizer: As in `keras_hub.models.TextEmbedder.compile`. Defaults to `"auto"`.
            loss: As in `keras_hub.models.TextEmbedder.compile`. Defaults to `None`.
            metrics: As in `keras_hub.models.TextEmbedder.compile`. Defaults to `None`.
            **kwargs: Keyword arguments of `keras.Model.compile`.
        """
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)
        warn_if_loss_does_not_fit(self, "embeddings")

    def encode_documents(self, documents: str | list[str], **kwargs: Any) -> Tensor:
        """Return the embeddings of one text or of several texts, as `encode_text`.

        Args:
            documents: A string, or a list of strings.
            **kwargs: Keyword arguments of `predict`.
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

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update({"pooling_mode": self.pooling_mode, "normalize": self.normalize})
        return config
