"""The base class of backbones."""

import os
import weakref
from typing import Any, Self

import h5py
import keras
from keras_hub.models import Backbone

from keras_diet import validation
from keras_diet._compat import flatten_layers
from keras_diet.layers.configuration import freeze_layers, frozen_layers
from keras_diet.models.hub.data_methods import DataMethods
from keras_diet.models.hub.model_files import ModelFiles
from keras_diet.models.hub.quantization import (
    can_be_quantized,
    has_lora,
    quantize_layers,
    quantized_layers,
)
from keras_diet.models.hub.token_inputs import check_token_inputs
from keras_diet.types import Config


class HubBackbone(ModelFiles, DataMethods, Backbone):
    """A `keras_hub.models.Backbone` whose presets hold all that LoRA and quantization need.

    - `fit`, `evaluate` and `predict` check their data, as those of tasks do.
    - A preset appears whole or not at all.
    - Mixed precision and quantized layers are part of configurations and presets.

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
        if trainable is False:
            # On PyTorch the layers were not known before.
            self.trainable = False
        self._tasks: weakref.WeakSet[keras.Model] = weakref.WeakSet()

    def register_task(self, task: keras.Model) -> None:
        """Let a task compile its steps again whenever the backbone changes its layers."""
        self._tasks.add(task)

    def models(self) -> tuple[keras.Model, ...]:
        """Return all models with the weights of this backbone: itself and its tasks."""
        return (self, *self._tasks)

    def get_config(self) -> Config:
        """Return the arguments of `from_config`: those of the constructor, and how to quantize."""
        policy = self.dtype_policy
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(policy),
        }
        if policy.name.startswith("mixed_"):
            # Since keras-hub pull request 2367, KerasHub cannot load presets with a mixed policy in
            # `dtype`.
            config.update(dtype=None, mixed_precision=policy.name)
        if not has_lora(self) and (frozen := list(frozen_layers(self))):
            # LoRA freezes layers, and files hold its updates in the kernels.
            config["frozen_layers"] = frozen
        is_map = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
        if not is_map and (quantized := quantized_layers(self)):
            # KerasHub writes a map of policies, which `keras_hub.models.Backbone.from_preset`
            # does not read (keras-hub pull request 2367).
            config["quantized_layers"] = quantized
        return config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Build the backbone from its configuration, with its quantized and frozen layers."""
        config = dict(config)
        mixed_precision = config.pop("mixed_precision", None)
        quantized = config.pop("quantized_layers", {})
        frozen = config.pop("frozen_layers", ())
        if config.get("dtype") is None:
            config["dtype"] = mixed_precision
        backbone = super().from_config(config)
        quantize_layers(backbone, quantized)
        freeze_layers(backbone, frozen)
        return backbone

    # === Inputs ===

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the inputs and call the model."""
        if self.token_inputs:
            check_token_inputs(inputs, self.token_inputs)
        return super().__call__(inputs, *args, **kwargs)

    # === LoRA ===

    def enable_lora(self, rank: int, target_layer_names: list[str] | None = None) -> None:
        """Freeze the backbone and train low-rank updates of some kernels instead (LoRA).

        Unlike `keras_hub.models.Backbone.enable_lora`, this also freezes the biases of these
        layers, because `save_lora_weights` does not write them. Tasks with this backbone
        compile their steps again. Call `compile` on a task that was trained before, for a new
        optimizer, and on other models that you built on the backbone.

        Args:
            rank: int. Rank of the updates.
            target_layer_names: list of str or `None`. Names of the layers with updates. Defaults
                to `None`, which means the `"query"` and `"value"` projections.

        Raises:
            ValueError: If `rank` is not a positive integer, if a name does not belong to a dense
                layer, or if LoRA is enabled already.

        Example:

        ```python
        backbone.enable_lora(rank=4)
        classifier.fit(x, y)
        backbone.save_lora_weights("task.lora.h5")
        ```

        References:
         - [Hu et al., 2021](https://arxiv.org/abs/2106.09685)
        """
        validation.positive_int("rank", rank)
        layers = self._layers_with_weights()
        # KerasHub ignores other names (keras-hub issue 1821). It cannot save those of embeddings.
        dense = (keras.layers.Dense, keras.layers.EinsumDense)
        names = sorted({layer.name for layer in layers if isinstance(layer, dense)})
        for name in target_layer_names or []:
            validation.choice("target_layer_names", name, names)
        super().enable_lora(rank, target_layer_names)
        for layer in layers:
            # Trained biases would be missing in the file (keras-hub issue 2701).
            if getattr(layer, "lora_enabled", False) and layer.bias is not None:
                layer.bias.trainable = False
        self._forget_all_steps()

    def load_lora_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Load the adapters of a `.lora.h5`, as `keras_hub.models.Backbone.load_lora_weights`.

        If LoRA is not enabled yet, it is enabled for the layers in the file, with the rank in the
        file. KerasHub would enable the default layers and drop the adapters of other layers.

        Args:
            filepath: A file that `save_lora_weights` wrote.

        Raises:
            ValueError: If the file has adapters for other layers than the backbone.

        Example:

        ```python
        backbone.load_lora_weights("task.lora.h5")
        ```
        """
        layers = self._layers_with_weights()
        with h5py.File(filepath, "r") as file:
            rank = int(file["lora/vars/rank"][()])
            # KerasHub counts the layers with weights (keras-hub issue 2701).
            saved = sorted(int(name) for name in file["lora"] if name != "vars")
        if not has_lora(self):
            self.enable_lora(rank, sorted({layers[index].name for index in saved}))
        adapted = [i for i, layer in enumerate(layers) if getattr(layer, "lora_enabled", False)]
        if saved != adapted:
            raise ValueError(
                f"`{filepath}` was saved with adapters in other layers than the backbone has. "
                f"Received: layers {saved} in the file, {adapted} in the backbone."
            )
        super().load_lora_weights(filepath)

    def _layers_with_weights(self) -> list[keras.layers.Layer]:
        return [layer for layer in flatten_layers(self) if layer is not self and layer.weights]

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
            ValueError: If the mode is unknown, or if a layer is quantized already.
        """
        if filters is None:
            name = config.mode if mode is None and config is not None else mode

            def filters(layer: keras.layers.Layer) -> bool:
                return can_be_quantized(layer, name)

        super().quantize(mode, config=config, filters=filters, **kwargs)
        self._forget_all_steps()

    def _forget_all_steps(self):
        # They would still use the former weights (keras pull request 22413).
        for model in self.models():
            model.forget_steps()
