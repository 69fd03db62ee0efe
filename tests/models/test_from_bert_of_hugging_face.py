"""`from_bert` with BERTs of Hugging Face, from folders and from models of `transformers`."""

import json
import os
import warnings

import keras
import keras_hub
import numpy as np
import pytest
import torch
import transformers

from keras_diet.models import (
    DietBertBackbone,
    DietBertTextClassifier,
    DietBertTextEmbedder,
    DietBertTokenClassifier,
    DietBertTokenizer,
)
from keras_diet.models.diet_bert.diet_bert_backbone import activation_function
from keras_diet.models.diet_bert.hugging_face.architecture import ACTIVATIONS
from keras_diet.models.diet_bert.hugging_face.checkpoint import read_safetensors
from tests.helpers import assert_all_close, assert_close, to_numpy
from tests.models import tiny_encoders
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import AT_INPUT, SIZES, TEXTS, VOCABULARY, random_inputs

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
ACCENTS = ["Thé FOX", "猫猫 fox", "the-fox.", "FOXES"]
CLS = VOCABULARY.index("[CLS]")
NAMES = ["sad", "glad", "neither", "both", "other"]
ID2LABEL = dict(enumerate(NAMES))


def make(folder, head="Model", **options):
    """Save a tiny BERT of Hugging Face with a vocabulary, and return it."""
    model = tiny_encoders.make("bert", head, vocab_size=len(VOCABULARY), **options)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return model


def change_json(path, **values):
    contents = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**contents, **values}))


def assert_same_weights(actual, expected):
    assert_all_close(actual.get_weights(), expected.get_weights(), 0)


# === Weights ===


def test_activations_are_those_of_transformers():
    x = np.linspace(-3, 3, 61, dtype="float32")
    for theirs, ours in ACTIVATIONS.items():
        found = keras.activations.get(activation_function(ours))(keras.ops.convert_to_tensor(x))
        assert_close(found, transformers.activations.ACT2FN[theirs](torch.tensor(x)), name=theirs)


