"""The ONNX files of a folder of Hugging Face, with the names of inputs and outputs there."""

import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_diet.models.hub.onnx_file import write_onnx
from keras_diet.models.hub.token_rows import template_of

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


def write_programs(model: keras.Model, folder: Path, is_quantized: bool) -> None:
    """Write `onnx/model.onnx`, and `onnx/model_quantized.onnx` with kernels in int8.

    Raises:
        ImportError: If a package is missing.
    """
    if is_quantized and importlib.util.find_spec("onnxruntime") is None:
        raise ImportError('`onnx="int8"` needs onnxruntime. Run `pip install onnxruntime`.')
    names = ("input_ids", "attention_mask", *["token_type_ids"] * _reads_segments(model))
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


def _reads_segments(model):
    """Return whether segments change the outputs. Question answerers mask the question."""
    tokenizer = getattr(getattr(model, "preprocessor", None), "tokenizer", None)
    backbone = getattr(model, "backbone", model)
    numbers_segments = tokenizer is None or template_of(tokenizer).numbers_segments
    in_backbone = backbone.segment_encoding != "none" and backbone.num_segments > 1
    in_head = model.trained_head.kinds == ("ForQuestionAnswering",)
    return numbers_segments and (in_backbone or in_head)
