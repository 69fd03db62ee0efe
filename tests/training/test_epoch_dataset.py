"""`EpochDataset` and the epochs of `fit`."""

import time

import keras
import numpy as np
import pytest

from keras_diet.training import EpochDataset
from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS


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


# === Several workers ===

WARNING = "Received: workers=3, use_multiprocessing=False"


class Slow(keras.utils.PyDataset):
    """Batches of two texts, whose epoch begins slowly."""

    num_batches, epoch = 3, 0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = []

    def on_epoch_begin(self):
        time.sleep(0.2)
        self.epoch += 1

    def __getitem__(self, index):
        self.seen.append((self.epoch, index))
        return TEXTS[index : index + 2], np.array([0, 1])


class SeenNumbers(Numbers):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = []

    def batch(self, epoch, index):
        self.seen.append((epoch, index))
        return super().batch(epoch, index)


def assert_reads_three_epochs(seen):
    """Before the first step, Keras may read a batch, and end an epoch."""
    epochs, indices = np.transpose(seen[-9:])
    assert indices.tolist() == 3 * [0, 1, 2]
    assert (epochs - epochs[0]).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_workers_of_an_epoch_dataset_lose_no_batch():
    """With them, Keras loses the first batch on JAX and PyTorch, and later epochs are shifted."""
    with pytest.warns(UserWarning, match=WARNING):
        data = SeenNumbers(seed=3, workers=3)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data, epochs=3, shuffle=False, verbose=0)
    assert_reads_three_epochs(data.seen)


@pytest.mark.any_backend
def test_workers_of_texts_wait_for_the_epoch():
    """With them, Keras reads some batches before `on_epoch_begin`."""
    data = Slow(workers=3)
    with pytest.warns(UserWarning, match=WARNING):
        tiny_task("classifier").fit(data, epochs=3, shuffle=False, verbose=0)
    assert_reads_three_epochs(data.seen)
    assert {epoch for epoch, _ in data.seen[-9:]} == {data.epoch - 2, data.epoch - 1, data.epoch}


@pytest.mark.any_backend
def test_workers_of_token_ids_give_a_warning():
    """Datasets of token ids go to Keras as they are."""
    task = tiny_task("classifier", with_preprocessor=False)
    names = ("token_ids", "segment_ids", "padding_mask")

    class Ids(Slow):
        def __getitem__(self, index):
            return {name: np.ones((2, 5), "int32") for name in names}, np.array([0, 1])

    with pytest.warns(UserWarning, match=WARNING):
        task.evaluate(Ids(workers=3), verbose=0)