@pytest.mark.parametrize("head", ["SequenceClassification", "PreTraining", "MaskedLM"])
def test_a_model_without_a_pooler_warns_where_it_is_read(tmp_path, head):
    model = make(tmp_path, f"For{head}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        DietBertBackbone.from_bert(model)
    # A warning points to the line that called `from_bert`.
    files = [each.filename for each in caught if "has no pooler" in str(each.message)]
    assert files == ([__file__] if head == "MaskedLM" else [])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_half_precision(tmp_path, dtype):
    model = make(tmp_path)
    tensors = dict(model.state_dict())
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    for name, array in read_safetensors(tmp_path / "model.safetensors").items():
        assert array.dtype == "float32"
        expected = tensors[name].to(getattr(torch, dtype)).float().numpy()
        np.testing.assert_array_equal(array, expected)
    backbone = DietBertBackbone.from_bert(tmp_path, **AT_INPUT)
    assert_same_weights(backbone, DietBertBackbone.from_bert(model.train(), **AT_INPUT))
    # The copy has its own memory.
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.zero_()
    assert np.abs(backbone.token_embedding.get_weights()[0]).max() > 0.1


def test_weights_are_read_in_float32_whatever_the_policy(tmp_path):
    make(tmp_path)
    expected = DietBertBackbone.from_bert(tmp_path)
    keras.config.set_dtype_policy("bfloat16")
    try:
        half, exact = (DietBertBackbone.from_bert(tmp_path, dtype=t) for t in (None, "float32"))
    finally:
        keras.config.set_dtype_policy("float32")
    assert half.dtype_policy.name == "bfloat16"
    assert_same_weights(exact, expected)


def test_the_cls_of_the_vocabulary_gets_the_first_position(tmp_path):
    model = make(tmp_path)
    tokens = [
        DietBertBackbone.from_bert(source, cls_token_id=token).token_embedding.get_weights()[0]
        for source, token in ((tmp_path, None), (model, CLS), (tmp_path, CLS + 1), (model, None))
    ]
    np.testing.assert_array_equal(tokens[0], tokens[1])
    assert np.abs(tokens[0] - tokens[2]).max() > 0.1
    # A file may name it.
    change_json(tmp_path / "tokenizer_config.json", cls_token=VOCABULARY[CLS + 1])
    named = DietBertBackbone.from_bert(tmp_path).token_embedding.get_weights()[0]
    np.testing.assert_array_equal(named, tokens[2])
    # Neither a model nor a folder without a vocabulary knows it.
    os.remove(tmp_path / "vocab.txt")
    without = DietBertBackbone.from_bert(tmp_path).token_embedding.get_weights()[0]
    np.testing.assert_array_equal(without, tokens[3])
    assert np.abs(tokens[0] - without).max() > 0.1


# === Tasks ===


def make_task(folder, labels=ID2LABEL, **options):
    model = make(folder, "ForSequenceClassification", id2label=labels, **options)
    torch.nn.init.normal_(list(model.children())[-1].weight, std=0.7)
    model.save_pretrained(folder)
    return model


def test_new_names_and_arguments_of_the_backbone(tmp_path):
    model = make_task(tmp_path)
    kernel = model.classifier.weight.detach().numpy().T
    options = {"rank": 3, "sharing": "none", "max_sequence_length": 11}
    expected = DietBertBackbone.from_bert(model, "diet_abs", cls_token_id=CLS, **options)
    # A model has no vocabulary, but the preprocessor has.
    renamed = DietBertTextClassifier.from_bert(
        model,
        preprocessor=tiny_preprocessor("classifier", sequence_length=9),
        class_names=list("abcde"),
        activation="softmax",
        **options,
    )
    assert_same_weights(renamed.backbone, expected)
    assert renamed.class_names == list("abcde")
    np.testing.assert_array_equal(to_numpy(renamed.output_dense.kernel), kernel)
    assert to_numpy(renamed(random_inputs(np.random.default_rng(3)))).max() <= 1


@pytest.mark.parametrize("cls", [DietBertTextClassifier, DietBertTokenClassifier])
def test_a_new_head(tmp_path, cls):
    kernel = make_task(tmp_path).classifier.weight.detach().numpy().T
    new = cls.from_bert(tmp_path, num_classes=5)
    assert (new.class_names, new.num_classes) == (None, 5)
    assert np.abs(to_numpy(new.output_dense.kernel) - kernel).max() > 0.1
    bert = keras_hub.models.BertBackbone(**SIZES)
    with pytest.raises(ValueError, match="`num_classes`"):
        cls.from_bert(bert)
    assert cls.from_bert(bert, "input", class_names=NAMES).num_classes == 5


def write_sentence_transformer(folder, pooling, *modules):
    make(folder)
    types = ["Transformer", "Pooling", *modules]
    paths = ["", *(f"{i + 2}_{name}" for i, name in enumerate(types[1:]))]
    pairs = zip(paths, types, strict=True)
    contents = [{"path": path, "type": f"sentence_transformers.models.{t}"} for path, t in pairs]
    (folder / "modules.json").write_text(json.dumps(contents))
    (folder / "2_Pooling").mkdir()
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    flags = {f"pooling_mode_{name}": name in pooling for name in names}
    new = {"pooling_mode": pooling, "include_prompt": True}
    change_json(folder / "2_Pooling/config.json", **(flags if "_" in str(pooling) else new))


@pytest.mark.parametrize(
    ("theirs", "modules", "expected"),
    [
        (["cls_token"], [], ("cls", False)),
        (["mean_tokens"], ["Normalize"], ("mean", True)),
        (["max_tokens"], [], ("max", False)),
        ("cls", ["Normalize"], ("cls", True)),
    ],
    ids=["cls flag", "mean flag", "max flag", "cls"],
)
def test_embedders_have_the_pooling_of_sentence_transformers(tmp_path, theirs, modules, expected):
    write_sentence_transformer(tmp_path, theirs, *modules)
    embedder = DietBertTextEmbedder.from_bert(tmp_path)
    assert (embedder.pooling_mode, embedder.normalize) == expected
    other = DietBertTextEmbedder.from_bert(tmp_path, pooling_mode="max", normalize=not expected[1])
    assert (other.pooling_mode, other.normalize) == ("max", not expected[1])


@pytest.mark.parametrize(
    ("pooling", "modules", "message"),
    [
        (["mean_sqrt_len_tokens"], [], "Pooling/config.json='mean_sqrt_len_tokens'"),
        (["cls_token", "max_tokens"], [], r"'cls_token\+max_tokens'"),
        ("lasttoken", [], "'lasttoken'"),
        (["mean_tokens"], ["Dense", "Normalize"], "modules.json='Dense'"),
    ],
)
def test_other_embedders_are_refused(tmp_path, pooling, modules, message):
    write_sentence_transformer(tmp_path, pooling, *modules)
    with pytest.raises(ValueError, match=message):
        DietBertTextEmbedder.from_bert(tmp_path)


PROMPTS = {"query": "find: ", "document": ""}


@pytest.mark.parametrize(
    ("default", "include", "message"),
    [
        ("query", True, "null, because .* Received: 'query' with the prompt 'find: '"),
        (None, False, r"2_Pooling/config.json must be true.*prompts \['query'\]"),
        ("document", True, None),
        (None, True, None),
    ],
    ids=["default", "not pooled", "empty", "not default"],
)
def test_prompts_that_would_be_ignored_are_refused(tmp_path, default, include, message):
    write_sentence_transformer(tmp_path, "mean")
    change_json(tmp_path / "2_Pooling/config.json", include_prompt=include)
    settings = {"prompts": PROMPTS, "default_prompt_name": default}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    if message is None:
        assert DietBertTextEmbedder.from_bert(tmp_path).pooling_mode == "mean"
    else:
        with pytest.raises(ValueError, match=message):
            DietBertTextEmbedder.from_bert(tmp_path)


SOME = {i: f"LABEL_{i}" for i in range(3)}
MANY = ["LABEL_0", *map(str, range(1, 11))]


@pytest.mark.parametrize(
    ("labels", "problem", "names"),
    [
        (SOME, "multi_label_classification", None),
        ({0: "a", 1: "a", 2: "b"}, "single_label_classification", None),
        ({0: "", 1: "a", 2: "b"}, None, None),
        # The name of a number is not the name of a class.
        ({0: "score"}, None, None),
        # Here 10 comes before 2, as in text. A single name that looks made up is a name.
        ({i: MANY[i] for i in sorted(range(11), key=str)}, None, MANY),
        ({0: 0, 1: 2, 2: 1}, None, ["0", "2", "1"]),
    ],
    ids=["made up", "twice the same", "empty", "a number", "eleven", "names that are numbers"],
)
def test_names_and_kind_of_labels(tmp_path, labels, problem, names):
    make_task(tmp_path, labels, problem_type=problem)
    # `transformers` sorts them.
    change_json(tmp_path / "config.json", id2label=labels)
    classifier = DietBertTextClassifier.from_bert(tmp_path)
    assert (classifier.class_names, classifier.num_classes) == (names, len(labels))
    assert classifier.multi_label == (problem == "multi_label_classification")
    assert not DietBertTextClassifier.from_bert(tmp_path, multi_label=False).multi_label


# === The tokenizer ===


@pytest.mark.parametrize(
    ("file", "lowercase"), [("tokenizer.json", True), ("vocab.txt", True), ("vocab.txt", False)]
)
def test_tokens_are_those_of_hugging_face(tmp_path, lowercase, file):
    make(tmp_path)
    theirs = transformers.BertTokenizer(
        {token: i for i, token in enumerate(VOCABULARY)}, do_lower_case=lowercase
    )
    theirs.save_pretrained(tmp_path)
    if file == "vocab.txt":
        os.remove(tmp_path / "tokenizer.json")
    ours = DietBertTokenizer.from_bert(tmp_path)
    assert (ours.lowercase, ours.get_vocabulary()) == (lowercase, VOCABULARY)
    texts = TEXTS + ACCENTS
    assert ours(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    # Arguments go first.
    other = DietBertTokenizer.from_bert(tmp_path, lowercase=not lowercase, sequence_length=7)
    assert (other.lowercase, len(other("the fox"))) == (not lowercase, 7)
