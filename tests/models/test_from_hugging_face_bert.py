"""`from_bert` of the backbone and of the tokenizer with folders of Hugging Face's BERT."""

import json
import logging
import os
import warnings

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietBertTokenizer
from keras_diet.models.diet_bert.from_bert.checkpoint import read_safetensors
from tests.helpers import assert_close
from tests.models.tiny import SIZES, TEXTS, VOCABULARY, random_inputs

# The weights are copied as arrays. Other files compare the outputs with equations on each backend.
pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}
ACCENTS = ["Thé FOX", "猫猫 fox", "the-fox.", "FOXES"]


def make(folder, model_class="BertModel", vocabulary=VOCABULARY, **options):
    """Save a tiny model of Hugging Face, with large weights, and return it."""
    # The other passes collect this file, so it does not import them at the top.
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=SIZES["vocabulary_size"],
        hidden_size=SIZES["hidden_dim"],
        num_hidden_layers=SIZES["num_layers"],
        num_attention_heads=SIZES["num_heads"],
        intermediate_size=SIZES["intermediate_dim"],
        max_position_embeddings=SIZES["max_sequence_length"],
        **{"initializer_range": 0.3, **options},
    )
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary))
    return model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    return folder, make(folder)


@pytest.fixture
def folder(tmp_path):
    """A checkpoint to spoil."""
    make(tmp_path)
    return tmp_path


def outputs(model, inputs):
    import torch

    with torch.no_grad():
        return model(
            input_ids=torch.tensor(inputs["token_ids"], dtype=torch.int64),
            token_type_ids=torch.tensor(inputs["segment_ids"], dtype=torch.int64),
            attention_mask=torch.tensor(inputs["padding_mask"], dtype=torch.int64),
        )


def change_json(path, **values):
    contents = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**contents, **values}))


def assert_same_outputs(folder, model, rng, tolerance=1e-4):
    backbone = DietBertBackbone.from_bert(folder, **AT_INPUT, dropout=0.0)
    inputs = random_inputs(rng)
    expected = outputs(model, inputs)
    actual = backbone(inputs)
    assert_close(actual["sequence_output"], expected.last_hidden_state.numpy(), tolerance)
    if expected.pooler_output is not None:
        assert_close(actual["pooled_output"], expected.pooler_output.numpy(), tolerance)
    return backbone


# === Weights ===


def test_outputs_are_those_of_hugging_face(checkpoint, rng):
    folder, model = checkpoint
    backbone = assert_same_outputs(folder, model, rng)
    assert backbone.dropout == 0.0
    assert DietBertBackbone.from_bert(str(folder)).dropout == 0.1


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu"])
def test_other_activations(tmp_path, rng, activation):
    model = make(tmp_path, hidden_act=activation)
    backbone = assert_same_outputs(tmp_path, model, rng)
    copy = DietBertBackbone.from_config(backbone.get_config())
    copy.set_weights(backbone.get_weights())
    inputs = random_inputs(rng)
    assert_close(copy(inputs)["sequence_output"], backbone(inputs)["sequence_output"])


def test_a_checkpoint_of_a_masked_language_model_has_no_pooler(tmp_path, rng):
    model = make(tmp_path, "BertForMaskedLM")
    with pytest.warns(UserWarning, match="has no pooler") as caught:
        assert_same_outputs(tmp_path, model.bert, rng)
    # It points to the line that called `from_bert`.
    assert [warning.filename for warning in caught if "pooler" in str(warning.message)] == [
        __file__
    ]


def test_a_checkpoint_with_a_head_has_prefixes(tmp_path, rng):
    model = make(tmp_path, "BertForSequenceClassification")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert_same_outputs(tmp_path, model.bert, rng)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-2), ("bfloat16", 1e-1)])
def test_weights_of_half_precision(tmp_path, rng, dtype, tolerance):
    import torch

    model = make(tmp_path)
    tensors = dict(model.state_dict())
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    read = read_safetensors(tmp_path / "model.safetensors")
    for name, array in read.items():
        assert array.dtype == "float32"
        expected = tensors[name].to(getattr(torch, dtype)).float().numpy()
        np.testing.assert_array_equal(array, expected)
    assert_same_outputs(tmp_path, model.float(), rng, tolerance)


