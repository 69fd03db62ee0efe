"""Exported models return what the model returns: SavedModel, ONNX, LiteRT, `torch.export`."""

import shutil
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_diet.layers import DietEncoder
from keras_diet.layers.position.input_encoding import InputEncoding
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.models import DietBertQuestionAnswerer, DietBertTextReranker
from keras_diet.models.hub.model_files import ModelFiles
from tests.helpers import assert_close
from tests.models.tasks import CLASSES, tiny_task
from tests.models.tiny import (
    random_inputs,
    randomize_weights,
    tiny_backbone,
)

BACKEND = keras.backend.backend()
FORMATS = {
    "tensorflow": ("tf_saved_model", "litert"),
    "jax": ("tf_saved_model",),
    "torch": ("torch", "onnx", "litert"),
}[BACKEND]
# PyTorch makes ONNX files of a program of `torch.export`, and TensorFlow makes LiteRT files of a
# SavedModel. So those have all that the first format has.
LAST = FORMATS[1:] or FORMATS
FILES = {"tf_saved_model": "model", "onnx": "model.onnx", "litert": "model.tflite"}
FILES["torch"] = "model.pt2"
NAMES = ("token_ids", "segment_ids", "padding_mask", "mask_positions")
# Batch sizes and lengths. The exporters have seen none of them.
SHAPES = ((3, 11), (1, 4))
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
            # A dictionary of outputs keeps its names.
            return [outputs[name] for name in sorted(outputs)]

        return serve
    import torch

    model = torch.export.load(path).module()
    return lambda inputs: arrays(model({k: torch.tensor(v) for k, v in inputs.items()}))


def signature(inputs, shape, dtypes=None):
    dtypes = dict.fromkeys(inputs, "int32") | (dtypes or {})
    return [{name: keras.InputSpec(shape=shape, dtype=dtypes[name], name=name) for name in inputs}]


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


# Both parts of the first two are those of other encodings. The third is "deberta" with two more
# projections.
ALIKE = ("diet_abs_input", "t5_input", "deberta_v1")
ENCODERS = {
    **{
        name: {"position_encoding": name}
        for name in POSITION_ENCODINGS
        if name not in ("none", *ALIKE)
    },
    "Linformer": {"projection_dim": 5, "segment_encoding": "none"},
    "features": {"attention_implementation": "features"},
}
if BACKEND != "tensorflow":
    # A program for any length computes all scores at once.
    ENCODERS["blocks"] = {"attention_implementation": "blockwise"}
# Encoders that a format of a backend lacks, with the reason.
EXCEPTIONS = {("torch", "litert"): {"shaw": "LiteRT cannot run the file that its converter makes"}}


class Positions(keras.layers.Layer):
    """The scores of positions, or the inputs with positions. Both are small programs."""

    def __init__(self, part, **kwargs):
        super().__init__(**kwargs)
        self.part = part

    def call(self, inputs):
        return self.part(inputs)

    def compute_output_shape(self, shape):
        is_input = isinstance(self.part, InputEncoding)
        return shape if is_input else self.part.compute_output_shape(shape)


class Encodings(ModelFiles, keras.Model):
    """One model, and so one file, with several encodings."""

    def __init__(self, encoders, max_sequence_length=13):
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "padding_mask")
        }
        x, outputs = keras.layers.Embedding(31, 18)(inputs["token_ids"]), {}
        for name, arguments in encoders.items():
            encoder = DietEncoder(1, 3, 23, max_sequence_length=max_sequence_length, **arguments)
            encoder.build((None, None, 18))
            parts = [*encoder.position_biases, encoder.input_encoding]
            parts = [part for part in parts if part is not None]
            if parts and "position_encoding" in arguments:
                outputs |= {f"{name} {i}": Positions(part)(x) for i, part in enumerate(parts)}
            else:
                outputs[name] = encoder(x, padding_mask=inputs["padding_mask"])
        super().__init__(inputs, outputs)


