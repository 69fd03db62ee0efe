"""Exported models return what the model returns: SavedModel, ONNX, LiteRT, `torch.export`."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_diet.layers import DietEncoder
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.models import DietBertTextEmbedder
from keras_diet.models.hub.model_files import ModelFiles
from tests.helpers import assert_close, once
from tests.models.question_answering import tiny_question_answerer
from tests.models.tasks import tiny_preprocessor, tiny_task
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
NAMES = ("token_ids", "segment_ids", "padding_mask", "mask_positions")
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
        return lambda inputs: session.run(None, inputs)
    if file_format == "litert":
        import tensorflow as tf

        interpreter = tf.lite.Interpreter(path)
        runner = interpreter.get_signature_runner("serving_default")
        names = {next(n for n in NAMES if n in name): name for name in runner.get_input_details()}

        def serve(inputs):
            outputs = runner(**{names[name]: array for name, array in inputs.items()})
            # The names are `output_0`, `output_1`, ..., `output_10`, ...
            return [outputs[name] for name in sorted(outputs, key=lambda name: (len(name), name))]

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


ENCODERS = [
    *({"position_encoding": name} for name in POSITION_ENCODINGS if name != "none"),
    {"projection_dim": 5, "segment_encoding": "none"},
    {"attention_implementation": "features"},
]


class Encodings(ModelFiles, keras.Model):
    """One model, and so one file, with all encodings."""

    def __init__(self):
        super().__init__()
        self.embedding = keras.layers.Embedding(31, 18)
        self.encoders = [DietEncoder(1, 3, 23, max_sequence_length=13, **each) for each in ENCODERS]
        for encoder in self.encoders:
            encoder.build((2, 11, 18))

    def call(self, inputs):
        x, outputs = self.embedding(inputs["token_ids"]), []
        for encoder, arguments in zip(self.encoders, ENCODERS, strict=True):
            # The scores of positions are a small program.
            if encoder.position_biases and "position_encoding" in arguments:
                outputs.append(encoder.position_biases[0](x))
            else:
                outputs.append(encoder(x, padding_mask=inputs["padding_mask"]))
        return outputs


def skip_without_converter(file_format):
    if file_format == "onnx":
        pytest.importorskip("onnxruntime")
    if (file_format, BACKEND) in CONVERTERS:
        pytest.importorskip(CONVERTERS[file_format, BACKEND])


@pytest.mark.parametrize("file_format", FORMATS[1:])
def test_every_encoding(rng, tmp_path, file_format):
    """The encoders have the exact gelu, as most checkpoints."""
    skip_without_converter(file_format)
    sizes = {"tensorflow": (None, None), "jax": (None, 11), "torch": (1, 11)}[BACKEND]
    model, inputs = Encodings(), random_inputs(rng, *SHAPES[0])
    del inputs["segment_ids"]
    model(inputs)
    randomize_weights(model)
    specs = {name: keras.InputSpec(shape=sizes, dtype="int32", name=name) for name in inputs}
    path = str(tmp_path / FILES[file_format])
    model.export(path, format=file_format, input_signature=[specs], verbose=False)
    serve = served(path, file_format)
    for shape in SHAPES:
        inputs = random_inputs(rng, *shape)
        del inputs["segment_ids"]
        keras.tree.map_structure(assert_close, serve(inputs), model(inputs))
    if file_format == "litert" and BACKEND == "tensorflow":
        check_that_litert_has_all_operations(path)


def table_of_precisions():
    """The cells of this backend in the table of the page on deployment, and the right values."""
    lines = (Path(__file__).parents[2] / "docs/guides/deployment.md").read_text().splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("| | ONNX from TensorFlow"))
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines[start:]]
    names = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
    for column, title in enumerate(rows[0]):
        file_format, _, backend = title.partition(" from ")
        if backend == names[BACKEND]:
            for row in rows[2 : rows.index([])]:
                yield file_format.lower(), row[0], row[column]


WITHOUT = {
    "without attention": "token_embedding|feedforward|pooled",
    "without embeddings": "attention|feedforward|pooled",
}


@pytest.mark.usefixtures("quick_quantization")
@pytest.mark.parametrize(
    ("file_format", "precision", "cell"), [*table_of_precisions(), (FORMATS[0], "int8", "yes")]
)
def test_precisions(rng, tmp_path, file_format, precision, cell):
    """The other files are refused, or LiteRT needs more than its own operations for them."""
    skip_without_converter(file_format)
    path = tmp_path / FILES[file_format]

    def export(filters=None):
        is_mixed = precision.startswith("mixed")
        arguments = {"dtype": precision} if is_mixed else {}
        classifier = randomize_weights(tiny_task("classifier", **arguments))
        classifier.preprocessor.sequence_length = 11
        if not is_mixed:
            classifier.quantize(precision, filters=filters)
        classifier.export(path, format=file_format, verbose=False)
        return classifier, served(str(path), file_format)

    if cell in ("no", *WITHOUT):
        # The converter, or the program that reads its file.
        with pytest.raises(Exception, match=r"."):
            export()
    if cell == "with Flex":
        with pytest.raises(RuntimeError, match="Select TensorFlow op"):
            export()[1](random_inputs(rng, *SHAPES[0]))
    if cell == "yes" or cell in WITHOUT:
        classifier, serve = export(WITHOUT.get(cell))
        for shape in SHAPES:
            inputs = random_inputs(rng, *shape)
            # Compiled, a number may round to the next step of int8.
            (found,) = keras.tree.flatten(serve(inputs))
            assert_close(found, classifier(inputs), 2e-2)


def mean_embedder():
    return DietBertTextEmbedder(tiny_backbone(num_layers=1), tiny_preprocessor("embedder"))


TASKS = {
    "masked_lm": (lambda: tiny_task("masked_lm"), lambda *args: random_masked_inputs(*args)[0]),
    "embedder": (mean_embedder, random_inputs),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("file_format", FORMATS[1:])
def test_tasks(rng, tmp_path, file_format, name):
    skip_without_converter(file_format)
    make, inputs_of = TASKS[name]
    task = randomize_weights(make())
    task.preprocessor.sequence_length = 11
    path = str(tmp_path / FILES[file_format])
    task.export(path, format=file_format, verbose=False)
    inputs = inputs_of(rng, *SHAPES[0])
    (found,) = served(path, file_format)(inputs)
    assert_close(found, task(inputs))


@pytest.mark.any_backend
def test_onnx_inputs_of_other_dtypes(rng, tmp_path):
    skip_without_converter("onnx")
    backbone = randomize_weights(tiny_backbone(num_layers=1))
    inputs = {name: x.astype("int64") for name, x in random_inputs(rng, *SHAPES[0]).items()}
    inputs["padding_mask"] = inputs["padding_mask"].astype("bool")
    specs = {
        n: keras.InputSpec(shape=x.shape, dtype=str(x.dtype), name=n) for n, x in inputs.items()
    }
    path = str(tmp_path / "model.onnx")
    backbone.export(path, format="onnx", input_signature=[specs], verbose=False)
    found = served(path, "onnx")(inputs)
    for actual, desired in zip(found, backbone(inputs).values(), strict=True):
        assert_close(actual, desired)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="other backends fix the length")
@pytest.mark.parametrize("encoding", ["diet_abs", "alibi"])
def test_open_lengths_above_the_limit(rng, tmp_path, encoding):
    """Only encodings with a table of positions refuse them. The others compute their equation."""
    sizes = {"num_layers": 1, "position_encoding": encoding}
    backbone = randomize_weights(tiny_backbone(**sizes))
    backbone.export(tmp_path / "model", verbose=False)
    serve, inputs = served(str(tmp_path / "model"), "tf_saved_model"), random_inputs(rng, 2, 17)
    if encoding == "diet_abs":
        with pytest.raises(Exception, match="Slice"):
            serve(inputs)
    else:
        longer = randomize_weights(tiny_backbone(**sizes, max_sequence_length=17))
        assert_close(serve(inputs)["pooled_output"], longer(inputs)["pooled_output"])


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
    if BACKEND == "torch":
        check_that_converters_can_do_all_operations(str(tmp_path / path))
