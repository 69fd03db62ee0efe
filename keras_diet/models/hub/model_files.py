"""The files of models: presets, and exports in the form that the backend can write."""

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any, Self

import keras

from keras_diet import validation
from keras_diet._compat import flatten_layers
from keras_diet.models.hub.onnx_file import example_sizes, write_onnx
from keras_diet.models.hub.preprocessor import check_preprocessor_fits
from keras_diet.models.hub.presets import (
    finish_replacing,
    is_hugging_face_folder,
    whole_preset,
)
from keras_diet.models.hub.repairs import open_sizes_of_gathers

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

        Raises:
            OSError: If the folder cannot be written. It then still has the old preset.

        Example:

        ```python
        classifier = keras_diet.models.DietBertTextClassifier.from_preset(
            "diet_bert_tiny_en", num_classes=2
        )
        classifier.save_to_preset("critic")
        ```
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

        Returns:
            A model of this class. The class of the preset may be another task with the same
            backbone. Then the head is new.

        Raises:
            ValueError: If the preset is unknown, or a folder of Hugging Face; if its backbone does
                not fit the class; or if a classifier gets neither `num_classes` nor `class_names`
                and the preset has no head.

        Example:

        ```python
        masked_lm = keras_diet.models.DietBertMaskedLM.from_preset("diet_bert_tiny_en")
        classifier = keras_diet.models.DietBertTextClassifier.from_preset(
            "diet_bert_tiny_en", class_names=["bad", "good"], dtype="mixed_bfloat16"
        )
        ```
        """
        finish_replacing(preset)
        if is_hugging_face_folder(preset):
            raise ValueError(
                "`preset` must be a preset of Keras. Received: a folder of Hugging Face, "
                f"preset={os.fspath(preset)!r}. Call `from_hugging_face` of `DietBertBackbone` or "
                "of its tasks."
            )
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

        The batch size and the length stay open, unless `input_signature` sets them. Inputs longer
        than `max_sequence_length` need an encoding without a table of positions. For an open
        length, JAX and PyTorch compute `attention_implementation="blockwise"` as `"full"`.

        PyTorch writes the ONNX files of all backends, because its exporter leaves all sizes open.
        So `format="onnx"` needs `pip install torch onnx onnxscript`.

        Args:
            filepath: The path of the file, or of the folder of a SavedModel.
            format: `"tf_saved_model"`, `"onnx"`, `"openvino"`, `"litert"` or `"torch"`. Defaults
                to `None`: `"torch"` on PyTorch, with `.pt2` added to the path if it is missing,
                and `"tf_saved_model"` on TensorFlow and JAX.
            verbose: bool or `None`. Whether to print what was exported. Defaults to `None`, which
                leaves it to the format.
            input_signature: Names, shapes and dtypes of the inputs, as in `keras.Model.export`. A
                size of `None` is open. Defaults to `None`, which leaves all sizes open.
            **kwargs: Keyword arguments of `keras.Model.export`. ONNX takes `opset_version`.

        Raises:
            ValueError: If the format is unknown, or not of this backend; if the path is a folder;
                if inputs have different batch sizes or lengths; if the format has no operations for
                quantized layers; or if LiteRT on PyTorch gets open sizes, which its converter
                cannot write.
            ImportError: If a package that writes the format is missing.

        Example:

        ```python
        classifier = keras_diet.models.DietBertTextClassifier.from_preset(
            "diet_bert_tiny_en", num_classes=2
        )
        classifier.export("classifier", verbose=False)  # a SavedModel, or `classifier.pt2`
        ```
        """
        backend, filepath = keras.config.backend(), os.fspath(filepath)
        if format is None:
            format = "torch" if backend == "torch" else "tf_saved_model"
            if format == "torch" and not filepath.endswith(".pt2"):
                filepath += ".pt2"
        validation.choice("format", format, _FORMATS[backend])
        if os.path.isdir(filepath):
            raise ValueError(
                "`filepath` must not be a folder that exists, because its files would mix with new "
                f"ones. Received: filepath={filepath!r}. Remove it, or choose another path."
            )
        _check_quantized_layers(self, format)
        specs = {
            name: keras.InputSpec(shape=(None, None), dtype=tensor.dtype, name=name)
            for name, tensor in self.input.items()
        }
        if input_signature is not None:
            specs = dict(input_signature[0])
        axes = _axes(specs)
        if format == "onnx":
            inputs = {
                name: (axes[name], keras.backend.standardize_dtype(spec.dtype))
                for name, spec in specs.items()
            }
            with _nothing_after_an_error(filepath):
                write_onnx(self, filepath, inputs, **kwargs)
            if verbose is not False:
                print(f"Saved artifact at '{filepath}'.")
            return
        if backend == "jax":
            # Keras would give each input its own length.
            shapes = {name: f"({', '.join(map(str, each))})" for name, each in axes.items()}
            kwargs.setdefault("jax2tf_kwargs", {"polymorphic_shapes": [shapes]})
        elif format == "torch":
            kwargs.setdefault("dynamic_shapes", _dynamic_shapes(axes))
            specs = {
                name: keras.InputSpec(shape=example_sizes(axes[name]), dtype=spec.dtype, name=name)
                for name, spec in specs.items()
            }
        elif backend == "torch" and any(None in spec.shape for spec in specs.values()):
            raise ValueError(
                f"On PyTorch, format={format!r} needs fixed sizes, because its converter takes no "
                "others. Pass them in `input_signature`, for example `[{name: keras.InputSpec("
                'shape=(1, 128), dtype="int32", name=name) for name in model.input}]`. Received: '
                f"input_signature={input_signature}"
            )
        repair = open_sizes_of_gathers() if backend == "torch" else contextlib.nullcontext()
        with repair, _nothing_after_an_error(filepath):
            super().export(
                filepath, format=format, verbose=verbose, input_signature=[specs], **kwargs
            )


