"""A model like a trained one, with other arguments of its backbone."""

import keras

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

    The weights are new too. A preprocessor is a copy.
    """
    backbone = backbone_of(model)
    for layer in backbone.encoder._flatten_layers():
        if getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False):
            raise ValueError(
                "A quantized model and one with LoRA cannot be built anew: change it before "
                f"`quantize` and `enable_lora`. Received: {model.name!r}"
            )
    config = {**backbone.get_config(), **changes}
    if model is backbone:
        return type(backbone).from_config(config)
    serialized = keras.saving.serialize_keras_object(type(backbone).from_config(config))
    return type(model).from_config({**model.get_config(), "backbone": serialized})
