"""Exported classifiers return what the model returns: SavedModel, ONNX, LiteRT, `torch.export`."""

import keras
import numpy as np
import pytest

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
# Batch sizes and lengths that a default export takes, whose preprocessor cuts at 11 tokens.
SHAPES = {"tensorflow": ((2, 9), (3, 7)), "jax": ((2, 11), (3, 11)), "torch": ((1, 11),)}[BACKEND]


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


ENCODED = {name: {"position_encoding": name} for name in ("diet_abs", "diet_rel", "shaw", "t5")}
ROWS = [(each, ENCODED["diet_rel" if each == "onnx" else "diet_abs"]) for each in FORMATS]
if BACKEND == "jax":
    # `jax2onnx` knows no `arange` of one argument, which others may count with.
    ROWS += [("onnx", ENCODED[name]) for name in ("shaw", "t5")]
else:
    ROWS += [(FORMATS[0], "int8")]
if BACKEND == "tensorflow":
    ROWS += [(FORMATS[0], {"attention_implementation": "features"})]


@pytest.mark.usefixtures("quick_quantization")
@pytest.mark.parametrize(("file_format", "arguments"), ROWS, ids=str)
def test_exported_classifiers(rng, tmp_path, file_format, arguments):
    """`docs/deployment.md` exports with signatures."""
    if file_format == "onnx":
        pytest.importorskip("onnxruntime")
    if (file_format, BACKEND) in CONVERTERS:
        pytest.importorskip(CONVERTERS[file_format, BACKEND])
    is_int8 = arguments == "int8"
    classifier = randomize_weights(tiny_task("classifier", **({} if is_int8 else arguments)))
    classifier.preprocessor.sequence_length = 11
    if is_int8:
        classifier.quantize("int8")
    path = str(tmp_path / FILES[file_format])
    classifier.export(path, format=file_format, verbose=False)
    serve = served(path, file_format)
    for shape in SHAPES:
        inputs = random_inputs(rng, *shape)
        # Compiled, a number may round to the next step of int8.
        assert_close(serve(inputs), classifier(inputs), 2e-2 if is_int8 else 1e-5)
    if (BACKEND, file_format) in CHECKS:
        CHECKS[BACKEND, file_format](path)


@pytest.mark.parametrize("task", [None, "masked_lm", *once("embedder", "question_answerer")])
def test_export_needs_a_path_only(rng, tmp_path, capsys, task):
    # Without a preprocessor, the length is that of the backbone.
    shape = (SHAPES[0][0], 13) if task is None else SHAPES[0]
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
    outputs, expected = served(str(tmp_path / path), FORMATS[0])(inputs), model(inputs)
    keras.tree.map_structure(assert_close, outputs, dict(expected) if task is None else expected)
