"""Models for inference that hold positional scores."""

from typing import Any

import keras
from keras import ops

from keras_diet._compat import flatten_layers
from keras_diet.layers.position.cached_position_bias import CachedPositionBias
from keras_diet.layers.position.position_bias import PositionBias


def cache_positions(model: Any) -> Any:
    """Return a copy of a model for inference, in which positional scores are computed already.

    Section 3.1 of the paper: `P_Q P_K^T` does not depend on the input, so it can be cached before
    inference. The copy holds the scores instead of the position parameters, `num_heads * max_length
    * key_length` numbers for each bias layer. Its outputs are the same, and its forward pass
    has no product of position embeddings.

    The copy has its own weights, and the model stays as it is. So the scores are never stale: if
    you train the model further, call `cache_positions` again. Training the copy leaves its
    positional scores as they are. The copy can be saved and loaded. Files of the model do not load
    into it, since their weights differ.

    Quantize the copy, or add LoRA to it, after caching.

    Args:
        model: A built model or layer with position biases: a `DietBertMaskedLM` or another task, a
            `DietBertBackbone`, a `DietEncoder`, a position bias, or a functional or sequential
            model of such layers.

    Returns:
        A model or layer of the same class. A functional or sequential model becomes a new
        functional or sequential model that is not compiled.

    Raises:
        ValueError: If the model has no position bias, is not built, has a bias without
            `max_length`, or contains a custom layer or model with position biases.

    Example:

    ```python
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, max_sequence_length=64)
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    y = encoder(x)
    inference_encoder = keras_diet.layers.cache_positions(encoder)
    y = inference_encoder(x)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 3.1
    """
    if isinstance(model, CachedPositionBias):
        raise ValueError(
            f"The positions are cached already. Received: {model}. Call `cache_positions` on the "
            "layer that this one is a copy of."
        )
    if isinstance(model, PositionBias):
        return _cached_bias(model)
    if hasattr(model, "with_cached_positions"):
        return model.with_cached_positions()
    if not any(map(_can_be_cached, flatten_layers(model))):
        raise ValueError(
            "`model` has no positional scores to cache: none of its layers is a "
            f"`keras_diet.layers.PositionBias`. Received: {model}. Use the model as it is."
        )
    return _copy_model(model)


def _can_be_cached(layer):
    if isinstance(layer, PositionBias):
        return True
    # A built encoder without such a layer has no positions, or has them at the input.
    has_biases = any(isinstance(sublayer, PositionBias) for sublayer in flatten_layers(layer))
    return hasattr(layer, "with_cached_positions") and (has_biases or not layer.built)


def _cached_bias(bias):
    cached = CachedPositionBias.like(bias)
    cached.build()
    cached.assign_scores_of(bias)
    return cached


def _copy_model(model):
    """Return a copy of a functional or sequential model, with cached positions in its layers."""
    is_functional = isinstance(model, keras.Model) and hasattr(model, "operations")
    if not is_functional and not isinstance(model, keras.Sequential):
        raise ValueError(
            "Positions can be cached in functional and sequential models, and in the models and "
            f"layers of keras_diet. Received: {model}. Call `cache_positions` on the layers with "
            "positions, and build the model from them."
        )
    pairs = []

    def copy(layer):
        if _can_be_cached(layer):
            return cache_positions(layer)
        if any(map(_can_be_cached, flatten_layers(layer))):
            return _copy_model(layer)
        pairs.append((layer, type(layer).from_config(layer.get_config())))
        return pairs[-1][1]

    copied = keras.models.clone_model(model, clone_function=copy)
    for layer, new in pairs:
        new.set_weights([ops.copy(weight) for weight in layer.weights])
    return copied
