"""`DietBertTokenizer`: KerasHub's BERT tokenizer, for the DietBert models."""

import inspect
import json

import keras_hub
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietBertTokenizer
from tests.models.tiny import SPECIAL_TOKENS, TEXTS, VOCABULARY

HARD_TEXTS = [
    "",
    "  the\tquick\nfox  ",
    "The QUICK Fox",
    "thé quick fóx",
    "the-fox,the.dog",
    "unknown fox",
    "猫猫 cat猫cat",
    "[MASK] the [SEP] fox",
]
# Not the usual order: no special token has the id that it has in published vocabularies.
SHUFFLED = ["the", "[MASK]", "fox", "[SEP]", "##es", "[CLS]", "猫", "##猫", "[PAD]", "cat", "[UNK]"]


def ids(tokenizer, texts):
    return [np.asarray(tokenizer(text)).tolist() for text in texts]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"lowercase": True},
        {"lowercase": True, "strip_accents": True},
        {"split_on_cjk": False},
        {"special_tokens_in_strings": True},
        {"split": False},
        {"sequence_length": 7},
    ],
    ids=lambda arguments: "-".join(arguments) or "defaults",
)
@pytest.mark.parametrize("vocabulary", [VOCABULARY, SHUFFLED], ids=["usual", "shuffled"])
def test_ids_are_those_of_berts_tokenizer(vocabulary, arguments):
    ours = DietBertTokenizer(vocabulary, **arguments)
    theirs = keras_hub.models.BertTokenizer(vocabulary, **arguments)
    texts = TEXTS + HARD_TEXTS
    if "split" in arguments:
        texts = [text.split() for text in texts]
    assert ids(ours, texts) == ids(theirs, texts)
    assert ours.vocabulary_size() == len(vocabulary)
    assert ours.special_token_ids == theirs.special_token_ids


def test_words_pieces_and_unknown_words():
    tokenizer = DietBertTokenizer(VOCABULARY)
    tokens = [VOCABULARY[i] for i in ids(tokenizer, ["the foxes jumped UNKNOWN ."])[0]]
    assert tokens == ["the", "fox", "##es", "jump", "##ed", "[UNK]", "."]
    assert tokenizer.detokenize(ids(tokenizer, ["the foxes jumped"])[0]) == "the foxes jumped"


@pytest.mark.parametrize("vocabulary", [VOCABULARY, SHUFFLED], ids=["usual", "shuffled"])
def test_special_tokens(vocabulary):
    tokenizer = DietBertTokenizer(vocabulary)
    for name, token in {
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "[PAD]",
        "mask": "[MASK]",
        "start": "[CLS]",
        "end": "[SEP]",
    }.items():
        assert getattr(tokenizer, f"{name}_token") == token
        assert getattr(tokenizer, f"{name}_token_id") == vocabulary.index(token)
    assert tokenizer.backbone_cls is DietBertBackbone


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token_is_refused(tmp_path, token):
    vocabulary = [word for word in VOCABULARY if word != token]
    file = tmp_path / "vocabulary.txt"
    file.write_text("\n".join(vocabulary) + "\n")
    for argument in (vocabulary, str(file)):
        with pytest.raises(ValueError, match=rf"\{token[:-1]}\]"):
            DietBertTokenizer(argument)


def test_vocabularies_from_files(tmp_path):
    file = tmp_path / "vocabulary.txt"
    file.write_text("\n".join(VOCABULARY) + "\n")
    from_file, from_list = DietBertTokenizer(str(file)), DietBertTokenizer(VOCABULARY)
    assert from_file.get_vocabulary() == VOCABULARY
    assert ids(from_file, TEXTS) == ids(from_list, TEXTS)


def test_saved_vocabularies_need_no_last_line_break(tmp_path):
    tokenizer = DietBertTokenizer(VOCABULARY)
    tokenizer.save_to_preset(str(tmp_path))
    file = tmp_path / "assets/tokenizer/vocabulary.txt"
    file.write_text("\n".join(VOCABULARY))
    copy = DietBertTokenizer.from_config(tokenizer.get_config())
    copy.load_preset_assets(str(tmp_path))
    assert copy.get_vocabulary() == VOCABULARY
    file.write_text("\n".join(VOCABULARY[:-1]) + "\n")
    with pytest.raises(ValueError, match="30 tokens, but 31 tokens were saved"):
        copy.load_preset_assets(str(tmp_path))


NOT_DEFAULT = {
    "lowercase": True,
    "strip_accents": True,
    "split": False,
    "split_on_cjk": False,
    "suffix_indicator": "@@",
    "oov_token": "[OOV]",
    "special_tokens": ["the"],
    "special_tokens_in_strings": True,
    "sequence_length": 7,
    "dtype": "int64",
    "name": "words",
}


def test_every_argument_survives_the_configuration():
    known = set(inspect.signature(keras_hub.tokenizers.WordPieceTokenizer).parameters)
    assert set(NOT_DEFAULT) - {"name"} == known - {"vocabulary", "kwargs"}
    vocabulary = [*VOCABULARY, "[OOV]"]
    tokenizer = DietBertTokenizer(vocabulary, **NOT_DEFAULT)
    config = json.loads(json.dumps(tokenizer.get_config()))
    copy = DietBertTokenizer.from_config(config)
    copy.set_vocabulary(vocabulary)
    for model in (tokenizer, copy):
        assert model.get_config() == tokenizer.get_config()
        assert {name: model.get_config()[name] for name in NOT_DEFAULT} == {
            **NOT_DEFAULT,
            "dtype": config["dtype"],
        }
        assert model.compute_dtype == "int64"


@pytest.mark.parametrize("split_on_cjk", [True, False])
def test_presets_keep_vocabulary_and_arguments(tmp_path, split_on_cjk):
    tokenizer = DietBertTokenizer(SHUFFLED, split_on_cjk=split_on_cjk, lowercase=True)
    tokenizer.save_to_preset(str(tmp_path))
    copy = DietBertTokenizer.from_config(tokenizer.get_config())
    copy.load_preset_assets(str(tmp_path))
    expected = ids(tokenizer, HARD_TEXTS)
    assert ids(copy, HARD_TEXTS) == expected
    assert copy.get_vocabulary() == SHUFFLED
    # 猫猫 is two words or one, a word and its suffix.
    second = SHUFFLED.index("猫" if split_on_cjk else "##猫")
    assert ids(copy, ["猫猫"]) == [[SHUFFLED.index("猫"), second]]


def test_the_size_of_the_vocabulary_stays_in_the_configuration():
    """Also before the vocabulary of a preset is loaded."""
    config = DietBertTokenizer(VOCABULARY).get_config()
    copy = DietBertTokenizer.from_config(config)
    assert copy.get_config()["vocabulary_size"] == len(VOCABULARY)
    assert "vocabulary_size" not in DietBertTokenizer().get_config()
