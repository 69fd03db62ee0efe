"""The base class of backbones."""

import os
import weakref
from typing import Any, Self

import keras
from keras_hub.models import Backbone

from keras_diet.models.hub.checked_weights import CheckedWeights
from keras_diet.models.hub.data_methods import DataMethods
from keras_diet.models.hub.default_export import DefaultExport
from keras_diet.models.hub.file_errors import complete_preset, preset_address
from keras_diet.models.hub.lora import (
    check_enable_lora,
    enabled_layers,
    freeze_adapted_biases,
    read_lora_file,
)
from keras_diet.models.hub.preset_folder import new_preset
from keras_diet.models.hub.preset_metadata import write_library_metadata
from keras_diet.models.hub.quantized_policies import (
    dtype_to_load,
    give_layers_their_policies,
    policy_to_save,
)
from keras_diet.models.hub.quiet_quantization import quiet_quantization
from keras_diet.models.hub.token_inputs import check_token_inputs
from keras_diet.types import Config


class HubBackbone(CheckedWeights, DefaultExport, DataMethods, Backbone):
    """A `keras_hub.models.Backbone` with safer presets, LoRA and quantization.

    - `fit`, `evaluate` and `predict` check their data, as those of tasks do.
    - A preset is saved completely or not at all, and a damaged file raises an error that names it.
    - Mixed and quantized dtype policies are part of configurations and presets.
    - After `enable_lora` and `quantize`, the tasks of the backbone compile their steps again.

    A subclass builds its layers, passes the inputs and outputs of the functional model to
    `super().__init__`, and extends `get_config`.

    Args:
        *args: Arguments of `keras_hub.models.Backbone`.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        **kwargs: Keyword arguments of `keras_hub.models.Backbone`.
    """

    # `DataMethods` asks for it.
    preprocessor = None

    def __init__(self, *args: Any, trainable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(*args, trainable=trainable, **kwargs)
        give_layers_their_policies(self)
        if trainable is False:
            # On PyTorch the layers were not known before.
            self.trainable = False
        self._tasks: weakref.WeakSet[keras.Model] = weakref.WeakSet()

    def register_task(self, task: keras.Model) -> None:
        """Let a model compile its steps again whenever the backbone changes its layers."""
        self._tasks.add(task)

    def get_config(self) -> Config:
        """Return the constructor's arguments: `name`, `trainable` and `dtype`."""
        # KerasHub's own dtype would lose the policies of quantized layers.
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(policy_to_save(self)),
        }

    # === Inputs ===

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the inputs and call the model."""
        if self.token_inputs:
            check_token_inputs(inputs, self.token_inputs)
        return super().__call__(inputs, *args, **kwargs)

    # === Files ===

    def save_to_preset(
        self, preset_dir: str | os.PathLike[str], max_shard_size: float | None = 10
    ) -> None:
        """Save the backbone as a preset, as `keras_hub.models.Backbone.save_to_preset`.

        Args:
            preset_dir: The folder. A preset in it is replaced.
            max_shard_size: Largest size of a weights file in GB. Defaults to `10`.
        """
        with new_preset(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size=max_shard_size)
            write_library_metadata(folder, type(self))

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike[str], load_weights: bool = True, **kwargs: Any
    ) -> Self:
        """Load the backbone from a preset, as `keras_hub.models.Backbone.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            load_weights: bool. Whether to load the weights. Defaults to `True`.
            **kwargs: Arguments of the constructor to change. `dtype` defaults to the saved policy
                if that is mixed or quantized, and to Keras's global policy otherwise.

        Raises:
            ValueError: If files are missing or damaged, or if a quantized preset is loaded with
                another `dtype`.
        """
        preset = preset_address(preset)
        with complete_preset(preset):
            kwargs["dtype"] = dtype_to_load(preset, kwargs.get("dtype"))
            return super().from_preset(preset, load_weights=load_weights, **kwargs)

    # === LoRA ===

    def enable_lora(self, rank: int, target_layer_names: list[str] | None = None) -> None:
        """Freeze the backbone and train low-rank updates of some kernels instead (LoRA).

        Unlike `keras_hub.models.Backbone.enable_lora`, this also freezes the biases of these
        layers, because `save_lora_weights` does not write them. Tasks with this backbone compile
        their steps again. Call `compile` on a task that was trained before, for a new optimizer,
        and on other models that you built on the backbone.

        Args:
            rank: int. Rank of the updates.
            target_layer_names: list of str or `None`. Names of the layers with updates. Defaults
                to `None`, which means the `"query"` and `"value"` projections.

        Raises:
            ValueError: If `rank` is not a positive integer, if a name does not belong to a dense
                layer, or if LoRA is enabled already. The backbone is not changed in this case.

        Example:

        ```python
        backbone.enable_lora(rank=4)
        classifier.fit(x, y)
        backbone.save_lora_weights("task.lora.h5")
        ```

        References:
         - [Hu et al., 2021](https://arxiv.org/abs/2106.09685)
        """
        check_enable_lora(self, rank, target_layer_names)
        super().enable_lora(rank, target_layer_names)
        freeze_adapted_biases(self)
        self._forget_compiled_steps()

    def load_lora_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Load the adapters of a `.lora.h5`, as `keras_hub.models.Backbone.load_lora_weights`.

        If LoRA is not enabled yet, it is enabled for the layers in the file, with the rank in the
        file. KerasHub would enable the default layers and drop the adapters of other layers.

        Args:
            filepath: A file that `save_lora_weights` wrote.

        Raises:
            ValueError: If the file is damaged, or if its adapters have another rank, another size
                or other layers than the backbone.

        Example:

        ```python
        backbone.load_lora_weights("task.lora.h5")
        ```
        """
        rank, names = read_lora_file(self, filepath)
        if not enabled_layers(self):
            self.enable_lora(rank, names)
        super().load_lora_weights(filepath)

    # === Quantization ===

    def quantize(
        self, mode: str | None = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantize the backbone, as `keras.Model.quantize`.

        Tasks with this backbone compile their steps again. Call `compile` on a task that was
        trained before, for a new optimizer, and on other models that you built on the backbone.

        Args:
            mode: `"int8"`, `"int4"`, `"float8"`, ..., or `None` if `config` is given.
            config: A `keras.quantizers.QuantizationConfig`. Defaults to `None`, which means the
                default configuration of the mode.
            filters: Which layers are quantized, as in `keras.Model.quantize`. Defaults to `None`,
                which means all layers that can be quantized.
            **kwargs: Keyword arguments of `keras.Model.quantize`.

        Raises:
            ValueError: If the mode is unknown, if the model is quantized already, or if `filters`
                select no layer that can be quantized.
        """
        with quiet_quantization(self, filters):
            super().quantize(mode, config=config, filters=filters, **kwargs)
        self._forget_compiled_steps()

    def _forget_compiled_steps(self) -> None:
        for model in (self, *self._tasks):
            model.train_function = None
            model.test_function = None
            model.predict_function = None
            if hasattr(model, "generate_function"):
                model.generate_function = None
