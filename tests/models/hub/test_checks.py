"""Direct tests of the checks of texts and labels, and of the dtype policies of quantized models."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone
from keras_diet.models.hub.labels import (
    Classes,
    check_are_finite,
    check_classes,
    numbers_of,
    of_output,
    sparse_loss,
)
from keras_diet.models.hub.texts import check_batch, holds_text, is_pair
from keras_diet.models.hub.token_inputs import check_token_inputs, ids_below
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import random_inputs, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend

# === Texts ===


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ("a", True),
        (b"a", True),
        (["a"], True),
        ([["a"]], True),
        (np.array(["a"]), True),
        (np.array(["a"], dtype=object), True),
        ([], False),
        (np.array([], dtype=object), False),
        ([1], False),
        (np.array([1.0]), False),
        (np.array([1], dtype=object), False),
        ({"x": ["a"]}, False),
    ],
    ids=repr,
)
def test_holds_text(x, expected):
    assert holds_text(x) is expected


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ((["a"], ["b"]), True),
        (("a", "b", "c"), True),
        ((["a"], []), True),
        ((["a"],), False),
        ((["a"], [1]), False),
        (((["a"], ["b"]), [1]), False),
        ([["a"], ["b"]], False),
    ],
    ids=repr,
)
def test_is_pair(x, expected):
    assert is_pair(x) is expected


@pytest.mark.parametrize("x", [["a", "b"], (["a"], ["b"]), {"x": np.ones((3, 2)), "y": [1, 2, 3]}])
def test_batches_that_are_accepted(x):
    check_batch(x)


@pytest.mark.parametrize("x", [{"x": np.ones((3, 2)), "y": [1, 2]}, (["a"], ["b", "c"])], ids=str)
def test_parts_with_different_batch_sizes_are_refused(x):
    with pytest.raises(ValueError, match="same batch size"):
        check_batch(x)


# === Labels ===


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ("mse", None, "mse"),
        ("mse", "first", "mse"),
        (["mse"], "first", "mse"),
        ({"first": "mse"}, None, "mse"),
        ({"first": "mse", "second": "mae"}, "second", "mae"),
        ({"first": "mse", "second": "mae"}, None, None),
        ({"first": "mse", "second": "mae"}, "third", None),
        (["mse", "mae"], "second", None),
        (None, None, None),
    ],
)
def test_of_output(values, name, expected):
    assert of_output(values, name) == expected


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("sparse_categorical_crossentropy", (True, None)),
        (keras.losses.sparse_categorical_crossentropy, (True, None)),
        (keras.losses.SparseCategoricalCrossentropy(ignore_class=-7), (True, -7)),
        (keras.losses.CategoricalCrossentropy(), (False, None)),
        ("mse", (False, None)),
        (None, (False, None)),
    ],
    ids=["name", "function", "ignored class", "one-hot", "other", "none"],
)
def test_sparse_loss(loss, expected):
    assert sparse_loss(loss) == expected


def test_classes_with_several_labels_per_example():
    labels = np.array([[0, 4], [3, 2]])
    check_classes(labels, Classes("vocabulary_size", 5))
    with pytest.raises(ValueError, match=r"must be one integer for each example.*shape=\(2, 2\)"):
        check_classes(labels, Classes("num_classes", 5, one_per_example=True))
    with pytest.raises(ValueError, match=r"\[0, vocabulary_size\) = \[0, 4\).*from 0 to 4"):
        check_classes(labels, Classes("vocabulary_size", 4))


def test_the_row_of_a_weight_that_is_not_finite():
    weights = np.ones((3, 5), "float32")
    weights[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"`sample_weight` must.*Received: inf in row 2\."):
        check_are_finite("sample_weight", weights)


# === Dtype policies ===


@pytest.mark.usefixtures("quick_quantization")
@pytest.mark.parametrize("file", ["preset", "keras", "config"])
def test_quantized_backbones_keep_the_policies_of_other_layers(rng, tmp_path, file):
    """A user's map gives one layer half precision, and other layers are quantized later."""
    policies = keras.dtype_policies.DTypePolicyMap(
        "float32", {"pooled_dense": keras.DTypePolicy("mixed_bfloat16")}
    )
    backbone = tiny_backbone(num_layers=1, dtype=policies)
    assert backbone.pooled_dense.compute_dtype == "bfloat16"
    randomize_weights(backbone)
    backbone.quantize("int8", filters="feedforward")
    inputs = random_inputs(rng)
    expected = {name: to_numpy(output) for name, output in backbone(inputs).items()}

    if file == "preset":
        backbone.save_to_preset(tmp_path)
        loaded = DietBertBackbone.from_preset(tmp_path)
    elif file == "keras":
        backbone.save(tmp_path / "backbone.keras")
        loaded = keras.saving.load_model(tmp_path / "backbone.keras")
    else:
        loaded = DietBertBackbone.from_config(backbone.get_config())
        loaded.set_weights(backbone.get_weights())
    for one, other in zip(loaded._flatten_layers(), backbone._flatten_layers(), strict=True):
        if one is not loaded and one.weights:
            assert one.dtype_policy.name == other.dtype_policy.name, one.path
    assert loaded.pooled_dense.dtype_policy.name == "mixed_bfloat16"
    dense = loaded.encoder.transformer_layers[0].feedforward_output_dense
    assert dense.quantization_mode == "int8"
    assert loaded.token_embedding.quantization_mode is None
    for name, output in loaded(inputs).items():
        assert_close(output, expected[name], 1e-5)


