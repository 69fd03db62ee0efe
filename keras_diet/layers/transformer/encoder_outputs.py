"""The symbolic outputs of a stack of encoder blocks."""

from typing import Any

import keras


def symbolic_outputs(encoder: Any, inputs: Any, return_attention_scores: bool) -> Any:
    """Return the symbolic output of a `DietEncoder`, and the scores if the caller asks for them.

    Args:
        encoder: The encoder.
        inputs: Symbolic tensor `(B, T, hidden_dim)`.
        return_attention_scores: bool.
    """
    output = keras.KerasTensor(inputs.shape, dtype=encoder.compute_dtype)
    if not return_attention_scores:
        return output
    batch_size, length = inputs.shape[:2]
    shape = (batch_size, encoder.num_heads, length, encoder.projection_dim or length)
    # Each layer needs a separate tensor, because functional models identify outputs by object.
    scores = [keras.KerasTensor(shape, encoder.compute_dtype) for _ in range(encoder.num_layers)]
    return output, scores
