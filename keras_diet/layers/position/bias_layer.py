"""What a bias layer can do.

A bias layer is any `keras.layers.Layer` that returns scores broadcastable to `(B, H, T, S)`:

- `layer(query)` or `layer(query, key)` returns the scores of all queries. Every bias layer has it.
- `layer.features(query, key, start_index)` returns the scores as features, whose inner products
  they are. Layers with scores of low rank have it.
- `layer.rows(query, key, start_index)` returns the scores of a block of queries that begins at
  the position `start_index`. Layers that read only lengths have it.
- `layer.distance_only` is true if the scores depend on the distance `i - j` alone. Then documents
  in one sequence need no scores of their own.

`PositionBias` provides `rows` for all its subclasses.
"""

from typing import Any

import keras

from keras_diet.types import Tensor


def has_features(bias: Any) -> bool:
    """Whether a bias layer returns its scores as features too."""
    return callable(getattr(bias, "features", None))


def has_rows(bias: Any) -> bool:
    """Whether a bias layer returns the scores of any block of queries.

    Blocks are computed a second time for the gradient. A layer with state, such as dropout, would
    return other scores then.
    """
    has_state = len(bias.variables) > len(bias.weights)
    return callable(getattr(bias, "rows", None)) and not has_state


def is_distance_only(bias: Any) -> bool:
    """Whether the scores of a bias layer depend on the distance of query and key alone."""
    return getattr(bias, "distance_only", False)


def scores_of(
    bias: keras.layers.Layer, query: Tensor, key: Tensor | None, start_index: Any
) -> Tensor:
    """Return the scores of a bias layer for all queries, the first of which is at `start_index`."""
    if isinstance(start_index, int) and start_index == 0:
        return _numbers(bias, bias(query) if key is None else bias(query, key))
    if not callable(getattr(bias, "rows", None)):
        raise ValueError(
            "A bias layer needs a method `rows(query, key, start_index)` for queries that do not "
            f"begin at position 0. Received: start_index={start_index} and the layer {bias}. Add "
            "the method, or derive the layer from `keras_diet.layers.PositionBias`."
        )
    return rows_of(bias, query, query if key is None else key, start_index)


def rows_of(bias: keras.layers.Layer, query: Tensor, key: Tensor, start_index: Any) -> Tensor:
    """Return the scores of a bias layer for a block of queries that begins at `start_index`."""
    return _numbers(bias, bias.rows(query, key, start_index))


def _numbers(bias, scores):
    if keras.backend.standardize_dtype(scores.dtype) == "bool":
        raise ValueError(
            "A bias layer must return numbers that are added to the scores. Received: booleans "
            f"from {bias}. Return large negative numbers for keys to leave out, or pass an "
            "`attention_mask`."
        )
    return scores
