"""Exported classifiers return what the model returns: SavedModel, ONNX, LiteRT, `torch.export`."""

import keras
import numpy as np
import pytest

from keras_diet.models.hub.model_files import default_signature
from tests.helpers import assert_close, once
from tests.models.question_answering import tiny_question_answerer
from tests.models.tasks import tiny_task
from tests.models.tiny import (
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)

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


def arrays(outputs):
    detached = keras.tree.map_structure(lambda x: x.detach() if BACKEND == "torch" else x, outputs)
    return keras.tree.map_structure(np.asarray, detached)


def served(path, file_format):
    """Return the exported model as a function of a dictionary of arrays."""
    if file_format == "tf_saved_model":
        import tensorflow as tf

        model = tf.saved_model.load(path)
        return lambda inputs: arrays(model.serve({k: tf.constant(v) for k, v in inputs.items()}))
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
    return lambda inputs: arrays(model({k: torch.tensor(v) for k, v in inputs.items()}))


def check_export(classifier, path, file_format, shape=SHAPE, tolerance=1e-5):
    path = str(path / FILES[file_format])
    signature = {name: keras.InputSpec(shape=shape, dtype="int32", name=name) for name in NAMES}
    classifier.export(path, format=file_format, input_signature=[signature], verbose=False)
    serve = served(path, file_format)
    for size in ((2, 11), OTHER_SHAPE):
        inputs = random_inputs(np.random.default_rng(5), *size)
        assert_close(serve(inputs), classifier(inputs), tolerance)


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


def skip_without_converter(file_format):
    if file_format == "onnx":
        pytest.importorskip("onnxruntime")
    if (file_format, BACKEND) in CONVERTERS:
        pytest.importorskip(CONVERTERS[file_format, BACKEND])


@pytest.mark.parametrize(
    ("file_format", "position_encoding"),
    [
        *((each, "diet_rel" if each == "onnx" else "diet_abs") for each in FORMATS),
        # `jax2onnx` knows no `arange` of one argument, which others may count with.
        *((("onnx", name) for name in ("shaw", "t5")) if BACKEND == "jax" else ()),
    ],
)
def test_exported_classifiers(tmp_path, file_format, position_encoding):
    skip_without_converter(file_format)
    check_export(random_classifier(position_encoding=position_encoding), tmp_path, file_format)
    if (BACKEND, file_format) in CHECKS:
        CHECKS[BACKEND, file_format](str(tmp_path / FILES[file_format]))


@pytest.mark.any_backend("tensorflow")
@pytest.mark.usefixtures("quick_quantization")
@pytest.mark.parametrize("kind", ["features", "int8"])
def test_other_programs_are_exported(tmp_path, kind):
    implementation = "features" if kind == "features" else "full"
    classifier = random_classifier(attention_implementation=implementation)
    if kind == "int8":
        classifier.quantize("int8")
    # Compiled, a number may round to the next step of int8.
    tolerance = 1e-5 if kind == "features" else 2e-2
    check_export(classifier, tmp_path, FORMATS[0], tolerance=tolerance)


DEFAULT_FORMAT = FORMATS[0]
# Batch size and length that a default export gets on each backend. Preprocessors cut at 11 tokens.
DEFAULT_SHAPE = {"tensorflow": (2, 9), "jax": (3, 11), "torch": (1, 11)}[BACKEND]


@pytest.mark.parametrize(
    "task", [None, "masked_lm", *once("classifier", "embedder", "question_answerer")]
)
def test_export_needs_a_path_only(rng, tmp_path, capsys, task):
    shape = (DEFAULT_SHAPE[0], 13) if task is None else DEFAULT_SHAPE
    if task == "question_answerer":
        model = tiny_question_answerer()
    else:
        model = tiny_backbone() if task is None else tiny_task(task)
    if task is not None:
        model.preprocessor.sequence_length = 11
    randomize_weights(model)
    model.export(tmp_path / "exported")
    path = "exported" + {"torch": ".pt2"}.get(BACKEND, "")
    assert [each.name for each in tmp_path.iterdir()] == [path]
    assert path in capsys.readouterr().out
    inputs = random_masked_inputs(rng, *shape)[0] if task == "masked_lm" else None
    inputs = inputs or random_inputs(rng, *shape)
    outputs, expected = served(str(tmp_path / path), DEFAULT_FORMAT)(inputs), model(inputs)
    keras.tree.map_structure(assert_close, outputs, dict(expected) if task is None else expected)


@pytest.mark.parametrize("file_format", [each for each in FORMATS if each != DEFAULT_FORMAT])
def test_other_formats_need_no_signature(rng, tmp_path, file_format):
    skip_without_converter(file_format)
    model = random_classifier(position_encoding="diet_rel")
    path = str(tmp_path / FILES[file_format])
    model.export(path, format=file_format, verbose=False)
    inputs = random_inputs(rng, DEFAULT_SHAPE[0], 9 if BACKEND == "tensorflow" else 13)
    assert_close(served(path, file_format)(inputs), model(inputs))


@pytest.mark.any_backend
def test_lengths_of_inputs_are_those_of_the_preprocessor():
    model = tiny_task("masked_lm")
    model.preprocessor.sequence_length = 11
    found = {name: spec.shape for name, spec in default_signature(model, "torch").items()}
    assert found == {**dict.fromkeys(NAMES, (1, 11)), "mask_positions": (1, 5)}
    without = default_signature(tiny_task("masked_lm", with_preprocessor=False), "jax")
    assert {(spec.shape, spec.dtype) for spec in without.values()} == {((None, 13), "int32")}
