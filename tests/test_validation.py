"""The checks of arguments: values they accept, values they refuse, and the messages."""

import math
import types

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import validation
from keras_diet.layers.attention.input_checks import (
    check_is_no_layer,
    check_score_bias,
    check_score_features,
)
from keras_diet.layers.attention.input_checks import (
    check_no_attention_axes,
    check_one_sequence_axis,
)
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
@pytest.mark.parametrize("axes", [None, (1,), [1]], ids=repr)
def test_attention_along_the_sequence_is_accepted(axes):
    check_no_attention_axes(types.SimpleNamespace(attention_axes=axes))


@any_backend
@pytest.mark.parametrize("axes", [(2,), (1, 2), (0,), ()], ids=repr)
def test_attention_along_other_axes_is_refused(axes):
    class Grid:
        attention_axes = axes

    with pytest.raises(ValueError, match="`attention_axes` must be left at `None` in `Grid`") as e:
        check_no_attention_axes(Grid())
    assert f"Received: attention_axes={axes}. Leave it out" in str(e.value)


@any_backend
def test_query_and_value_have_one_sequence_axis():
    check_one_sequence_axis((2, None, 5), (2, 7, 5))


@any_backend
@pytest.mark.parametrize(
    "query_shape, value_shape", [((2, 5), (2, 7, 5)), ((2, 3, 5), (2, 7, 1, 5))]
)
def test_other_numbers_of_axes_are_refused(query_shape, value_shape):
    with pytest.raises(ValueError, match=r"must have the shape \(batch_size, len") as error:
        check_one_sequence_axis(query_shape, list(value_shape))
    assert f"query_shape={query_shape}, value_shape={value_shape}" in str(error.value)


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


SCORES = (2, 3, 5, 7)


@pytest.mark.parametrize(
    "shape, scores",
    [
        (SCORES, SCORES),
        ((1, 1, 1, 1), SCORES),
        ((5, 1), SCORES),
        ((7,), SCORES),
        ((), SCORES),
        ((2, 3, 11, 13), (2, 3, None, None)),
    ],
    ids=str,
)
def test_a_bias_may_be_broadcast_to_the_scores(shape, scores):
    check_score_bias("attention_bias", ops.ones(shape, "float16"), scores)


def test_unknown_sizes_of_a_bias_are_accepted():
    check_score_bias("bias", keras.KerasTensor((None, 3, None, 7)), SCORES)


@pytest.mark.parametrize("shape", [(1, *SCORES), (2, 3, 5, 6), (3, 1, 5, 7), (5,), (2, 1, 7, 5)])
def test_a_bias_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match="`bias` must be broadcastable to the scores") as error:
        check_score_bias("bias", ops.ones(shape), SCORES)
    assert f"key_length) = {SCORES}. Received: shape={shape}" in str(error.value)


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
def test_a_bias_of_another_dtype_is_refused(dtype):
    message = rf"`bias` must be a floating point.*Received: dtype={dtype}\. .*`attention_mask`"
    with pytest.raises(ValueError, match=message):
        check_score_bias("bias", ops.ones(SCORES, dtype), SCORES)


@any_backend
def test_a_functional_model_takes_tensors_only():
    check_is_no_layer("bias", keras.KerasTensor((2, 3)))
    layer = keras.layers.Dense(3, name="scores")
    message = r"In a functional model `bias` must be a tensor\. Received: bias=.*scores.*Call the"
    with pytest.raises(ValueError, match=message):
        check_is_no_layer("bias", layer)


def features(query_shape, key_shape, dtype="float32"):
    return ops.ones(query_shape, dtype), ops.ones(key_shape, dtype)


@pytest.mark.parametrize(
    "query_shape, key_shape, scores",
    [
        ((2, 5, 3, 11), (2, 7, 3, 11), SCORES),
        ((1, 5, 1, 11), (2, 7, 3, 11), SCORES),
        ((2, 5, 3, 11), (1, 7, 1, 11), SCORES),
        ((13, 5, 3, 11), (2, 17, 3, 11), (None, 3, 5, None)),
    ],
)
def test_features_of_queries_and_keys_are_accepted(query_shape, key_shape, scores):
    pair = features(query_shape, key_shape)
    check_score_features("features", pair, scores)
    check_score_features("features", list(pair), scores)


GOOD = (2, 5, 3, 11), (2, 7, 3, 11)
BAD_FEATURES = {
    "the ranks differ": lambda: features((2, 5, 3, 11), (2, 7, 3, 13)),
    "the lengths are swapped": lambda: features(*GOOD[::-1]),
    "one query for all": lambda: features((2, 1, 3, 11), GOOD[1]),
    "one key for all": lambda: features(GOOD[0], (2, 1, 3, 11)),
    "another batch size": lambda: features((3, 5, 3, 11), GOOD[1]),
    "another number of heads": lambda: features(GOOD[0], (2, 7, 2, 11)),
    "three axes": lambda: features((5, 3, 11), GOOD[1]),
    "integers": lambda: features(*GOOD, "int32"),
    "three tensors": lambda: (*features(*GOOD), ops.ones(3)),
    "one tensor": lambda: features(*GOOD)[:1],
    "no tuple": lambda: "features",
}


@pytest.mark.parametrize("name", BAD_FEATURES)
def test_other_features_are_refused(name):
    message = r"`features` must be a pair of floating.*= \(2, 3, 5, 7\)\. Received: features="
    with pytest.raises(ValueError, match=message):
        check_score_features("features", BAD_FEATURES[name](), SCORES)


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
