"""Batches that are padded to the length of their longest text, rounded up to a bucket."""

from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.types import Tensor

# What KerasHub's preprocessors return for each token.
PER_TOKEN = ("token_ids", "segment_ids", "padding_mask")


def check_buckets(buckets: Any, shortest: int, longest: int) -> None:
    """Raise a `ValueError` unless the buckets are increasing lengths of sequences."""
    for length in buckets:
        validation.positive_int("length_buckets", length)
    if list(buckets) != sorted(set(buckets)) or buckets[0] < shortest or buckets[-1] > longest:
        raise ValueError(
            f"`length_buckets` must be increasing lengths from {shortest}, the shortest sequence, "
            f"to sequence_length={longest}. Received: length_buckets={buckets}"
        )


def shortened(inputs: dict[str, Tensor], lengths: tuple[int, ...]) -> dict[str, Tensor]:
    """Cut padding off, to the smallest length that holds the longest sequence."""
    length = _length(inputs["padding_mask"], lengths)
    return {
        name: value[..., :length] if name in PER_TOKEN else value for name, value in inputs.items()
    }


def _length(padding_mask, lengths):
    values = validation.host_value(padding_mask)
    if values is not None:
        longest = int(values.sum(-1).max())
        return min(length for length in lengths if length >= longest)
    if keras.ops.is_tensor(padding_mask) and keras.config.backend() != "tensorflow":
        # On an accelerator.
        return _length(keras.ops.convert_to_numpy(padding_mask), lengths)
    # In a graph of `tf.data`, on any backend.
    import tensorflow as tf

    longest = tf.reduce_max(tf.reduce_sum(tf.cast(padding_mask, "int32"), axis=-1))
    lengths = np.array(lengths, "int32")
    return tf.reduce_min(tf.boolean_mask(lengths, lengths >= longest))


def as_tf_dataset(batches: keras.utils.PyDataset) -> Any:
    """Return a `tf.data.Dataset` of batches of different lengths.

    Keras would take the lengths of the first two batches for those of all.
    """
    import tensorflow as tf

    x, *others = batches[0]
    signature = (
        {name: _spec(value, (None, None)) for name, value in x.items()},
        *keras.tree.map_structure(lambda value: _spec(value, (None, *value.shape[1:])), others),
    )
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
    if batches.num_batches is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(batches.num_batches))
    return dataset.prefetch(tf.data.AUTOTUNE)


def _spec(value, shape):
    import tensorflow as tf

    return tf.TensorSpec(shape, keras.backend.standardize_dtype(value.dtype))
