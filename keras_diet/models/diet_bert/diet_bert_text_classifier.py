"""Classification and regression of texts and pairs of texts with a DietBert backbone."""

from typing import Any

import keras
from keras_hub.models import TextClassifier, TextClassifierPreprocessor

from keras_diet import validation
from keras_diet.data.columns import is_one_text
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import TEXT_CLASSIFIER
from keras_diet.models.hub.classifier_task import ClassifierTask
from keras_diet.models.hub.labels import default_accuracy, is_kind_of
from keras_diet.models.hub.model_inputs import gather_tokens
from keras_diet.models.hub.preprocessor import PackingPreprocessor
from keras_diet.types import Activation, Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifierPreprocessor(
    PackingPreprocessor, DietBertPreprocessor, TextClassifierPreprocessor
):
    """Tokenize and pack raw texts, or pairs of texts, for classification.

    This is `keras_hub.models.BertTextClassifierPreprocessor` for DietBert models. The input
    is `[CLS]`, then the tokens of each text followed by `[SEP]`, then padding. Unlike in KerasHub,
    a tuple of texts is always a pair.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`, `DietBertSentencePieceTokenizer` or
            `HuggingFaceTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
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
    preprocessor = keras_diet.models.DietBertTextClassifierPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
    )
    x = preprocessor((["the quick fox", "the foxes"], ["the fox", "the quick"]))
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """


