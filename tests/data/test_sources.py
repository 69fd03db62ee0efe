"""Columns, and sources of batches that are read in their order."""

import numpy as np
import pytest

from keras_diet.data.columns import tuple_of_inputs
from keras_diet.data.for_keras import Steps
from keras_diet.data.sources import Passes, source_of

pytestmark = pytest.mark.any_backend


def test_a_list_is_several_inputs_only_if_it_holds_arrays():
    labels = list(np.arange(3.0))
    assert tuple_of_inputs(labels) is labels
    inputs = [np.zeros((3, 2)), np.ones(3)]
    assert tuple_of_inputs(inputs) == tuple(inputs)
    assert isinstance(tuple_of_inputs(["a", "b"]), list)


class Numbers:
    """The batches 0, 1, ..., whose iterators have a state, and how many were read."""

    def __init__(self, size):
        self.size, self.read = size, 0

    def __iter__(self):
        return Iterator(self)


class Iterator:
    def __init__(self, data):
        self.data, self.place = data, 0

    def __next__(self):
        if self.place == self.data.size:
            raise StopIteration
        self.place += 1
        self.data.read += 1
        return np.array([self.place - 1])

    def __iter__(self):
        return self

    def get_state(self):
        return {"place": self.place}

    def set_state(self, state):
        self.place = state["place"]


def test_data_is_counted_once_and_not_read_to_its_end_again():
    numbers = Numbers(50)
    data = source_of(numbers)
    assert (data.num_batches, numbers.read) == (50, 50)
    assert [int(batch[0][0]) for batch in Steps(data).examples] == [0, 1, 1]
    assert numbers.read == 52


def test_the_last_states_are_known():
    data = Passes(Numbers(1000), None)
    data.batch(0, 900)
    assert data.state(898) == (898, {"place": 898})
    # An early state is forgotten, so reading begins at the first batch.
    assert data.state(5) is None
    assert data.batch(0, 5) == [5]
    later = Numbers(1000)
    resumed = Passes(later, None)
    resumed.set_state((898, {"place": 898}))
    assert (resumed.batch(0, 899), later.read) == ([899], 2)


def test_each_batch_of_a_generator_has_its_own_random_numbers():
    data = source_of(iter([0, 0, 0]), seed=5)
    mapped = data.map(lambda batch, generator: generator.random())
    assert len(set(mapped.iterator)) == 3


def test_steps_of_an_epoch_count_the_passes_over_the_data():
    steps = Steps(source_of(np.zeros(6), batch_size=2), 4)
    places = [steps.place(*each) for each in ((0, 2), (0, 3), (1, 1), (2, 0))]
    assert places == [(0, 2), (1, 0), (1, 2), (2, 2)]
