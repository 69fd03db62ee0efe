"""Which layers of a model are quantized, in its configuration and in presets.

KerasHub 0.32 writes this without the policy of the other layers, so that a model in mixed precision
comes back in another one, and `Backbone.from_preset` does not read it at all.
"""

import keras

from keras_diet import _keras_hub
from keras_diet._keras import flatten_layers, replace_dtype_policy

_WITH_QUANTIZERS = {
    "int8": keras.quantizers.Int8QuantizationConfig,
    "int4": keras.quantizers.Int4QuantizationConfig,
}


def policy_to_save(model):
    """Return the dtype policy of a model, with that of each quantized layer if there are any.

    Raises:
        ValueError: If a layer has quantizers of its own, which a policy does not tell.
    """
    policy = model.dtype_policy
    layers = [layer for layer in flatten_layers(model) if layer.quantization_mode is not None]
    for layer in layers:
        _check_quantizers_are_of_mode(layer)
    quantized = {layer.path: layer.dtype_policy for layer in layers}
    if not quantized:
        return policy
    others = {}
    if _is_map(policy):
        policy, others = policy.default_policy, dict(policy)
    return keras.dtype_policies.DTypePolicyMap(policy.name, {**others, **quantized})


def give_layers_their_policies(model):
    """Replace the map of policies, which all layers of a quantized model have, by that of each.

    Layers of Keras 3.15 look for their mode in the map itself when they are saved, and a layer that
    is quantized later writes into the map of all.
    """
    for layer in flatten_layers(model):
        if layer is not model and _is_map(layer.dtype_policy):
            policies = layer.dtype_policy
            # Layers that are never built have no path.
            own = policies[layer.path] if layer.path else policies.default_policy
            replace_dtype_policy(layer, own)


def dtype_to_load(preset, dtype):
    """Return the dtype that a preset is loaded with, if it is asked for as `dtype`.

    Raises:
        ValueError: If the preset is quantized, and `dtype` is another one.
    """
    saved = _policy_of_preset(preset)
    if _is_quantized(saved):
        if dtype is not None and not _are_equal(keras.dtype_policies.get(dtype), saved):
            raise ValueError(
                "The weights of this preset are quantized, and have no other dtype: leave `dtype` "
                "out, or load the preset that was saved before `quantize`. "
                f"Received: dtype={dtype!r}"
            )
        return saved
    if dtype is None and saved is not None and saved.name.startswith("mixed_"):
        # KerasHub 0.32 takes it for a dtype and refuses it.
        return saved.name
    return dtype


def _check_quantizers_are_of_mode(layer):
    mode, config = layer.quantization_mode, layer.quantization_config
    if config is None or mode not in _WITH_QUANTIZERS:
        return
    if _quantizers(config) != _quantizers(_WITH_QUANTIZERS[mode]()):
        raise ValueError(
            "Configurations and files have the mode of a quantized layer, but no quantizers: the "
            "model would come back with those of the mode. Export it, or save it before "
            f"`quantize(config=...)`. Received: {layer.path} with {config.get_config()}"
        )


def _quantizers(config):
    quantizers = (config.weight_quantizer, config.activation_quantizer)
    return [(type(each), None if each is None else each.get_config()) for each in quantizers]


def _policy_of_preset(preset):
    if not _keras_hub.check_file_exists(preset, "config.json"):
        return None
    policy = _keras_hub.load_json(preset, "config.json").get("config", {}).get("dtype")
    return None if policy is None else keras.dtype_policies.get(policy)


def _is_quantized(policy):
    """Whether a policy, or that of any layer in a map of policies, is quantized."""
    policies = policy.values() if _is_map(policy) else [policy]
    return any(getattr(each, "quantization_mode", None) is not None for each in policies)


def _are_equal(policy, other):
    # Keras compares maps by their default policies.
    return keras.dtype_policies.serialize(policy) == keras.dtype_policies.serialize(other)


def _is_map(policy):
    return isinstance(policy, keras.dtype_policies.DTypePolicyMap)
