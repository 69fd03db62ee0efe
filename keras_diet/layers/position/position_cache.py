"""Positional scores computed once, before inference."""

import functools

from keras_diet._keras import INFERENCE, flatten_layers, forget_compiled
from keras_diet.layers.position.position_bias import PositionBias


def cache_positions(model):
    """Compute the positional scores of a built model once, for all following inference.

    Section 3.1 of the paper: `P_Q P_K^T` does not depend on the input, so it can be cached
    before inference. After this call the forward pass of `model` holds no product of position
    embeddings, and its outputs are the same. Each bias layer keeps
    `num_heads * max_length * key_length` numbers in memory.

    The scores are dropped, and computed anew in each forward pass, as soon as the model is
    called with `training=True` (`fit`, `train_on_batch`, your own loop) or a position parameter
    is given another value (`load_weights`, `set_weights`). Configuration, weights and saved
    files do not change. While scores are cached no gradient reaches the position parameters.

    Functions that Keras compiled for `fit`, `evaluate` and `predict` of any model that holds these
    layers are forgotten, here and when scores are dropped. Functions that you compiled yourself
    (`jax.jit`, `tf.function`) keep what they were compiled with: compile them after this call,
    and again after training.

    Args:
        model: A built `keras.Model` or `keras.layers.Layer`, e.g. a `DietBertMaskedLM`, a
            `DietBertBackbone`, a `DietEncoder` or a single bias layer.

    Raises:
        ValueError: If the model has no position bias, or one that is not built yet or has no
            `max_length`; then nothing is cached.

    Example:

    ```python
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, max_sequence_length=64)
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    encoder(x)
    keras_diet.layers.cache_positions(encoder)
    y = encoder(x)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 3.1
    """
    biases = _position_biases(model)
    if not biases:
        raise ValueError(
            "There are no positional scores to cache: no layer of the model is a "
            f"`keras_diet.layers.PositionBias`. Received: {model}"
        )
    for bias in biases:
        # All before any, so that a model is cached as a whole or not at all.
        bias.check_cacheable()
    for bias in biases:
        bias.cache_scores(on_drop=functools.partial(forget_compiled, bias, INFERENCE))
        # Training too: its next step is traced anew, and drops the scores while it is.
        forget_compiled(bias)


def drop_cached_positions(model):
    """Undo `cache_positions`: positional scores are computed in each forward pass again.

    Args:
        model: The model or layer that was given to `cache_positions`.

    Example:

    ```python
    bias = keras_diet.layers.RelativePositionBias(num_heads=4, max_length=16)
    bias.build()
    keras_diet.layers.cache_positions(bias)
    keras_diet.layers.drop_cached_positions(bias)
    ```
    """
    for bias in _position_biases(model):
        bias.drop_cached_scores()


def _position_biases(model):
    biases = [layer for layer in flatten_layers(model) if isinstance(layer, PositionBias)]
    # One that is part of another takes part in the other's scores.
    parts = {id(part) for bias in biases for part in flatten_layers(bias) if part is not bias}
    return [bias for bias in biases if id(bias) not in parts]
