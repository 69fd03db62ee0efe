"""Packed token ids to batches of a masked language model, shuffled and masked on the fly."""

import functools
import numbers
import sys

import grain
import keras
import numpy as np

from keras_diet import validation
from keras_diet.pretraining.masking import check_rates, checked_token_ids, mask_tokens
from keras_diet.pretraining.segments import number_segments

# Reading all of a file that is larger than memory would take long; these are read at once, the
# rest is checked batch by batch.
_ROWS_TO_CHECK = 1024

# Grain's defaults are 16 threads, which only fight for Python's lock here (one reads twice as
# fast), and 500 batches ahead, which is gigabytes of large ones.
_READ_OPTIONS = grain.ReadOptions(num_threads=1, prefetch_buffer_size=8)


def masked_lm_dataset(
    token_ids,
    tokenizer,
    batch_size,
    *,
    shuffle=True,
    repeat=False,
    seed=0,
    mask_selection_rate=0.15,
    mask_selection_length=None,
    mask_token_rate=0.8,
    random_token_rate=0.1,
    drop_remainder=True,
    num_segments=1,
):
    """Batches for training a masked language model, with new masks in each epoch.

    Batch `i` depends on `i`, `seed` and the arguments alone: on every backend and with any number
    of threads it is the same. In an epoch every sequence comes once, in an order drawn for this
    epoch, and masks are drawn for each batch, so that epochs mask differently (dynamic masking).

    - Train with `repeat=True`, which goes from epoch to epoch without end, and take as many steps
      as are wanted: `fit(dataset[:total_steps], steps_per_epoch=..., epochs=...)`. To go on after
      `n` steps pass `dataset[n:total_steps]`, which begins with exactly the next batch.
    - Validate with `shuffle=False`: one pass, with the same masks whenever it is read.
    - With `repeat=False` and `shuffle=True` the dataset is one epoch, and iterating again gives
      the same one. `fit(epochs=...)` of a KerasHub task goes on to new epochs, that of a plain
      `keras.Model` repeats the first.

    Iterating over the dataset itself, as a plain `keras.Model` does and a KerasHub task if there is
    no end, Grain reads 500 batches ahead in 16 threads. With large batches
    `dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=8))` saves
    memory and is faster; an endless rest is `dataset[n:].repeat()`.

    Args:
        token_ids: Integer array of shape `(N, L)`: packed sequences, e.g. the memory map that
            `pack_text_files` returns. It is read row by row, when needed.
        tokenizer: A `keras_hub.models.BertTokenizer` or one like it: `vocabulary_size()`,
            `mask_token_id`, `pad_token_id` and `special_token_ids` are read, and `sep_token_id`
            with several segments.
        batch_size: int. Sequences in a batch. The paper uses 4096.
        shuffle: bool. Whether to shuffle all sequences, anew in each epoch. Defaults to `True`.
        repeat: bool. Whether to go on without end. Defaults to `False`.
        seed: int in [0, 2**32). Seed of order and masks. Defaults to `0`.
        mask_selection_rate: float. As in `mask_tokens`. Defaults to `0.15`.
        mask_selection_length: int or `None`. As in `mask_tokens`. Defaults to `None`.
        mask_token_rate: float. As in `mask_tokens`. Defaults to `0.8`.
        random_token_rate: float. As in `mask_tokens`. Defaults to `0.1`.
        drop_remainder: bool. Whether to leave out the sequences of an epoch that fill no batch
            (with `shuffle` others in each epoch). If `False`, the last batch is smaller, which
            compiles a second time, and with `repeat=True` it is filled up from the next epoch.
            Defaults to `True`.
        num_segments: int. With more than one, the documents in a sequence are numbered as its
            segments by `number_segments`. Defaults to `1`: all tokens belong to segment 0, as in
            the paper's pretraining.

    Returns:
        `grain.MapDataset` of `(features, labels, sample_weight)`, as `mask_tokens` returns them,
        for `fit` and `evaluate` of a masked language model without preprocessor.

    Raises:
        ValueError: If `token_ids` is no integer array of rank 2, there are fewer sequences than
            `batch_size` with `drop_remainder`, a token id does not fit the vocabulary (the first
            1024 rows are checked here, the others when they are read), or an argument is out of
            range.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "ran", "."]
    tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
    documents = [["One ran. Two ran.", "Two."], ["One."]]
    token_ids = np.stack(list(keras_diet.pretraining.pack_sentences(documents, tokenizer, 8)))
    dataset = keras_diet.pretraining.masked_lm_dataset(token_ids, tokenizer, 2, repeat=True)
    features, labels, sample_weight = dataset[0]
    labels.shape  # (2, 2)
    ```

    References:
     - [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1
     - [Grain](https://google-grain.readthedocs.io)
    """
    validation.positive_int("num_segments", num_segments)
    _check_sequences(token_ids, tokenizer, needs_separator=num_segments > 1)
    _check_seed(seed)
    check_rates(mask_selection_rate, mask_token_rate, random_token_rate)
    if mask_selection_length is not None:
        validation.positive_int("mask_selection_length", mask_selection_length)
    mask = functools.partial(
        mask_tokens,
        vocabulary_size=tokenizer.vocabulary_size(),
        mask_token_id=tokenizer.mask_token_id,
        unselectable_token_ids=sorted(tokenizer.special_token_ids),
        pad_token_id=tokenizer.pad_token_id,
        mask_selection_rate=mask_selection_rate,
        mask_selection_length=mask_selection_length,
        mask_token_rate=mask_token_rate,
        random_token_rate=random_token_rate,
    )

    def make_batch(indices, generator):
        sequences = token_ids[indices]
        features, labels, sample_weight = mask(sequences, generator)
        if num_segments > 1:
            features["segment_ids"] = number_segments(
                sequences, tokenizer.sep_token_id, tokenizer.pad_token_id, num_segments
            )
        return features, labels, sample_weight

    rows = grain.MapDataset.range(len(token_ids)).seed(seed)
    rows = rows.shuffle() if shuffle else rows
    # Batches of row numbers, since reading and masking a batch at once is many times faster.
    batches = _batch_rows(rows, batch_size, drop_remainder, repeat)
    batches = batches.random_map(make_batch)
    if repeat:
        return batches.repeat()
    # `fit` of a KerasHub task repeats validation data, which would move on to other masks.
    return batches if shuffle else batches.repeat(1, reseed_each_epoch=False)


