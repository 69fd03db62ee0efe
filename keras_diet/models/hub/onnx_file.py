"""ONNX files for any batch size and length. PyTorch's exporter writes them for every backend.

`tf2onnx` has no maintainer any more, and `jax2onnx` cannot compute with unknown lengths. So on
TensorFlow and JAX, a second process loads the model with PyTorch, and writes the file.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_diet._compat import flatten_layers
from keras_diet.models.hub.repairs import einsums_as_products, open_sizes_of_gathers


def outputs_of(model: keras.Model, inputs: Mapping[str, Any]) -> Any:
    """Return the outputs of a model."""
    return model(inputs, training=False)


def write_onnx(
    model: keras.Model,
    filepath: str,
    inputs: Mapping[str, tuple[Sequence[int | str], str]],
    opset_version: int | None = None,
    program: Callable[[keras.Model, Mapping[str, Any]], Any] = outputs_of,
) -> None:
    """Write a model as an ONNX file.

    Args:
        model: A model.
        filepath: The path of the file.
        inputs: The axes and the dtype of each input. The name of an axis leaves its size open.
        opset_version: int or `None`. Defaults to `None`, which means that of PyTorch.
        program: A function of a module, `program(model, inputs)`, which returns the outputs.
            Defaults to what the model returns.

    Raises:
        ImportError: If PyTorch, `onnx` or `onnxscript` is not installed.
        RuntimeError: If the model cannot be exported.
    """
    packages = ("torch", "onnx", "onnxscript")
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"ONNX files need {', '.join(missing)}. Run `pip install torch onnx onnxscript`. "
            "PyTorch writes the files of every backend."
        )
    if keras.config.backend() == "torch":
        _write(model, filepath, inputs, opset_version, program)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path, include_optimizer=False)
        modules = {type(layer).__module__ for layer in (model, *flatten_layers(model))}
        task = {
            "path": path,
            "modules": sorted(modules - {"__main__"}),
            "arguments": [filepath, inputs, opset_version],
            "program": [program.__module__, program.__name__],
        }
        environment = {**os.environ, "KERAS_BACKEND": "torch"}
        command = [sys.executable, "-m", "keras_diet.models.hub.onnx_file"]
        done = subprocess.run(
            command, input=json.dumps(task), env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(
            "PyTorch, which writes ONNX files, cannot load or export this model. Your own class "
            "must stand in a module that can be imported. The error of PyTorch's process:\n"
            + done.stderr[-3000:]
        )


def _write(model, filepath, inputs, opset_version, program):
    import torch

    class Flat(torch.nn.Module):
        """The program with a positional argument for each input, and a tuple of outputs."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *tensors):
            outputs = program(self.model, dict(zip(inputs, tensors, strict=True)))
            return tuple(keras.tree.flatten(outputs))

    examples, open_axes = {}, []
    for name, (axes, dtype) in inputs.items():
        examples[name] = torch.ones(example_sizes(axes), dtype=getattr(torch, dtype))
        open_axes.append({i: axis for i, axis in enumerate(axes) if isinstance(axis, str)})
    with torch.no_grad(), open_sizes_of_gathers(), einsums_as_products(), _quiet():
        outputs = program(model, examples)
        exported = torch.onnx.export(
            Flat().eval(),
            tuple(examples.values()),
            dynamo=True,
            dynamic_shapes={"tensors": tuple(open_axes)},
            input_names=list(inputs),
            # In the order of `keras.tree.flatten`.
            output_names=sorted(outputs) if isinstance(outputs, Mapping) else ["output"],
            opset_version=opset_version,
            verbose=False,
        )
    exported.save(filepath)


def example_sizes(axes: Sequence[int | str]) -> tuple[int, ...]:
    """Return sizes for an example from which PyTorch records a program for any sizes.

    It fixes sizes of 0 and 1, and sizes that it compares with those of other axes.
    """
    return tuple(size if isinstance(size, int) else 5 + 2 * i for i, size in enumerate(axes))


@contextlib.contextmanager
def _quiet():
    """Leave out the lines that PyTorch writes about itself."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def main() -> None:
    """Write the file that another process asks for, whose backend is not PyTorch."""
    task: dict[str, Any] = json.load(sys.stdin)
    for name in task["modules"]:
        importlib.import_module(name)
    module, name = task["program"]
    program = getattr(importlib.import_module(module), name)
    model = keras.saving.load_model(task["path"], compile=False)
    filepath, inputs, opset_version = task["arguments"]
    _write(model, filepath, inputs, opset_version, program)


if __name__ == "__main__":
    main()
