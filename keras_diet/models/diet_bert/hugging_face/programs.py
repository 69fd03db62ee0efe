"""The ONNX files of a folder of Hugging Face, with the names of inputs and outputs there."""

import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_diet.models.hub.onnx_file import write_onnx

# The names under which clients look for the files.
PROGRAM, QUANTIZED_PROGRAM = "onnx/model.onnx", "onnx/model_quantized.onnx"


def outputs_by_name(model: keras.Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a model for inputs, both with the names of `transformers`."""
    token_ids = keras.ops.cast(inputs["input_ids"], "int32")
    segments = inputs.get("token_type_ids")
    zeros = keras.ops.zeros_like(token_ids)
    of_model = {
        "token_ids": token_ids,
        "segment_ids": zeros if segments is None else keras.ops.cast(segments, "int32"),
        "padding_mask": keras.ops.cast(inputs["attention_mask"], "int32"),
    }
    outputs = model.trained_head.outputs(model, of_model)
    # Half precision is for computing. Clients expect float32.
    return {name: keras.ops.cast(tensor, "float32") for name, tensor in outputs.items()}


def write_programs(
    model: keras.Model, folder: Path, has_segments: bool, is_quantized: bool
) -> None:
    """Write `onnx/model.onnx`, and `onnx/model_quantized.onnx` with kernels in int8.

    Args:
        model: A backbone or a task.
        folder: The folder.
        has_segments: bool. Whether segments are an input.
        is_quantized: bool. Whether to write the second file.

    Raises:
        ImportError: If a package is missing.
    """
    if is_quantized and importlib.util.find_spec("onnxruntime") is None:
        raise ImportError('`onnx="int8"` needs onnxruntime. Run `pip install onnxruntime`.')
    names = ("input_ids", "attention_mask", *["token_type_ids"] * has_segments)
    inputs = dict.fromkeys(names, (("batch", "length"), "int64"))
    (folder / PROGRAM).parent.mkdir()
    write_onnx(model, os.fspath(folder / PROGRAM), inputs, program=outputs_by_name)
    if is_quantized:
        from onnxruntime.quantization import quant_pre_process, quantize_dynamic

        with tempfile.TemporaryDirectory() as temporary:
            # Kernels must be constants, and not other views of them.
            optimized = Path(temporary, "model.onnx")
            quant_pre_process(folder / PROGRAM, optimized, skip_symbolic_shape=True)
            quantize_dynamic(optimized, folder / QUANTIZED_PROGRAM)