class Tasks(ModelFiles, keras.Model):
    """All tasks of a backbone in one file. The embedder pools and normalizes."""

    def __init__(self):
        backbone = tiny_backbone(num_layers=1, position_encoding="none")
        inputs = {"mask_positions": keras.Input((None,), dtype="int32", name="mask_positions")}
        inputs |= backbone.input
        tasks = {name: cls(backbone, **head) for name, (cls, _, head) in CLASSES.items()}
        tasks["question_answerer"] = DietBertQuestionAnswerer(backbone)
        tasks["reranker"] = DietBertTextReranker(backbone, activation="sigmoid")
        if BACKEND == "torch":
            # `test_hugging_face_programs.py` has the ONNX files of the others.
            tasks = {"masked_lm": tasks["masked_lm"]}
        outputs = {}
        for name, task in tasks.items():
            found = task({key: inputs[key] for key in task.input})
            found = found if isinstance(found, dict) else {"": found}
            outputs |= {f"{name} {key}": tensor for key, tensor in found.items()}
        super().__init__(inputs, outputs)


def skip_without_converter(file_format):
    if file_format == "onnx":
        pytest.importorskip("onnxruntime")
    if (file_format, BACKEND) == ("litert", "torch"):
        pytest.importorskip("litert_torch")


def check_file(model, path, file_format, rng, dtypes=None, shapes=SHAPES):
    """The file of a model returns what the model returns, for sizes that no exporter has seen."""
    is_fixed = (file_format, BACKEND) == ("litert", "torch")
    shapes = (FIXED,) if is_fixed else shapes
    specs = signature(model.input, FIXED if is_fixed else (None, None), dtypes)
    randomize_weights(model).export(path, file_format, verbose=False, input_signature=specs)
    serve = served(path, file_format)
    for shape in shapes:
        inputs = random_inputs(rng, *shape)
        # Padding in the middle of a sequence.
        inputs["padding_mask"][-1, 1] = 0
        inputs["mask_positions"] = rng.integers(0, shape[1], (shape[0], 5)).astype("int32")
        inputs = {name: inputs[name] for name in model.input}
        expected = model.predict_on_batch(inputs)
        of_dtypes = {name: inputs[name].astype(spec.dtype) for name, spec in specs[0].items()}
        found = keras.tree.flatten(serve(of_dtypes))
        for name, actual in zip(sorted(expected), found, strict=True):
            assert_close(actual, expected[name], name=f"{name} for the shape {shape}")


@pytest.mark.parametrize("file_format", LAST)
def test_every_encoding_for_any_batch_and_length(rng, tmp_path, file_format):
    """The encoders have the exact gelu, as most checkpoints.

    On TensorFlow and JAX, ONNX files are written by PyTorch in another process, by the same code as
    on PyTorch. `test_another_process_writes_onnx_files` has that process.
    """
    skip_without_converter(file_format)
    exceptions = EXCEPTIONS.get((BACKEND, file_format), {})
    encoders = {name: each for name, each in ENCODERS.items() if name not in exceptions}
    path = str(tmp_path / FILES[file_format])
    # JAX compiles the model and its file for each shape, and has no numbers for sizes when it
    # exports. The tasks have both shapes.
    shapes = SHAPES[:1] if BACKEND == "jax" else SHAPES
    check_file(Encodings(encoders), path, file_format, rng, shapes=shapes)
    if file_format == "litert" and BACKEND == "tensorflow":
        check_that_litert_has_all_operations(path)


@pytest.mark.parametrize("file_format", LAST)
def test_every_task_for_any_batch_and_length(rng, tmp_path, file_format):
    """ONNX files have other types of inputs here. They name the axes, and all outputs."""
    skip_without_converter(file_format)
    dtypes, model, path = {}, Tasks(), str(tmp_path / FILES[file_format])
    if file_format == "onnx":
        dtypes = {"token_ids": "int64", "segment_ids": "int64", "padding_mask": "bool"}
    check_file(model, path, file_format, rng, dtypes)
    if file_format == "onnx":
        check_names(path, model)


