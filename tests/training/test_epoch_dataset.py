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
@pytest.mark.parametrize("shuffle", [True, False])
def test_each_epoch_of_fit_has_the_batches_of_one_epoch(shuffle):
    """Keras reads the batches in a new order with `shuffle=True`."""
    model = Record()
    model.compile(run_eagerly=True)
    model.fit(Numbers(seed=3), epochs=3, shuffle=shuffle, verbose=0)
    epochs, indices = np.divmod(np.reshape(model.seen, (3, 3)), 10)
    assert np.sort(indices).tolist() == [[0, 1, 2]] * 3
    assert [len(set(each)) for each in epochs.tolist()] == [1] * 3
    assert len(set(epochs[:, 0])) == 3


@pytest.mark.any_backend
def test_seed_epoch_and_index_have_their_own_random_numbers():
    found = Numbers(seed=3).generator(2, 1).random(4)
    assert found.tolist() == np.random.default_rng((3, 2, 1)).random(4).tolist()
