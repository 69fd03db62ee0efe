"""Batches of a masked language model: order, masks, epochs, segments, resuming and training."""

import itertools
import sys

import grain
import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.pretraining import as_tf_dataset, masked_lm_dataset, number_segments
from keras_diet.pretraining import dataset as dataset_module

LENGTH = 11
any_backend = pytest.mark.any_backend


@pytest.fixture
def sequences():
    """23 sequences that differ in their first token."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, 29, (23, LENGTH))
    tokens[:, 0], tokens[:, 1], tokens[:, -1] = 2, np.arange(5, 28), 3
    return tokens


def restored(batches):
    """The sequences of batches before masking, and the positions of their masks."""
    tokens, positions = [], []
    for features, labels, weight in batches:
        for row in range(len(labels)):
            used = features["mask_positions"][row][weight[row] == 1]
            sequence = features["token_ids"][row].copy()
            sequence[used] = labels[row][weight[row] == 1]
            tokens.append(sequence.tolist())
            positions.append(used.tolist())
    return tokens, positions


def equal(first, second):
    leaves = zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


@any_backend
def test_one_epoch_contains_every_sequence_once(sequences, tokenizer):
    dataset = masked_lm_dataset(sequences, tokenizer, 5, drop_remainder=False)
    assert isinstance(dataset, grain.MapDataset)
    assert len(dataset) == 5
    tokens, _ = restored(dataset)
    assert tokens != sequences.tolist()
    assert sorted(tokens) == sorted(sequences.tolist())
    assert [len(labels) for _, labels, _ in dataset] == [5, 5, 5, 5, 3]


@any_backend
def test_remainder_is_dropped_and_differs_between_epochs(sequences, tokenizer):
    dataset = masked_lm_dataset(sequences, tokenizer, 5, repeat=True)
    epochs = [restored(dataset[i] for i in range(4 * e, 4 * e + 4))[0] for e in range(6)]
    assert all(len({tuple(tokens) for tokens in epoch}) == 20 for epoch in epochs)
    seen = {tuple(tokens) for epoch in epochs for tokens in epoch}
    assert len(seen) == 23


@any_backend
def test_batches_continue_with_the_next_epoch_without_a_remainder(sequences, tokenizer):
    """A batch may be larger than the data."""
    dataset = masked_lm_dataset(sequences, tokenizer, 115, repeat=True, drop_remainder=False)
    tokens, _ = restored([dataset[0]])
    assert len(tokens) == 5 * 23
    for epoch in range(5):
        assert sorted(tokens[23 * epoch : 23 * (epoch + 1)]) == sorted(sequences.tolist())


def parts_of(sequences, kind):
    """The sequences as those of one language, or of two."""
    return sequences if kind == "one" else {"en": sequences[:15], "de": sequences[15:]}


languages = pytest.mark.parametrize("kind", ["one", "languages"])


@any_backend
@languages
def test_batches_depend_on_the_seed(sequences, tokenizer, kind):
    def batches(seed, shuffle=True):
        options = {"seed": seed, "shuffle": shuffle, "repeat": True}
        return masked_lm_dataset(parts_of(sequences, kind), tokenizer, 5, **options)[:4]

    assert equal(list(batches(3)), list(batches(3)))
    assert restored(batches(3))[0] != restored(batches(4))[0]
    assert restored(batches(3, shuffle=False))[1] != restored(batches(4, shuffle=False))[1]


@any_backend
def test_second_epoch_has_another_order_and_other_masks(sequences, tokenizer):
    dataset = masked_lm_dataset(sequences, tokenizer, 23, repeat=True)
    assert len(dataset) == sys.maxsize
    (first, first_masks), (second, second_masks) = restored([dataset[0]]), restored([dataset[1]])
    assert first != second
    assert sorted(first) == sorted(second)
    by_sequence = dict(zip(map(tuple, first), first_masks, strict=True))
    same = [
        by_sequence[tuple(tokens)] == mask
        for tokens, mask in zip(second, second_masks, strict=True)
    ]
    assert sum(same) < 8


@any_backend
def test_validation_has_the_same_masks_in_each_pass(sequences, tokenizer):
    dataset = masked_lm_dataset(sequences, tokenizer, 4, shuffle=False, drop_remainder=False)
    assert restored(dataset)[0] == sequences.tolist()
    assert equal(list(dataset), list(dataset))
    # `fit` of a KerasHub task repeats `validation_data` in this way.
    repeated = list(dataset.repeat(2))
    assert equal(repeated[:6], repeated[6:])
    assert not equal(dataset[0], dataset[1])


@any_backend
@languages
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_any_way_to_read_gives_the_same_batches(sequences, tokenizer, kind, drop_remainder):
    """From any batch on, as an epoch that repeats, and with threads."""
    arguments = {"batch_size": 5, "drop_remainder": drop_remainder}
    dataset = masked_lm_dataset(parts_of(sequences, kind), tokenizer, repeat=True, **arguments)
    expected = [dataset[i] for i in range(40)]
    assert not equal(expected[0], expected[1])
    resumed = dataset[7:].repeat()
    assert len(resumed) == sys.maxsize
    assert equal([resumed[i] for i in range(9)], expected[7:16])
    assert equal(list(dataset[7:11]), expected[7:11])
    options = grain.ReadOptions(num_threads=4, prefetch_buffer_size=16)
    assert equal([*itertools.islice(dataset.to_iter_dataset(options), 40)], expected)
    if drop_remainder and kind == "one":
        epoch = masked_lm_dataset(sequences, tokenizer, **arguments)
        assert equal(list(epoch.repeat(2)), expected[:8])


@any_backend
def test_special_tokens_may_have_any_id(shifted_tokenizer):
    tokenizer = shifted_tokenizer
    cls, sep, pad = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "[PAD]"))
    tokens = np.array([[cls, 0, 1, sep, 0, 3, sep, pad], [cls, 5, 0, 9, sep, pad, pad, pad]])
    rates = {"mask_selection_rate": 1.0, "mask_token_rate": 1.0, "random_token_rate": 0.0}
    options = {"shuffle": False, "mask_selection_length": 5, "num_segments": 3}
    mask = tokenizer.mask_token_id
    masked = [[cls, mask, mask, sep, mask, mask, sep, pad], [cls, *[mask] * 3, sep, *[pad] * 3]]
    features = {
        "token_ids": np.array(masked),
        "padding_mask": np.array([[1] * 7 + [0], [1] * 5 + [0] * 3]),
        "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 1, 0], [0] * 8]),
        "mask_positions": np.array([[1, 2, 4, 5, 0], [1, 2, 3, 0, 0]]),
    }
    labels = np.array([[0, 1, 0, 3, 0], [5, 0, 9, 0, 0]])
    weight = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
    found = masked_lm_dataset(tokens, tokenizer, 2, **options, **rates)[0]
    assert equal(found, (features, labels, weight))
    # Another document begins with `[CLS]`.
    tokens[0, 4], features["token_ids"][0, 4] = cls, cls
    features["segment_ids"][:] = 0
    features["mask_positions"][0] = [1, 2, 5, 0, 0]
    options |= {"num_segments": 1, "document_masks": True}
    found, _, _ = masked_lm_dataset(tokens, tokenizer, 2, **options, **rates)[0]
    ids = np.array([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]])
    assert equal(found, {**features, "document_ids": ids})


def expected_segments(token_ids, num_segments, sep, pad):
    segments = np.zeros(token_ids.shape, "int32")
    for row, tokens in enumerate(token_ids):
        segment = 0
        for i, token in enumerate(tokens):
            segments[row, i] = segment if any(tokens[i:] != pad) else 0
            if token == sep:
                segment = min(segment + 1, num_segments - 1)
    return segments


@any_backend
@pytest.mark.parametrize("pad", [0, 4])
@pytest.mark.parametrize("num_segments", [1, 2, 3, 11])
def test_segments_are_numbered(rng, num_segments, pad):
    assert number_segments([2, 5, 6, 3, 7, 3, 0], 3).tolist() == [0, 0, 0, 0, 1, 1, 0]
    tokens = rng.integers(0, 5, size=(7, 13))
    segments = number_segments(tokens, 3, pad, num_segments)
    np.testing.assert_array_equal(segments, expected_segments(tokens, num_segments, 3, pad))
    assert segments.dtype == "int32"


@any_backend
def test_keras_hub_task_trains(sequences, tokenizer):
    backbone = keras_hub.models.BertBackbone(29, 1, 2, 8, 8, max_sequence_length=LENGTH)
    masked_lm = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    masked_lm.compile(keras.optimizers.Adam(0.01), loss=loss, weighted_metrics=[])
    train = masked_lm_dataset(sequences, tokenizer, 6, repeat=True)[:6]
    valid = masked_lm_dataset(sequences, tokenizer, 6, shuffle=False)
    options = {"steps_per_epoch": 3, "epochs": 2, "verbose": 0}
    history = masked_lm.fit(train, validation_data=valid, **options).history
    assert history["val_loss"][-1] < history["val_loss"][0]
    # Validation has the same masks in each epoch, so `evaluate` gives the last epoch's loss.
    loss = masked_lm.evaluate(valid, verbose=0)
    np.testing.assert_allclose(loss, history["val_loss"][-1], rtol=1e-4)


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize("drop_remainder, batch_size", [(True, 5), (False, None)])
def test_tf_dataset_is_the_same_with_static_shapes(
    sequences, tokenizer, drop_remainder, batch_size
):
    pytest.importorskip("tensorflow")
    dataset = masked_lm_dataset(sequences, tokenizer, 5, drop_remainder=drop_remainder)
    tf_dataset = as_tf_dataset(dataset)
    features, labels, weight = tf_dataset.element_spec
    assert features["token_ids"].shape == (batch_size, LENGTH)
    assert features["padding_mask"].dtype == "bool"
    assert labels.shape == weight.shape == features["mask_positions"].shape == (batch_size, 2)
    assert int(tf_dataset.cardinality()) == len(dataset)
    for _ in range(2):
        assert equal(list(tf_dataset.as_numpy_iterator()), list(dataset))


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_tf_dataset_may_be_endless(sequences, tokenizer, drop_remainder):
    tf = pytest.importorskip("tensorflow")
    dataset = masked_lm_dataset(sequences, tokenizer, 5, repeat=True, drop_remainder=drop_remainder)
    for start, part in [(0, dataset), (3, dataset[3:].repeat())]:
        tf_dataset = as_tf_dataset(part)
        assert tf_dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        assert tf_dataset.element_spec[1].shape == (5, 2)
        batches = list(tf_dataset.take(9).as_numpy_iterator())
        assert equal(batches, [dataset[start + i] for i in range(9)])


@any_backend
def test_token_ids_beyond_the_first_rows_are_checked_when_read(tokenizer, monkeypatch):
    monkeypatch.setattr(dataset_module, "_ROWS_TO_CHECK", 3)
    tokens = np.full((4, 5), 5)
    tokens[3] = 29
    batches = masked_lm_dataset(tokens, tokenizer, 2, shuffle=False)
    assert batches[0][1].shape == (2, 1)
    message = r"`token_ids` must be integers in .*\[0, 29\). Received: 5 to 29"
    with pytest.raises(ValueError, match=message):
        batches[1]
    monkeypatch.setattr(dataset_module, "_ROWS_TO_CHECK", 4)
    for at_once in (tokens, {"en": tokens[:3], "de": tokens}):
        with pytest.raises(ValueError, match=message):
            masked_lm_dataset(at_once, tokenizer, 2, shuffle=False, repeat=True)
