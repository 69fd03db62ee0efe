"""Batches with about the same number of tokens."""

import numpy as np
import pytest

from keras_diet.training import TokenBatches
from tests.models.tasks import tiny_preprocessor

pytestmark = pytest.mark.any_backend

# 7 examples of length up to 3, 5 up to 8, and one that is longer than all buckets.
LENGTHS = [1, 3, 4, 8, 2, 3, 1, 7, 5, 3, 3, 20, 4]


def make(lengths=LENGTHS, **kwargs):
    names = [f"s{i}" for i in range(13)]
    arguments = {"length_buckets": (3, 8), "tokens_per_batch": 17, "seed": 5, **kwargs}
    return TokenBatches((names, range(13)), lengths, **arguments)


def contents(batches):
    return [batches[i] for i in range(len(batches))]


def test_batches_of_an_epoch():
    batches = make()
    sizes = {False: [], True: []}
    seen = []
    for names, numbers in contents(batches):
        assert isinstance(names, list)
        assert names == [f"s{i}" for i in numbers]
        is_long = {LENGTHS[i] > 3 for i in numbers}
        assert len(is_long) == 1, "one bucket for each batch"
        sizes[is_long.pop()].append(len(numbers))
        seen += numbers
    assert sorted(seen) == list(range(13))
    # 17 tokens are five of length 3, or two of length 8.
    assert sorted(sizes[False]) == [2, 5]
    assert sorted(sizes[True]) == [2, 2, 2]
    assert len(batches) == 5


def test_a_batch_has_at_least_one_example():
    batches = make(tokens_per_batch=2)
    assert [len(names) for names, _ in contents(batches)] == [1] * 13


def test_epochs_differ_and_repeat():
    first = make()
    epochs = []
    for _ in range(3):
        epochs.append(contents(first))
        first.on_epoch_end()
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert contents(make()) == epochs[0]
    assert [make().batch(2, index) for index in range(5)] == epochs[2]
    # Another seed has other epochs, not the same ones earlier or later.
    assert contents(make(seed=6)) not in epochs
    # Not only the order of the batches changes.
    assert {frozenset(numbers) for _, numbers in epochs[0]} != {
        frozenset(numbers) for _, numbers in epochs[1]
    }


def test_arguments_of_datasets_are_passed():
    with pytest.warns(UserWarning, match="workers=3"):
        assert make(workers=3, max_queue_size=7).max_queue_size == 7


def test_batches_are_not_sorted_by_bucket():
    long = np.array([LENGTHS[numbers[0]] > 3 for _, numbers in contents(make(tokens_per_batch=8))])
    assert np.any(np.diff(long.astype(int)) < 0)


def padding(length_buckets=(5, 9), longest=16):
    """A preprocessor that adds two special tokens and has no other lengths than its buckets."""

    def preprocess(names, numbers):
        length = max(min(2 + LENGTHS[i], longest) for i in numbers)
        length = next(bucket for bucket in (*length_buckets, longest) if bucket >= length)
        x = {"token_ids": np.ones((len(numbers), length)), "mask_positions": np.ones((1, 40))}
        # A target that is shorter than its source.
        return {**x, "decoder_token_ids": np.ones((len(numbers), 3))}, np.array(numbers)

    return preprocess


def test_the_preprocessor_tells_the_lengths():
    found = [
        (x["token_ids"].shape, LENGTHS[y[0]] + 2)
        for x, y in contents(
            TokenBatches(
                ([None] * 13, range(13)), tokens_per_batch=33, seed=5, preprocessor=padding()
            )
        )
    ]
    # 33 tokens are six of length 5, three of length 9, or two of length 16. One text is cut.
    assert sorted({shape for shape, _ in found}) == [(1, 5), (1, 9), (2, 16), (3, 9), (6, 5)]
    assert sum(shape[0] for shape, _ in found) == 13
    assert all(np.prod(shape) <= 33 for shape, _ in found)
    lengths = [length + 2 for length in LENGTHS]
    again = make(lengths, length_buckets=(5, 9, 16), tokens_per_batch=33, preprocessor=padding())
    assert len(again) == len(found)


def test_a_text_of_a_task_is_padded_to_its_bucket():
    """The special tokens count. KerasHub's embedder returns no tuple."""
    preprocessor = tiny_preprocessor("embedder", sequence_length=13, length_buckets=(4, 8))
    texts = ["the fox", "fox", "the fox sees", "a", "the " * 20]
    shapes = [
        x["token_ids"].shape
        for x in contents(TokenBatches((texts,), tokens_per_batch=16, preprocessor=preprocessor))
    ]
    assert sorted(shapes) == [(1, 8), (1, 13), (3, 4)]


@pytest.mark.parametrize(
    "columns, arguments, message",
    [
        ((["a", "b"],), {"length_buckets": (8, 3)}, r"`length_buckets` must be integers that inc"),
        ((["a", "b"],), {"tokens_per_batch": 0}, "`tokens_per_batch` must be a positive .*=0"),
        ((["a", "b"], ["c"]), {}, r"entry for each example.*\[2, 1\] entries, and 2"),
        ((), {}, r"entry for each example.*\[\] entries, and 2"),
        ((["a", "b"],), {"lengths": None}, r"\[2\] entries, and 0 lengths"),
    ],
)
def test_arguments_are_checked(columns, arguments, message):
    with pytest.raises(ValueError, match=message):
        TokenBatches(columns, **{"lengths": [1, 2], "length_buckets": (4,), **arguments})
