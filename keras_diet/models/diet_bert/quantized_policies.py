"""Which layers of a model are quantized, in its configuration and in presets.

KerasHub 0.32 writes this without the policy of the other layers, so that a model in mixed precision
comes back in another one, and `Backbone.from_preset` does not read it at all.
"""

import keras

from keras_diet import _keras_hub
from keras_diet._keras import flatten_layers, replace_dtype_policy


def policy_to_save(model):
    """Return the dtype policy of a model, with that of each quantized layer if there are any."""
    policy = model.dtype_policy
    quantized = {
        layer.path: layer.dtype_policy
        for layer in flatten_layers(model)
        if layer.quantization_mode is not None
    }
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


def policy_of_preset(preset):
    """Return the policy that a preset was saved with, or `None`."""
    if not _keras_hub.check_file_exists(preset, "config.json"):
        return None
    policy = _keras_hub.load_json(preset, "config.json").get("config", {}).get("dtype")
    return None if policy is None else keras.dtype_policies.get(policy)


def is_quantized(policy):
    """Whether a policy, or that of any layer in a map of policies, is quantized."""
    policies = policy.values() if _is_map(policy) else [policy]
    return any(getattr(each, "quantization_mode", None) is not None for each in policies)


def check_dtype_of_quantized(dtype):
    """Raise a `ValueError` if a quantized preset should be loaded with another dtype."""
    if dtype is not None and not is_quantized(keras.dtype_policies.get(dtype)):
        raise ValueError(
            "The weights of this preset are quantized, and have no other dtype: leave `dtype` "
            f"out, or load the preset that was saved before `quantize`. Received: dtype={dtype!r}"
        )


def _is_map(policy):
    return isinstance(policy, keras.dtype_policies.DTypePolicyMap)
