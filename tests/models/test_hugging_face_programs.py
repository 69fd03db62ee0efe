"""Folders with an ONNX file: names, files, and the programs of others that load them.

`make clients` installs those programs in `.clients/`.
"""

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_diet.models import (
    DietBertQuestionAnswerer,
    DietBertQuestionAnswererPreprocessor,
    DietBertTextClassifier,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTextReranker,
    DietBertTokenizer,
)
from keras_diet.models.diet_bert.hugging_face import write
from tests.helpers import assert_close, to_numpy
from tests.models.multilingual import multilingual_tokenizer
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import (
    AT_INPUT,
    TEXTS,
    VOCABULARY,
    random_inputs,
    randomize_weights,
    tiny_backbone,
)

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.any_backend

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".clients"
# Batch sizes and lengths. The exporter has seen none of them.
SHAPES = ((2, 9), (3, 7), (1, 3))
INPUTS = ["input_ids", "attention_mask"]
NAMES = {"token_ids": INPUTS[0], "padding_mask": INPUTS[1], "segment_ids": "token_type_ids"}


def run(folder, inputs, program="model.onnx"):
    """Return the outputs of the program of a folder by their names."""
    session = onnxruntime.InferenceSession(folder / "onnx" / program)
    inputs = {NAMES[name]: array.astype("int64") for name, array in inputs.items()}
    read = {each.name: each for each in session.get_inputs()}
    assert all(each.shape == ["batch", "length"] for each in read.values())
    names = [each.name for each in session.get_outputs()]
    outputs = session.run(names, {name: inputs[name] for name in read})
    return dict(zip(names, outputs, strict=True)), list(read)


def without_middle(inputs):
    """Inputs with padding in the middle of a sequence."""
    mask = inputs["padding_mask"].copy()
    mask[0, 1] = 0
    return {**inputs, "padding_mask": mask}


# === Names of inputs and outputs ===


def of_all_tokens(masked_lm, inputs):
    positions = np.broadcast_to(np.arange(inputs["token_ids"].shape[1]), inputs["token_ids"].shape)
    return {"logits": masked_lm({**inputs, "mask_positions": positions.astype("int32")})}


def of_embedder(embedder, inputs):
    states = embedder.backbone(inputs)["sequence_output"]
    return {"last_hidden_state": states, "sentence_embedding": embedder(inputs)}


def of_backbone(backbone, inputs):
    return {"last_hidden_state": backbone(inputs)["sequence_output"]}


def of_answerer(answerer, inputs):
    return {f"{name}_logits": logits for name, logits in answerer(inputs).items()}


def of_reranker(reranker, inputs):
    """The configuration names the activation of the scores, so the program returns logits."""
    kernel, bias = reranker.output_dense.get_weights()
    return {"logits": to_numpy(reranker.backbone(inputs)["pooled_output"]) @ kernel + bias}


def logits(task, inputs):
    return {"logits": task(inputs)}


def small(**arguments):
    return tiny_backbone(num_layers=1, **arguments)


def backbone():
    # One segment is no input.
    return small(num_segments=1, hidden_dim=30)


def embedder():
    """Texts with capitals and unknown words, and texts that are longer than the model takes."""
    tokenizer = DietBertTokenizer(VOCABULARY, lowercase=True)
    preprocessor = DietBertTextEmbedderPreprocessor(tokenizer, sequence_length=9)
    return DietBertTextEmbedder(small(position_encoding="diet_rel"), preprocessor)


def classifier():
    names = ["bad", "fine", "good"]
    preprocessor = tiny_preprocessor("classifier")
    backbone = small(segment_encoding="none")
    return DietBertTextClassifier(backbone, preprocessor=preprocessor, class_names=names)


def answerer():
    """Its encoder reads no segments, but its head masks the question."""
    preprocessor = DietBertQuestionAnswererPreprocessor(
        DietBertTokenizer(VOCABULARY), sequence_length=13, doc_stride=2
    )
    return DietBertQuestionAnswerer(small(segment_encoding="none"), preprocessor)


