"""The complete attention scores of a batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from keras_diet._arrays import float32_array
from keras_diet.analysis.model_parts import as_diet_bert
from keras_diet.layers import AttentionHook

_INPUTS = ("token_ids", "segment_ids", "padding_mask")


def attention_scores(backbone: Any, inputs: Mapping[str, Any]) -> np.ndarray:
    """Return the attention scores of a batch, before softmax and before padding is masked.

    For queries `i` and keys `j` of each sequence, in each layer and head:

        A_ij = (x_i W_Q) . (x_j W_K) / sqrt(d_h) + B_ij + E_S[S(i), S(j)]

    with the hidden states `x` before the layer, and the position and segment terms of the model.
    Softmax over the keys that are not padding gives the attention probabilities. With
    `"document_ids"` it is over the keys of the document. Dropout is off.

    Figure 2 of the paper compares the rank of these scores. Theorem 1: the rank is at most `d_h`
    with positions at the input, and reaches `d_h + d_p` with DIET-ABS. Padding hides part of a
    sequence, so use sequences without padding, or cut it off.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`, a `keras_hub.models.BertBackbone`, or a
            task with one.
        inputs: A dictionary of integer arrays of shape `(B, T)`: `"token_ids"`, `"segment_ids"`
            and `"padding_mask"`, and `"document_ids"` if there are any, as for the backbone. Other
            entries are not read, such as the `"mask_positions"` of a masked language model.

    Returns:
        float32 array of shape `(num_layers, B, num_heads, T, T)`: layer, example, head, query, key;
        with Linformer `(num_layers, B, num_heads, T, projection_dim)`. The scores of all layers
        are in memory at once.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=10, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    inputs = {
        "token_ids": np.random.randint(10, size=(3, 16)),
        "segment_ids": np.zeros((3, 16), dtype="int32"),
        "padding_mask": np.ones((3, 16), dtype="int32"),
    }
    scores = keras_diet.analysis.attention_scores(backbone, inputs)
    scores.shape  # (2, 3, 4, 16, 16)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Theorem 1 and Figure 2
    """
    backbone = as_diet_bert(backbone)
    encoder = backbone.encoder
    names = [*_INPUTS, *{"document_ids"}.intersection(inputs)]
    inputs = {name: ops.cast(ops.convert_to_tensor(inputs[name]), "int32") for name in names}
    scores = []

    def record(layer_scores):
        scores.append(float32_array(layer_scores))
        return layer_scores

    has_segments = backbone.segment_encoding == "per-head"
    encoder(
        backbone.embed(**inputs),
        segment_ids=inputs["segment_ids"] if has_segments else None,
        padding_mask=inputs["padding_mask"],
        document_ids=inputs.get("document_ids"),
        # Otherwise long sequences are computed in blocks.
        return_attention_scores=True,
        attention_hook=AttentionHook(scores=record),
        training=False,
    )
    return np.stack(scores)
