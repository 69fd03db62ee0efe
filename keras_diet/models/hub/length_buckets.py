"""Batches that are padded to the length of their longest text, rounded up to a bucket."""

from typing import Any

import keras
import numpy as np

from keras_diet import validation

# What KerasHub's preprocessors return for each token. Encoder-decoders add a prefix to the names.
PER_TOKEN = ("token_ids", "segment_ids", "padding_mask")


def check_buckets(buckets: Any, shortest: int, longest: int) -> None:
    """Raise a `ValueError` unless the buckets are increasing lengths of sequences."""
    lengths = validation.increasing_ints("length_buckets", buckets)
    if lengths[0] < shortest or lengths[-1] > longest:
        raise ValueError(
            f"`length_buckets` must be lengths from {shortest}, the shortest sequence, to "
            f"{longest}, the longest sequence. Received: length_buckets={buckets}"
        )


def shortened(outputs: Any, lengths: tuple[int, ...], labels_per_token: bool = False) -> Any:
    """Cut padding off, to the smallest length that holds the longest sequence.

    An encoder's and a decoder's sequences get the same length, so that compilers compile one
    program for each length, not for each pair of lengths.

    Args:
        outputs: What a preprocessor returns: a dictionary of inputs, or a tuple that starts with
            it.
        lengths: The lengths to choose from.
        labels_per_token: bool. Whether labels and weights have the length of a sequence too.
            Defaults to `False`.
    """
    inputs, *others = outputs if isinstance(outputs, tuple) else (outputs,)
    length = _length([inputs[name] for name in inputs if name.endswith("padding_mask")], lengths)
    inputs = {
        name: value[..., :length] if name.endswith(PER_TOKEN) else value
        for name, value in inputs.items()
    }
    if labels_per_token:
        others = [value[..., :length] for value in others]
    return (inputs, *others) if isinstance(outputs, tuple) else inputs


def _length(padding_masks, lengths):
    values = [validation.host_value(mask) for mask in padding_masks]
    if all(value is not None for value in values):
        longest = max(int(value.sum(-1).max()) for value in values)
        return min(length for length in lengths if length >= longest)
    if keras.ops.is_tensor(padding_masks[0]) and keras.config.backend() != "tensorflow":
        # On an accelerator.
        return _length([keras.ops.convert_to_numpy(mask) for mask in padding_masks], lengths)
    # In a graph of `tf.data`, on any backend.
    import tensorflow as tf

    longest = tf.reduce_max(
        [tf.reduce_max(tf.reduce_sum(tf.cast(mask, "int32"), axis=-1)) for mask in padding_masks]
    )
    lengths = np.array(lengths, "int32")
    return tf.reduce_min(tf.boolean_mask(lengths, lengths >= longest))


def with_other_lengths(batch: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return a preprocessed batch, and zeros of its shapes with sequences one token longer.

    Sizes that differ between the two may be different in each batch.
    """
    lengths = {mask.shape[1] for name, mask in batch[0].items() if name.endswith("padding_mask")}

    def longer(value):
        shape = list(value.shape)
        if len(shape) > 1 and shape[1] in lengths:
            shape[1] += 1
        return np.zeros(shape)

    return [batch, keras.tree.map_structure(longer, batch)]
