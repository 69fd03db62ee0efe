"""Tokenizers: ids, places in the text, special tokens, files and arguments."""

# ruff: noqa: RUF001 - the texts are awkward on purpose.

import functools
import inspect
import itertools
import json
import pickle
from pathlib import Path

import keras_hub
import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models import (
    DietBertBackbone,
    DietBertSentencePieceTokenizer,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
    DietTransformerBackbone,
    DietTransformerTokenizer,
)
from keras_diet.models.hub.sentence_piece_tokenizer import train_sentence_piece
from keras_diet.pretraining import sample_languages
from tests.models.multilingual import SHUFFLED, TEXTS, multilingual_tokenizer, proto
from tests.models.tiny import SIZES as BERT_SIZES
from tests.models.tiny import VOCABULARY, tiny_backbone

pytestmark = pytest.mark.any_backend

ALL_TEXTS = [text for texts in TEXTS.values() for text in texts]
CHARACTERS = "nthequickfoxaszm[]1230.…éü¿!ñöﬁ猫犬문안нетقطهकीกิน😀ß⁄ガΣσςə"
# Not the usual order, and pieces that are no letters of the alphabet.
LETTERS = [
    *("the", "[MASK]", "fox", "[SEP]", "##es", "[CLS]", "[PAD]", "[UNK]", "fine", "straße"),
    *("10", "km", "cooperate"),
    *dict.fromkeys(CHARACTERS),
    *(f"##{character}" for character in dict.fromkeys(CHARACTERS)),
]
AWKWARD_TEXTS = [
    *("", " \t\n ", "the\tfox\r\n  foxes ", "Thé Fóx, naïve ñ", "The\u0301 fo\u0308x \u0301a"),
    *("ﬁne ﬀ ½ … Ǆ ㎏", "STRASSE Straße ẞ", "ΣΟΦΟΣ σοφός", "İstanbul ılık", "Ｔｈｅ　ｆｏｘ！ ｶﾞ"),
    *("猫the犬 猫,犬𠀀", "문안 문안", "قِطَّة القط ﻻ", "की कि क्ष", "กินข้าว"),
    *("カﾞ a\u3164\u115fb \u034f", "fox😀fox ❤\ufe0f 👩\u200d💻 🇩🇪", "a\ue000 \ufffd"),
    *("th\u200be f\x00o\x07x a\u00adb \ufefffox", "10\u00a0km \u3000", "co\u00adoperate"),
    *("f\u200box", "Straße", "fox" * 40 + " fox", "f" * 100, "é" * 100, "é" * 101),
    *("the [MASK] fox[SEP]es [mask] [CLS", "[UNK] the œ zebra foxes"),
]
# Any characters, and often those with which something special happens.
ANY_TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("".join(AWKWARD_TEXTS))))


def tokens(tokenizer, text):
    """The tokens of a text, each with its part of the text."""
    found, offsets = tokenizer.tokenize_with_offsets(text)
    return [(tokenizer.id_to_token(i), text[a:b]) for i, (a, b) in zip(found, offsets, strict=True)]


def check_spans(text, offsets):
    """Spans are in the text, begin and end in order, and neither begin nor end with a space."""
    for start, end in offsets:
        assert 0 <= start <= end <= len(text)
        assert text[start:end] == text[start:end].strip()
    for first, second in itertools.pairwise(offsets):
        assert first[0] <= second[0]
        assert first[1] <= second[1]


# === WordPiece: BERT's rule ===

WORD_ARGUMENTS = [
    {},
    {"lowercase": True},
    {"strip_accents": True},
    {"lowercase": True, "strip_accents": True},
    {"lowercase": True, "split_on_cjk": False},
]


@functools.cache
def words(**arguments):
    return DietBertTokenizer(LETTERS, **arguments)


@functools.cache
def berts_words(lowercase=False, strip_accents=False, split_on_cjk=True):
    return transformers.BertTokenizer(
        {token: i for i, token in enumerate(LETTERS)},
        do_lower_case=lowercase,
        strip_accents=strip_accents,
        tokenize_chinese_chars=split_on_cjk,
    )