class DietBertTextTask(ClassifierTask, DietBertTask):
    """A DietBert backbone with a head that reads the pooled output of a text or a pair of texts."""

    preprocessor_cls = DietBertTextClassifierPreprocessor

    def outputs_of(self, document_first_tokens: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Return the outputs for each sequence, or for each document."""
        if document_first_tokens is None:
            return super().outputs_of(**inputs)
        hidden_states = self.backbone(inputs)["sequence_output"]
        pooled = self.backbone.pooled_dense(gather_tokens(hidden_states, document_first_tokens))
        return self.output_dense(self.output_dropout(pooled))

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the defaults of the task."""
        from_logits = self.output_kind != "probabilities"
        loss: Any = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
        if self.num_classes == 1:
            loss = keras.losses.MeanSquaredError()
        elif self.multi_label:
            loss = keras.losses.BinaryCrossentropy(from_logits=from_logits)
        loss = given.get("loss", loss)
        metrics: list[keras.metrics.Metric] = [default_accuracy(loss)]
        if self.num_classes == 1:
            is_squared = is_kind_of(loss, keras.losses.MeanSquaredError)
            metrics = [keras.metrics.RootMeanSquaredError()] * is_squared
        elif self.multi_label:
            # A probability of 0.5 is a logit of 0.
            threshold = 0.0 if self.output_kind == "logits" else 0.5
            metrics = [keras.metrics.BinaryAccuracy(threshold=threshold)]
        return super().compile_arguments({"loss": loss, "metrics": metrics, **given})


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifier(DietBertTextTask, TextClassifier):
    """A DietBert backbone with a head that classifies a text or a pair of texts.

    Its conventions are the same as in `keras_hub.models.BertTextClassifier`:

        logits = W Dropout(pooled_output) + b

    With a `preprocessor`, `fit`, `evaluate` and `predict` take raw strings, and tuples `(a, b)`
    of them for pairs. With `num_classes=1` the model is a regression, such as the similarity of two
    sentences. Labels are then numbers, and the default loss is the mean squared error.

    With `class_names`, labels may be names. `classify(texts)` returns names and probabilities.

    With `multi_label`, a text may have several classes, or none. The probability of a class is
    `sigmoid(logit)`, which does not depend on the other classes. Labels are arrays of 0 and 1 of
    shape `(B, num_classes)`, or a list of names for each text.

    The default loss is the cross-entropy of integer labels, the binary cross-entropy of each class
    in multi-label classification, and the mean squared error with one class. The default metric is
    the accuracy. In multi-label classification, this is the fraction of classes on the right side
    of probability 0.5. With one class, it is the root mean squared error if the loss is the mean
    squared error, and there is none otherwise.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        num_classes: int or `None`. Number of classes; `1` for regression. Defaults to `None`, which
            means one class for each of the `class_names`.
        preprocessor: A `keras_diet.models.DietBertTextClassifierPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        activation: A Keras activation of the outputs, such as `"softmax"`. Defaults to `None`,
            which means logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        class_names: list of strings or `None`. The name of each class, in the order of the outputs.
            Defaults to `None`, which means that labels are numbers.
        multi_label: bool. Whether a text may have several classes. Defaults to `False`.

    Call arguments:
        inputs: The backbone's dictionary.

    Returns:
        Logits of shape `(B, num_classes)`, after the `activation`.

    Raises:
        ValueError: If `num_classes` is not a positive integer, or if `class_names` are not
            different, nonempty strings, one for each class. If `multi_label` is used with one class
            or with an `activation` other than `"sigmoid"`. If the preprocessor has more tokens
            than the backbone. `fit`, `evaluate` and `predict` raise it for an
            empty batch, for more texts than segments, and for labels that are text but none of the
            names. Under a sparse loss, they raise it for other labels that are not integers in
            `[0, num_classes)`. With `multi_label`, they raise it for labels of another shape or
            outside `[0, 1]`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    classifier = keras_diet.models.DietBertTextClassifier(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        class_names=["same", "similar", "different"],
        preprocessor=keras_diet.models.DietBertTextClassifierPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
        ),
    )
    first, second = ["the quick fox", "the foxes"], ["the fox", "the quick"]
    classifier.fit((first, second), ["different", "same"], batch_size=2, verbose=0)
    logits = classifier.predict((first, second), verbose=0)
    classifier.classify(("the fox", "the foxes"), top_k=1)  # [{"label": ..., "probability": ...}]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    trained_head = TEXT_CLASSIFIER

    # Keras takes a class with `*args` and `**kwargs` for a functional model.
    def __init__(
        self,
        backbone: DietBertBackbone,
        num_classes: int | None = None,
        preprocessor: keras.layers.Layer | None = None,
        activation: Activation = None,
        *,
        multi_label: bool = False,
        **kwargs: Any,
    ) -> None:
        self.multi_label = multi_label
        super().__init__(backbone, num_classes, preprocessor, activation, **kwargs)

    def classify(
        self,
        texts: Any,
        top_k: int | None = None,
        threshold: float | None = None,
        batch_size: int | None = None,
    ) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """Return the classes of each text with their probabilities, the most probable class first.

        Args:
            texts: A string, a list of strings, or anything else that `predict` takes. A pair of
                texts is a tuple `(a, b)`, where `a` and `b` are two strings or two lists.
            top_k: int or `None`. Number of classes for each text. Defaults to `None`, which means
                all classes.
            threshold: float or `None`. Only classes with at least this probability are returned,
                for example those above 0.5 of a multi-label classifier. Defaults to `None`, which
                means all classes.
            batch_size: int or `None`. As in `predict`. Defaults to `None`.

        The probabilities of a text add up to 1. In multi-label classification, each class has its
        own probability, so their sum may be anything between 0 and the number of classes.

        Returns:
            For one text, a list of dictionaries: `"label"` is a name of `class_names`, or the index
            of the class without names, and `"probability"` is a float. For several texts, a list
            with such a list for each text.

        Raises:
            ValueError: If the model is a regression, or has an activation that does not return
                probabilities; if `top_k` is not a positive integer, or
                `threshold` not in `[0, 1]`; or as in `predict`.

        Example:

        ```python
        best = classifier.classify("the quick fox", top_k=1)[0]
        best["label"], best["probability"]
        ```
        """
        if self.num_classes == 1:
            raise ValueError(
                "`classify` needs at least two classes. Received: num_classes=1. `predict` returns "
                "the number of each text."
            )
        validation.optional_positive_int("top_k", top_k)
        threshold = 0.0 if threshold is None else validation.rate("threshold", threshold)
        to_probabilities = self.probability_function("classify")
        outputs = self.predict(texts, batch_size=batch_size, verbose=0)
        results = [
            [each for each in self.best_classes(row, top_k) if each["probability"] >= threshold]
            for row in to_probabilities(outputs)
        ]
        return results[0] if is_one_text(texts) else results
