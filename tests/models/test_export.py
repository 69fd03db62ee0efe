"""Exported classifiers return what the model returns: SavedModel, ONNX, LiteRT, `torch.export`."""

import keras
import keras_hub
import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy
from tests.models.tasks import random_data, tiny_task
from tests.models.tiny import SIZES, random_inputs, randomize_weights

BACKEND = keras.backend.backend()
FORMATS = {
    "tensorflow": ("tf_saved_model", "onnx", "litert"),
    "jax": ("tf_saved_model", "onnx"),
    "torch": ("torch", "onnx", "litert"),
}[BACKEND]
CONVERTERS = {
    ("onnx", "tensorflow"): "tf2onnx",
    ("onnx", "jax"): "jax2onnx",
    ("onnx", "torch"): "onnxscript",
    ("litert", "torch"): "litert_torch",
}
FILES = {"tf_saved_model": "model", "onnx": "model.onnx", "litert": "model.tflite"}
FILES["torch"] = "model.pt2"
NAMES = ("token_ids", "segment_ids", "padding_mask")
# Sizes that a format leaves open: on TensorFlow both, on JAX the batch, on PyTorch none.
SHAPE = {"tensorflow": (None, None), "jax": (None, 11), "torch": (2, 11)}[BACKEND]
OTHER_SHAPE = {"tensorflow": (3, 7), "jax": (3, 11), "torch": (2, 11)}[BACKEND]


def signature(*shape):
    return [{name: keras.InputSpec(shape=shape, dtype="int32", name=name) for name in NAMES}]


def served(path, file_format):
    """Return the exported model as a function of a dictionary of arrays."""
    if file_format == "tf_saved_model":
        import tensorflow as tf

        model = tf.saved_model.load(path)
        return lambda inputs: model.serve({k: tf.constant(v) for k, v in inputs.items()}).numpy()
    if file_format == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        return lambda inputs: session.run(None, inputs)[0]
    if file_format == "litert":
        import tensorflow as tf

        interpreter = tf.lite.Interpreter(path)
        runner = interpreter.get_signature_runner("serving_default")
        names = {next(n for n in NAMES if n in name): name for name in runner.get_input_details()}

        def serve(inputs):
            (output,) = runner(**{names[name]: array for name, array in inputs.items()}).values()
            return output

        return serve
    import torch

    model = torch.export.load(path).module()
    return lambda inputs: to_numpy(model({k: torch.tensor(v) for k, v in inputs.items()}))


def check_export(classifier, path, file_format, tolerance=1e-5):
    path = str(path / FILES[file_format])
    classifier.export(path, format=file_format, input_signature=signature(*SHAPE), verbose=False)
    serve = served(path, file_format)
    for shape in ((2, 11), OTHER_SHAPE):
        inputs = random_inputs(np.random.default_rng(5), *shape)
        np.testing.assert_allclose(
            serve(inputs), to_numpy(classifier(inputs)), rtol=tolerance, atol=tolerance
        )


def check_that_litert_has_all_operations(path):
    import tensorflow as tf

    operations = {details["op_name"] for details in tf.lite.Interpreter(path)._get_ops_details()}
    assert "FULLY_CONNECTED" in operations
    # TensorFlow's own operations have names like FlexErf.
    assert not [name for name in operations if name.startswith("Flex")]


def check_that_converters_can_do_all_operations(path):
    import torch

    nodes = torch.export.load(path).graph.nodes
    # `litert-torch` cannot lower the checks inside PyTorch's one-hot.
    assert not [node for node in nodes if "one_hot" in str(node.target)]


CHECKS = {
    ("tensorflow", "litert"): check_that_litert_has_all_operations,
    ("torch", "torch"): check_that_converters_can_do_all_operations,
}


def random_classifier(**arguments):
    return randomize_weights(tiny_task("classifier", with_preprocessor=False, **arguments))


@pytest.mark.parametrize("file_format", FORMATS)
def test_exported_classifiers(tmp_path, file_format):
    if file_format == "onnx":
        pytest.importorskip("onnxruntime")
    if (file_format, BACKEND) in CONVERTERS:
        pytest.importorskip(CONVERTERS[file_format, BACKEND])
    position_encoding = "diet_rel" if file_format == "onnx" else "diet_abs"
    check_export(random_classifier(position_encoding=position_encoding), tmp_path, file_format)
    if (BACKEND, file_format) in CHECKS:
        CHECKS[BACKEND, file_format](str(tmp_path / FILES[file_format]))


@pytest.mark.parametrize(
    "task", ["masked_lm", pytest.param("embedder", marks=pytest.mark.any_backend("tensorflow"))]
)
def test_other_tasks_are_exported(rng, tmp_path, task):
    model = randomize_weights(tiny_task(task, with_preprocessor=False))
    inputs, *_ = random_data(task, rng)
    signature = {
        name: keras.InputSpec(shape=array.shape, dtype=str(array.dtype), name=name)
        for name, array in inputs.items()
    }
    path = str(tmp_path / FILES[FORMATS[0]])
    model.export(path, format=FORMATS[0], input_signature=[signature], verbose=False)
    assert_close(served(path, FORMATS[0])(inputs), model(inputs))


@pytest.mark.skipif(BACKEND != "jax", reason="jax2onnx knows no `arange` of one argument")
@pytest.mark.parametrize("position_encoding", ["shaw", "t5"])
def test_encodings_that_count_are_exported(tmp_path, position_encoding):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("jax2onnx")
    check_export(random_classifier(position_encoding=position_encoding), tmp_path, "onnx")


@pytest.mark.any_backend("tensorflow")
def test_exported_features(tmp_path):
    classifier = random_classifier(attention_implementation="features")
    check_export(classifier, tmp_path, FORMATS[0])


@pytest.mark.any_backend("tensorflow")
@pytest.mark.usefixtures("quick_quantization")
def test_exported_int8(tmp_path):
    classifier = random_classifier()
    classifier.quantize("int8")
    # Compiled, a number may round to the next step of int8.
    check_export(classifier, tmp_path, FORMATS[0], tolerance=2e-2)


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX gives each input its own length")
def test_jax_needs_the_length(tmp_path):
    with pytest.raises(ValueError, match="`segment_ids` must have the shape"):
        random_classifier().export(str(tmp_path / "model"), verbose=False)


@pytest.mark.parametrize("file_format", sorted(FILES.keys() - set(FORMATS)))
def test_what_keras_exports_from_no_bert(tmp_path, file_format):
    bert = keras_hub.models.BertTextClassifier(keras_hub.models.BertBackbone(**SIZES), 2)
    # PyTorch's SavedModel takes no dictionaries; other formats name the backends that they need.
    error = AttributeError if BACKEND == "torch" else ValueError
    for classifier in (random_classifier(), bert):
        with pytest.raises(error, match=r"'dict' object|backend"):
            check_export(classifier, tmp_path, file_format)