@pytest.mark.parametrize("arguments", WORD_ARGUMENTS, ids=str)
@settings(deadline=None, max_examples=5, derandomize=True)
@given(texts=st.lists(ANY_TEXT, max_size=11))
def test_any_text_has_berts_ids_and_places(arguments, texts):
    texts = [*AWKWARD_TEXTS, *texts]
    theirs = berts_words(**arguments)(texts, add_special_tokens=False, return_offsets_mapping=True)
    ours = words(**arguments, special_tokens_in_strings=True)
    assert ours(texts) == theirs["input_ids"]
    found = ours.tokenize_with_offsets(texts)
    expected = zip(theirs["input_ids"], theirs["offset_mapping"], strict=True)
    assert found == [(of_text, list(map(tuple, offsets))) for of_text, offsets in expected]
    for text, (_, offsets) in zip(texts, found, strict=True):
        check_spans(text, offsets)
        assert all(start < end for start, end in offsets)


def test_special_tokens_of_the_user():
    # "œ" is not in the vocabulary.
    tokenizer = words(special_tokens_in_strings=True, special_tokens=("##es", "œ"))
    assert tokens(tokenizer, "fox##es œ") == [("fox", "fox"), ("##es", "##es"), ("[UNK]", "œ")]
    # Some of MPNet's special tokens are words of a BERT.
    tokenizer = DietBertTokenizer([*LETTERS, "<s>", "</s>", "<pad>"])
    assert (tokenizer.start_token, tokenizer.pad_token) == ("[CLS]", "[PAD]")


def test_other_signs_of_the_vocabulary():
    vocabulary = ["[PAD]", "[OOV]", "[CLS]", "[SEP]", "[MASK]", "fox", "@@es"]
    tokenizer = DietBertTokenizer(vocabulary, oov_token="[OOV]", suffix_indicator="@@")
    assert tokenizer.tokenize_with_offsets("the foxes") == ([1, 5, 6], [(0, 3), (4, 7), (7, 9)])
    assert (tokenizer.split_token("@@es"), tokenizer.split_token("fox")) == (
        ("es", False),
        ("fox", True),
    )
    tokenizer.set_vocabulary(["the", *vocabulary])
    assert tokenizer.tokenize_with_offsets("the foxes")[0] == [0, 6, 7]


def plain(values):
    """Arrays as lists, also in lists."""
    if isinstance(values, list):
        return [plain(value) for value in values]
    return values.tolist() if isinstance(values, np.ndarray) else values


PLAIN_TEXTS = ["", "  the\tquick\nfox  ", "The QUICK Fox", "thé fóx", "the-fox,the.dog", "猫猫 cat"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"lowercase": True, "strip_accents": True},
        {"split_on_cjk": False},
        {"special_tokens_in_strings": True},
        {"split": False},
        {"sequence_length": 7},
        {"dtype": "string"},
        {"dtype": "string", "sequence_length": 3},
        {"dtype": "int64"},
    ],
    ids=lambda arguments: "-".join(arguments) or "defaults",
)
def test_words_come_as_kerashub_returns_them(arguments):
    """One text, lists, arrays, tuples, bytes and nested lists: the same values and types."""
    ours = DietBertTokenizer(LETTERS, **arguments)
    theirs = keras_hub.models.BertTokenizer(LETTERS, **arguments)
    inputs = [*PLAIN_TEXTS, PLAIN_TEXTS, np.array(PLAIN_TEXTS), np.array("the fox"), b"the fox", []]
    inputs += [tuple(PLAIN_TEXTS), ["thé".encode()], [["the"], ["a fox", "fox"]], ["[MASK] the"]]
    inputs += [[["the", "a"], ["fox", "es"]]]
    if not ours.split:
        inputs = [text.split() for text in PLAIN_TEXTS]
    for each in inputs:
        found, expected = ours(each), theirs(each)
        assert plain(found) == plain(expected), each
        if not isinstance(each, list) or np.ndim(each[:1]) < 2:
            assert type(found) is type(expected)
            assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)
    assert sorted(ours.special_token_ids) == sorted(theirs.special_token_ids)