def test_old_names_of_layer_normalizations(tmp_path, rng):
    import safetensors.numpy

    model = make(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in tensors.items()
    }
    assert old.keys() != tensors.keys()
    # Old checkpoints have these integers too.
    old["embeddings.position_ids"] = np.arange(13)[None]
    safetensors.numpy.save_file(old, path)
    assert_same_outputs(tmp_path, model, rng)


def test_the_cls_of_the_vocabulary_gets_the_first_position(checkpoint):
    folder, _ = checkpoint
    cls = VOCABULARY.index("[CLS]")
    by_vocabulary = DietBertBackbone.from_bert(folder)
    given = DietBertBackbone.from_bert(folder, cls_token_id=cls)
    other = DietBertBackbone.from_bert(folder, cls_token_id=cls + 1)
    tokens = [model.token_embedding.get_weights()[0] for model in (by_vocabulary, given, other)]
    np.testing.assert_array_equal(tokens[0], tokens[1])
    assert np.abs(tokens[0] - tokens[2]).max() > 0.1


def test_a_folder_without_vocabulary_has_weights(folder, rng):
    os.remove(folder / "vocab.txt")
    assert DietBertBackbone.from_bert(folder).vocabulary_size == 31
    with pytest.raises(ValueError, match="must have a vocabulary"):
        DietBertTokenizer.from_bert(folder)


# === What cannot be read ===


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "roberta"}, "`model_type` must be 'bert'.*model_type='roberta'"),
        ({"model_type": None}, "`model_type` must be 'bert'"),
        ({"hidden_act": "mish"}, "`hidden_act` must be one of 'gelu'.*'mish'"),
        ({"position_embedding_type": "relative_key"}, "must be 'absolute'.*'relative_key'"),
        ({"layer_norm_eps": 1e-5}, "`layer_norm_eps` must be 1e-12.*1e-05"),
        ({"is_decoder": True}, "`is_decoder` must be False"),
        ({"hidden_size": None}, "`hidden_size` must be given"),
        ({"num_attention_heads": 4}, "`hidden_dim` must be divisible by `num_heads`"),
        ({"num_hidden_layers": 3}, "has no weight encoder.layer.2.attention.self.query.weight"),
        ({"vocab_size": 37}, r"do not fit.*word_embeddings.weight of shape \(31, 15\)"),
        ({"vocab_size": 30}, "vocabulary does not fit.*31 tokens.*vocab_size=30"),
        ({"intermediate_size": 19}, r"do not fit.*intermediate.dense.weight of shape \(23, 15\)"),
        ({"hidden_size": 30}, "do not fit"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_other_configurations_are_refused(folder, values, message):
    change_json(folder / "config.json", **values)
    with pytest.raises(ValueError, match=message):
        DietBertBackbone.from_bert(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_files_are_named(folder, name):
    os.remove(folder / name)
    with pytest.raises(ValueError, match=f"has no {name}"):
        DietBertBackbone.from_bert(folder)


@pytest.mark.parametrize("size", [0, 5, 100, 5000])
def test_weights_cut_short_are_refused(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model\.safetensors` is not a complete safetensors file"):
        DietBertBackbone.from_bert(folder)


def test_weights_without_their_last_byte_are_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"model\.safetensors` is not a complete safetensors file"):
        DietBertBackbone.from_bert(folder)


@pytest.mark.parametrize("contents", ["{", "[]"])
def test_configurations_that_are_not_objects_are_refused(folder, contents):
    (folder / "config.json").write_text(contents)
    with pytest.raises(ValueError, match=r"config\.json"):
        DietBertBackbone.from_bert(folder)


def test_weights_of_8_bits_are_refused(tmp_path):
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    with pytest.raises(ValueError, match=r"F64, F32, F16, BF16.*F8_E4M3"):
        read_safetensors(path)


# === The tokenizer ===


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokens_are_those_of_hugging_face(tmp_path, lowercase):
    import transformers

    make(tmp_path)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    theirs = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path)
    ours = DietBertTokenizer.from_bert(tmp_path)
    assert ours.lowercase is lowercase
    assert ours.get_vocabulary() == VOCABULARY
    for text in TEXTS + ACCENTS:
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert np.asarray(ours(text)).tolist() == expected, text


def test_the_vocabulary_may_be_in_tokenizer_json(folder):
    shuffled = dict(sorted((token, i) for i, token in enumerate(VOCABULARY)))
    change_json(
        folder / "tokenizer.json",
        model={"vocab": shuffled},
        normalizer={"lowercase": False, "strip_accents": True, "handle_chinese_chars": False},
    )
    os.remove(folder / "vocab.txt")
    tokenizer = DietBertTokenizer.from_bert(str(folder))
    assert tokenizer.get_vocabulary() == VOCABULARY
    assert not tokenizer.lowercase
    assert tokenizer.strip_accents
    assert not tokenizer.split_on_cjk
    change_json(folder / "tokenizer.json", model={"vocab": {"[PAD]": 0, "the": 2}})
    with pytest.raises(ValueError, match="gaps"):
        DietBertTokenizer.from_bert(folder)


def test_arguments_of_the_tokenizer_go_first(folder):
    change_json(folder / "tokenizer_config.json", do_lower_case=True)
    assert DietBertTokenizer.from_bert(folder).lowercase
    tokenizer = DietBertTokenizer.from_bert(folder, lowercase=False, sequence_length=7)
    assert not tokenizer.lowercase
    assert len(tokenizer("the fox")) == 7


def test_a_vocabulary_that_does_not_fit_is_refused(folder):
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "more"]) + "\n")
    for read in (DietBertBackbone.from_bert, DietBertTokenizer.from_bert):
        with pytest.raises(ValueError, match=r"does not fit the weights.*32 tokens"):
            read(folder)


