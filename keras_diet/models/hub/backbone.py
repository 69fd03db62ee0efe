"""The base class of backbones."""

import os
import weakref
from typing import Any, Self

import keras
from keras_hub.models import Backbone

from keras_diet import validation
from keras_diet._compat import flatten_layers
from keras_diet.layers.configuration import (
    deserialized,
    freeze_layers,
    frozen_layers,
    has_lora,
)
from keras_diet.models.hub import repairs
from keras_diet.models.hub.data_methods import DataMethods
from keras_diet.models.hub.model_files import ModelFiles
from keras_diet.models.hub.model_inputs import check_token_inputs
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
        config = {"name": self.name, "trainable": self.trainable, **repairs.policy_config(policy)}
        if not has_lora(self) and (frozen := list(frozen_layers(self))):
            # LoRA freezes layers, and files hold its updates in the kernels.
            config["frozen_layers"] = frozen
        is_map = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
        if not is_map and (quantized := repairs.quantized_layers(self)):
            config["quantized_layers"] = quantized
        return config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Build the backbone from its configuration, with its quantized and frozen layers."""
        config = repairs.with_policy(config)
        quantized = config.pop("quantized_layers", {})
        frozen = config.pop("frozen_layers", ())
        # It may hold a bias layer that the user made.
        backbone = super().from_config(deserialized(config))
        repairs.quantize_layers(backbone, quantized)
        freeze_layers(backbone, frozen)
        return backbone

    def rebuilt(self, changes: Config) -> Self:
        """Return a new model with the same configuration and frozen layers, except for `changes`.

        The weights are new.

        Args:
            changes: Arguments of the backbone and their new values.

        Raises:
            ValueError: If the model is quantized or has LoRA.
        """
        for layer in flatten_layers(self):
            if layer.quantization_mode or getattr(layer, "lora_enabled", False):
                raise ValueError(
                    f"Change a model before `quantize` and `enable_lora`. Received: {layer.path!r}"
                )
        return type(self).from_config({**self.get_config(), **changes})

    # === Inputs ===

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the inputs and call the model."""
        if self.token_inputs:
            check_token_inputs(inputs, self.token_inputs)
        return super().__call__(inputs, *args, **kwargs)

    # === Layout ===

    @staticmethod
    def get_layout_map(
        device_mesh: keras.distribution.DeviceMesh,
        model_parallel_dim_name: str = "model",
        data_parallel_dim_name: str = "batch",
    ) -> keras.distribution.LayoutMap:
        """Return how `keras.distribution.ModelParallel` splits the weights over devices.

        Attention projections are split by heads, and feed-forward layers by their inner axis. Each
        of the two then needs one sum over devices in a layer. Token embeddings are split by
        `hidden_dim`, because few vocabularies are divisible by the number of devices. Kernels that
        are split over the model axis are also split over the data axis, along `hidden_dim`, to save
        memory.

        All other weights are replicated. Positions and segments are small, an embedding that the
        heads share cannot be split by heads, and each device reads the part of its heads from its
        copy.

        `num_heads`, `hidden_dim` and `intermediate_dim` must be divisible by the number of devices
        along the model axis. `hidden_dim` must be divisible by the number of devices along the data
        axis. A batch that they do not divide is computed by each device.

        Args:
            device_mesh: A `keras.distribution.DeviceMesh` with both axes.
            model_parallel_dim_name: str. Axis of the mesh that splits a layer. Defaults to
                `"model"`.
            data_parallel_dim_name: str. Axis of the mesh that splits the batch. Defaults to
                `"batch"`.

        Returns:
            A `keras.distribution.LayoutMap` for backbones and tasks with any encoding.

        Example:

        ```python
        # On a machine with eight devices, use `keras.distribution.list_devices()`.
        devices = [f"cpu:{i}" for i in range(8)]
        mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), devices)
        layout_map = keras_diet.models.DietTransformerBackbone.get_layout_map(mesh)
        ```
        """
        model_axis, data_axis = model_parallel_dim_name, data_parallel_dim_name
        block = ".*transformer_layer_[0-9]+"
        attention, feedforward = f"{block}/(self|cross)_attention", f"{block}/feedforward"
        layouts = {
            # (vocabulary_size, hidden_dim)
            ".*token_embedding/embeddings": (None, model_axis),
            # (hidden_dim, num_heads, head_dim) and (num_heads, head_dim)
            f"{attention}/(query|key|value|position)/kernel": (data_axis, model_axis, None),
            f"{attention}/(query|key|value)/bias": (model_axis, None),
            # (num_heads, head_dim, hidden_dim)
            f"{attention}/attention_output/kernel": (model_axis, None, data_axis),
            # (hidden_dim, intermediate_dim) and (intermediate_dim,)
            f"{feedforward}_(intermediate|gate)_dense/kernel": (data_axis, model_axis),
            f"{feedforward}_(intermediate|gate)_dense/bias": (model_axis,),
            # (intermediate_dim, hidden_dim)
            f"{feedforward}_output_dense/kernel": (model_axis, data_axis),
            # (hidden_dim, hidden_dim) and (hidden_dim,), of BERT only
            ".*pooled_dense/kernel": (data_axis, model_axis),
            ".*pooled_dense/bias": (model_axis,),
        }
        layout_map = keras.distribution.LayoutMap(device_mesh)
        for path, axes in layouts.items():
            layout_map[path] = axes
        return layout_map

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
        # KerasHub ignores other names, and cannot save the adapters of embeddings.
        dense = (keras.layers.Dense, keras.layers.EinsumDense)
        names = sorted({layer.name for layer in flatten_layers(self) if isinstance(layer, dense)})
        for name in target_layer_names or []:
            validation.choice("target_layer_names", name, names)
        super().enable_lora(rank, target_layer_names)
        repairs.freeze_biases(self)
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
        repairs.enable_lora_of_file(self, filepath)
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
            ValueError: If the mode is unknown, or if a layer is quantized already.
        """
        super().quantize(mode, config=config, filters=filters, **kwargs)
        self._forget_all_steps()

    def _forget_all_steps(self):
        # They would still use the former weights.
        for model in self.models():
            model.forget_steps()
