"""Exported models return what the model returns: SavedModel, ONNX, LiteRT, `torch.export`."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_diet.layers import AlibiPositionBias, DietEncoder
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.models.hub.model_files import ModelFiles
from tests.helpers import assert_close, once
from tests.models.question_answering import tiny_question_answerer
from tests.models.tasks import tiny_task
from tests.models.tiny import (
    random_inputs,
    randomize_weights,
    tiny_backbone,
)

BACKEND = keras.backend.backend()
# PyTorch writes the ONNX files of all backends, so most of them are tested there.
FORMATS = {
    "tensorflow": ("tf_saved_model", "litert"),
    "jax": ("tf_saved_model",),
    "torch": ("torch", "onnx", "litert"),
}[BACKEND]
FILES = {"tf_saved_model": "model", "onnx": "model.onnx", "litert": "model.tflite"}
FILES["torch"] = "model.pt2"
NAMES = ("token_ids", "segment_ids", "padding_mask", "mask_positions")
# Batch sizes and lengths. The exporters have seen none of them.
SHAPES = ((2, 9), (3, 7), (1, 3))
# What LiteRT on PyTorch takes.
FIXED = (1, 11)


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


def signature(inputs, shape):
    specs = {name: keras.InputSpec(shape=shape, dtype="int32", name=name) for name in inputs}
    return [specs]


def fixed_signature(inputs, file_format):
    """Return the sizes that a format needs, or `None`, and shapes of inputs that it takes."""
    if (file_format, BACKEND) == ("litert", "torch"):
        return signature(inputs, FIXED), (FIXED,)
    return None, SHAPES


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


class UnknownElsewhere(AlibiPositionBias):
    """A class that is not registered, so that no other process can load it."""


class FirstBias(keras.layers.Layer):
    """The scores of positions alone, which are a small program."""

    def __init__(self, encoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder

    def call(self, inputs):
        return self.encoder.position_biases[0](inputs)

    def compute_output_shape(self, shape):
        return self.encoder.position_biases[0].compute_output_shape(shape)


# ONNX files have all that `torch.export` writes, and LiteRT files all of TensorFlow's SavedModels.
FEW = ("diet_abs", "diet_rel", "t5", "alibi", "rotary", "shaw")


class Encodings(ModelFiles, keras.Model):
    """One model, and so one file, with several encodings."""

    def __init__(self, encoders):
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "padding_mask")
        }
        x, outputs = keras.layers.Embedding(31, 18)(inputs["token_ids"]), {}
        for i, arguments in enumerate(encoders):
            encoder = DietEncoder(1, 3, 23, max_sequence_length=13, **arguments)
            encoder.build((None, None, 18))
            if encoder.position_biases and "position_encoding" in arguments:
                outputs[f"{i:02}"] = FirstBias(encoder)(x)
            else:
                outputs[f"{i:02}"] = encoder(x, padding_mask=inputs["padding_mask"])
        super().__init__(inputs, outputs)


def skip_without_converter(file_format):
    if file_format == "onnx":
        pytest.importorskip("onnxruntime")
    if (file_format, BACKEND) == ("litert", "torch"):
        pytest.importorskip("litert_torch")


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_encoding_for_any_batch_and_length(rng, tmp_path, file_format):
    """The encoders have the exact gelu, as most checkpoints."""
    skip_without_converter(file_format)
    is_last = file_format in ("onnx", "litert")
    encoders = [
        each for each in ENCODERS if is_last or each.get("position_encoding", FEW[0]) in FEW
    ]
    model, path = randomize_weights(Encodings(encoders)), str(tmp_path / FILES[file_format])
    specs, shapes = fixed_signature(model.input, file_format)
    model.export(path, format=file_format, input_signature=specs, verbose=False)
    serve = served(path, file_format)
    for shape in shapes:
        inputs = random_inputs(rng, *shape)
        del inputs["segment_ids"]
        found, expected = keras.tree.flatten(serve(inputs)), keras.tree.flatten(model(inputs))
        for actual, desired in zip(found, expected, strict=True):
            assert_close(actual, desired)
    if file_format == "litert" and BACKEND == "tensorflow":
        check_that_litert_has_all_operations(path)


def table_of_precisions():
    """The cells of this backend in the table of the guide on serving, and the right values."""
    lines = (Path(__file__).parents[2] / "docs/guides/serve.md").read_text().splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("| | ONNX | LiteRT"))
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines[start:]]
    columns = {"torch": [("onnx", 1)], "tensorflow": [("litert", 2)]}.get(BACKEND, [])
    for file_format, column in columns:
        for row in rows[2 : rows.index([])]:
            yield file_format, row[0], row[column]


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
        if not is_mixed:
            classifier.quantize(precision, filters=filters)
        classifier.export(path, format=file_format, verbose=False)
        return classifier, served(str(path), file_format)

    if cell in ("no", *WITHOUT):
        # The converter, or the program that reads its file.
        with pytest.raises(Exception, match=r"."):
            export()[1](random_inputs(rng, *SHAPES[0]))
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


def inputs_of(task, rng, batch, length):
    inputs = random_inputs(rng, batch, length)
    if task == "masked_lm":
        positions = rng.integers(0, length, (batch, 4))
        inputs["mask_positions"] = positions.astype("int32")
    return inputs


def tiny(task, **arguments):
    if task == "question_answerer":
        return tiny_question_answerer()
    return tiny_task(task, **arguments) if task else tiny_backbone(**arguments)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("task", ["masked_lm", *once("embedder", "question_answerer")])
def test_tasks_for_any_batch_and_length(rng, tmp_path, task, file_format):
    """An embedder pools and normalizes in the file."""
    skip_without_converter(file_format)
    model, path = randomize_weights(tiny(task)), str(tmp_path / FILES[file_format])
    specs, shapes = fixed_signature(model.input, file_format)
    model.export(path, format=file_format, input_signature=specs, verbose=False)
    serve = served(path, file_format)
    for shape in shapes:
        inputs = inputs_of(task, rng, *shape)
        found, expected = keras.tree.flatten(serve(inputs)), keras.tree.flatten(model(inputs))
        for actual, desired in zip(found, expected, strict=True):
            assert_close(actual, desired)


@pytest.mark.parametrize("precision", ["float32", *once("float16")])
def test_onnx_files_of_every_backend(rng, tmp_path, precision):
    """Another process writes them if the backend is not PyTorch. Inputs and outputs have names."""
    skip_without_converter("onnx")
    import onnxruntime

    backbone = randomize_weights(tiny_backbone(dtype=precision))
    backbone.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert shapes == {name: ["batch", "length"] for name in backbone.input}
    for shape in SHAPES:
        inputs = random_inputs(rng, *shape)
        for name, expected in backbone(inputs).items():
            (found,) = session.run([name], inputs)
            assert_close(found, expected, 1e-5 if precision == "float32" else 1e-2)


@pytest.mark.any_backend("jax")
def test_an_onnx_file_needs_classes_that_can_be_imported(tmp_path):
    backbone = tiny_backbone(position_encoding=UnknownElsewhere(3, 13), num_layers=1)
    with pytest.raises(RuntimeError, match="must stand in a module"):
        backbone.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.any_backend
def test_litert_on_pytorch_needs_sizes(tmp_path):
    with pytest.raises(ValueError, match="needs fixed sizes"):
        tiny_backbone().export(tmp_path / "model.tflite", format="litert")


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


@pytest.mark.parametrize("encoding", ["diet_abs", "alibi"])
def test_lengths_above_the_limit(rng, tmp_path, encoding):
    """Encodings with a table of positions have none. The others compute their equation."""
    sizes = {"num_layers": 1, "position_encoding": encoding}
    backbone = randomize_weights(tiny_backbone(**sizes))
    path = str(tmp_path / FILES[FORMATS[0]])
    backbone.export(path, verbose=False)
    serve, inputs = served(path, FORMATS[0]), random_inputs(rng, 2, 17)
    if encoding == "alibi":
        longer = randomize_weights(tiny_backbone(**sizes, max_sequence_length=17))
        assert_close(serve(inputs)["pooled_output"], longer(inputs)["pooled_output"])
    elif BACKEND == "jax":
        assert np.isnan(serve(inputs)["pooled_output"]).all()
    else:
        with pytest.raises(Exception, match=r"Slice|Guard"):
            serve(inputs)


@pytest.mark.parametrize("task", [None, *once("classifier")])
def test_export_needs_a_path_only(rng, tmp_path, capsys, task):
    model = randomize_weights(tiny(task))
    model.export(tmp_path / "exported")
    path = "exported" + {"torch": ".pt2"}.get(BACKEND, "")
    assert [each.name for each in tmp_path.iterdir()] == [path]
    assert path in capsys.readouterr().out
    inputs = random_inputs(rng, *SHAPES[0])
    outputs, expected = served(str(tmp_path / path), FORMATS[0])(inputs), model(inputs)
    keras.tree.map_structure(assert_close, outputs, dict(expected) if task is None else expected)
    if BACKEND == "torch":
        check_that_converters_can_do_all_operations(str(tmp_path / path))


# === Wrong arguments ===


@pytest.mark.parametrize("name", ["other", "litert" if BACKEND == "jax" else "savedmodel"])
def test_unknown_formats(tmp_path, name):
    with pytest.raises(ValueError, match=f"`format` must be one of .*'{FORMATS[0]}'.*{name}"):
        tiny_backbone().export(tmp_path / "new", format=name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file_format", [*FORMATS, "onnx"])
def test_a_folder_is_not_overwritten(tmp_path, file_format):
    with pytest.raises(ValueError, match="must not be a folder that exists"):
        tiny_backbone().export(tmp_path, format=file_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("padding_mask", (None, 7), r"the axis 'length'.*11, and 7 for 'padding_mask'"),
        ("segment_ids", (3, 11), r"the axis 'batch'.*None, and 3 for 'segment_ids'"),
        ("segment_ids", (None, None), r"the axis 'length'.*11, and None for 'segment_ids'"),
    ],
)
def test_inputs_of_different_sizes(tmp_path, name, shape, message):
    backbone = tiny_backbone()
    (specs,) = signature(backbone.input, (None, 11))
    specs[name] = keras.InputSpec(shape=shape, dtype="int32", name=name)
    with pytest.raises(ValueError, match=message):
        backbone.export(tmp_path / "model.onnx", format="onnx", input_signature=[specs])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file_format", FORMATS[:1])
def test_no_file_after_an_error(tmp_path, monkeypatch, file_format):
    """The exporters write their files, and fail then."""

    def export(self, filepath, **kwargs):
        Path(filepath).mkdir() if file_format == "tf_saved_model" else Path(filepath).touch()
        raise OSError("No space left on device")

    monkeypatch.setattr(keras.Model, "export", export)
    with pytest.raises(OSError, match="No space"):
        tiny_backbone().export(tmp_path / "new.pt2", format=file_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file_format", FORMATS[:1])
def test_blocks_for_any_length(rng, tmp_path, file_format):
    """On JAX and PyTorch a program for any length computes all scores at once."""
    arguments = {"num_layers": 1, "position_encoding": "alibi"}
    blocks = tiny_backbone(**arguments, attention_implementation="blockwise")
    model, path = randomize_weights(blocks), str(tmp_path / FILES[file_format])
    model.export(path, verbose=False)
    for shape in SHAPES:
        inputs = random_inputs(rng, *shape)
        found = served(path, file_format)(inputs)["sequence_output"]
        assert_close(found, model(inputs)["sequence_output"])