def test_tokenizers_of_kerashub(tmp_path):
    import keras_hub

    options = {"lowercase": True, "strip_accents": True}
    theirs = keras_hub.models.BertTokenizer(VOCABULARY, **options)
    theirs.save_to_preset(str(tmp_path))
    keras_hub.models.BertBackbone(**SIZES).save_to_preset(str(tmp_path))
    # KerasHub 0.32 leaves `split_on_cjk` out of presets.
    whole_words = keras_hub.models.BertTokenizer(VOCABULARY, split_on_cjk=False)
    for source, like in ((theirs, theirs), (tmp_path, theirs), (whole_words, whole_words)):
        ours = DietBertTokenizer.from_bert(source)
        for text in TEXTS + ACCENTS:
            assert np.asarray(ours(text)).tolist() == np.asarray(like(text)).tolist()
    for source in (3, "bert_of_nobody", keras.layers.Dense(1)):
        with pytest.raises(ValueError, match=r"`bert` must be .*Received: bert="):
            DietBertTokenizer.from_bert(source)


# === A real checkpoint, where there is one ===


@pytest.mark.skipif(
    "KERAS_DIET_BERT" not in os.environ, reason="KERAS_DIET_BERT does not name the folder of a BERT"
)
def test_a_real_checkpoint(rng):
    transformers = pytest.importorskip("transformers")
    folder = os.environ["KERAS_DIET_BERT"]
    model = transformers.BertModel.from_pretrained(folder).eval()
    inputs = random_inputs(rng)
    actual = DietBertBackbone.from_bert(folder, **AT_INPUT)(inputs)["sequence_output"]
    assert_close(actual, outputs(model, inputs).last_hidden_state.numpy(), 1e-4)


# === Mismatches that a reader could miss ===


def test_layers_that_the_configuration_does_not_have_are_refused(folder):
    change_json(folder / "config.json", num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"does not have\. Received: encoder\.layer\.1\."):
        DietBertBackbone.from_bert(folder)


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_weights_are_read_in_float32_whatever_the_policy(folder, dtype):
    expected = DietBertBackbone.from_bert(folder, **AT_INPUT).get_weights()
    keras.config.set_dtype_policy("bfloat16")
    try:
        backbone = DietBertBackbone.from_bert(folder, **AT_INPUT, dtype=dtype)
    finally:
        keras.config.set_dtype_policy("float32")
    assert backbone.dtype_policy.name == (dtype or "bfloat16")
    if dtype:
        for weight, like in zip(backbone.get_weights(), expected, strict=True):
            np.testing.assert_array_equal(weight, like)