# === Labels and texts in less common containers ===


@pytest.mark.any_backend("tensorflow")
def test_graphs_of_tensorflow_accept_the_ignored_class_and_unknown_shapes():
    tf = pytest.importorskip("tensorflow")
    classes = Classes("num_classes", 5, one_per_example=True)

    @tf.function(input_signature=[tf.TensorSpec(None, "int32")])
    def checked(y):
        check_classes(y, classes, ignore_class=-7)
        return y

    checked(tf.constant([-7, 0, 4]))
    for label in (-6, -1, 5):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[0, 5\)"):
            checked(tf.constant([label, 4]))


@pytest.mark.any_backend("tensorflow")
def test_graphs_of_tensorflow_accept_token_ids_below_the_limit_only():
    tf = pytest.importorskip("tensorflow")
    inputs = {"token_ids": ids_below(5, "vocabulary_size")}

    @tf.function(input_signature=[tf.TensorSpec((None, None), "int32")])
    def checked(token_ids):
        check_token_inputs({"token_ids": token_ids}, inputs, when_graphs_run=True)
        return token_ids

    checked(tf.constant([[0, 4]]))
    for token_id in (-1, 5):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[0, 5\)"):
            checked(tf.constant([[token_id, 4]]))


def test_one_class_per_example_may_have_an_axis_of_its_own():
    classes = Classes("num_classes", 5, one_per_example=True)
    check_classes(np.array([[0], [4], [3]]), classes)
    with pytest.raises(ValueError, match="to 5"):
        check_classes(np.array([[0], [5], [3]]), classes)


def test_objects_may_be_truth_values():
    labels = numbers_of("y", np.array([True, False, True], dtype=object))
    assert labels.dtype == bool
    np.testing.assert_array_equal(labels, [True, False, True])


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="needs NumPy 2")
def test_numpys_strings_of_any_length_are_text():
    assert holds_text(np.array(["a", "of any length"], dtype=np.dtypes.StringDType()))


# === Policies that differ in one part ===


@pytest.mark.usefixtures("quick_quantization")
def test_custom_quantizers_of_weights_are_not_saved():
    backbone = tiny_backbone(num_layers=1)
    quantizer = keras.quantizers.AbsMaxQuantizer(axis=0, value_range=(-63, 63))
    config = keras.quantizers.Int8QuantizationConfig(weight_quantizer=quantizer)
    backbone.quantize(config=config, filters="feedforward")
    with pytest.raises(ValueError, match=r"only default quantizers.*feedforward"):
        backbone.get_config()


@pytest.mark.usefixtures("quick_quantization")
def test_the_policy_of_a_quantized_layer_replaces_the_one_of_the_map():
    policies = keras.dtype_policies.DTypePolicyMap(
        "float32", {"pooled_dense": keras.DTypePolicy("mixed_bfloat16")}
    )
    backbone = tiny_backbone(num_layers=1, dtype=policies)
    backbone.quantize("int8", filters="pooled_dense")
    copy = DietBertBackbone.from_config(backbone.get_config())
    assert copy.pooled_dense.dtype_policy.name == "int8_from_mixed_bfloat16"