@pytest.mark.any_backend("tensorflow")
def test_words_in_a_graph():
    """KerasHub's rule. Ordinary text has the same ids."""
    tf = pytest.importorskip("tensorflow")
    for arguments in ({}, {"lowercase": True}, {"special_tokens_in_strings": True}):
        tokenizer = words(**arguments)
        texts = [*PLAIN_TEXTS, "the [MASK] fox", "the\x00 fox \x00a\x00", "\x00th\x00e fox"]
        dataset = tf.data.Dataset.from_tensor_slices(texts).map(tokenizer)
        assert [each.numpy().tolist() for each in dataset] == tokenizer(texts)
        assert tokenizer(tf.constant(texts)) == tokenizer(texts)


# === SentencePiece: spans ===

TRAINING_TEXTS = [
    *("the quick fox", "fine foxes", "der Fuchs", "é 1 2 ⁄ ガ 猫", "a b c d e f g h i"),
] * 3
MODELS = {
    "bpe": {},
    "unigram": {"model_type": "unigram", "vocabulary_size": 34},
    "bytes": {"byte_fallback": True, "vocabulary_size": 326},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "all spaces": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "suffixes": {"treat_whitespace_as_suffix": True},
    "symbols": {"user_defined_symbols": ["<x>", "ﬁne "]},
    "not normalized": {"normalization_rule_name": "identity"},
}


@functools.cache
def pieces(name):
    arguments = {"vocabulary_size": 70, "model_type": "bpe", **MODELS[name]}
    return DietBertSentencePieceTokenizer.from_texts(TRAINING_TEXTS, **arguments)


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=20, derandomize=True)
@given(texts=st.lists(ANY_TEXT, max_size=11))
def test_spans_of_pieces_of_any_text(name, texts):
    tokenizer = pieces(name)
    texts = [*AWKWARD_TEXTS, *texts, "".join(texts), "▁ <x>a ﬁne \u200b"]
    found = tokenizer.tokenize_with_offsets(texts)
    assert tokenizer(texts) == [of_text for of_text, _ in found]
    for text, (of_text, offsets) in zip(texts, found, strict=True):
        assert tokenizer.tokenize_with_offsets(text) == (of_text, offsets)
        check_spans(text, offsets)
        # Each character that a normalization keeps, other than white space, is in a span.
        if name == "not normalized":
            covered = {i for start, end in offsets for i in range(start, end)}
            assert all(i in covered or c.isspace() or c in "▁\x00" for i, c in enumerate(text))


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("bpe", " the  fox", [("▁the", "the"), ("▁fox", "fox")]),
        ("bpe", "½", [("▁1", "½"), ("⁄", "½"), ("2", "½")]),
        ("bpe", "e\u0301a", [("▁é", "e\u0301"), ("a", "a")]),
        ("bpe", "😀œ a ", [("▁", ""), ("[UNK]", "😀œ"), ("▁a", "a")]),
        ("bytes", "œa", [("▁", ""), ("<0xC5>", "œ"), ("<0x93>", "œ"), ("a", "a")]),
        ("folded", "THE Fox", [("▁the", "THE"), ("▁fox", "Fox")]),
        ("all spaces", "the ﬁ", [("the", "the"), ("▁f", "ﬁ"), ("i", "ﬁ")]),
        ("suffixes", "the fox", [("the▁", "the"), ("fox▁", "fox")]),
        ("suffixes", "œ a", [("[UNK]", "œ"), ("▁", ""), ("a▁", "a")]),
        ("symbols", "<x>a", [("▁", ""), ("<x>", "<x>"), ("a", "a")]),
    ],
    ids=ascii,
)
def test_pieces_and_their_places(name, text, expected):
    assert tokens(pieces(name), text) == expected


def test_white_space_has_an_empty_span_before_the_next_word():
    _, offsets = pieces("bpe").tokenize_with_offsets("a  œ")
    assert offsets == [(0, 1), (3, 3), (3, 4)]


def test_texts_of_pieces():
    assert pieces("bpe").split_token("▁the") == ("the", True)
    assert pieces("bpe").split_token("the") == ("the", False)