def test_a_vocabulary_with_fewer_tokens_than_weights_gives_a_warning(folder):
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY[:-3]) + "\n")
    with pytest.warns(UserWarning, match="28 tokens, where the weights are for 31") as caught:
        DietBertTokenizer.from_bert(folder)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_vocabulary_without_tokens_is_refused(folder):
    (folder / "vocab.txt").write_text("")
    for read in (DietBertBackbone.from_bert, DietBertTokenizer.from_bert):
        with pytest.raises(ValueError, match=r"does not fit the weights\. Received: 0 tokens"):
            read(folder)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"model": {"type": "Unigram", "vocab": [["a", 0.5]]}}, "WordPiece.*Received: Unigram"),
        ({"normalizer": {"type": "Sequence"}}, "'BertNormalizer'. Received.*'Sequence'"),
    ],
    ids=["unigram", "sequence"],
)
def test_other_tokenizers_are_refused(folder, contents, message):
    os.remove(folder / "vocab.txt")
    vocabulary = {token: i for i, token in enumerate(VOCABULARY)}
    change_json(folder / "tokenizer.json", **{"model": {"vocab": vocabulary}, **contents})
    with pytest.raises(ValueError, match=message):
        DietBertTokenizer.from_bert(folder)


def test_texts_in_other_encodings_are_named(folder):
    (folder / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"vocab.txt` is not text in UTF-8"):
        DietBertTokenizer.from_bert(folder)


def test_options_without_a_value_are_those_of_hugging_face(folder):
    change_json(folder / "tokenizer_config.json", do_lower_case=None, strip_accents=None)
    tokenizer = DietBertTokenizer.from_bert(folder)
    assert tokenizer.lowercase is tokenizer.strip_accents is True


def test_files_that_are_there_instead_are_named(folder):
    os.rename(folder / "model.safetensors", folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no model.safetensors.*Received: .*pytorch_model.bin"):
        DietBertBackbone.from_bert(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": "15"}, "`hidden_size` must be a positive integer"),
        ({"hidden_dropout_prob": None}, r"`hidden_dropout_prob` must be a number in \[0, 1\]"),
        ({"hidden_act": ["gelu"]}, "`hidden_act` must be one of"),
    ],
    ids=["size", "dropout", "activation"],
)
def test_values_with_wrong_types_are_refused(folder, values, message):
    change_json(folder / "config.json", **values)
    with pytest.raises(ValueError, match=message):
        DietBertBackbone.from_bert(folder)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"[]", "not a complete safetensors file"),
        (b'{"w": 3}', "not a complete safetensors file"),
        (b'{"w": {}}', "not a complete safetensors file.*dtype"),
        (b'{"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', "not fully covered"),
        (b'{"w": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}', "-4"),
    ],
)
def test_damaged_headers_are_refused(tmp_path, header, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match=message):
        read_safetensors(path)


# === Settings that the files have in two places, or nowhere ===


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu_pytorch_tanh", "gelu_approximate"),
        ("gelu_fast", "gelu_approximate"),
        ("swish", "silu"),
    ],
)
def test_other_names_of_activations(folder, theirs, ours):
    change_json(folder / "config.json", hidden_act=theirs)
    assert DietBertBackbone.from_bert(folder).activation == ours


def test_settings_that_are_left_out_have_the_defaults_of_hugging_face(folder):
    import transformers

    config = json.loads((folder / "config.json").read_text())
    names = ("hidden_dropout_prob", "hidden_act", "layer_norm_eps")
    left = {name: value for name, value in config.items() if name not in names}
    (folder / "config.json").write_text(json.dumps(left))
    backbone = DietBertBackbone.from_bert(folder)
    theirs = transformers.BertConfig()
    assert backbone.dropout == theirs.hidden_dropout_prob == 0.1
    assert backbone.activation == theirs.hidden_act == "gelu"


def test_tokenizer_config_goes_before_the_normalizer(folder):
    normalizer = {"lowercase": True, "strip_accents": True, "handle_chinese_chars": True}
    change_json(folder / "tokenizer.json", normalizer=normalizer)
    values = {"do_lower_case": False, "strip_accents": False, "tokenize_chinese_chars": False}
    change_json(folder / "tokenizer_config.json", **values)
    tokenizer = DietBertTokenizer.from_bert(folder)
    settings = (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.split_on_cjk)
    assert settings == (False, False, False)


def test_all_settings_of_kerashubs_tokenizer():
    import keras_hub

    settings = {
        "lowercase": True,
        "strip_accents": True,
        "split": False,
        "split_on_cjk": False,
        "suffix_indicator": "@@",
        "oov_token": "[OOV]",
        "special_tokens_in_strings": True,
        "sequence_length": 7,
    }
    vocabulary = [*VOCABULARY, "[OOV]"]
    theirs = keras_hub.models.BertTokenizer(vocabulary, **settings)
    ours = DietBertTokenizer.from_bert(theirs)
    assert ours.get_vocabulary() == vocabulary
    assert {name: ours.get_config()[name] for name in settings} == settings
