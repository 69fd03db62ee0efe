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
        """
        is_torch = keras.config.backend() == "torch"
        filepath = os.fspath(filepath)
        if format is None:
            format = "torch" if is_torch else "tf_saved_model"
            if is_torch and not filepath.endswith(_PROGRAM):
                filepath += _PROGRAM
        if input_signature is None:
            input_signature = [default_signature(self, keras.config.backend())]
        super().export(
            filepath, format=format, verbose=verbose, input_signature=input_signature, **kwargs
        )


def default_signature(model: keras.Model, backend: str) -> dict[str, keras.InputSpec]:
    """Return the inputs of a model with the sizes that a backend can export."""
    batch_size = 1 if backend == "torch" else None
    specs = {}
    for name, tensor in model.input.items():
        length = None if backend == "tensorflow" else _length(model, name)
        specs[name] = keras.InputSpec(shape=(batch_size, length), dtype=tensor.dtype, name=name)
    return specs


def _length(model: keras.Model, name: str) -> int:
    preprocessor = getattr(model, "preprocessor", None)
    length = getattr(preprocessor, _LENGTHS.get(name, "sequence_length"), None)
    return length or getattr(model, "backbone", model).max_sequence_length