def check_names(path, model):
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert shapes == {
        name: ["batch", "num_masks" if name == "mask_positions" else "length"]
        for name in model.input
    }
    assert [each.name for each in session.get_outputs()] == sorted(model.output)


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


@pytest.mark.parametrize(
    ("file_format", "precision", "cell"),
    [
        *table_of_precisions(),
        # docs/notebooks/finetune_and_serve.ipynb has it on PyTorch.
        *([] if BACKEND == "torch" else [(FORMATS[0], "int8", "yes")]),
    ],
)
def test_precisions(rng, tmp_path, file_format, precision, cell):
    """The other files are refused, or LiteRT needs more than its own operations for them."""
    skip_without_converter(file_format)
    path = tmp_path / FILES[file_format]

    def export(filters=None):
        is_mixed = precision.startswith("mixed")
        arguments = {"dtype": precision} if is_mixed else {}
        arguments |= {"num_layers": 1, "position_encoding": "none"}
        classifier = randomize_weights(tiny_task("classifier", **arguments))
        if not is_mixed:
            classifier.quantize(precision, filters=filters)
        classifier.export(path, format=file_format, verbose=False)
        return classifier, served(str(path), file_format)

    if cell in ("no", *WITHOUT):
        is_quantized = not precision.startswith("mixed")
        # Otherwise the converter, or the program that reads its file.
        error = ValueError if is_quantized else Exception
        with pytest.raises(error, match="has no operations for" if is_quantized else "."):
            export()[1](random_inputs(rng, *SHAPES[0]))
        assert not is_quantized or not path.exists()
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


@pytest.mark.any_backend("jax")
def test_another_process_writes_onnx_files(rng, tmp_path):
    skip_without_converter("onnx")
    backbone = randomize_weights(tiny_backbone(num_layers=1))
    path = str(tmp_path / "model.onnx")
    backbone.export(path, format="onnx", verbose=False)
    check_names(path, backbone)
    for shape in SHAPES:
        inputs = random_inputs(rng, *shape)
        expected = backbone(inputs)
        for name, found in zip(sorted(expected), served(path, "onnx")(inputs), strict=True):
            assert_close(found, expected[name], name=name)


