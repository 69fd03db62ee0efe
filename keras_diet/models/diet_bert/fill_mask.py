"""The most probable tokens for the masks in a text."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.models.hub.method_checks import checked_preprocessor
from keras_diet.models.hub.texts import as_strings, is_one_text

BATCH_SIZE = 32


def fill_mask(
    masked_lm: keras.Model, texts: str | list[str], top_k: int = 5
) -> list[dict[str, Any]] | list[Any]:
    """Return the most probable tokens for each `[MASK]` in a text.

    Args:
        texts: A string with at least one mask token of the tokenizer, or a list of such strings.
        top_k: int. Number of tokens for each mask. Defaults to `5`.

    Returns:
        For one text with one mask, a list of dictionaries, the most probable token first:
        `"token"`, its `"probability"`, and the `"text"` with this token in the place of the mask.
        For several masks, a list with such a list for each mask. For a list of texts, a list with
        the result of each text.

    Raises:
        ValueError: If the model has no preprocessor; if a text has no mask, or is too long; or if
            `top_k` is not a positive integer up to the size of the vocabulary.

    Example:

    ```python
    best = masked_lm.fill_mask("the quick [MASK]", top_k=1)[0]
    best["token"], best["probability"], best["text"]
    ```
    """
    tokenizer, length = _tokenizer_and_length(masked_lm)
    size = tokenizer.vocabulary_size()
    if validation.positive_int("top_k", top_k) > size:
        raise ValueError(
            f"`top_k` must be at most the number of tokens, {size}. Received: top_k={top_k}"
        )
    batch = as_strings(texts, "texts")
    ids = [_token_ids(tokenizer, text, row, length) for row, text in enumerate(batch)]
    results = []
    for start in range(0, len(batch), BATCH_SIZE):
        rows = slice(start, start + BATCH_SIZE)
        probabilities = _probabilities(masked_lm, tokenizer, ids[rows], length)[:, :, :size]
        for text, of_masks in zip(batch[rows], probabilities, strict=True):
            num_masks = text.count(tokenizer.mask_token)
            found = [
                _best(tokenizer, text, i, of_mask, top_k)
                for i, of_mask in enumerate(of_masks[:num_masks])
            ]
            results.append(found[0] if num_masks == 1 else found)
    return results[0] if is_one_text(texts) else results


def _tokenizer_and_length(masked_lm):
    preprocessor = checked_preprocessor(masked_lm, "fill_mask")
    return preprocessor.tokenizer, preprocessor.sequence_length


def _token_ids(tokenizer, text, row, length):
    """Return `[CLS]`, the tokens with masks between the pieces of the text, and `[SEP]`."""
    pieces = text.split(tokenizer.mask_token)
    if len(pieces) == 1:
        raise ValueError(
            f"Each text must contain `{tokenizer.mask_token}`. Received: {text!r} in row {row}. "
            "Put it in the place of a word."
        )
    ids = [tokenizer.cls_token_id]
    for i, piece in enumerate(pieces):
        ids += [tokenizer.mask_token_id] * (i > 0) + [int(token) for token in tokenizer(piece)]
    ids.append(tokenizer.sep_token_id)
    if len(ids) > length:
        raise ValueError(
            f"A text must have at most sequence_length={length} tokens with `[CLS]` and `[SEP]`. "
            f"Received: {len(ids)} tokens in row {row}. Shorten it, or use a longer preprocessor."
        )
    return ids


def _probabilities(masked_lm, tokenizer, ids, length):
    """Return the probabilities of all tokens, `(B, M, vocabulary_size)`, for `M` masks."""
    shape = (len(ids), length)
    token_ids = np.full(shape, tokenizer.pad_token_id, "int32")
    padding_mask = np.zeros(shape, "int32")
    for i, row in enumerate(ids):
        token_ids[i, : len(row)] = row
        padding_mask[i, : len(row)] = 1
    masks = [np.flatnonzero(row == tokenizer.mask_token_id) for row in token_ids]
    positions = np.zeros((len(ids), max(map(len, masks))), "int32")
    for i, of_row in enumerate(masks):
        positions[i, : len(of_row)] = of_row
    inputs = {
        "token_ids": token_ids,
        "segment_ids": np.zeros(shape, "int32"),
        "padding_mask": padding_mask,
        "mask_positions": positions,
    }
    # The method of the task would preprocess the inputs.
    logits = keras.Model.predict_on_batch(masked_lm, inputs)
    return ops.convert_to_numpy(ops.softmax(ops.cast(logits, "float32"), axis=-1))


def _best(tokenizer, text, mask, probabilities, top_k):
    pieces = text.split(tokenizer.mask_token)
    before = tokenizer.mask_token.join(pieces[: mask + 1])
    after = tokenizer.mask_token.join(pieces[mask + 1 :])
    best = np.argsort(-probabilities, kind="stable")[:top_k]
    results = []
    for i in best:
        token = tokenizer.id_to_token(int(i))
        word, begins_word = tokenizer.split_token(token)
        text = (before if begins_word else before.rstrip()) + word
        probability = float(probabilities[i])
        results.append({"token": token, "probability": probability, "text": text + after})
    return results
