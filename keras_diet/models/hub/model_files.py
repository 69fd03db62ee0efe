"""The files of models: presets, and exports in the form that the backend can write."""

import contextlib
import importlib.util
import os
import warnings
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np

from keras_diet.models.hub.preprocessor import check_preprocessor_fits
from keras_diet.models.hub.presets import whole_preset

if TYPE_CHECKING:
    from keras_hub.models import Task as Model
else:
    # `keras.Model` after this class would come before the classes of KerasHub.
    Model = object


class ModelFiles(Model):
    """A mixin for backbones and tasks, which have one dictionary of inputs.

    A preset appears whole or not at all. `export` works with a path only.
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
        with warnings.catch_warnings():
            # A new task has a new optimizer, with which Keras compares the optimizer in the file.
            warnings.filterwarnings("ignore", "Skipping variable loading", UserWarning)
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

        Raises:
            ValueError: If onnxruntime is installed and cannot run the ONNX file. The file is then
                deleted.
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
            _add_operations_to_tf2onnx()
        super().export(
            filepath, format=format, verbose=verbose, input_signature=input_signature, **kwargs
        )
        if format == "onnx" and importlib.util.find_spec("onnxruntime"):
            _run_onnx(filepath)


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


def _run_onnx(path):
    """Run an exported file once, because some converters write invalid files without an error."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path)
        inputs = {}
        for each in session.get_inputs():
            shape = [size if isinstance(size, int) else 2 for size in each.shape]
            # A type is "tensor(int32)" or the like.
            inputs[each.name] = np.zeros(shape, each.type[7:-1])
        session.run(None, inputs)
    except Exception as error:
        for file in (path, f"{path}.data"):
            # A large model has its weights in a second file.
            with contextlib.suppress(FileNotFoundError):
                os.remove(file)
        raise ValueError(
            "The converter to ONNX has written a file that onnxruntime cannot run, so the file is "
            f"deleted: {error}\nExport a model in float32 without quantized layers, or another "
            "`format`. The page on deployment lists what works."
        ) from error


def _add_operations_to_tf2onnx():
    """Let tf2onnx 1.17 convert `Erfc` of the exact gelu (its pull request 2463), and `Log1p`."""
    from tf2onnx.handler import tf_op
    from tf2onnx.utils import map_onnx_to_numpy_type

    @tf_op(["Erfc", "Log1p"])
    class Operations:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            x = node.input[0]
            dtype = map_onnx_to_numpy_type(ctx.get_dtype(x))
            one = ctx.make_const(f"{node.name}_one", np.ones((), dtype)).output[0]
            if node.type == "Log1p":
                ctx.insert_new_node_on_input(node, "Add", [x, one])
                node.type = "Log"
            else:
                erf = ctx.insert_new_node_on_input(node, "Erf", x)
                ctx.replace_inputs(node, [one, erf.output[0]])
                node.type = "Sub"
