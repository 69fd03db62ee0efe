"""The checks of arguments: values they accept, values they refuse, and the messages."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import validation
from tests.helpers import to_numpy

any_backend = pytest.mark.any_backend


@any_backend
@pytest.mark.parametrize("value", [1, 2**40, np.int8(7), np.uint16(7), np.int64(7)], ids=repr)
@pytest.mark.parametrize("check", [validation.positive_int, validation.optional_positive_int])
def test_positive_integers_are_accepted(check, value):
    result = check("size", value)
    assert result == value
    assert type(result) is int


NOT_POSITIVE_INTEGERS = [
    *(0, -1, np.int64(0), np.int32(-3)),
    *(True, False, np.True_),
    *(2.0, 2.5, math.nan, math.inf, np.float32(2), 2j),
    *("2", b"2", [2], (2,), {"size": 2}, np.array(2), np.array([2])),
]


@any_backend
@pytest.mark.parametrize("value", NOT_POSITIVE_INTEGERS, ids=repr)
@pytest.mark.parametrize("check", [validation.positive_int, validation.optional_positive_int])
def test_other_values_are_not_positive_integers(check, value):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        check("size", value)
    assert str(error.value) == f"`size` must be a positive integer. Received: size={value!r}"


@any_backend
def test_only_an_optional_integer_may_be_none():
    assert validation.optional_positive_int("size", None) is None
    with pytest.raises(ValueError, match=r"`size` must be a positive integer.*size=None"):
        validation.positive_int("size", None)


@any_backend
@pytest.mark.parametrize("value", [3, 0.25, 1e-30, np.float32(0.25), np.int64(3)], ids=repr)
def test_positive_numbers_are_accepted(value):
    result = validation.positive_number("scale", value)
    assert result == value
    assert type(result) is float


NOT_POSITIVE_NUMBERS = [
    *(0, 0.0, -0.0, -1, -1e-30, np.float32(0), np.float64(-2)),
    *(math.nan, np.float32("nan"), math.inf, -math.inf, np.float64("inf")),
    *(True, False, np.True_, None, "2", 2j, [2.0], np.array(2.0)),
]


@any_backend
@pytest.mark.parametrize("value", NOT_POSITIVE_NUMBERS, ids=repr)
def test_other_values_are_not_positive_numbers(value):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        validation.positive_number("scale", value)
    message = f"`scale` must be a positive, finite number. Received: scale={value!r}"
    assert str(error.value) == message


@any_backend
def test_choice_returns_one_of_the_choices():
    assert [validation.choice("mode", value, ("a", None, 3)) for value in ("a", None, 3)] == [
        "a",
        None,
        3,
    ]


@any_backend
@pytest.mark.parametrize("value", ["A", "", None, 1, ["a"]], ids=repr)
def test_other_values_are_not_a_choice(value):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        validation.choice("mode", value, ("a", "b"))
    assert str(error.value) == f"`mode` must be one of 'a', 'b'. Received: mode={value!r}"


@any_backend
def test_heads_divide_the_hidden_size():
    assert validation.divisible_heads(35, 5) == 7
    assert type(validation.divisible_heads(35, 5)) is int
    with pytest.raises(ValueError, match=r"`hidden_dim` must be divisible by `num_heads`") as error:
        validation.divisible_heads(35, 3)
    assert "hidden_dim=35, num_heads=3. Choose a multiple of 3" in str(error.value)


@any_backend
def test_a_length_may_reach_the_limit():
    assert validation.length_within(7, 7, "max_length") == 7
    with pytest.raises(ValueError, match="The key is longer than `max_length` allows") as error:
        validation.length_within(8, 7, "max_length", "key")
    assert "Received: length=8, max_length=7. Shorten the key, or build" in str(error.value)


@any_backend
def test_a_symbolic_length_is_not_checked():
    assert validation.length_within(None, 7, "max_length") is None


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
def test_a_length_is_checked_in_a_graph():
    import tensorflow as tf

    @tf.function(input_signature=(tf.TensorSpec((None, 3)),))
    def length(x):
        return validation.length_within(tf.shape(x)[0], 7, "max_length", "key")

    assert length(tf.ones((7, 3))) == 7
    with pytest.raises(tf.errors.InvalidArgumentError, match="key is longer than `max_length`"):
        length(tf.ones((8, 3)))


@pytest.mark.parametrize("ids", [[0, 2], [[1, 1], [0, 2]], []], ids=str)
def test_segment_ids_in_range_are_accepted(ids):
    validation.segment_ids_within(ops.convert_to_tensor(np.array(ids, "int32")), 3)


@pytest.mark.parametrize("ids, received", [([1, 3], "from 1 to 3"), ([0, -1], "from -1 to 0")])
@pytest.mark.parametrize("convert", [np.array, ops.convert_to_tensor], ids=["array", "tensor"])
def test_segment_ids_out_of_range_are_refused(convert, ids, received):
    message = rf"`segment_ids` must be integers in .* = \[0, 3\)\. Received: ids {received}"
    with pytest.raises(ValueError, match=message):
        validation.segment_ids_within(convert(ids), 3)


def test_host_value_of_a_tensor():
    values = np.arange(6, dtype="int32").reshape(2, 3)
    np.testing.assert_array_equal(validation.host_value(values), values)
    np.testing.assert_array_equal(validation.host_value(ops.convert_to_tensor(values)), values)


def test_a_symbolic_tensor_has_no_host_value():
    assert validation.host_value(keras.KerasTensor((2, 3))) is None
    found = []

    def step(x):
        found.append(validation.host_value(x))
        return x

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        tf.function(step)(tf.ones(3))
    elif backend == "jax":
        import jax

        jax.jit(step)(np.ones(3))
    else:
        import torch

        step(torch.ones(3, device="meta"))
    assert found == [None]


@any_backend
@pytest.mark.parametrize("device, read", [("cpu:0", True), ("cuda:0", False), ("TPU:3", False)])
def test_values_on_an_accelerator_are_not_read(device, read):
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            assert read, "read from an accelerator"
            return np.ones(3)

    tensor = Tensor()
    tensor.device = device
    value = validation.host_value(tensor)
    assert value is None if not read else to_numpy(value).tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [0, 0.25, 1, np.float32(0.5)])
def test_rates_are_accepted(value):
    result = validation.rate("dropout", value)
    assert result == value
    assert isinstance(result, float)


@pytest.mark.parametrize("value", [-0.01, 1.01, np.nan, True, "0.5", None])
def test_other_values_are_not_rates(value):
    with pytest.raises(
        ValueError, match=r"`dropout` must be a number in \[0, 1\]. Received: dropout="
    ):
        validation.rate("dropout", value)
