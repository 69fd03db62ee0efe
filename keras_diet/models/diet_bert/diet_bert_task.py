"""What the tasks of DietBert have in common, and their preprocessors."""

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import keras
from tokenizers import normalizers

from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone, with_cached_positions
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer
from keras_diet.models.diet_bert.hugging_face.architectures import ARCHITECTURES, type_of
from keras_diet.models.diet_bert.hugging_face.checkpoint import read_checkpoint
from keras_diet.models.diet_bert.hugging_face.heads import (
    QUESTION_ANSWERER,
    TEXT_EMBEDDER,
    Head,
    read_sentence_settings,
)
from keras_diet.models.diet_bert.hugging_face.tokenizer_files import has_tokenizer
from keras_diet.models.diet_bert.hugging_face.write import write_hugging_face
from keras_diet.models.diet_bert.hugging_face_tokenizer import HuggingFaceTokenizer
from keras_diet.models.hub.classifier_task import ClassifierTask
from keras_diet.models.hub.model_inputs import DocumentInputs
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.presets import is_hugging_face_folder
from keras_diet.models.hub.task import HubTask
from keras_diet.types import Config


class DietBertPreprocessor(HubPreprocessor):
    """A preprocessor of DietBert models."""

    backbone_cls = DietBertBackbone
    tokenizer_cls = DietBertTokenizer


