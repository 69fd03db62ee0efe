"""`EpochDataset` and the epochs of `fit`."""

import keras
import numpy as np
import pytest

from keras_diet.training import EpochDataset


class Numbers(EpochDataset):
    """Two rows with the number `10 epoch + index`."""

    num_batches = 3

    def batch(self, epoch, index):
        return np.full((2, 1), 10 * epoch + index, "float32"), np.zeros((2, 1))


class Record(keras.Model):
    def __init__(self):
        super().__init__()
        self.seen = []

    def call(self, x):
        return x

    def train_step(self, state, data=None):
        x = state[0] if data is None else data[0]
        self.seen.append(float(x[0, 0]))
        return {"loss": 0.0}


@pytest.mark.any_backend
@pytest.mark.parametrize("steps, indices", [(None, [0, 1, 2] * 3), (2, [0, 1, 2, 0, 1])])
def test_a_pass_has_the_batches_of_one_epoch(steps, indices):
    """With `steps_per_epoch`, the first pass ends in the second epoch of `fit`."""
    model = Record()
    model.compile(run_eagerly=True)
    model.fit(Numbers(seed=3), steps_per_epoch=steps, epochs=3, shuffle=False, verbose=0)
    epochs, found = np.divmod(model.seen, 10)
    assert found.tolist() == indices
    passes = [set(epochs[i : i + 3]) for i in range(0, len(epochs), 3)]
    assert list(map(len, passes)) == [1] * len(passes)
    assert len(set.union(*passes)) == len(passes)


@pytest.mark.any_backend
@pytest.mark.parametrize("workers", [1, 2])
def test_the_epoch_of_the_user_counts(workers):
    data = Numbers(seed=3, workers=workers)
    data.epoch = 4
    assert data[2][0][0, 0] == 42
    for _ in range(2):
        data.on_epoch_end()
    # Threads may read the second batch before the first one.
    assert data[1][0][0, 0] == (41 if workers == 1 else 61)
    assert data[0][0][0, 0] == 60


@pytest.mark.any_backend
def test_seed_epoch_and_index_have_their_own_random_numbers():
    found = Numbers(seed=3).generator(2, 1).random(4)
    assert found.tolist() == np.random.default_rng((3, 2, 1)).random(4).tolist()