@pytest.mark.any_backend("jax")
def test_an_error_of_the_other_process(tmp_path, monkeypatch):
    """It has no class of `__main__`, so it fails. Here it fails at once."""
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RuntimeError, match="must stand in a module"):
        tiny_backbone(num_layers=1).export(tmp_path / "model.onnx", format="onnx", verbose=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("encoding", ["diet_abs", "alibi"])
def test_lengths_above_the_limit(rng, tmp_path, encoding):
    """Encodings with a table of positions have none. The others compute their equation."""
    encoders = {"encoder": {"position_encoding": encoding}}
    model, path = randomize_weights(Encodings(encoders)), str(tmp_path / FILES[FORMATS[0]])
    model.export(path, verbose=False)
    serve, inputs = served(path, FORMATS[0]), random_inputs(rng, 2, 17)
    inputs = {name: inputs[name] for name in model.input}
    if encoding == "alibi":
        longer = randomize_weights(Encodings(encoders, max_sequence_length=17))
        assert_close(serve(inputs)["encoder 0"], longer(inputs)["encoder 0"])
    elif BACKEND == "jax":
        assert np.isnan(serve(inputs)["encoder 0"]).any()
    else:
        with pytest.raises(Exception, match=r"Slice|Guard"):
            serve(inputs)


def test_export_needs_a_path_only(rng, tmp_path, capsys):
    model = randomize_weights(tiny_backbone(num_layers=1))
    model.export(tmp_path / "exported")
    path = "exported" + {"torch": ".pt2"}.get(BACKEND, "")
    assert [each.name for each in tmp_path.iterdir()] == [path]
    assert path in capsys.readouterr().out
    inputs = random_inputs(rng, *SHAPES[0])
    outputs = served(str(tmp_path / path), FORMATS[0])(inputs)
    keras.tree.map_structure(assert_close, outputs, dict(model(inputs)))
    if BACKEND == "torch":
        check_that_converters_can_do_all_operations(str(tmp_path / path))


# === Wrong arguments ===


SIZES = dict.fromkeys(NAMES[:3], (None, 11))
UNKNOWN = f"`format` must be one of .*'{FORMATS[0]}'.*Received: "
REFUSED = {
    "an unknown format": ({"format": "savedmodel"}, UNKNOWN),
    "a format of others": (
        {"format": {"torch": "tf_saved_model"}.get(BACKEND, "torch")},
        UNKNOWN,
    ),
    "two lengths": (
        {"format": "onnx", "sizes": {**SIZES, "padding_mask": (None, 7)}},
        "the axis 'length'.*11, and 7 for 'padding_mask'",
    ),
    "two batch sizes": (
        {"sizes": {**SIZES, "segment_ids": (3, 11)}},
        "the axis 'batch'.*None, and 3 for 'segment_ids'",
    ),
    "one open length": (
        {"sizes": {**SIZES, "segment_ids": (None, None)}},
        "the axis 'length'.*11, and None for 'segment_ids'",
    ),
    "int4": (
        {"format": "onnx", "quantized": "int4"},
        "'onnx' has no operations for layers in 'int4'.*Received: .*token_embedding",
    ),
    "int8 embeddings": (
        {"format": "onnx", "quantized": "int8"},
        "'onnx' has no operations for embeddings in 'int8'.*Received: .*token_embedding",
    ),
}
if "litert" in FORMATS:
    REFUSED["float8 in LiteRT"] = (
        {"format": "litert", "quantized": "float8"},
        "'litert' has no operations for layers in 'float8'",
    )
if BACKEND == "torch":
    REFUSED["open sizes in LiteRT"] = ({"format": "litert"}, "needs fixed sizes")


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(tmp_path, name):
    """The message says what is wrong, and nothing is written."""
    arguments, message = REFUSED[name]
    backbone = tiny_backbone(num_layers=1)
    if "quantized" in arguments:
        backbone.quantize(arguments["quantized"])
    signature = None
    if "sizes" in arguments:
        specs = {
            key: keras.InputSpec(shape=shape, dtype="int32", name=key)
            for key, shape in arguments["sizes"].items()
        }
        signature = [specs]
    with pytest.raises(ValueError, match=message):
        backbone.export(tmp_path / "new", arguments.get("format"), input_signature=signature)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file_format", [*FORMATS, "onnx"])
def test_a_folder_is_not_overwritten(tmp_path, file_format):
    with pytest.raises(ValueError, match="must not be a folder that exists"):
        tiny_backbone(num_layers=1).export(tmp_path, format=file_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file_format", FORMATS[:1])
def test_no_file_after_an_error(tmp_path, monkeypatch, file_format):
    """The exporters write their files, and fail then."""

    def export(self, filepath, **kwargs):
        Path(filepath).mkdir() if file_format == "tf_saved_model" else Path(filepath).touch()
        raise OSError("No space left on device")

    monkeypatch.setattr(keras.Model, "export", export)
    with pytest.raises(OSError, match="No space"):
        tiny_backbone(num_layers=1).export(tmp_path / "new.pt2", format=file_format)
    assert not list(tmp_path.iterdir())


@pytest.mark.any_backend("tensorflow")
def test_blocks_for_any_length(rng, tmp_path):
    """On JAX and PyTorch, "blocks" is one of the encoders above."""
    arguments = {"num_layers": 1, "position_encoding": "alibi"}
    blocks = tiny_backbone(**arguments, attention_implementation="blockwise")
    model, path = randomize_weights(blocks), str(tmp_path / "model")
    model.export(path, verbose=False)
    serve = served(path, "tf_saved_model")
    for shape in SHAPES:
        inputs = random_inputs(rng, *shape)
        found = serve(inputs)["sequence_output"]
        assert_close(found, model(inputs)["sequence_output"])
