"""What `export` writes if it gets a path only: a format and sizes that the backend can export."""

import os
from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from keras import Model
else:
    # `keras.Model` after this class would come before the classes of KerasHub.
    Model = object

# KerasHub's names for the lengths that preprocessors give to inputs. Other inputs have tokens.
_LENGTHS = {"mask_positions": "mask_selection_length"}
_PROGRAM = ".pt2"


class DefaultExport(Model):
    """A mixin for models with one dictionary of inputs, whose `export` works with a path only."""

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
            ValueError: If the backend cannot export the format.
        """
        backend = keras.config.backend()
        filepath = os.fspath(filepath)
        if format == "tf_saved_model" and backend == "torch":
            raise ValueError(
                "PyTorch cannot export these models as SavedModels. Received: "
                "format='tf_saved_model'. Leave `format` out for a program of `torch.export`, or "
                "pass 'onnx'. For a SavedModel, load the preset with TensorFlow or JAX, and export "
                "it there."
            )
        if format is None:
            format = "torch" if backend == "torch" else "tf_saved_model"
            if backend == "torch" and not filepath.endswith(_PROGRAM):
                filepath += _PROGRAM
        if input_signature is None:
            input_signature = _signature(self, backend)
        super().export(
            filepath, format=format, verbose=verbose, input_signature=input_signature, **kwargs
        )


def _signature(model: keras.Model, backend: str) -> list[dict[str, keras.InputSpec]]:
    batch_size = 1 if backend == "torch" else None
    specs = {}
    for name, tensor in model.input.items():
        length = None if backend == "tensorflow" else _length(model, name)
        specs[name] = keras.InputSpec(shape=(batch_size, length), dtype=tensor.dtype, name=name)
    return [specs]


def _length(model: keras.Model, name: str) -> int:
    preprocessor = getattr(model, "preprocessor", None)
    length = getattr(preprocessor, _LENGTHS.get(name, "sequence_length"), None)
    return length or getattr(model, "backbone", model).max_sequence_length
