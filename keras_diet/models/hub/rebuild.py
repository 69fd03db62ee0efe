"""A model like a trained one, with other arguments of its backbone or with cached positions."""

import tempfile
from typing import Any

import keras
from keras_hub.models import Task

from keras_diet._compat import flatten_layers
from keras_diet.layers.transformer.cached_positions import arguments_of_copy, copy_weights


def rebuild(model: keras.Model, changes: dict[str, Any]) -> keras.Model:
    """Return a new model with the configuration of another, except for `changes`.

    The weights are new. The same layers are frozen. A task is compiled in the same way and gets a
    copy of the preprocessor.

    Args:
        model: A backbone, or a task.
        changes: Arguments of the backbone and their new values.

    Raises:
        ValueError: If the model is quantized or has LoRA.
    """
    backbone = getattr(model, "backbone", model)
    for layer in flatten_layers(backbone):
        if layer.quantization_mode or getattr(layer, "lora_enabled", False):
            raise ValueError(
                f"Change a model before `quantize` and `enable_lora`. Received: {layer.path!r}"
            )
    rebuilt = type(backbone).from_config({**backbone.get_config(), **changes})
    return rebuilt if model is backbone else _task_like(model, rebuilt)


def _task_like(task: Task, backbone: keras.Model) -> Task:
    config = {**task.get_config(), "backbone": keras.saving.serialize_keras_object(backbone)}
    copy = type(task).from_config({**config, "compile": False})
    if hasattr(task.preprocessor, "tokenizer"):
        # Configurations do not hold the vocabulary, and only files are common to all tokenizers.
        with tempfile.TemporaryDirectory() as folder:
            task.preprocessor.tokenizer.save_assets(folder)
            copy.preprocessor.tokenizer.load_assets(folder)
    if task.compiled:
        copy.compile(**keras.saving.deserialize_keras_object(task.get_compile_config()))
    return copy


def rebuild_with_cached_positions(model: Any) -> Any:
    """Return a copy of a backbone or a task that holds positional scores."""
    backbone = getattr(model, "backbone", model)
    changes = arguments_of_copy(backbone.attention_implementation)
    copy = rebuild(model, changes)
    cached = getattr(copy, "backbone", copy).encoder.position_biases
    copy_weights(model, copy, backbone.encoder.position_biases, cached)
    return copy
