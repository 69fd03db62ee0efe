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
    """The batches 0, 1, ..., whose iterators may have a state, and how many were read."""

    def __init__(self, size, has_state=False):
        self.size, self.has_state, self.read = size, has_state, 0

    def __iter__(self):
        return (StatefulIterator if self.has_state else Iterator)(self)


class Iterator:
    def __init__(self, data):
        self.data, self.place = data, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == self.data.size:
            raise StopIteration
        self.place += 1
        self.data.read += 1
        return np.array([self.place - 1])


class StatefulIterator(Iterator):
    def get_state(self):
        return {"place": self.place}

    def set_state(self, state):
        self.place = state["place"]


@pytest.mark.parametrize("has_state", [False, True])
def test_each_batch_is_that_of_its_place(has_state):
    data = Passes(Numbers(5, has_state), 5)
    for index in (0, 1, 2, 3, 4, 0, 1, 4, 2, 2, 3):
        assert data.batch(0, index) == [index]
    # Without a known length, a new pass begins at the end.
    assert [int(Passes(Numbers(5), None).batch(0, index)[0]) for index in (4, 5, 12)] == [4, 0, 2]


def test_data_is_counted_once_and_not_read_to_its_end_again():
    numbers = Numbers(50, has_state=True)
    data = source_of(numbers)
    assert (data.num_batches, numbers.read) == (50, 50)
    assert [int(batch[0][0]) for batch in Steps(data).examples] == [0, 1, 1]
    assert numbers.read == 52


def test_the_last_states_are_known():
    data = Passes(Numbers(1000, has_state=True), None)
    data.batch(0, 900)
    assert data.state(898) == (898, {"place": 898})
    # An early state is forgotten, so reading begins at the first batch.
    assert data.state(5) is None
    assert data.batch(0, 5) == [5]
    later = Numbers(1000, has_state=True)
    resumed = Passes(later, None)
    resumed.set_state((898, {"place": 898}))
    assert (resumed.batch(0, 899), later.read) == ([899], 2)
