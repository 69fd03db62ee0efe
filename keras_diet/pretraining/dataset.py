"""Batches for a masked language model from packed token ids, shuffled and masked on the fly."""

import sys
from collections.abc import Mapping
from typing import Any

import grain
import keras
import numpy as np

from keras_diet import validation
from keras_diet.data.for_keras import tf_dataset_of
from keras_diet.pretraining.masking import mask_tokens
from keras_diet.pretraining.packing import number_documents, number_segments
from keras_diet.pretraining.text import language_probabilities

# A file may be larger than memory, so only its first rows are read to check them.
_ROWS_TO_CHECK = 1024

# By default, Grain uses 16 threads, which compete for Python's lock: one thread is twice as fast.
# It also reads 500 batches ahead, which takes gigabytes if batches are large.
_READ_OPTIONS = grain.ReadOptions(num_threads=1, prefetch_buffer_size=8)


def masked_lm_dataset(
    token_ids: np.ndarray | Mapping[str, np.ndarray],
    tokenizer: Any,
    batch_size: int,
    *,
    shuffle: bool = True,
    repeat: bool = False,
    seed: int = 0,
    mask_selection_rate: float = 0.15,
    mask_selection_length: int | None = None,
    mask_token_rate: float = 0.8,
    random_token_rate: float = 0.1,
    drop_remainder: bool = True,
    num_segments: int = 1,
    sampling_exponent: float = 0.7,
    document_masks: bool = False,
) -> grain.MapDataset:
    """Return batches for training a masked language model, with new masks in each epoch.

    Batch `i` depends only on `i`, `seed` and the other arguments. It is the same on every backend
    and with any number of threads. Each epoch contains every sequence once, in a new random order.
    Masks are drawn for each batch, so they differ between epochs (dynamic masking).

    - For training, use `repeat=True`, which is an endless series of epochs. Choose the number of
      steps with `fit(dataset[:total_steps], steps_per_epoch=..., epochs=...)`. To resume after `n`
      steps, pass `dataset[n:total_steps]`, which starts with exactly the next batch.
    - For validation, use `shuffle=False`: one pass, with the same masks each time it is read.
    - With `repeat=False` and `shuffle=True`, the dataset is one epoch. Iterating again gives the
      same epoch. So `fit(epochs=...)` of a task of this library, or of a plain `keras.Model`, has
      the same order and masks in each epoch. Only a task of KerasHub continues with new epochs.

    With several languages, each batch has the shares of `language_probabilities`, as nearly as
    whole sequences permit. The sizes of the languages are their numbers of sequences. Each language
    has its own epochs, so a small language repeats more often than a large one. Such a dataset has
    no end. Validate on one dataset for each language, which also shows how well each is learned.

    A task of this library reads the batches by their numbers, in one thread. With
    `keras_diet.training.ExactResume`, every model reads them by their numbers. Otherwise a plain
    `keras.Model` iterates over the dataset itself. A KerasHub task also does so if the dataset is
    endless. Grain then reads 500 batches ahead in 16 threads. If batches are large, pass
    `dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=8))`, which takes
    less memory and is faster. To resume an endless dataset, use `dataset[n:].repeat()`.

    Args:
        token_ids: Integer array of shape `(N, L)`: packed sequences, such as the memory map that
            `pack_text_files` returns. Rows are read when they are needed. For several languages,
            a dictionary with such an array for each, which needs `repeat=True`.
        tokenizer: A `keras_hub.models.BertTokenizer`, or another tokenizer with
            `vocabulary_size()`, `mask_token_id`, `pad_token_id` and `special_token_ids`. Special
            tokens that a user has added are never masked, either. With
            several segments it also needs `sep_token_id`, and with `document_masks` both
            `sep_token_id` and `cls_token_id`.
        batch_size: int. Number of sequences in a batch. The paper uses 4096 (Table 7).
        shuffle: bool. Whether to shuffle all sequences in each epoch. Defaults to `True`.
        repeat: bool. Whether to repeat without end. Defaults to `False`.
        seed: int in [0, 2**32). Seed of the order and the masks. Defaults to `0`.
        mask_selection_rate: float. As in `mask_tokens`. Defaults to `0.15`.
        mask_selection_length: int or `None`. As in `mask_tokens`. Defaults to `None`.
        mask_token_rate: float. As in `mask_tokens`. Defaults to `0.8`.
        random_token_rate: float. As in `mask_tokens`. Defaults to `0.1`.
        drop_remainder: bool. Whether to drop the last sequences of an epoch if they do not fill a
            batch. With `shuffle`, each epoch drops other sequences. If `False`, the last batch is
            smaller, and the model is compiled a second time for it. With `repeat=True`, sequences
            of the next epoch fill it instead. Defaults to `True`.
        num_segments: int. If greater than 1, `number_segments` numbers the documents in a sequence
            as its segments. Defaults to `1`: all tokens belong to segment 0. We infer this from
            appendix A of the paper, which adds segments for fine-tuning.
        sampling_exponent: float in [0, 1]. As in `language_probabilities`. It has no effect on one
            language. Defaults to `0.7`, as in XLM.
        document_masks: bool. Whether the features hold the `"document_ids"` of `number_documents`,
            so that the documents in a sequence do not see each other. Pack them with
            `document_masks=True` too. All tokens of a document have one segment, so it needs
            `num_segments=1`. Defaults to `False`, as in the paper.

    Returns:
        `grain.MapDataset` of `(features, labels, sample_weight)`, as returned by `mask_tokens`.
        Pass it to `fit` and `evaluate` of a masked language model without a preprocessor.

    Raises:
        ValueError: If `token_ids` does not hold integers, if a token id does not fit the
            vocabulary, or if an argument is out of range. `batch_size` must not exceed the number
            of sequences with `drop_remainder`. With several languages, without `repeat=True`. If
            the sequences were packed with another `document_masks`. Token ids of the first 1024
            rows of each array are checked immediately, and all others when they are read.

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
     - [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.1: new masks in each epoch
     - [Lample and Conneau, 2019](https://arxiv.org/abs/1901.07291): sampling of languages
     - [Grain](https://google-grain.readthedocs.io)
    """
    validation.choice("repeat", repeat, (False, True))
    is_mixed = isinstance(token_ids, Mapping)
    arrays: list[Any] = list(token_ids.values()) if isinstance(token_ids, Mapping) else [token_ids]
    if is_mixed and not repeat:
        raise ValueError(
            "Several languages need `repeat=True`, because they have different epochs. Received: "
            "repeat=False. To validate, make a dataset of each language."
        )
    if document_masks and num_segments != 1:
        raise ValueError(
            "`document_masks=True` needs `num_segments=1`, because a document is one segment. "
            f"Received: num_segments={num_segments}"
        )

    special_token_ids = _special_token_ids(tokenizer)

    def make_batch(sequences, generator):
        features, labels, sample_weight = mask_tokens(
            sequences,
            generator,
            vocabulary_size=tokenizer.vocabulary_size(),
            mask_token_id=tokenizer.mask_token_id,
            unselectable_token_ids=special_token_ids,
            pad_token_id=tokenizer.pad_token_id,
            mask_selection_rate=mask_selection_rate,
            mask_selection_length=mask_selection_length,
            mask_token_rate=mask_token_rate,
            random_token_rate=random_token_rate,
        )
        if num_segments != 1:
            features["segment_ids"] = number_segments(
                sequences, tokenizer.sep_token_id, tokenizer.pad_token_id, num_segments
            )
        if document_masks:
            _check_documents(np.asarray(sequences), tokenizer)
            features["document_ids"] = number_documents(
                sequences, tokenizer.sep_token_id, tokenizer.pad_token_id
            )
        return features, labels, sample_weight

    for array in arrays:
        # Wrong ids and arguments raise their errors now, and not when training starts.
        make_batch(array[:_ROWS_TO_CHECK], np.random.default_rng(0))

    # Row numbers are batched first, because reading and masking whole batches is much faster.
    sequences: Any = token_ids
    if isinstance(token_ids, Mapping):
        sequences = MixedSequences(token_ids)
        batches = sequences.rows(shuffle, seed, sampling_exponent).batch(batch_size)
    else:
        rows = grain.MapDataset.range(len(sequences)).seed(seed)
        rows = rows.shuffle() if shuffle else rows
        batches = _batch_rows(rows, batch_size, drop_remainder, repeat)
    batches = batches.random_map(lambda rows, generator: make_batch(sequences[rows], generator))
    if repeat:
        return batches.repeat()
    # `fit` of a KerasHub task repeats validation data. Without this, each repetition would have
    # other masks.
    return batches if shuffle else batches.repeat(1, reseed_each_epoch=False)


