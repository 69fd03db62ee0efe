"""Dtype policies of quantized models, in configurations and in presets.

KerasHub 0.32 writes the policies of quantized layers without the policy of the other layers, so a
model in mixed precision is loaded in another precision. `Backbone.from_preset` does not read them.
"""

import keras

from keras_diet import _compat
from keras_diet._compat import flatten_layers, replace_dtype_policy
from keras_diet.types import DType

_DEFAULT_CONFIGS = {
    "int8": keras.quantizers.Int8QuantizationConfig,
    "int4": keras.quantizers.Int4QuantizationConfig,
}


def policy_to_save(model: keras.Model) -> keras.DTypePolicy:
    """Return the dtype policy of a model, with the policies of its quantized layers.

    Raises:
        ValueError: If a layer has custom quantizers. A policy cannot describe them.
    """
    policy = model.dtype_policy
    layers = [layer for layer in flatten_layers(model) if layer.quantization_mode is not None]
    for layer in layers:
        _check_quantizers_are_defaults(layer)
    quantized = {layer.path: layer.dtype_policy for layer in layers}
    if not quantized:
        return policy
    others = {}
    if _is_map(policy):
        policy, others = policy.default_policy, dict(policy)
    return keras.dtype_policies.DTypePolicyMap(policy.name, {**others, **quantized})


def give_layers_their_policies(model: keras.Model) -> None:
    """Replace the map of policies that all layers of a model share by the policy of each layer.

    When Keras 3.15 saves a layer, it looks for a quantization mode in the map itself. When it
    quantizes a layer, it writes into the map.
    """
    for layer in flatten_layers(model):
        if layer is not model and _is_map(layer.dtype_policy):
            policies = layer.dtype_policy
            # A layer that is never built has no path.
            own = policies[layer.path] if layer.path else policies.default_policy
            replace_dtype_policy(layer, own)


def dtype_to_load(preset: str, dtype: DType) -> DType:
    """Return the dtype to load a preset with, if the user asked for `dtype`.

    Raises:
        ValueError: If the preset is quantized and `dtype` is a different policy.
    """
    saved = _policy_of_preset(preset)
    if _is_quantized(saved):
        if dtype is not None and not _are_equal(keras.dtype_policies.get(dtype), saved):
            raise ValueError(
                "The weights of this preset are quantized and cannot have another dtype: leave "
                "`dtype` out, or load the preset that was saved before `quantize`. "
                f"Received: dtype={dtype!r}"
            )
        return saved
    if dtype is None and saved is not None and saved.name.startswith("mixed_"):
        # KerasHub 0.32 passes the name on as a dtype, which fails.
        return saved.name
    return dtype


def _check_quantizers_are_defaults(layer: keras.layers.Layer) -> None:
    mode, config = layer.quantization_mode, layer.quantization_config
    if config is None or mode not in _DEFAULT_CONFIGS:
        return
    if _quantizers(config) != _quantizers(_DEFAULT_CONFIGS[mode]()):
        raise ValueError(
            "A saved model holds the modes of quantized layers, but only default quantizers. "
            "Export the model, or save it before `quantize(config=...)`. "
            f"Received: {layer.path} with {config.get_config()}"
        )


def _quantizers(config: keras.quantizers.QuantizationConfig) -> list[tuple]:
    quantizers = (config.weight_quantizer, config.activation_quantizer)
    return [(type(each), None if each is None else each.get_config()) for each in quantizers]


def _policy_of_preset(preset: str) -> keras.DTypePolicy | None:
    if not _compat.check_file_exists(preset, "config.json"):
        return None
    policy = _compat.load_json(preset, "config.json").get("config", {}).get("dtype")
    return None if policy is None else keras.dtype_policies.get(policy)


def _is_quantized(policy: keras.DTypePolicy | None) -> bool:
    """Return whether a policy, or any policy in a map, is quantized."""
    is_map = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
    policies = list(policy.values()) if is_map else [policy]
    return any(getattr(each, "quantization_mode", None) is not None for each in policies)


def _are_equal(policy: keras.DTypePolicy, other: keras.DTypePolicy) -> bool:
    # Keras compares only the default policies of maps.
    return keras.dtype_policies.serialize(policy) == keras.dtype_policies.serialize(other)


def _is_map(policy: keras.DTypePolicy | None) -> bool:
    return isinstance(policy, keras.dtype_policies.DTypePolicyMap)
