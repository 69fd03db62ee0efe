"""Changes of a trained model: longer sequences, and segments that it was pretrained without."""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet._backend import float32_array
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.types import Config


def _backbone_of(model: keras.Model) -> DietBertBackbone:
    backbone = getattr(model, "backbone", model)
    if not isinstance(backbone, DietBertBackbone):
        raise ValueError(
            "`model` must be a `keras_diet.models.DietBertBackbone` or a task with one. Received: "
            f"{type(model).__name__}"
        )
    return backbone


# === Longer sequences ===


def extend_positions(
    model: keras.Model,
    max_sequence_length: int,
    method: str = "interpolate",
    trained_length: int | None = None,
) -> keras.Model:
    """Return a copy of a trained model that takes longer sequences.

    The parameters for `n` learned positions become parameters for `m > n` positions:

    - Absolute positions (`"diet_abs"`, `"input"`, `"diet_abs_input"`, `"t5_input"`,
      `"tupe_abs"`). With `method="interpolate"`, row `i` of the new `P_Q` and `P_K` lies at
      `i (n - 1) / (m - 1)` between two old rows. This stretches all patterns, also for short
      sequences. With `"repeat"`, rows `n, n + 1, ...` repeat the rows `0, 1, ...`, and sequences of
      up to `n` tokens keep their outputs. Linformer's projections are extended in the same way and
      scaled by `n / m`, which always changes the outputs of short sequences.
    - Relative positions (`"diet_rel"`). `R_d` does not change for `|d| < n`. On each side, farther
      distances get the mean of the outer quarter of the learned distances. Sequences of up to `n`
      tokens keep their outputs.
    - `"t5"`, `"tupe_rel"`, `"shaw"`, `"sinusoidal"`, `"alibi"`, `"kerple"`, `"sandwich"`,
      `"fire"`, `"log_cpb"`, `"rotary"`, `"transformer_xl"`, `"query_relative"`, `"forgetting"`,
      `"deberta"`, `"deberta_v1"`, `"none"`. Bins, distances, angles and sines already cover longer
      sequences. The absolute term of `"tupe_rel"` is extended like absolute positions.

    Train the model on long sequences afterwards. Interpolated positions are better after a little
    training, and repeated positions are better without.

    If all training texts were shorter than the model, its last positions still have their random
    initial parameters. Then pass the longest text as `trained_length`. It takes the place of `n`.

    Args:
        model: A `DietBertBackbone`, or a task with one. It is not changed.
        max_sequence_length: int. The new number of positions. Must be larger than the number of
            trained ones, and not smaller than the old number.
        method: `"interpolate"` or `"repeat"`, for absolute positions. Defaults to `"interpolate"`.
        trained_length: int or `None`. Number of positions that training has reached. The parameters
            of the others are replaced. Defaults to `None`, which means all positions.

    Returns:
        A model of the same class, with the same layers frozen. A task is compiled in the same way
        with a new optimizer state. It has a copy of the preprocessor, whose `sequence_length` you
        may then increase.

    Raises:
        ValueError: If `model` is not such a model, or has LoRA or quantized weights. Also if a
            custom encoding has weights that depend on the length in an unknown way, if
            `max_sequence_length` or `trained_length` is out of range, or if `method` is unknown.
            Keras raises an error if the model is compiled with functions that are not registered.

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
    backbone = _backbone_of(model)
    validation.choice("method", method, tuple(_METHODS))
    length = backbone.max_sequence_length
    trained = length if trained_length is None else trained_length
    if not 0 < trained <= length:
        received = f"Received: trained_length={trained_length}"
        raise ValueError(f"`trained_length` must be between 1 and {length}. {received}")
    if max_sequence_length <= trained or max_sequence_length < length:
        received = f"Received: max_sequence_length={max_sequence_length}"
        least = max(trained, length - 1)
        raise ValueError(f"`max_sequence_length` must be larger than {least}. {received}")
    first = backbone.first_position or 0

    def stretch(values, longer):
        # The rows before the first position belong to padding.
        kept = first if len(values) == length + first else 0
        rows = values[kept : len(values) - length + trained]
        return np.concatenate([values[:kept], _METHODS[method](rows, longer - kept)])

    extended = _with_length(model, max_sequence_length)
    # Its shapes tell which weights depend on the length.
    longer = extended if max_sequence_length > length else _with_length(model, length + 1)
    for new, old, other in zip(extended.weights, model.weights, longer.weights, strict=True):
        if tuple(other.shape) == tuple(old.shape):
            # JAX reuses the memory of weights when it trains them, so each model needs its own.
            new.assign(ops.copy(old))
        else:
            new.assign(_extended(old, tuple(new.shape), stretch, length - trained))
    return extended


def _with_length(model: keras.Model, length: int) -> keras.Model:
    """Return the model with another number of positions, and new weights."""
    changes: Config = {"max_sequence_length": length}
    layer = _backbone_of(model).position_encoding
    if isinstance(layer, keras.layers.Layer):
        changes["position_encoding"] = keras.layers.serialize(_longer_layer(layer, length))
    return model.rebuilt(changes)


def _longer_layer(layer: keras.layers.Layer, longer: int) -> keras.layers.Layer:
    """Return a custom bias layer for the new number of positions, if it depends on the number."""
    config = layer.get_config()
    for name in ("max_length", "key_length"):
        if config.get(name) is not None:
            # A layer that is longer than the model keeps its length.
            config[name] = max(config[name], longer)
    return type(layer).from_config(config)


def _extended(
    weight: keras.Variable,
    shape: tuple[int, ...],
    stretch: Callable[[np.ndarray, int], np.ndarray],
    num_untrained: int,
) -> np.ndarray:
    """Return the values of a weight in the shape that it has in the longer model."""
    values = float32_array(weight)
    if weight.name in _ABSOLUTE and shape[1:] == values.shape[1:]:
        return stretch(values, shape[0])
    if weight.name in _PROJECTIONS:
        # Scaled, so that sums over the sequence stay as large as before.
        return stretch(values.T, shape[1]).T * ((values.shape[1] - num_untrained) / shape[1])
    if weight.name == "relative_embedding":
        trained = values[num_untrained : len(values) - num_untrained]
        return _with_farther_distances(trained, shape[0])
    raise ValueError(
        f"The weight {weight.path!r} depends on the length in an unknown way. Received: shape "
        f"{tuple(weight.shape)} for the trained length, {shape} for the new length"
    )


_ABSOLUTE = ("query_embedding", "key_embedding", "position_embedding", "embeddings")
_PROJECTIONS = ("key_projection", "value_projection")


def _interpolated(values: np.ndarray, length: int) -> np.ndarray:
    position = np.linspace(0, len(values) - 1, length)
    lower = position.astype("int64")
    upper = np.minimum(lower + 1, len(values) - 1)
    share = (position - lower).reshape(-1, *(1,) * (values.ndim - 1))
    return (1 - share) * values[lower] + share * values[upper]


def _repeated(values: np.ndarray, length: int) -> np.ndarray:
    return values[np.arange(length) % len(values)]


_METHODS = {"interpolate": _interpolated, "repeat": _repeated}


def _with_farther_distances(values: np.ndarray, length: int) -> np.ndarray:
    num_added = (length - len(values)) // 2
    outer = max(len(values) // 8, 1)
    before, after = (
        np.repeat(rows.mean(axis=0, keepdims=True), num_added, axis=0)
        for rows in (values[:outer], values[-outer:])
    )
    return np.concatenate([before, values, after])


# === Segments ===


def add_segments(
    model: keras.Model, num_segments: int = 2, segment_encoding: str = "per-head"
) -> keras.Model:
    """Return a copy of a model with a segment encoding that starts at zero.

    This is the "supplemental segment encoding" of appendix A of the paper. A model that was
    pretrained without segments gets segments for fine-tuning. With `"per-head"`, these are segment
    scores in each layer and head,

        A_ij <- A_ij + E_S[S(i), S(j)],    E_S = 0,

    and with `"input"`, as in BERT, segment embeddings that are added to the token embeddings,

        x_i <- x_i + G[S(i)],    G = 0.

    The paper does not state the initial values. With zeros, the outputs before training are the
    outputs of `model`. BERT's initial values, which are random, would change them.

    Args:
        model: A `DietBertBackbone` with `segment_encoding="none"`, or a task with one. It is not
            changed. If it is a backbone, build the task for fine-tuning from the copy.
        num_segments: int. Number of segments. Defaults to `2`.
        segment_encoding: `"per-head"` or `"input"`. Where the segments are added. Defaults to
            `"per-head"`.

    Returns:
        A model of the same class with this `segment_encoding`. It has the weights of `model` and
        zeros for the segments, and the same layers are frozen. A task is compiled in the same way
        with a new optimizer state, and has a copy of the preprocessor.

    Raises:
        ValueError: If `model` is not such a model, has segments already, or has LoRA or quantized
            weights. With `"per-head"`, also if it has a `projection_dim`, because projected keys
            have no segments. Keras raises an error if the model is compiled with functions that are
            not registered.

    Example:

    ```python
    pretrained = keras_diet.models.DietBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16, segment_encoding="none",
    )
    backbone = keras_diet.models.add_segments(pretrained)
    like_bert = keras_diet.models.add_segments(pretrained, segment_encoding="input")
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), appendix A
    """
    validation.positive_int("num_segments", num_segments)
    validation.choice("segment_encoding", segment_encoding, ("per-head", "input"))
    present = _backbone_of(model).segment_encoding
    if present != "none":
        received = f"Received: segment_encoding={present!r}"
        raise ValueError(f"`model` must not have segments already. {received}")
    changes = {"segment_encoding": segment_encoding, "num_segments": num_segments}
    extended = model.rebuilt(changes)
    layers = _backbone_of(extended).encoder.segment_biases
    if segment_encoding == "input":
        layers = [_backbone_of(extended).input_encoding.segment_embedding]
    added = {id(weight): weight for layer in layers for weight in layer.weights}
    for weight in added.values():
        weight.assign(ops.zeros(weight.shape))
    others = [weight for weight in extended.weights if id(weight) not in added]
    for new, old in zip(others, model.weights, strict=True):
        # JAX reuses the memory of weights when it trains them, so each model needs its own.
        new.assign(ops.copy(old))
    return extended
