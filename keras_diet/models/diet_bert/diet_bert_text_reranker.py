"""Scores of pairs of a query and a text with a DietBert backbone."""

from typing import Any

import keras
import numpy as np
from keras import ops
from keras_hub.models import Task

from keras_diet import validation
from keras_diet.data.columns import host_column, number_of_rows, texts_of
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_text_classifier import DietBertTextTask
from keras_diet.models.diet_bert.hugging_face.heads import TEXT_RERANKER
from keras_diet.models.hub.labels import (
    Classes,
    checked_labels,
    checked_weights,
    is_kind_of,
    of_output,
    sparse_loss,
)
from keras_diet.models.hub.model_inputs import TextsOfExamples, rows_of_texts
from keras_diet.models.hub.task import HubTask
from keras_diet.types import Activation, Columns, Config


# It is no `TextClassifier`, because KerasHub would take it for the classifier of a preset.
@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextReranker(TextsOfExamples, DietBertTextTask, Task):
    """A DietBert backbone that scores how well a text answers a query (cross-encoder).

    It reads a query `q` and a text `t` together, and has one output:

        score(q, t) = activation(w . Dropout(pooled_output(q, t)) + b)

    `rank(query, texts)` returns the best texts. It orders the few texts that a
    `DietBertTextEmbedder` has found among many, because the model runs once for each pair.

    With a `preprocessor`, `fit`, `evaluate` and `predict` take pairs `(queries, texts)`. `queries`
    is a list of strings. `texts` has a string for each query, or a list of `k` strings for each
    query. Then the scores of a query are a row of the outputs, and losses may compare them:

    | training data | `texts` | `y` | loss |
    |---|---|---|---|
    | labels or scores in [0, 1] | strings | `(n,)` | `"auto"` |
    | any scores | strings | `(n,)` | `MeanSquaredError()` |
    | one right text among `k` | lists | `(n,)` | `SparseCategoricalCrossentropy(True)` |
    | scores of a teacher | lists | `(n, k)` | `keras_diet.training.MarginMeanSquaredError()` |

    `"auto"` is the binary cross-entropy. In the third row, `y` is the index of the right text.
    There are no default metrics, except the root mean squared error with the mean squared error.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertTextClassifierPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        activation: A Keras activation of the scores, such as `"sigmoid"`. Defaults to `None`, which
            means logits. The last two losses of the table take logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary. The arrays may have a second axis for the texts of a
            query: `(n, k, T)`.

    Returns:
        Scores of shape `(B, 1)`, or `(n, k)`.

    Raises:
        ValueError: If the preprocessor has more tokens than the backbone. `fit`, `evaluate` and
            `predict` raise it for an empty batch, if queries have different numbers of texts, for
            labels of another shape, for labels outside [0, 1] with the binary cross-entropy, and
            for a `class_weight` with lists of texts.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    reranker = keras_diet.models.DietBertTextReranker(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=12,
        ),
        keras_diet.models.DietBertTextClassifierPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=12
        ),
    )
    reranker.compile(
        keras.optimizers.AdamW(1e-4),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    queries, texts = ["fox", "quick"], [["the fox", "the quick"], ["the fox", "the quick"]]
    reranker.fit((queries, texts), [0, 1], verbose=0)
    reranker.rank("fox", ["the quick", "the foxes"], top_k=1)  # [{"index": ..., "score": ..., ...}]
    ```

    References:
     - [Nogueira and Cho, 2019](https://arxiv.org/abs/1901.04085)
     - [Reimers and Gurevych, 2019](https://aclanthology.org/D19-1410/): the package
       sentence-transformers has it as `CrossEncoder`
    """

    trained_head = TEXT_RERANKER

    @takes_arguments_of(HubTask)
    def __init__(
        self,
        backbone: DietBertBackbone,
        preprocessor: keras.layers.Layer | None = None,
        activation: Activation = None,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, 1, preprocessor, activation, dropout, **kwargs)

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the defaults of the task."""
        loss = keras.losses.BinaryCrossentropy(from_logits=self.output_kind != "probabilities")
        return super().compile_arguments({"loss": loss, **given})

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        scores = super().call(inputs, training, mask)
        # A query with several texts has a row of scores.
        return ops.squeeze(scores, -1) if len(scores.shape) == 3 else scores

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic scores."""
        spec = super().compute_output_spec(inputs, *args, **kwargs)
        return keras.KerasTensor(spec.shape[:2], spec.dtype)

    # === Data ===

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return queries and texts as columns. With lists of texts, `x` is `(n, 1 + k)`.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        if not (isinstance(x, tuple) and len(x) == 2):
            raise ValueError(
                "`x` must be a tuple (queries, texts) of two lists. Received: "
                f"{f'a tuple of {len(x)}' if isinstance(x, tuple) else type(x).__name__}"
            )
        if isinstance(x[1], tuple):
            raise ValueError(
                "`x[1]` must be a list with a text, or a list of texts, for each query. Received: "
                "a tuple. The default of PyTorch's `DataLoader` turns lists of texts around. Pass "
                "it `collate_fn`: a function of a list of examples that returns `(x, y)`."
            )
        lists = host_column(x[1])
        if isinstance(lists, (str, bytes)) or not len(lists) or isinstance(lists[0], (str, bytes)):
            return super().columns(x, y, sample_weight)
        queries = texts_of(x[0], "x[0]")
        texts = [texts_of(each, f"x[1][{row}]") for row, each in enumerate(lists)]
        sizes = sorted({len(each) for each in texts})
        if len(sizes) > 1 or sizes[0] < 2:
            raise ValueError(
                "Each query must have the same number of texts, at least 2. Received: from "
                f"{sizes[0]} to {sizes[-1]} texts in x[1]"
            )
        y, sample_weight = self.checked_targets(y, sample_weight, sizes[0])
        number_of_rows(queries=queries, texts=texts, y=y, sample_weight=sample_weight)
        pairs = [[query, *each] for query, each in zip(queries, texts, strict=True)]
        rows = np.array(pairs, dtype=object)
        super().columns(self.texts_of_rows(rows))
        return rows, y, sample_weight

    def texts_of_rows(self, rows: np.ndarray) -> Any:
        """Return the pairs of queries and texts, as a tuple of lists."""
        queries, texts = np.broadcast_arrays(rows[:, :1], rows[:, 1:])
        return tuple(column.reshape(-1).tolist() for column in (queries, texts))

    def checked_targets(
        self, y: Any, sample_weight: Any = None, num_texts: int | None = None
    ) -> tuple[Any, Any]:
        """Return labels and weights as numbers, after checking them.

        Args:
            y: Labels, or `None`.
            sample_weight: Weights, or `None`. Defaults to `None`.
            num_texts: int or `None`. The number of texts of each query, or `None` for pairs.
                Defaults to `None`.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        loss = of_output(self.loss, None) if self.compiled else None
        if num_texts is None:
            if y is not None and sparse_loss(loss)[0]:
                raise ValueError(
                    "`x[1]` must hold a list of texts for each query, because the loss takes the "
                    "index of the right one. Received: one text for each query. For labels in "
                    '[0, 1], compile with `loss="auto"`.'
                )
            return super().checked_targets(y, sample_weight)
        shape = (None, num_texts)
        if y is not None:
            y = checked_labels(y, Classes("number of texts", num_texts), loss, shape)
        if sample_weight is not None:
            sample_weight = checked_weights(sample_weight, shape)
        return y, sample_weight

    def class_weight_of(self, class_weight: Any, y: Any = None) -> dict[int, float] | None:
        """Return the weights of the labels 0 and 1 of pairs, as other tasks.

        Raises:
            ValueError: For lists of texts, and for datasets, which may hold them. Keras would weigh
                queries by the place of the right text.
        """
        is_of_pairs = y is not None and np.shape(host_column(y))[1:] in ((), (1,))
        is_binary = is_kind_of(self.loss, keras.losses.BinaryCrossentropy)
        if class_weight is not None and not (is_of_pairs and is_binary):
            raise ValueError(
                "`class_weight` needs the binary cross-entropy, and labels `y` in an array or a "
                f"list with one label for each pair. Received: class_weight={class_weight!r}. Pass "
                "`sample_weight`."
            )
        return super().class_weight_of(class_weight, y)

    def checked_ids(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return arrays of token ids, `(n, k, T)` for several texts of a query, and the labels.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        shape = x["token_ids"].shape
        if len(shape) != 3:
            return super().checked_ids(x, y, sample_weight)
        super().checked_ids(rows_of_texts(x))
        return x, *self.checked_targets(y, sample_weight, shape[1])

    def infer_batch(self, inputs: Any) -> Any:
        """Return the scores of a batch, as tensors. Texts of queries come as pairs.

        A compiled function of TensorFlow takes arrays of one rank.
        """
        first_tokens = inputs.get("document_first_tokens")
        if first_tokens is None:
            shape, rows = inputs["token_ids"].shape[:-1], rows_of_texts(inputs)
        else:
            shape = first_tokens.shape
            rows = {**inputs, "document_first_tokens": first_tokens.reshape(-1)}
        scores = super().infer_batch(rows)
        return ops.reshape(scores, shape) if len(shape) == 2 else scores

    # === Methods for texts ===

    def rank(
        self,
        query: str,
        texts: list[str],
        top_k: int | None = None,
        batch_size: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the texts with their scores, the best text first.

        Of texts with equal scores, the one with the smaller index is first.

        Args:
            query: str. The query.
            texts: list of strings. The texts.
            top_k: int or `None`. Number of texts that are returned. Defaults to `None`, which means
                all texts.
            batch_size: int or `None`. As in `predict`. Defaults to `None`.

        Returns:
            A list of dictionaries: `"index"` is the place of a text in `texts`, `"score"` is a
            float, and `"text"` is the text.

        Raises:
            ValueError: If `top_k` is not a positive integer, if `query` is not a string, or as in
                `predict`.

        Example:

        ```python
        best = reranker.rank("fox", ["the quick", "the foxes"], top_k=1)[0]
        best["index"], best["score"]
        ```
        """
        validation.optional_positive_int("top_k", top_k)
        if not isinstance(query, str):
            raise ValueError(f"`query` must be a string. Received: {query!r:.70}")
        texts = texts_of(texts, "texts")
        scores = self.predict_sorted(([query] * len(texts), texts), batch_size)[:, 0]
        return [
            {"index": int(i), "score": float(scores[i]), "text": texts[i]}
            for i in np.argsort(-scores, kind="stable")[:top_k]
        ]

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        return {
            name: value
            for name, value in config.items()
            if name not in ("num_classes", "class_names")
        }