def test_a_new_model_replaces_the_old_one():
    tokenizer = DietBertSentencePieceTokenizer(pieces("bpe").proto)
    tokenizer.set_proto(pieces("folded").proto)
    assert tokens(tokenizer, "THE he") == tokens(pieces("folded"), "THE he")


# === What all tokenizers share ===


ROLES = {"pad": "pad", "unk": "unk", "start": "bos", "end": "eos"}
SHUFFLED_IDS = {name: SHUFFLED[f"{role}_id"] for name, role in ROLES.items()}
DEFAULT_IDS = {"pad": 0, "unk": 1, "start": 2, "end": 3}
PIECES, TRANSLATOR = DietBertSentencePieceTokenizer, DietTransformerTokenizer
# A tokenizer, its vocabulary, and the ids of its special tokens.
MPNET = ["##es", "[CLS]", "<s>", "[PAD]", "</s>", "[SEP]", "<mask>", "[MASK]", "fox", "<pad>"]
MPNET += ["the", "[UNK]", "a"]
TOKENIZERS = {
    "words of mpnet": (
        DietBertTokenizer,
        lambda: MPNET,
        {"cls": 2, "sep": 4, "pad": 9, "mask": 6, "start": 2, "end": 4},
    ),
    "words": (
        DietBertTokenizer,
        lambda: LETTERS,
        {"cls": 5, "sep": 3, "pad": 6, "mask": 1, "start": 5, "end": 3},
    ),
    "pieces": (PIECES, proto, {**DEFAULT_IDS, "cls": 2, "sep": 3, "mask": 4}),
    "shuffled pieces": (
        PIECES,
        lambda: proto("shuffled"),
        {**SHUFFLED_IDS, "cls": SHUFFLED["bos_id"], "sep": SHUFFLED["eos_id"], "mask": 1},
    ),
    "translator": (TRANSLATOR, lambda: TRANSLATOR.from_texts(ALL_TEXTS, 59).proto, DEFAULT_IDS),
}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


@every_tokenizer
def test_special_tokens_and_texts_of_tokens(name):
    cls, vocabulary, expected = TOKENIZERS[name]
    tokenizer = cls(vocabulary())
    is_translator = cls is TRANSLATOR
    assert cls.backbone_cls is (DietTransformerBackbone if is_translator else DietBertBackbone)
    for special, token_id in expected.items():
        assert getattr(tokenizer, f"{special}_token_id") == token_id
        assert getattr(tokenizer, f"{special}_token") == tokenizer.get_vocabulary()[token_id]
    assert sorted(tokenizer.special_token_ids) == sorted(set(expected.values()))
    assert [tokenizer.token_to_id(token) for token in tokenizer.special_tokens] == (
        tokenizer.special_token_ids
    )
    texts = ["the fox", "fox"] if cls is DietBertTokenizer else TEXTS["de"]
    assert tokenizer.detokenize(tokenizer(texts)) == texts
    # A text cannot contain special tokens.
    found = tokenizer("the [CLS] [MASK] [GO] <s> fox [END] [P] <pad> [SEP]").tolist()
    assert not set(found) & (set(expected.values()) - {getattr(tokenizer, "unk_token_id", None)})


@every_tokenizer
def test_configuration_preset_and_pickle(name, tmp_path):
    cls, vocabulary, expected = TOKENIZERS[name]
    tokenizer = cls(vocabulary(), sequence_length=9, dtype="int64", name="mine")
    tokenizer.save_to_preset(str(tmp_path))
    copy = cls.from_config(json.loads(json.dumps(tokenizer.get_config())))
    assert copy.get_config() == tokenizer.get_config()
    assert copy.get_config()["name"] == "mine"
    assert (copy.special_tokens, copy.pad_token_id) == ([], None)
    copy.load_preset_assets(str(tmp_path))
    (file,) = (tmp_path / "assets" / "tokenizer").iterdir()
    for path in (file, str(file)):
        assert cls(path).get_vocabulary() == tokenizer.get_vocabulary()
    for each in (copy, pickle.loads(pickle.dumps(tokenizer))):
        assert each.get_config() == tokenizer.get_config()
        assert each.get_vocabulary() == tokenizer.get_vocabulary()
        assert each.pad_token_id == expected["pad"]
        found = each(ALL_TEXTS)
        assert found.dtype == "int64"
        np.testing.assert_array_equal(found, tokenizer(ALL_TEXTS))