def _special_token_ids(tokenizer):
    """Return the ids of the special tokens, also of those that a user has added."""
    # KerasHub's tokenizers have the latter in their configuration only.
    config = tokenizer.get_config() if isinstance(tokenizer, keras.layers.Layer) else {}
    vocabulary = tokenizer.get_vocabulary() if config.get("special_tokens") else ()
    added = [token for token in config.get("special_tokens") or () if token in vocabulary]
    return sorted({*tokenizer.special_token_ids, *map(tokenizer.token_to_id, added)})


def _check_documents(sequences, tokenizer):
    """Raise a `ValueError` if sequences have no `[CLS]` at the beginning of each document."""
    after = sequences[:, 1:][sequences[:, :-1] == tokenizer.sep_token_id]
    wrong = after[(after != tokenizer.cls_token_id) & (after != tokenizer.pad_token_id)]
    if wrong.size:
        raise ValueError(
            "With `document_masks=True`, `[CLS]` or padding must follow each `[SEP]`. Received: "
            f"the token {wrong[0]} behind `[SEP]`. Pack the sequences with `document_masks=True`. "
            "If you did, a text holds the name of a special token: remove it and pack again."
        )


def as_tf_dataset(dataset: grain.MapDataset) -> Any:
    """Return the same batches as a `tf.data.Dataset`, for code that needs one.

    Each iteration over the result starts again with the first batch. For training, pass a repeated
    dataset (`masked_lm_dataset(..., repeat=True)`), and pass `steps_per_epoch` to `fit`. Otherwise
    every epoch has the same order and masks.

    Args:
        dataset: A `grain.MapDataset` from `masked_lm_dataset`, or a slice of it.

    Returns:
        `tf.data.Dataset` with static shapes, known cardinality and prefetching. Its batch size is
        unknown only if the last batch is smaller.

    Raises:
        ImportError: If TensorFlow is not installed.

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
    # An endless dataset of Grain has the largest length that Python knows.
    length = len(dataset)
    return tf_dataset_of(
        lambda: dataset.to_iter_dataset(_READ_OPTIONS),
        length if length < sys.maxsize else -1,
        [dataset[0], dataset[length - 1]],
        varying_axes=(),
    )


def _batch_rows(rows, batch_size, drop_remainder, repeat):
    """Batch row numbers. If the rows repeat, a batch may continue with the next epoch."""
    if repeat and not drop_remainder:
        return rows.repeat().batch(batch_size)
    if drop_remainder and batch_size > len(rows):
        raise ValueError(
            f"No batch is left. Received: batch_size={batch_size} with {len(rows)} sequences. "
            "Reduce `batch_size`, or pass `drop_remainder=False`."
        )
    return rows.batch(batch_size, drop_remainder=drop_remainder)


class MixedSequences:
    """The sequences of several languages, one language after the other.

    Args:
        sequences: Mapping of each language to an integer array of shape `(N, L)`, such as a memory
            map. All arrays have the same `L`.
    """

    def __init__(self, sequences: Mapping[str, np.ndarray]) -> None:
        self.sizes = {language: len(array) for language, array in sequences.items()}
        self.arrays = list(sequences.values())
        self.starts = np.cumsum([0, *self.sizes.values()])
        # The tokens of one language may need more bytes.
        self.dtype = np.result_type(*self.arrays)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the sequences in some rows, an array of shape `(len(rows), L)`."""
        languages = np.searchsorted(self.starts, rows, side="right") - 1
        found = np.empty((len(rows), self.arrays[0].shape[1]), self.dtype)
        for i in np.unique(languages):
            found[languages == i] = self.arrays[i][rows[languages == i] - self.starts[i]]
        return found

    def rows(self, shuffle: bool, seed: int, sampling_exponent: float) -> grain.MapDataset:
        """Return an endless series of row numbers, mixed as `language_probabilities` says.

        Each language has its own epochs: all its rows, before one of them comes again.
        """
        probabilities = language_probabilities(self.sizes, sampling_exponent)
        languages = []
        # With one seed, all languages of the same size would have the same order.
        seeds = np.random.SeedSequence(seed).generate_state(len(self.arrays)).tolist()
        for i in range(len(self.arrays)):
            rows = grain.MapDataset.range(self.starts[i], self.starts[i + 1]).seed(seeds[i])
            languages.append((rows.shuffle() if shuffle else rows).repeat())
        return grain.MapDataset.mix(languages, list(probabilities.values())).seed(seed)
