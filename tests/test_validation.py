"""The checks of arguments: values they accept, values they refuse, and the messages."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import validation

any_backend = pytest.mark.any_backend
NO_NUMBERS = [True, np.True_, "2", b"2", [2], (2,), {"size": 2}, np.array(2), 2j, math.nan, None]
# For each check: what it accepts, what it refuses beside `NO_NUMBERS`, and the message.
NUMBERS = {
    "positive_int": ([1, 2**40, np.int8(7)], [0, -1, np.int32(-3), 2.0], "a positive integer"),
    "positive_number": (
        [3, 0.25, 1e-30, np.float32(0.25)],
        [0, -0.0, -1e-30, math.inf],
        "a positive, finite number",
    ),
    "not_negative_number": ([0, 0.5, np.int64(3)], [-1e-30, math.inf], "a finite number of at"),
    "rate": ([0, 0.25, 1, np.float32(0.5)], [-0.01, 1.01, math.inf], "a number in [0, 1]"),
}


@any_backend
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    accepted, refused, rule = NUMBERS[name]
    check = getattr(validation, name)
    for value in accepted:
        result = check("size", value)
        assert result == value
        assert type(result) is (int if name.endswith("int") else float)
    for value in [*refused, *NO_NUMBERS]:
        with pytest.raises(ValueError, match="`size` must be") as error:
            check("size", value)
        assert rule in str(error.value)
        assert str(error.value).endswith(f"Received: size={value!r}")


@any_backend
def test_increasing_integers():
    assert validation.increasing_ints("sizes", [2, np.int64(3), 5]) == (2, 3, 5)
    for values in ((), (3, 2), (2, 2), 5, "23", None):
        with pytest.raises(ValueError, match="`sizes` must be integers that increase"):
            validation.increasing_ints("sizes", values)
    with pytest.raises(ValueError, match="`sizes` must be a positive integer"):
        validation.increasing_ints("sizes", (0, 2))


@any_backend
def test_choice():
    for value in ("a", None, 3):
        assert validation.choice("mode", value, ("a", None, 3)) == value
    for value in ("A", "", None, 1, ["a"], np.array(["a"])):
        with pytest.raises(ValueError, match="`mode` must be one of") as error:
            validation.choice("mode", value, ("a", "b"))
        assert str(error.value) == f"`mode` must be one of 'a', 'b'. Received: mode={value!r}"


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3), "tensor"], ids=str)
def test_start_index(value):
    value = ops.convert_to_tensor(3, "int32") if isinstance(value, str) else value
    assert validation.start_index(value) == 3
    assert validation.start_index(keras.KerasTensor((), dtype="int32")) is None
    for wrong in (1.5, "1", None, True, np.array([1, 2]), keras.KerasTensor((), dtype="float32")):
        with pytest.raises(ValueError, match="`start_index` must be a single integer"):
            validation.start_index(wrong)
    with pytest.raises(ValueError, match=r"`start_index` must be.*not negative"):
        validation.start_index(-1)


def test_host_value():
    values = np.arange(6, dtype="int32").reshape(2, 3)
    np.testing.assert_array_equal(validation.host_value(values), values)
    np.testing.assert_array_equal(validation.host_value(ops.convert_to_tensor(values)), values)
    assert validation.host_value(keras.KerasTensor((2, 3))) is None
    found = []
    ops.vectorized_map(lambda x: found.append(validation.host_value(x)) or x, ops.ones((2, 3)))
    assert [value is None for value in found] == [True]


@any_backend
def test_values_on_an_accelerator_are_not_read():
    class Tensor:
        device = "cuda:0"

        def __array__(self, dtype=None, copy=None):
            raise AssertionError("read from an accelerator")

    assert validation.host_value(Tensor()) is None
