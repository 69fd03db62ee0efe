"""The base class of tasks."""

import os
from typing import Any, Self

import keras

from keras_diet._compat import flatten_layers
from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.checked_weights import CheckedWeights
from keras_diet.models.hub.data_methods import DataMethods
from keras_diet.models.hub.default_export import DefaultExport
from keras_diet.models.hub.file_errors import complete_file, complete_preset, preset_address
from keras_diet.models.hub.lora import enabled_layers
from keras_diet.models.hub.preprocessor import (
    check_preprocessor_class,
    check_preprocessor_fits,
    check_preprocessor_is_no_function,
)
from keras_diet.models.hub.preset_folder import new_preset
from keras_diet.models.hub.quantized_policies import dtype_to_load
from keras_diet.models.hub.task_files import check_head_has_weights, check_head_is_described
from keras_diet.models.hub.token_inputs import TokenInput
from keras_diet.models.hub.weights_files import check_weights_file
from keras_diet.types import Config

# A key of serialized optimizers. Keras ignores it when it makes the optimizer.
_HAS_STATE = "has_state"


class HubTask(CheckedWeights, DefaultExport, DataMethods):
    """A mixin for a `keras_hub.models.Task` that checks its data and its files.

    Put it before KerasHub's class of the task: `class MyClassifier(HubTask, TextClassifier)`.

    - `fit`, `evaluate` and `predict` take all that `keras.Model.fit` takes. Inputs and labels that
      cannot be right raise a `ValueError`.
    - The preprocessor must fit the backbone.
    - Presets leave the optimizer out. KerasHub writes its state to `task.weights.h5`, which makes
      the file several times as large as the model.
    - A preset without the files of its head raises a `ValueError`. KerasHub uses a random head.

    A subclass may override `classes` to have labels checked. A task with more inputs than its
    backbone overrides `token_inputs`.

    Args:
        *args: Arguments of `keras_hub.models.Task`.
        **kwargs: Keyword arguments of `keras_hub.models.Task`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.backbone.register_task(self)
        check_preprocessor_fits(self.preprocessor, self.backbone)

    def __setattr__(self, name: str, value: Any) -> None:
        """Check the backbone before KerasHub's constructor builds a model on it."""
        # TensorFlow does not call the setter for `None`, because the property is `None` already.
        if name == "backbone" and not isinstance(value, self.backbone_cls):
            raise ValueError(
                f"`backbone` must be a `{self.backbone_cls.__name__}`. Received: "
                f"{type(value).__name__}. Build one, or load it with "
                f"`{self.backbone_cls.__name__}.from_preset`."
            )
        super().__setattr__(name, value)

    @property
    def backbone(self) -> HubBackbone:
        """The backbone."""
        return super().backbone

    @backbone.setter
    def backbone(self, backbone: HubBackbone) -> None:
        self._backbone = backbone

    @property
    def preprocessor(self) -> Any:
        """The preprocessor, or `None` if inputs are preprocessed already."""
        return super().preprocessor

    @preprocessor.setter
    def preprocessor(self, preprocessor: Any) -> None:
        check_preprocessor_class(preprocessor, self)
        self._preprocessor = preprocessor

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        if not self.trainable:
            # `True` would unfreeze the frozen layers of the backbone.
            config["trainable"] = False
        return config

    def compile_from_config(self, config: Config) -> None:
        """Compile the model as in a `.keras` file, and build the optimizer for its saved state."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        optimizer = config.get("optimizer")
        # Files of earlier versions do not say it.
        has_state = not isinstance(optimizer, dict) or optimizer.get(_HAS_STATE, True)
        if has_state and self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def get_compile_config(self) -> Config:
        """Return the arguments of `compile`, and whether the optimizer has a state to load."""
        config = super().get_compile_config()
        if not config or self.optimizer is None:
            return config
        optimizer = keras.saving.serialize_keras_object(self.optimizer)
        return {**config, "optimizer": {**optimizer, _HAS_STATE: self.optimizer.built}}

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

        A head is small, a preset may be loaded with a new head, and files of KerasHub do not say
        that a head is quantized.

        Args:
            mode: `"int8"`, `"int4"`, `"float8"`, ..., or `None` if `config` is given.
            config: A `keras.quantizers.QuantizationConfig`. Defaults to `None`, which means the
                default configuration of the mode.
            filters: Which layers of the backbone are quantized, as in `keras.Model.quantize`.
                Defaults to `None`, which means all layers that can be quantized.
            **kwargs: Keyword arguments of `keras.Model.quantize`.

        Raises:
            ValueError: If the mode is unknown, or if the model is quantized already.
        """
        self.backbone.quantize(mode, config=config, filters=filters, **kwargs)
        # PyTorch lists the weights of a model when the model is built.
        self.build(self.input_shape)

    # === Files ===

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike[str], load_weights: bool = True, **kwargs: Any
    ) -> Self:
        """Load the model from a preset, as `keras_hub.models.Task.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            load_weights: bool. Whether to load the weights. Defaults to `True`.
            **kwargs: Arguments of the constructor to change. `dtype` defaults to the saved policy
                if that is mixed or quantized, and to Keras's global policy otherwise.

        Raises:
            ValueError: If files are missing or damaged, including the files of the head, or if a
                quantized preset is loaded with another `dtype`.
        """
        takes_head = load_weights and "num_classes" not in kwargs
        preset = preset_address(preset)
        with complete_preset(preset):
            if takes_head:
                check_head_is_described(preset)
            if "backbone" not in kwargs:
                kwargs["dtype"] = dtype_to_load(preset, kwargs.get("dtype"))
            task = super().from_preset(preset, load_weights=load_weights, **kwargs)
        check_preprocessor_fits(task.preprocessor, task.backbone)
        if takes_head:
            check_head_has_weights(preset, task)
        return task

    def save(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save the model, as `keras.Model.save`.

        With LoRA, the file has no state of the optimizer. Keras saves the adapters as a part of the
        kernels, so the loaded model has no adapters to which the state would belong.
        """
        optimizer = getattr(self, "optimizer", None)
        if optimizer is None or not enabled_layers(self.backbone):
            super().save(filepath, *args, **kwargs)
            return
        self.optimizer = type(optimizer).from_config(optimizer.get_config())
        try:
            super().save(filepath, *args, **kwargs)
        finally:
            self.optimizer = optimizer

    def save_to_preset(
        self, preset_dir: str | os.PathLike[str], max_shard_size: float | None = 10
    ) -> None:
        """Save the task as a preset, as `keras_hub.models.Task.save_to_preset`.

        Args:
            preset_dir: The folder. A preset in it is replaced.
            max_shard_size: Largest size of a weights file in GB. Defaults to `10`.

        Raises:
            ValueError: If the preprocessor is a function.
        """
        check_preprocessor_is_no_function(self.preprocessor)
        with new_preset(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size=max_shard_size)

    def save_task_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Save the weights outside the backbone, without the state of the optimizer."""
        if not self.has_task_weights():
            # KerasHub raises its error.
            super().save_task_weights(filepath)
            return
        keras.saving.save_weights(self, filepath, objects_to_skip=self._not_in_the_head())

    def load_task_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Load the weights outside the backbone. The optimizer does not change.

        Raises:
            ValueError: If the file is damaged, or holds NaN or weights that this head does not
                build.
        """
        with complete_file(filepath):
            check_weights_file(self, filepath, objects_to_skip=self._not_in_the_head())
            keras.saving.load_weights(self, filepath, objects_to_skip=self._not_in_the_head())

    def _not_in_the_head(self) -> list[Any]:
        # A task that was not compiled has no such attribute.
        optimizer = getattr(self, "optimizer", None)
        return [*flatten_layers(self.backbone), *([] if optimizer is None else [optimizer])]
