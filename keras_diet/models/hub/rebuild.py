"""A model like a trained one, but with some arguments of its backbone changed."""

import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras_hub.models import Task

from keras_diet._compat import flatten_layers


def rebuild(
    model: keras.Model,
    changes: dict[str, Any],
    left_out: Callable[[keras.Model], Iterable[keras.layers.Layer]] = lambda model: (),
) -> keras.Model:
    """Return a new model with the configuration of another, except for `changes`.

    The weights are new. The same layers are frozen. A task is compiled in the same way and gets a
    copy of the preprocessor.

    Args:
        model: A backbone, or a task.
        changes: Arguments of the backbone and their new values.
        left_out: `left_out(model)` returns layers that the other model does not have. The layers
            in them are left out, too. Defaults to no layers.

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
    if model is not backbone:
        rebuilt = _task_like(model, rebuilt)
    old_layers = _common_layers(model, left_out)
    for layer, old in zip(_common_layers(rebuilt, left_out), old_layers, strict=True):
        layer.trainable = old.trainable
    return rebuilt


def _common_layers(model, left_out):
    # The preprocessor gets layers at its first batch.
    others = [getattr(model, "preprocessor", None), *left_out(model)]
    parts = {id(part) for layer in others for part in flatten_layers(layer)}
    return [layer for layer in flatten_layers(model) if id(layer) not in parts]


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