# OpenVINO is as in Keras.
_FORMATS = {
    "tensorflow": ("tf_saved_model", "onnx", "openvino", "litert"),
    "jax": ("tf_saved_model", "onnx", "openvino"),
    "torch": ("torch", "onnx", "openvino", "litert"),
}
# The quantizations that a format has operations for. The others have those of all.
_QUANTIZED = {"onnx": ("int8", "float8"), "litert": ("int4",)}


def _check_quantized_layers(model, format):
    """Raise a `ValueError` if a format cannot compute the quantized layers of a model."""
    for layer in flatten_layers(model):
        mode, kind = layer.quantization_mode, "layers"
        is_known = mode is None or mode in _QUANTIZED.get(format, (mode,))
        if is_known and format == "onnx" and isinstance(layer, keras.layers.Embedding):
            is_known, kind = mode != "int8", "embeddings"
        if not is_known:
            raise ValueError(
                f"{format!r} has no operations for {kind} in {mode!r}. Received: {layer.path}. "
                'Leave them out, as `quantize("int8", filters="attention|feedforward|pooled")` '
                'does, or quantize the file, as `export_to_hugging_face(folder, onnx="int8")`.'
            )


@contextlib.contextmanager
def _nothing_after_an_error(filepath):
    """Remove what an exporter has written before an error, unless there was a file before."""
    is_new = not os.path.exists(filepath)
    try:
        yield
    except BaseException:
        if is_new and os.path.isdir(filepath):
            shutil.rmtree(filepath)
        elif is_new and os.path.exists(filepath):
            os.remove(filepath)
        raise


def _axes(specs):
    """Return the sizes of the axes of each input, or their names. Equal names are equal sizes."""
    axes, sizes = {}, {}
    for name, spec in specs.items():
        stream = name[:8] if name.startswith(("encoder_", "decoder_")) else ""
        names = ("batch", "num_masks" if name == "mask_positions" else f"{stream}length")
        for axis, size in zip(names, spec.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ValueError(
                    f"`input_signature` must have one size for the axis {axis!r}. Received: "
                    f"{sizes[axis]}, and {size} for {name!r}"
                )
        pairs = zip(names, spec.shape, strict=True)
        axes[name] = tuple(axis if size is None else size for axis, size in pairs)
    return axes


def _dynamic_shapes(axes):
    import torch

    open_size = torch.export.Dim.DYNAMIC
    shapes = {
        name: {i: open_size for i, size in enumerate(sizes) if isinstance(size, str)}
        for name, sizes in axes.items()
    }
    return [(shapes,)] if any(shapes.values()) else None