NOT_DEFAULT = {
    "lowercase": True,
    "strip_accents": True,
    "split": False,
    "split_on_cjk": False,
    "suffix_indicator": "@@",
    "oov_token": "[OOV]",
    "special_tokens_in_strings": True,
    "sequence_length": 7,
}
# KerasHub's names are fixed.
SPECIAL = {"cls_token": "fox", "sep_token": "[CLS]", "pad_token": "the", "mask_token": "[SEP]"}


def test_every_argument_of_words_survives(tmp_path):
    """In the configuration, and from KerasHub's tokenizer and its preset."""
    known = set(inspect.signature(keras_hub.tokenizers.WordPieceTokenizer).parameters)
    assert set(NOT_DEFAULT) == known - {"vocabulary", "special_tokens", "kwargs", "dtype"}
    vocabulary = [*VOCABULARY, "[OOV]"]
    tokenizer = DietBertTokenizer(vocabulary, special_tokens=["the"], **NOT_DEFAULT, **SPECIAL)
    copy = DietBertTokenizer.from_config(tokenizer.get_config())
    assert copy.get_config()["special_tokens"] == ["the"]
    copy.set_vocabulary(vocabulary)
    for each in (tokenizer, copy):
        assert {name: getattr(each, name) for name in SPECIAL} == SPECIAL
        assert (each.start_token, each.end_token) == ("fox", "[CLS]")
    vocabulary += ["<s>", "</s>", "<pad>", "<mask>"]
    theirs = keras_hub.models.BertTokenizer(vocabulary, **NOT_DEFAULT)
    keras_hub.models.BertBackbone(**BERT_SIZES).save_to_preset(str(tmp_path))
    theirs.save_to_preset(str(tmp_path))
    of_theirs, of_preset = (DietBertTokenizer.from_bert(each) for each in (theirs, tmp_path))
    for each in (copy, of_theirs):
        assert {name: each.get_config()[name] for name in NOT_DEFAULT} == NOT_DEFAULT
    for each in (of_theirs, of_preset):
        assert (each.lowercase, each.get_vocabulary()) == (True, vocabulary)
        assert (each.cls_token, each.sep_token, each.mask_token) == ("[CLS]", "[SEP]", "[MASK]")


def test_presets_keep_the_class_of_the_tokenizer(tmp_path):
    tokenizer = multilingual_tokenizer()
    tiny_backbone().save_to_preset(tmp_path)
    tokenizer.save_to_preset(str(tmp_path))
    loaded = [cls.from_preset(tmp_path) for cls in (PIECES, DietBertTokenizer)]
    # A preprocessor that was not saved takes the tokenizer of the preset.
    loaded.append(DietBertTextClassifierPreprocessor.from_preset(tmp_path).tokenizer)
    for each in loaded:
        assert type(each) is PIECES
        assert each.get_vocabulary() == tokenizer.get_vocabulary()


def without(**options):
    """A SentencePiece model without one of the special tokens."""
    options = {"control_symbols": ["[MASK]"], **options}
    return train_sentence_piece(ALL_TEXTS, 59, "unigram", **options)


REFUSED = [
    (
        lambda: words().tokenize_with_offsets(["the", None]),
        "`text` must hold strings. Received: None in row 1",
    ),
    (
        lambda: words()(["the", "a\ud800"]),
        "`inputs` must hold Unicode, not half of a surrogate pair. Received: 'a\\ud800' in row 1",
    ),
    (lambda: PIECES.from_texts([*ALL_TEXTS, "a\ud800"], 71), f"in row {len(ALL_TEXTS)}"),
    (lambda: DietBertTokenizer(VOCABULARY[1:]), "[PAD]"),
    (
        lambda: TRANSLATOR(without(eos_id=-1)),
        "without end token (eos_id=-1). Make one with `DietTransformerTokenizer.from_texts`",
    ),
    (lambda: PIECES(without(control_symbols=["<mask>"])), "must have a token `[MASK]`"),
    (lambda: PIECES.from_texts("fox"), "Received: a string"),
    (lambda: PIECES.from_texts({"en": "fox"}), "Received: a string"),
    (lambda: PIECES.from_texts({**TEXTS, "de": ["Fuchs", None]}), "Received: None in row 1"),
    (lambda: PIECES.from_texts({"en": iter(["fox"])}), "`texts['en']` must be a list"),
    (lambda: PIECES.from_texts([*ALL_TEXTS, Path("no.txt")], 71), "no.txt"),
    (lambda: PIECES.from_texts(TEXTS, model_type="word"), "must be one of 'bpe', 'unigram'"),
]


