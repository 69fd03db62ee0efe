"""Longer sequences for a trained model."""

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet._arrays import float32_array
from keras_diet.models._rebuild import backbone_of, rebuild

METHODS = ("interpolate", "repeat")


def extend_positions(model, max_sequence_length, method="interpolate"):
    """Return a copy of a trained model that takes longer sequences.

    What a model has learned for `n` positions becomes parameters of `m > n`, by encoding:

    - absolute positions (`"diet_abs"`, `"input"`, `"diet_abs_input"`, `"tupe_abs"`): with
      `method="interpolate"` row `i` of the new `P_Q` and `P_K` lies at `i (n - 1) / (m - 1)`
      between two rows of the old, so patterns are stretched, for short sequences too. With
      `"repeat"` rows `n, n + 1, ...` are those of the positions `0, 1, ...` again: sequences of up
      to `n` tokens have the outputs that they had. Linformer's projections go the same way, scaled
      by `n / m`, which changes the outputs of short sequences in any case.
    - relative positions (`"diet_rel"`): `R_d` stays what it is for `|d| < n`; farther distances get
      the mean of the outer quarter that was trained on their side. Sequences of up to `n` tokens
      have the outputs that they had.
    - `"t5"`, `"tupe_rel"`, `"shaw"`, `"sinusoidal"`, `"none"`: bins, distances and sines go on as
      they are; the absolute term of `"tupe_rel"` is treated as the absolute positions are.

    Train on long sequences afterwards: docs/adaptation.md has figures. Interpolated positions are
    soon better then; repeated ones are the better ones without.

    Args:
        model: A `DietBertBackbone`, or a task with one. It is not changed.
        max_sequence_length: int. The new number of positions, larger than that of the model.
        method: `"interpolate"` or `"repeat"`, for absolute positions. Defaults to `"interpolate"`.

    Returns:
        A model of the same class, frozen where `model` is. A task is compiled as that is, with a
        new state of the optimizer, and has a copy of the preprocessor, whose `sequence_length` you
        may then set.

    Raises:
        ValueError: If `model` is no such model, has LoRA or quantized weights or an encoding of
            your own whose weights depend on the length otherwise, or is compiled with functions
            that are not registered; if `max_sequence_length` is not larger than it was, or if
            `method` is unknown.

    Example:

    ```python
    trained = keras_diet.models.DietBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    backbone = keras_diet.models.extend_positions(trained, max_sequence_length=32)
    ```

    References:
     - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929), section 3.2, interpolation
     - [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150), section 5, repetition
    """
    backbone = backbone_of(model)
    validation.positive_int("max_sequence_length", max_sequence_length)
    validation.choice("method", method, METHODS)
    length = backbone.max_sequence_length
    if max_sequence_length <= length:
        raise ValueError(
            f"`max_sequence_length` must be larger than the model's, {length}. Received: "
            f"max_sequence_length={max_sequence_length}"
        )
    changes = {"max_sequence_length": max_sequence_length}
    if isinstance(backbone.position_encoding, keras.layers.Layer):
        layer = _longer_layer(backbone.position_encoding, max_sequence_length)
        changes["position_encoding"] = keras.layers.serialize(layer)
    extended = rebuild(model, **changes)
    stretch = {"interpolate": _interpolated, "repeat": _repeated}[method]
    for new, old in zip(extended.weights, model.weights, strict=True):
        new.assign(_extended(old, tuple(new.shape), stretch))
    return extended


def _longer_layer(layer, longer):
    """Return a bias layer of the user's own for the new number of positions, if it has a number."""
    config = layer.get_config()
    for name in ("max_length", "key_length"):
        if config.get(name) is not None:
            # One that is longer than the model already stays as it is.
            config[name] = max(config[name], longer)
    return type(layer).from_config(config)


def _extended(weight, shape, stretch):
    """Return the values of a weight of a model in the shape that it has in a longer one."""
    if tuple(weight.shape) == shape:
        return ops.copy(weight)
    values = float32_array(weight)
    if weight.name in _ABSOLUTE and shape[1:] == values.shape[1:]:
        return stretch(values, shape[0])
    if weight.name in _PROJECTIONS:
        # Sums over the sequence stay as large as they were.
        return stretch(values.T, shape[1]).T * (values.shape[1] / shape[1])
    if weight.name == "relative_embedding":
        return _with_farther_distances(values, shape[0])
    raise ValueError(
        f"It is not known how the weight {weight.path!r} goes on at larger positions. Received "
        f"shapes: {tuple(weight.shape)} for the trained length, {shape} for the new one"
    )


_ABSOLUTE = ("query_embedding", "key_embedding", "position_embedding", "embeddings")
_PROJECTIONS = ("key_projection", "value_projection")


def _interpolated(values, length):
    position = np.linspace(0, len(values) - 1, length)
    lower = position.astype("int64")
    upper = np.minimum(lower + 1, len(values) - 1)
    share = (position - lower).reshape(-1, *(1,) * (values.ndim - 1))
    return (1 - share) * values[lower] + share * values[upper]


def _repeated(values, length):
    return values[np.arange(length) % len(values)]


def _with_farther_distances(values, length):
    num_added = (length - len(values)) // 2
    outer = max(len(values) // 8, 1)
    before, after = (
        np.repeat(rows.mean(axis=0, keepdims=True), num_added, axis=0)
        for rows in (values[:outer], values[-outer:])
    )
    return np.concatenate([before, values, after])
