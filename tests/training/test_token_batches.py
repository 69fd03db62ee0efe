"""Batches with about the same number of tokens."""

import numpy as np
import pytest

from keras_diet.training import TokenBatches

pytestmark = pytest.mark.any_backend

# 7 examples of length up to 3, 5 up to 8, and one that is longer than all buckets.
LENGTHS = [1, 3, 4, 8, 2, 3, 1, 7, 5, 3, 3, 20, 4]


def make(**kwargs):
    names = [f"s{i}" for i in range(13)]
    arguments = {"length_buckets": (3, 8), "tokens_per_batch": 17, "seed": 5, **kwargs}
    return TokenBatches((names, range(13)), LENGTHS, **arguments)


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


def test_a_preprocessor_makes_arrays_of_the_columns():
    def stack(names, numbers):
        return np.array([len(name) for name in names]), np.array(numbers)

    lists = make().batch(1, 2)
    x, y = make(preprocessor=stack).batch(1, 2)
    assert (x.tolist(), y.tolist()) == ([len(name) for name in lists[0]], lists[1])


def test_batches_are_not_sorted_by_bucket():
    long = np.array([LENGTHS[numbers[0]] > 3 for _, numbers in contents(make(tokens_per_batch=8))])
    assert np.any(np.diff(long.astype(int)) < 0)


@pytest.mark.parametrize(
    "columns, arguments, message",
    [
        ((["a", "b"],), {"length_buckets": (8, 3)}, r"`length_buckets` must be integers that inc"),
        ((["a", "b"],), {"tokens_per_batch": 0}, "`tokens_per_batch` must be a positive .*=0"),
        ((["a", "b"], ["c"]), {}, r"entry for each example.*\[2, 1\] entries, and 2"),
        ((), {}, r"entry for each example.*\[\] entries, and 2"),
    ],
)
def test_arguments_are_checked(columns, arguments, message):
    with pytest.raises(ValueError, match=message):
        TokenBatches(columns, [1, 2], **{"length_buckets": (4,), **arguments})