@pytest.mark.parametrize("call, message", REFUSED, ids=[row[1][:40] for row in REFUSED])
def test_refusals(call, message):
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        call()
    assert message in str(error.value)


# === Training of SentencePiece models ===


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("cls", [DietBertSentencePieceTokenizer, DietTransformerTokenizer])
def test_training_gives_the_same_tokens_again(cls, model_type, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (cls.from_texts(iter(ALL_TEXTS), 61, model_type) for _ in range(2))
    assert first.proto == second.proto
    assert first.vocabulary_size() == 61
    assert list(tmp_path.iterdir()) == []
    other = cls.from_texts(ALL_TEXTS, 61, "unigram" if model_type == "bpe" else "bpe")
    assert first.get_vocabulary() != other.get_vocabulary()
    default = "unigram" if cls is DietBertSentencePieceTokenizer else "bpe"
    assert (cls.from_texts(ALL_TEXTS, 61).proto == first.proto) == (model_type == default)


OPTIONS = {"vocabulary_size": 71, "model_type": "bpe", "character_coverage": 1.0}


def test_texts_of_languages_are_sampled(tmp_path):
    """Training on languages is training on the texts that `sample_languages` yields."""
    file = tmp_path / "en.txt"
    file.write_bytes("\r\n".join(TEXTS["en"]).encode("utf-8-sig"))
    # The default normalization would remove a byte order mark.
    options = {**OPTIONS, "normalization_rule_name": "identity"}

    def vocabulary(texts, cls=DietBertSentencePieceTokenizer, **arguments):
        return cls.from_texts(texts, **{**options, **arguments}).get_vocabulary()

    for exponent, seed in ((0.0, 0), (0.0, 5), (1.0, 0)):
        expected = vocabulary(list(sample_languages(TEXTS, exponent, seed)))
        for texts in (TEXTS, {**TEXTS, "en": file}, {**TEXTS, "en": [file]}):
            assert vocabulary(texts, sampling_exponent=exponent, seed=seed) == expected
    # An exponent of 1 uses every text once.
    assert vocabulary(ALL_TEXTS) == expected
    everything = vocabulary(ALL_TEXTS, DietTransformerTokenizer)
    for texts in ([file, *TEXTS["de"], *TEXTS["zh"]], iter(ALL_TEXTS)):
        assert vocabulary(texts, DietTransformerTokenizer) == everything
    english = vocabulary(TEXTS["en"], DietTransformerTokenizer, vocabulary_size=41)
    assert vocabulary(file, DietTransformerTokenizer, vocabulary_size=41) == english


def test_a_part_of_the_texts_is_the_same_in_every_process():
    many = {name: [f"{text} {i}" for text in TEXTS[name] for i in range(20)] for name in TEXTS}
    train = functools.partial(DietBertSentencePieceTokenizer.from_texts, **OPTIONS)
    expected = train(list(sample_languages(many, 0.5, seed=3))[:101])
    part = train(many, input_sentence_size=101, seed=3)
    assert part.get_vocabulary() == expected.get_vocabulary()
    assert part.get_vocabulary() != train(many, seed=3).get_vocabulary()


def test_long_texts_are_read():
    """SentencePiece leaves out texts with more than 4192 bytes by default."""
    tokenizer = TRANSLATOR.from_texts(["the fox", "zebra " * 1000], 20, "bpe")
    assert "▁zebra" in tokenizer.get_vocabulary()
