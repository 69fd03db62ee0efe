"""The complete attention scores of a batch."""

import contextlib

import numpy as np
from keras import ops

from keras_diet._arrays import float32_array
from keras_diet.analysis._backbone import as_diet_bert
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention

_INPUTS = ("token_ids", "segment_ids", "padding_mask")


def attention_scores(backbone, inputs):
    """Return the attention scores of a batch, before softmax and before padding is masked.

    For queries `i` and keys `j` of each sequence, in each layer and head:

        A_ij = (x_i W_Q) . (x_j W_K) / sqrt(d_h) + B_ij + E_S[S(i), S(j)]

    with the hidden states `x` before the layer and whatever position and segment terms the model
    has. Softmax over the keys that are no padding gives the attention probabilities. Dropout is
    off.

    Their rank is what Figure 2 of the paper compares. Theorem 1: it is at most `d_h` with positions
    at the input, whatever the tokens, and reaches `d_h + d_p` with DIET-ABS. Padding shortens what
    a sequence can show, so take sequences without, or cut it off.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`, a `keras_hub.models.BertBackbone`, or a
            task with one.
        inputs: A dictionary of integer arrays of shape `(B, T)`: `"token_ids"`, `"segment_ids"`
            and `"padding_mask"`, as for the backbone. Other entries, such as the
            `"mask_positions"` of a masked language model, are not read.

    Returns:
        float32 array of shape `(num_layers, B, num_heads, T, T)`: layer, example, head, query, key;
        with Linformer `(num_layers, B, num_heads, T, projection_dim)`. Every layer's scores are in
        memory at once.

    Raises:
        ValueError: If an input is missing or too long, or the model has attention layers of a
            user's own that are no `BiasedMultiHeadAttention`.

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
    missing = [name for name in _INPUTS if name not in inputs]
    if missing:
        raise ValueError(
            f"`inputs` must have the entries {', '.join(_INPUTS)}. Missing: {', '.join(missing)}"
        )
    backbone = as_diet_bert(backbone)
    attentions = [block.self_attention for block in backbone.encoder.transformer_layers]
    inputs = {name: ops.cast(ops.convert_to_tensor(inputs[name]), "int32") for name in _INPUTS}
    with recorded_scores(attentions) as recorded:
        backbone(inputs, training=False)
    return np.stack(recorded)


@contextlib.contextmanager
def recorded_scores(attentions):
    """Record the scores of attention layers while the context lasts.

    Keras returns probabilities, not scores; what softmax is given is known only to these methods,
    which are shadowed on the instances: the plain path is taken, and its scores kept. Padding is a
    mask there, where it would be a term of the scores.

    Args:
        attentions: `BiasedMultiHeadAttention` layers.

    Yields:
        A list that grows by an array `(B, num_heads, T, S)` with every call of any of the layers.
    """
    for attention in attentions:
        if not isinstance(attention, BiasedMultiHeadAttention):
            raise ValueError(
                "Scores can be read from attention layers that are a `BiasedMultiHeadAttention`. "
                f"Received: {type(attention).__name__}"
            )
    recorded = []

    def shadow(attention):
        masked_softmax = attention._masked_softmax

        def record(scores, mask=None):
            # The layer has its heads first.
            recorded.append(float32_array(ops.swapaxes(scores, 0, 1)))
            return masked_softmax(scores, mask)

        attention._masked_softmax = record
        attention._can_fuse = lambda query, value, **terms: False
        attention.accepts_features = False

    try:
        for attention in attentions:
            shadow(attention)
        yield recorded
    finally:
        for attention in attentions:
            for name in ("_masked_softmax", "_can_fuse", "accepts_features"):
                if name in vars(attention):
                    delattr(attention, name)
