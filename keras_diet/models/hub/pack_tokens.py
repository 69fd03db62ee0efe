"""Sequences of one length from tokens of texts."""

from typing import Any

import numpy as np
from keras_hub.layers import StartEndPacker

from keras_diet._compat import convert_preprocessing_outputs_python
from keras_diet.types import Tensor


def pack_tokens(
    tokens: Any, packer: StartEndPacker, length: int, start: bool = True, end: bool = True
) -> tuple[Tensor, Tensor]:
    """Return the token ids and the padding mask that a `StartEndPacker` returns.

    The layer takes milliseconds for each text, because Keras handles every token as an input of a
    layer. So this calls the layer in graphs of `tf.data` only.

    Args:
        tokens: What a tokenizer returns: an array for one text, a list of lists for several texts,
            or a ragged tensor in a graph.
        packer: The layer. It returns padding masks.
        length: int. The length of the sequences. Longer texts are cut off.
        start: bool. Whether sequences begin with the start token. Defaults to `True`.
        end: bool. Whether sequences end with the end token. Defaults to `True`.
    """
    if not isinstance(tokens, (list, np.ndarray)):
        return packer(tokens, sequence_length=length, add_start_value=start, add_end_value=end)
    first = packer.start_value if start else []
    last = packer.end_value if end else []
    room = length - len(first) - len(last)
    is_one = isinstance(tokens, np.ndarray)
    rows = [[*first, *row[:room], *last] for row in ([tokens] if is_one else tokens)]
    token_ids = np.full((len(rows), length), packer.pad_value, "int32")
    padding_mask = np.zeros((len(rows), length), "bool")
    for i, row in enumerate(rows):
        token_ids[i, : len(row)] = row
        padding_mask[i, : len(row)] = True
    packed = (token_ids[0], padding_mask[0]) if is_one else (token_ids, padding_mask)
    # Arrays in a pipeline of Grain, and tensors elsewhere.
    return convert_preprocessing_outputs_python(packed)
