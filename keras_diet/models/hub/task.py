"""The base class of tasks."""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any, Self

import keras

from keras_diet.layers.configuration import (
    constructor_arguments,
    freeze_layers,
    frozen_layers,
    has_lora,
    with_arguments,
)
from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.data_methods import DataMethods
from keras_diet.models.hub.model_files import ModelFiles
from keras_diet.models.hub.model_inputs import TokenInput
from keras_diet.models.hub.preprocessor import check_preprocessor_fits
from keras_diet.types import Config, Tensor


class HubTask(ModelFiles, DataMethods):
    """A mixin for a `keras_hub.models.Task` that checks its data and its files.

    Put it before KerasHub's class of the task: `class MyClassifier(HubTask, TextClassifier)`.

    - `fit`, `evaluate` and `predict` take all that `keras.Model.fit` takes. Inputs and labels that
      cannot be right raise a `ValueError`.
    - The preprocessor must fit the backbone.
    - A preset appears whole or not at all.

    A subclass makes the layers of its head in `make_head`, and calls them in `outputs_of`. It may
    override `classes` to have labels checked. A task with more inputs than its backbone overrides
    `make_inputs` and `token_inputs`.

    Args:
        backbone: A backbone of this library.
        preprocessor: A preprocessor, or `None`. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
    """

    def __init__(
        self,
        backbone: HubBackbone,
        preprocessor: keras.layers.Layer | None = None,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        if not isinstance(backbone, HubBackbone):
            raise ValueError(
                "`backbone` must be a backbone of keras_diet. Received: "
                f"{type(backbone).__module__.partition('.')[0]}.{type(backbone).__name__}. Convert "
                "a trained BERT with `keras_diet.models.DietBertBackbone.from_bert`."
            )
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.make_head()

        # === Functional Model ===
        inputs = self.make_inputs()
        super().__init__(
            inputs=inputs,
            outputs=self.outputs_of(**inputs),
            compile=compile,
            name=name,
            trainable=trainable,
        )
        backbone.register_task(self)
        check_preprocessor_fits(self)

    def make_head(self) -> None:
        """Create the layers of the head, if any."""

    def make_inputs(self) -> dict[str, Any]:
        """Return the symbolic inputs, by default those of the backbone."""
        return self.backbone.input

    def outputs_of(self, **inputs: Tensor) -> Any:
        """Return the outputs for the inputs of the model."""
        raise NotImplementedError

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        if not self.trainable:
            # `True` would unfreeze the frozen layers of the backbone.
            config["trainable"] = False
        if not has_lora(self.backbone) and (frozen := list(frozen_layers(self))):
            config["frozen_layers"] = frozen
        names = constructor_arguments(type(self)).keys() - {"compile", "trainable"}
        return with_arguments(config, self, sorted(names))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Build the task from its configuration, with its frozen layers."""
        config = dict(config)
        frozen = config.pop("frozen_layers", ())
        task = super().from_config(config)
        freeze_layers(task, frozen)
        return task

    def rebuilt(self, changes: Config) -> Self:
        """Return a new task as `HubBackbone.rebuilt`, with a copy of the preprocessor.

        It is compiled in the same way.
        """
        backbone = keras.saving.serialize_keras_object(self.backbone.rebuilt(changes))
        config = {**self.get_config(), "backbone": backbone, "compile": False}
        copy = type(self).from_config(config)
        if hasattr(self.preprocessor, "tokenizer"):
            # Configurations do not hold the vocabulary. Only files are common to all tokenizers.
            with tempfile.TemporaryDirectory() as folder:
                self.preprocessor.tokenizer.save_assets(folder)
                copy.preprocessor.tokenizer.load_assets(folder)
        if self.compiled:
            copy.compile(**keras.saving.deserialize_keras_object(self.get_compile_config()))
        return copy

    def compile_from_config(self, config: Config) -> None:
        """Compile the model as in a `.keras` file, and build the optimizer for its saved state.

        Keras asks classes with a `compile` of their own for this method.
        """
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    # A preset has no state of an optimizer: a file of `save` has.

    def save_task_weights(self, filepath: str) -> None:
        """Save the weights of the head, as `keras_hub.models.Task.save_task_weights`."""
        with _without_optimizer(self):
            super().save_task_weights(filepath)

    def load_task_weights(self, filepath: str) -> None:
        """Load the weights of the head, as `keras_hub.models.Task.load_task_weights`."""
        with _without_optimizer(self):
            super().load_task_weights(filepath)

    # === Data ===

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds after preprocessing."""
        return self.backbone.token_inputs

    # === Quantization ===

    def quantize(
        self, mode: str | None = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantize the backbone, as `keras.Model.quantize`. The head is not quantized.

        A head is small, and a preset may be loaded with a new head.

        Args:
            mode: `"int8"`, `"int4"`, `"float8"`, ..., or `None` if `config` is given.
            config: A `keras.quantizers.QuantizationConfig`. Defaults to `None`, which means the
                default configuration of the mode.
            filters: Which layers of the backbone are quantized, as in `keras.Model.quantize`.
                Defaults to `None`, which means all layers that can be quantized.
            **kwargs: Keyword arguments of `keras.Model.quantize`.

        Raises:
            ValueError: If the mode is unknown, or if a layer is quantized already.

        Example:

        ```python
        classifier = keras_diet.models.DietBertTextClassifier.from_preset(
            "diet_bert_tiny_en", num_classes=2
        )
        classifier.quantize("int8")
        ```
        """
        self.backbone.quantize(mode, config=config, filters=filters, **kwargs)
        # PyTorch lists the weights of a model when the model is built.
        self.build(self.input_shape)


@contextlib.contextmanager
def _without_optimizer(task: keras.Model) -> Iterator[None]:
    optimizer, task.optimizer = task.optimizer if task.compiled else None, None
    try:
        yield
    finally:
        task.optimizer = optimizer
