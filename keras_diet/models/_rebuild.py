"""A model like a trained one, with other arguments of its backbone."""

import keras

from keras_diet._keras import flatten_layers
from keras_diet.layers import SegmentBias
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone


def backbone_of(model):
    """Return the `DietBertBackbone` of a model: the model itself, or the one of a task."""
    backbone = getattr(model, "backbone", model)
    if not isinstance(backbone, DietBertBackbone):
        raise ValueError(
            "`model` must be a `keras_diet.models.DietBertBackbone` or a task with one. "
            f"Received: {type(model).__name__}"
        )
    return backbone


def rebuild(model, **changes):
    """Return a new model with the configuration of another, but for arguments of its backbone.

    The weights are new. What is frozen is frozen, a task is compiled as the other is, and its
    preprocessor is a copy.
    """
    backbone = backbone_of(model)
    _refuse_replaced_weights(model)
    rebuilt = type(backbone).from_config({**backbone.get_config(), **changes})
    if model is not backbone:
        rebuilt = _task_like(model, rebuilt)
    _freeze_as(model, rebuilt)
    return rebuilt


def _refuse_replaced_weights(model):
    for layer in flatten_layers(model):
        if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
            raise ValueError(
                "A quantized model and one with LoRA cannot be built anew: change it before "
                f"`quantize` and `enable_lora`. Received: {model.name!r}"
            )


def _task_like(task, backbone):
    config = {**task.get_config(), "backbone": keras.saving.serialize_keras_object(backbone)}
    copy = type(task).from_config({**config, "compile": False})
    if task.preprocessor is not None:
        # Configurations have no vocabulary.
        vocabulary = task.preprocessor.tokenizer.get_vocabulary()
        copy.preprocessor.tokenizer.set_vocabulary(vocabulary)
    if task.compiled:
        copy.compile(**_compile_arguments(task))
    return copy


def _compile_arguments(task):
    try:
        return keras.saving.deserialize_keras_object(task.get_compile_config())
    except (TypeError, ValueError) as error:
        raise ValueError(
            "What a task is compiled with must be Keras's own, or registered by "
            "`keras.saving.register_keras_serializable`. Otherwise make the task with "
            f"`compile=False`, and compile what is returned. Received: {task.name!r}, {error}"
        ) from error


def _freeze_as(model, rebuilt):
    old, new = flatten_layers(model), flatten_layers(rebuilt)
    if len(new) > len(old):
        new = [layer for layer in new if not isinstance(layer, SegmentBias)]
    for layer, like in zip(new, old, strict=True):
        layer.trainable = like.trainable
