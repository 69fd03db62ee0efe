"""The files of models: presets, and exports in the form that the backend can write."""

import contextlib
import os
from typing import TYPE_CHECKING, Any, Self

import keras

from keras_diet.models.hub.preprocessor import check_preprocessor_fits
from keras_diet.models.hub.presets import finish_replacing, whole_preset
from keras_diet.models.hub.repairs import add_erfc_to_tf2onnx

if TYPE_CHECKING:
    from keras_hub.models import Task as Model
else:
    # `keras.Model` after this class would come before the classes of KerasHub.
    Model = object


class ModelFiles(Model):
    """A mixin for backbones and tasks, which have one dictionary of inputs.

    A preset appears whole or not at all, also if the process is killed. `export` works with a path
    only.
    """

    def save_to_preset(
        self, preset_dir: str | os.PathLike[str], max_shard_size: float | None = 10
    ) -> None:
        """Save the model as a preset, as `save_to_preset` of KerasHub.

        Args:
            preset_dir: The folder. A preset in it is replaced.
            max_shard_size: Largest size of a weights file in GB. Defaults to `10`.
        """
        with whole_preset(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size=max_shard_size)

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike[str], load_weights: bool = True, **kwargs: Any
    ) -> Self:
        """Load the model from a preset, as `from_preset` of KerasHub.

        A task that was saved without a preprocessor gets one if the preset has a tokenizer. To load
        it without, pass `preprocessor=None`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            load_weights: bool. Whether to load the weights. Defaults to `True`.
            **kwargs: Arguments of the constructor to change. `dtype` defaults to the saved policy
                if that is mixed, and to Keras's global policy otherwise. Quantized layers stay
                quantized. `trainable` holds for all layers.
        """
        finish_replacing(preset)
        model = super().from_preset(os.fspath(preset), load_weights=load_weights, **kwargs)
        if "trainable" in kwargs:
            # Files list the layers that differ from the saved flag, not from this one.
            model.trainable = kwargs["trainable"]
        preprocessor_cls = getattr(model, "preprocessor_cls", None)
        if preprocessor_cls and model.preprocessor is None and "preprocessor" not in kwargs:
            # A preset without a tokenizer lacks the file.
            with contextlib.suppress(FileNotFoundError):
                model.preprocessor = preprocessor_cls.from_preset(preset)
                check_preprocessor_fits(model)
        return model

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str | None = None,
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Export the model for inference, as `keras.Model.export`.

        By default, TensorFlow leaves the batch size and the length open, JAX the batch size, and
        PyTorch exports a program for one example. Where the length is not open, it is the length
        of the preprocessor. Without a preprocessor, it is `max_sequence_length`.

        Args:
            filepath: The path of the file, or of the folder of a SavedModel.
            format: `"tf_saved_model"`, `"onnx"`, `"openvino"`, `"litert"` or `"torch"`. Defaults
                to `None`: `"torch"` on PyTorch, with `.pt2` added to the path if it is missing,
                and `"tf_saved_model"` on TensorFlow and JAX.
            verbose: bool or `None`. Whether to print what was exported. Defaults to `None`, which
                leaves it to the format.
            input_signature: Names, shapes and dtypes of the inputs, as in `keras.Model.export`.
                Defaults to `None`, which means the sizes above.
            **kwargs: Keyword arguments of `keras.Model.export`.
        """
        is_torch = keras.config.backend() == "torch"
        filepath = os.fspath(filepath)
        if format is None:
            format = "torch" if is_torch else "tf_saved_model"
            if is_torch and not filepath.endswith(".pt2"):
                filepath += ".pt2"
        if input_signature is None:
            input_signature = [default_signature(self, keras.config.backend())]
        if format == "onnx" and keras.config.backend() == "tensorflow":
            add_erfc_to_tf2onnx()
        super().export(
            filepath, format=format, verbose=verbose, input_signature=input_signature, **kwargs
        )


def default_signature(model: keras.Model, backend: str) -> dict[str, keras.InputSpec]:
    """Return the inputs of a model with the sizes that a backend can export."""
    preprocessor = getattr(model, "preprocessor", None)
    longest = getattr(model, "backbone", model).max_sequence_length
    specs = {}
    for name, tensor in model.input.items():
        attribute = "mask_selection_length" if name == "mask_positions" else "sequence_length"
        length = getattr(preprocessor, attribute, None) or longest
        sizes = (1 if backend == "torch" else None, None if backend == "tensorflow" else length)
        specs[name] = keras.InputSpec(shape=sizes, dtype=tensor.dtype, name=name)
    return specs
