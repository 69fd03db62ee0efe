"""How the tokens of a translation attend to the tokens of its source."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_diet._arrays import float32_array


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
    _check_lengths(preprocessor, source, target)
    source_length, target_length = (
        inputs[f"{side}_padding_mask"].sum() for side in ("encoder", "decoder")
    )
    tensors = {name: ops.convert_to_tensor(value) for name, value in inputs.items()}
    scores = cross_attention_scores(backbone, tensors)
    probabilities = np.stack([float32_array(of_layer)[0] for of_layer in scores])
    token_ids = inputs["encoder_token_ids"][0, :source_length]
    label_ids = labels[0, :target_length]
    to_token = preprocessor.tokenizer.id_to_token
    return CrossAttention(
        probabilities[:, :, :target_length, :source_length],
        [to_token(int(token_id)) for token_id in label_ids],
        [to_token(int(token_id)) for token_id in token_ids],
    )


def _check_lengths(preprocessor, source, target):
    """Raise a `ValueError` if the preprocessor cuts tokens off."""
    for side, text in (("encoder", source), ("decoder", target)):
        length = getattr(preprocessor, f"{side}_sequence_length")
        number = len(preprocessor.tokenizer.tokenize([text])[0]) + 1
        if number > length:
            raise ValueError(
                f"`{side}_sequence_length` must hold the whole text and its end token. Received: "
                f"{number} tokens with {side}_sequence_length={length}. Shorten the text."
            )


def cross_attention_scores(backbone: Any, inputs: dict[str, Any]) -> list[Any]:
    """Return the probabilities of attention to the source, `(B, num_heads, T, S)` by layer."""
    source_mask = inputs["encoder_padding_mask"]
    _, _, scores = backbone.decoder(
        backbone.embed(inputs["decoder_token_ids"], backbone.decoder_input_encoding),
        backbone.encode(inputs["encoder_token_ids"], source_mask),
        padding_mask=inputs["decoder_padding_mask"],
        encoder_padding_mask=source_mask,
        return_attention_scores=True,
    )
    return scores
