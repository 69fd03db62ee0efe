"""The attention scores of a batch, and how a translation attends to its source."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_diet._backend import float32_array
from keras_diet.layers import AttentionHook

if TYPE_CHECKING:
    from keras_diet.models import DietBertBackbone

_INPUTS = ("token_ids", "segment_ids", "padding_mask")


def as_diet_bert(model: keras.Model) -> "DietBertBackbone":
    """Return the `DietBertBackbone` of a model. KerasHub's BERT is copied into a new one.

    Args:
        model: A `DietBertBackbone`, a `keras_hub.models.BertBackbone`, or a task with one of them.
    """
    # The analysis of a `DietEncoder` does not need KerasHub.
    from keras_diet.models import DietBertBackbone
    from keras_diet.models.diet_bert.convert_bert import copy_bert

    backbone = getattr(model, "backbone", model)
    if isinstance(backbone, DietBertBackbone):
        return backbone
    return copy_bert(DietBertBackbone, backbone)


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


class CrossAttention(NamedTuple):
    """The attention of a target to its source.

    Attributes:
        probabilities: Array of shape `(num_layers, num_heads, T, S)`. Row `i` is the attention of
            the step that predicts target token `i`.
        target_tokens: The `T` tokens of the target, with the end token.
        source_tokens: The `S` tokens of the source, with the end token.

    Example:

    ```python
    attention = keras_diet.analysis.CrossAttention(
        probabilities=np.full((2, 4, 3, 2), 0.5),
        target_tokens=["ein", "Fuchs", "</s>"],
        source_tokens=["fox", "</s>"],
    )
    attention.probabilities.mean(axis=1)  # of the heads
    ```
    """

    probabilities: np.ndarray
    target_tokens: list[str]
    source_tokens: list[str]


def cross_attention(seq_2_seq_lm: Any, source: str, target: str) -> CrossAttention:
    """Return the attention of a target to its source, in all layers and heads.

    Args:
        seq_2_seq_lm: A `keras_diet.models.DietTransformerSeq2SeqLM` with a preprocessor.
        source: The source.
        target: Its translation, for example from `generate`.

    Returns:
        A `CrossAttention`.

    Raises:
        ValueError: If the source or the target is longer than the sequences of the preprocessor.

    Example:

    ```python
    texts = ["the quick fox", "der schnelle Fuchs"]
    tokenizer = keras_diet.models.DietTransformerTokenizer.from_texts(texts, 30)
    seq_2_seq_lm = keras_diet.models.DietTransformerSeq2SeqLM(
        keras_diet.models.DietTransformerBackbone(
            vocabulary_size=30, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16,
            max_sequence_length=20,
        ),
        keras_diet.models.DietTransformerSeq2SeqLMPreprocessor(tokenizer, 20, 20),
    )
    attention = keras_diet.analysis.cross_attention(seq_2_seq_lm, *texts)
    figure = keras_diet.analysis.plot_cross_attention(attention)
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.2.3
    """
    preprocessor, backbone = seq_2_seq_lm.preprocessor, seq_2_seq_lm.backbone
    inputs, labels, _ = preprocessor([source], [target])
    source_length, target_length = (
        inputs[f"{side}_padding_mask"].sum() for side in ("encoder", "decoder")
    )
    tensors = {name: ops.convert_to_tensor(value) for name, value in inputs.items()}
    source_mask = tensors["encoder_padding_mask"]
    _, _, scores = backbone.decoder(
        backbone.embed(tensors["decoder_token_ids"], backbone.decoder_input_encoding),
        backbone.encode(tensors["encoder_token_ids"], source_mask),
        padding_mask=tensors["decoder_padding_mask"],
        encoder_padding_mask=source_mask,
        return_attention_scores=True,
    )
    probabilities = np.stack([float32_array(of_layer)[0] for of_layer in scores])
    token_ids = inputs["encoder_token_ids"][0, :source_length]
    label_ids = labels[0, :target_length]
    to_token = preprocessor.tokenizer.id_to_token
    return CrossAttention(
        probabilities[:, :, :target_length, :source_length],
        [to_token(int(token_id)) for token_id in label_ids],
        [to_token(int(token_id)) for token_id in token_ids],
    )