# The model, its outputs, and the form of its ONNX file.
MODELS = {
    "backbone": (backbone, of_backbone, "int8"),
    "embedder": (embedder, of_embedder, True),
    "classifier": (classifier, logits, True),
    "masked_lm": (lambda: tiny_task("masked_lm", dtype="float16"), of_all_tokens, True),
    "question_answerer": (answerer, of_answerer, True),
    "reranker": (lambda: DietBertTextReranker(small(), activation="sigmoid"), of_reranker, True),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function that returns a model and its folder. A model is exported once."""

    @functools.cache
    def export(name):
        make, _, onnx = MODELS[name]
        folder = tmp_path_factory.mktemp("folders") / name
        # With the first random weights the texts do not differ in their class.
        model = randomize_weights(make(), seed=11 if name == "classifier" else 0)
        model.export_to_hugging_face(folder, onnx=onnx)
        return model, folder

    return export


@pytest.mark.parametrize("name", MODELS)
def test_names_and_outputs_of_programs(rng, exported, name):
    model, folder = exported(name)
    for shape in SHAPES:
        num_segments = 1 if name == "backbone" else 2
        inputs = without_middle(random_inputs(rng, *shape, num_segments=num_segments))
        found, read = run(folder, inputs)
        has_none = name in ("backbone", "classifier")
        assert read == (INPUTS if has_none else [*INPUTS, "token_type_ids"])
        expected = MODELS[name][1](model, inputs)
        assert found.keys() == expected.keys()
        for output, array in found.items():
            assert array.dtype == "float32"
            assert_close(array, expected[output], 1e-2 if name == "masked_lm" else 1e-5)


def test_int8_stays_close(rng, exported):
    """All kernels are in 8 bits: six in the layer."""
    import onnx

    _, folder = exported("backbone")
    graph = onnx.load(folder / "onnx/model_quantized.onnx").graph
    assert [node.op_type for node in graph.node].count("MatMulInteger") >= 6
    inputs = random_inputs(rng, 2, 11, num_segments=1)
    found, _ = run(folder, inputs, "model_quantized.onnx")
    expected, _ = run(folder, inputs)
    difference = found["last_hidden_state"] - expected["last_hidden_state"]
    assert 1e-4 < np.abs(difference).mean() < 0.1 * np.abs(expected["last_hidden_state"]).mean()


# === Files ===


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


SENTENCES = {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"}
TOKENIZER = {"tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def quick_programs(monkeypatch, exported):
    """Write the program of another model, because an export takes seconds."""
    program = exported("embedder")[1] / "onnx/model.onnx"
    monkeypatch.setattr(write, "write_onnx", lambda m, path, *_, **__: shutil.copy(program, path))


@pytest.mark.usefixtures("quick_programs")
def test_files_of_folders(tmp_path):
    """A folder holds one model. Without a type of `transformers`, weights are in the program."""
    at_input = {**AT_INPUT, "activation": "gelu"}
    tiny_task("embedder", **at_input).export_to_hugging_face(tmp_path, "bert", onnx="int8")
    both = {"onnx/model.onnx", "onnx/model_quantized.onnx"}
    others = {"config.json", *SENTENCES, *TOKENIZER}
    assert files(tmp_path) == {"model.safetensors", *both, *others}
    # A part of another program of the old model.
    (tmp_path / "onnx/model_fp16.onnx_data").touch()
    tiny_task("embedder").export_to_hugging_face(tmp_path, onnx=True)
    assert files(tmp_path) == {"onnx/model.onnx", *others}
    tiny_task("classifier", **at_input).export_to_hugging_face(tmp_path, "bert")
    assert not files(tmp_path) & {"modules.json", "onnx/model.onnx"}
    tiny_task("embedder", **at_input).export_to_hugging_face(tmp_path, "bert")
    tiny_backbone(**at_input).export_to_hugging_face(tmp_path, "bert")
    # A tokenizer may belong to the backbone, unless it has another number of tokens.
    others = {"config.json", "sentence_bert_config.json", *TOKENIZER}
    assert files(tmp_path) == {"model.safetensors", *others}
    tiny_backbone(**at_input, vocabulary_size=37).export_to_hugging_face(tmp_path, "bert")
    assert files(tmp_path) == {"model.safetensors", "config.json"}


def classifier_with_activation():
    return DietBertTextClassifier(tiny_backbone(), 3, activation="softmax")


def with_sentence_pieces():
    tokenizer = multilingual_tokenizer()
    backbone = tiny_backbone(vocabulary_size=tokenizer.vocabulary_size(), num_layers=1)
    preprocessor = DietBertTextEmbedderPreprocessor(tokenizer, sequence_length=9)
    return DietBertTextEmbedder(backbone, preprocessor)


REFUSED = [
    (with_sentence_pieces, True, "`tokenizers` package. Received: DietBertSentencePieceTokenizer"),
    (classifier_with_activation, True, "`activation` must be `None` in an ONNX file"),
    (lambda: tiny_task("classifier"), "int4", "`onnx` must be one of False, True, 'int8'"),
]


@pytest.mark.parametrize(("make", "onnx", "message"), REFUSED, ids=[row[2][:30] for row in REFUSED])
def test_refusals(tmp_path, make, onnx, message):
    with pytest.raises(ValueError, match=message):
        make().export_to_hugging_face(tmp_path / "new", onnx=onnx)
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("quick_programs")
def test_a_folder_keeps_its_model_if_the_new_one_fails(tmp_path, monkeypatch):
    tiny_task("classifier", **AT_INPUT).export_to_hugging_face(tmp_path, "bert")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match="No space"):
        tiny_task("embedder").export_to_hugging_face(tmp_path, onnx=True)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


# === Programs of others ===


def answer_of(client, *request):
    """Run a client in its own process, or skip the test if its packages are missing."""
    python = CLIENTS / "bin/python"
    command = [python if python.exists() else sys.executable]
    if client.endswith(".cjs"):
        command = [shutil.which("node") or pytest.skip("node is not installed")]
    path = ROOT / "tests/clients" / client
    done = subprocess.run(
        [*map(str, command), str(path), str(CLIENTS)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
    )
    missing = ("ModuleNotFoundError", "Cannot find module '@huggingface")
    if done.returncode and any(word in done.stderr for word in missing):
        pytest.skip(f"{client}: {done.stderr.strip().splitlines()[-1]}. Run `make clients`.")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# Clients, and how many of `EMBEDDED` they embed as Keras does.
EMBEDS = {
    "use_onnx_runtime.py": 7,
    "use_sentence_transformers.py": 7,
    # It takes "[SEP]" in a text for the token.
    "use_fastembed.py": 6,
    # It also takes the last "[SEP]" away from a text that is too long.
    "use_transformers_js.cjs": 3,
}
EMBEDDED = ["The FOX", "a zebra and dogs", "birds sing .", *TEXTS[:3], "a zebra, [SEP] dog"]


@pytest.mark.parametrize("client", EMBEDS)
def test_clients_compute_the_same_vectors(exported, client):
    (embedder, folder), number = exported("embedder"), EMBEDS[client]
    found = answer_of(client, "embed", str(folder), EMBEDDED[:number])
    expected = np.asarray(embedder.encode_text(EMBEDDED, verbose=0))
    assert_close(np.array(found), expected[:number], 1e-5)


two_clients = pytest.mark.parametrize("client", ["use_onnx_runtime.py", "use_transformers_js.cjs"])


@two_clients
def test_clients_find_the_same_labels(exported, client):
    classifier, folder = exported("classifier")
    expected = [row[0]["label"] for row in classifier.classify(TEXTS)]
    assert len(set(expected)) > 1
    assert answer_of(client, "classify", str(folder), TEXTS) == expected


@two_clients
def test_clients_find_the_same_spans(exported, client):
    answerer, folder = exported("question_answerer")
    # Words of one token, because transformers.js decodes a part of a word as it is.
    pairs = [("red cat", "the slow red cat on a mat"), ("dog", "a bird and the fox in a tree")]
    found = answerer.answer(*map(list, zip(*pairs, strict=True)))
    expected = [row["text"] for row in found]
    assert answer_of(client, "answer", str(folder), pairs) == expected