class DietBertTask(DocumentInputs, HubTask):
    """A task with a `DietBertBackbone`."""

    backbone_cls = DietBertBackbone
    takes_documents = False
    # What it reads of a trained model.
    trained_head: ClassVar[Head]
    # The output of the backbone that the head reads.
    backbone_output = "sequence_output"
    export_to_hugging_face = write_hugging_face
    with_cached_positions = with_cached_positions

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the optimizer of KerasHub's tasks."""
        if "optimizer" in given:
            return given
        return {**given, "optimizer": keras.optimizers.Adam(5e-5)}

    # === Weights that are trained ===
    # A pooler that the head does not read has no gradient. Optimizers would warn, or on JAX apply
    # weight decay to it. It stays trainable, because another task may have the same backbone.

    @property
    def trainable_weights(self) -> list[Any]:
        """The weights that training changes."""
        return self._without_pooler(super().trainable_weights)

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that training changes."""
        return self._without_pooler(super().trainable_variables)

    @property
    def non_trainable_variables(self) -> list[Any]:
        """All other variables."""
        trainable = {id(variable) for variable in self.trainable_variables}
        return [variable for variable in self.variables if id(variable) not in trainable]

    @property
    def non_trainable_weights(self) -> list[Any]:
        """All other weights."""
        trainable = {id(weight) for weight in self.trainable_weights}
        return [weight for weight in self.weights if id(weight) not in trainable]

    def _without_pooler(self, variables):
        if self.backbone_output == "pooled_output":
            return variables
        unused = {id(weight) for weight in self.backbone.pooled_dense.weights}
        return [variable for variable in variables if id(variable) not in unused]

    @classmethod
    def from_bert(
        cls,
        bert: Any,
        position_encoding: str = "diet_abs",
        preprocessor: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build the task from the weights of a trained encoder, with any of DIET's encodings.

        It has the backbone of `DietBertBackbone.from_bert`. A checkpoint of Hugging Face may have
        more that the task takes:

        - the head, e.g. of a `BertForSequenceClassification`, unless you pass `num_classes`;
        - the names of the classes in `id2label`, without names such as `"LABEL_0"`, and whether a
          text may have several (`problem_type`);
        - the pooling and the normalization of a folder of sentence-transformers.

        Without them, the head is new.

        Args:
            bert: As in `DietBertBackbone.from_bert`.
            position_encoding: As in `DietBertBackbone.from_bert`. Defaults to `"diet_abs"`.
            preprocessor: As in the class. Its tokenizer knows the id of `[CLS]`. Defaults to
                `None`.
            **kwargs: Arguments of the class, such as `num_classes` or `pooling_mode`, which replace
                those of the checkpoint, and arguments of `DietBertBackbone.from_bert`.

        Returns:
            The task.

        Raises:
            ValueError: If nothing says how many classes there are; if the task has no such head,
                pooling or module; or as in `DietBertBackbone.from_bert` and in the class.

        Example:

        ```python
        bert = keras_hub.models.BertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
            max_sequence_length=16,
        )
        classifier = keras_diet.models.DietBertTextClassifier.from_bert(
            bert, class_names=["negative", "positive"]
        )
        ```

        References:
         - [Reimers and Gurevych, 2019](https://aclanthology.org/D19-1410/), sentence-transformers
        """
        tokenizer = getattr(preprocessor, "tokenizer", None)
        kwargs.setdefault("cls_token_id", getattr(tokenizer, "cls_token_id", None))
        kwargs["position_encoding"] = position_encoding
        return cls._from_trained(bert, preprocessor, cls.backbone_cls.from_bert, kwargs)

    @classmethod
    def from_hugging_face(
        cls,
        source: str | os.PathLike[str] | Any,
        preprocessor: keras.layers.Layer | str | None = "auto",
        **kwargs: Any,
    ) -> Self:
        """Build the task with the weights and the outputs of a trained model of Hugging Face.

        It has the backbone of `DietBertBackbone.from_hugging_face`. Heads, names of classes and
        poolings are read as in `from_bert`.

        Args:
            source: As in `DietBertBackbone.from_hugging_face`.
            preprocessor: As in the class. Defaults to `"auto"`: one with the tokenizer of a folder
                that has a `tokenizer.json`, the `vocab.txt` of a BERT or the `spm.model` of a
                DeBERTa, and `None` otherwise. Its `sequence_length` is the longest text of
                sentence-transformers, or `model_max_length` in `tokenizer_config.json`, or the
                longest sequence of the model. The windows of a question answerer are not longer
                than the default of their class. It has the `length_buckets` 8, 12, 16, 24, 32, 48,
                ...
            **kwargs: Arguments of the class, such as `num_classes` or `pooling_mode`, which replace
                those of the checkpoint, and arguments of `DietBertBackbone.from_hugging_face`.

        Returns:
            The task.

        Raises:
            ValueError: As in `from_bert`, and as in `DietBertBackbone.from_hugging_face`. With
                `"auto"`, if the tokenizer of a folder cannot be read: pass `None` then.
            ImportError: If `transformers` is not installed.

        Example:

        ```python
        config = transformers.BertConfig(
            vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64,
        )
        masked_lm = keras_diet.models.DietBertMaskedLM.from_hugging_face(
            transformers.BertForMaskedLM(config)
        )
        ```
        """
        return cls._from_trained(source, preprocessor, cls.backbone_cls.from_hugging_face, kwargs)

    @classmethod
    def _from_trained(
        cls,
        source: Any,
        preprocessor: Any,
        make_backbone: Callable[..., DietBertBackbone],
        arguments: Config,
    ) -> Any:
        """Return the task with a backbone and with what else a trained model has."""
        names = inspect.signature(make_backbone).parameters
        of_backbone = {name: arguments.pop(name) for name in list(arguments) if name in names}
        head, checkpoint = cls.trained_head, read_checkpoint(source)
        found: Config = {}
        is_new = arguments.get("num_classes") is not None
        has_head = checkpoint is not None and head.is_in(checkpoint) and not is_new
        uses_pooler = cls.backbone_output == "pooled_output"
        if checkpoint is not None and not is_new:
            architecture = ARCHITECTURES[type_of(checkpoint.config)]
            if has_head:
                argument = "`num_classes`" if issubclass(cls, ClassifierTask) else "the backbone"
                remedy = f"Pass {argument} to `{cls.__name__}` for a new head."
                head.check(architecture, f"the `{checkpoint.architecture}`", remedy)
            found = head.arguments(checkpoint, architecture, has_head)
            uses_pooler &= not has_head or "pooled_dense" not in architecture.heads[head.kinds[0]]
        with warnings.catch_warnings():
            if not uses_pooler:
                warnings.filterwarnings("ignore", ".*has no pooler", UserWarning)
            backbone = make_backbone(checkpoint or source, **of_backbone)
        if issubclass(cls, ClassifierTask):
            found["dropout"] = backbone.dropout
        if isinstance(preprocessor, str):
            preprocessor = cls._preprocessor_of(source, backbone.max_sequence_length)
        given = {name: value for name, value in arguments.items() if value is not None}
        task: Any = cls(backbone, preprocessor=preprocessor, **{**found, **given})
        # Then the user knows that a head is new.
        names_classes = bool(given.keys() & {"num_classes", "class_names"})
        if checkpoint is not None and has_head:
            head.assign(task, checkpoint, architecture)
        elif checkpoint is not None and head is not TEXT_EMBEDDER and not names_classes:
            warnings.warn(
                f"{checkpoint.source} has no head for this task. The head has new weights, so "
                "train it before you use it.",
                stacklevel=3,
            )
        return task

    @classmethod
    def _preprocessor_of(cls, source: Any, longest: int) -> Any:
        """Return a preprocessor with the tokenizer of a folder, or `None`.

        Its batches have the lengths 8, 12, 16, 24, 32, 48, ... Padding is at most a third then, and
        the number of programs that are compiled or recorded stays small.
        """
        if not (is_hugging_face_folder(source) and has_tokenizer(source)):
            return None
        tokenizer = HuggingFaceTokenizer.from_hugging_face(source)
        length, lowercase = read_sentence_settings(source, longest)
        preprocessor = cls.preprocessor_cls(tokenizer, sequence_length=length)
        if cls.trained_head is QUESTION_ANSWERER:
            # Windows of long texts are shorter than the longest text.
            default = cls.preprocessor_cls(tokenizer)
            preprocessor = min(preprocessor, default, key=lambda each: each.sequence_length)
        if lowercase:
            fast = tokenizer.fast_tokenizer()
            steps = (normalizers.Lowercase(), fast.normalizer)
            fast.normalizer = normalizers.Sequence([each for each in steps if each is not None])
        powers = (2**i for i in range(3, preprocessor.sequence_length.bit_length()))
        lengths = (length for power in powers for length in (power, power * 3 // 2))
        shorter = tuple(n for n in lengths if n < preprocessor.sequence_length)
        preprocessor.length_buckets = shorter or None
        return preprocessor