def as_tf_dataset(dataset):
    """The same batches as a `tf.data.Dataset`, for code that wants one.

    Each iteration over the result starts at the first batch again. For training pass a repeated
    dataset (`masked_lm_dataset(..., repeat=True)`), and `steps_per_epoch` to `fit`; otherwise every
    epoch has the same order and masks.

    Args:
        dataset: A `grain.MapDataset` from `masked_lm_dataset`, or a slice of one.

    Returns:
        `tf.data.Dataset` with static shapes (the batch size is unknown only where the last batch
        is smaller), known cardinality and prefetching.

    Raises:
        ImportError: If TensorFlow is not installed.
        ValueError: If `dataset` is not a `grain.MapDataset` or is empty.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "ran", "."]
    tokenizer = keras_hub.models.BertTokenizer(vocabulary)
    token_ids = np.array([[2, 5, 6, 8, 3], [2, 6, 7, 8, 3]])
    dataset = keras_diet.pretraining.masked_lm_dataset(token_ids, tokenizer, 2)
    features, labels, sample_weight = next(
        iter(keras_diet.pretraining.as_tf_dataset(dataset))
    )
    ```
    """
    if not isinstance(dataset, grain.MapDataset) or len(dataset) == 0:
        raise ValueError(
            "`dataset` must be a non-empty `grain.MapDataset`, as `masked_lm_dataset` returns it. "
            f"Received: {dataset!r}"
        )
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(
            "`as_tf_dataset` needs TensorFlow (`pip install tensorflow`). Without it pass the "
            "Grain dataset itself to `fit`, which works on every backend."
        ) from error

    def spec(first, last):
        batch_size = len(first) if len(first) == len(last) else None
        return tf.TensorSpec((batch_size, *first.shape[1:]), first.dtype)

    first, last = dataset[0], dataset[len(dataset) - 1]
    tf_dataset = tf.data.Dataset.from_generator(
        lambda: dataset.to_iter_dataset(_READ_OPTIONS),
        output_signature=keras.tree.map_structure(spec, first, last),
    )
    cardinality = len(dataset) if len(dataset) < sys.maxsize else tf.data.INFINITE_CARDINALITY
    tf_dataset = tf_dataset.apply(tf.data.experimental.assert_cardinality(cardinality))
    return tf_dataset.prefetch(tf.data.AUTOTUNE)


def _check_sequences(token_ids, tokenizer, needs_separator):
    shape, dtype = getattr(token_ids, "shape", ()), getattr(token_ids, "dtype", None)
    if not isinstance(token_ids, np.ndarray) or len(shape) != 2 or dtype.kind not in "iu":
        raise ValueError(
            "`token_ids` must be a NumPy array of integers of shape (N, L). "
            f"Received: shape={shape}, dtype={dtype}, type={type(token_ids)}"
        )
    names = ["mask_token_id", "pad_token_id", "special_token_ids"]
    for name in names + ["sep_token_id"] * needs_separator:
        if getattr(tokenizer, name, None) is None:
            raise ValueError(f"`tokenizer` must have `{name}`. Received: tokenizer={tokenizer!r}")
    checked_token_ids(token_ids[:_ROWS_TO_CHECK], tokenizer.vocabulary_size())


def _check_seed(seed):
    if not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**32:
        raise ValueError(f"`seed` must be an integer in [0, 2**32). Received: seed={seed!r}")


def _batch_rows(rows, batch_size, drop_remainder, repeat):
    """Batch row numbers; without end there is no remainder, a batch crosses to the next epoch."""
    batch_size = validation.positive_int("batch_size", batch_size)
    if repeat and not drop_remainder:
        return rows.repeat().batch(batch_size)
    if drop_remainder and batch_size > len(rows):
        raise ValueError(
            "`batch_size` must not exceed the number of sequences, or no batch is left. Received: "
            f"batch_size={batch_size}, {len(rows)} sequences. Lower it or pass "
            "`drop_remainder=False`."
        )
    return rows.batch(batch_size, drop_remainder=drop_remainder)
