"""Tokenizers: ids, places in the text, special tokens, files and arguments."""

# ruff: noqa: RUF001 - the texts are awkward on purpose.

import functools
import inspect
import io
import itertools
import json
import pickle

import keras_hub
import numpy as np
import pytest
import sentencepiece
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
    DietBertSentencePieceTokenizer,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
    DietTransformerBackbone,
    DietTransformerTokenizer,
)
from keras_diet.pretraining import sample_languages
from tests.helpers import to_numpy
from tests.models.multilingual import SHUFFLED, SIZES, TEXTS, multilingual_tokenizer, proto
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

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


def ids(tokenizer, texts):
    return [np.asarray(tokenizer(text)).tolist() for text in texts]


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


def check_berts_rule(arguments, texts):
    theirs = berts_words(**arguments)(texts, add_special_tokens=False, return_offsets_mapping=True)
    ours = words(**arguments, special_tokens_in_strings=True)
    assert ours(texts) == theirs["input_ids"]
    found = ours.tokenize_with_offsets(texts)
    expected = zip(theirs["input_ids"], theirs["offset_mapping"], strict=True)
    assert found == [(of_text, list(map(tuple, offsets))) for of_text, offsets in expected]
    for text, (_, offsets) in zip(texts, found, strict=True):
        check_spans(text, offsets)
        assert all(start < end for start, end in offsets)


@pytest.mark.parametrize("arguments", WORD_ARGUMENTS, ids=lambda arguments: "-".join(arguments))
def test_awkward_texts_have_berts_ids(arguments):
    check_berts_rule(arguments, AWKWARD_TEXTS)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.sampled_from(WORD_ARGUMENTS), st.lists(ANY_TEXT, min_size=1, max_size=11))
def test_any_text_has_berts_ids(arguments, texts):
    check_berts_rule(arguments, texts)


@pytest.mark.parametrize(
    "text, arguments, expected",
    [
        ("10\u00a0km", {}, [("10", "10"), ("km", "km")]),
        ("co\u00adoperate", {}, [("cooperate", "co\u00adoperate")]),
        ("f\u200box a", {}, [("fox", "f\u200box"), ("a", "a")]),
        ("f\x00ox", {}, [("fox", "f\x00ox")]),
        ("Straße!", {"lowercase": True}, [("straße", "Straße"), ("!", "!")]),
        ("ﬁn", {"lowercase": True}, [("ﬁ", "ﬁ"), ("##n", "n")]),
        ("x éa", {"strip_accents": True}, [("x", "x"), ("e", "é"), ("##a", "a")]),
        ("fo\u0308x e", {"strip_accents": True}, [("fox", "fo\u0308x"), ("e", "e")]),
        ("猫the犬", {}, [("猫", "猫"), ("the", "the"), ("犬", "犬")]),
        ("猫犬", {"split_on_cjk": False}, [("猫", "猫"), ("##犬", "犬")]),
        (" foxes,a", {}, [("fox", "fox"), ("##es", "es"), ("[UNK]", ","), ("a", "a")]),
        ("f" * 100 + " a", {}, [("f", "f"), *[("##f", "f")] * 99, ("a", "a")]),
        ("f" * 101 + " a", {}, [("[UNK]", "f" * 101), ("a", "a")]),
        ("[MASK]n", {}, [("[", "["), ("[UNK]", "MASK"), ("]", "]"), ("n", "n")]),
        (
            "Z[MASK] [ma]",
            {"special_tokens_in_strings": True, "lowercase": True},
            [("z", "Z"), ("[MASK]", "[MASK]"), ("[", "["), ("m", "m"), ("##a", "a"), ("]", "]")],
        ),
        (
            "fox##es œ",
            # "œ" is not in the vocabulary.
            {"special_tokens_in_strings": True, "special_tokens": ("##es", "œ")},
            [("fox", "fox"), ("##es", "##es"), ("[UNK]", "œ")],
        ),
    ],
    ids=ascii,
)
def test_words_and_their_places(text, arguments, expected):
    assert tokens(words(**arguments), text) == expected


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
        texts = [*PLAIN_TEXTS, "the [MASK] fox"]
        dataset = tf.data.Dataset.from_tensor_slices(texts).map(tokenizer)
        assert [each.numpy().tolist() for each in dataset] == tokenizer(texts)
        assert tokenizer(tf.constant(texts)) == tokenizer(texts)


@pytest.mark.parametrize("missing", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
def test_a_vocabulary_without_a_special_token_is_refused(missing):
    with pytest.raises(ValueError, match=rf"\{missing[:-1]}\]"):
        DietBertTokenizer([word for word in VOCABULARY if word != missing])


def test_vocabularies_from_files(tmp_path):
    file = tmp_path / "vocabulary.txt"
    file.write_text("\n".join(LETTERS), encoding="utf-8")
    for path in (file, str(file)):
        assert DietBertTokenizer(path).get_vocabulary() == LETTERS


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
        ("bpe", "the\tﬁne", [("▁the", "the"), ("▁fine", "ﬁne")]),
        ("bpe", "½", [("▁1", "½"), ("⁄", "½"), ("2", "½")]),
        ("bpe", "e\u0301a", [("▁é", "e\u0301"), ("a", "a")]),
        ("bpe", "ｶﾞa", [("▁ガ", "ｶﾞ"), ("a", "a")]),
        ("bpe", "😀œ a ", [("▁", ""), ("[UNK]", "😀œ"), ("▁a", "a")]),
        ("bytes", "œa", [("▁", ""), ("<0xC5>", "œ"), ("<0x93>", "œ"), ("a", "a")]),
        ("folded", "THE Fox", [("▁the", "THE"), ("▁fox", "Fox")]),
        ("all spaces", "the ﬁ", [("the", "the"), ("▁f", "ﬁ"), ("i", "ﬁ")]),
        ("suffixes", "the fox", [("the▁", "the"), ("fox▁", "fox")]),
        ("suffixes", "œ a", [("[UNK]", "œ"), ("▁", ""), ("a▁", "a")]),
        ("symbols", "<x>a", [("▁", ""), ("<x>", "<x>"), ("a", "a")]),
        ("bpe", "[MASK]", [("▁", ""), ("[UNK]", "[MASK]")]),
        ("bpe", " \t", []),
    ],
    ids=ascii,
)
def test_pieces_and_their_places(name, text, expected):
    assert tokens(pieces(name), text) == expected


def test_white_space_has_an_empty_span_before_the_next_word():
    _, offsets = pieces("bpe").tokenize_with_offsets("a  œ")
    assert offsets == [(0, 1), (3, 3), (3, 4)]


def test_a_new_model_replaces_the_old_one():
    tokenizer = DietBertSentencePieceTokenizer(pieces("bpe").proto)
    tokenizer.set_proto(pieces("folded").proto)
    assert tokens(tokenizer, "THE he") == tokens(pieces("folded"), "THE he")
    assert [tokenizer.split_token(token) for token in ("▁the", "he")] == [
        ("the", True),
        ("he", False),
    ]


# === What all tokenizers share ===


@functools.cache
def translator_proto(kind):
    options = {} if kind == "default" else SHUFFLED
    return DietTransformerTokenizer.from_texts(ALL_TEXTS, 59, **options).proto


PIECES = {"pad": "pad", "unk": "unk", "start": "bos", "end": "eos"}
SHUFFLED_IDS = {name: SHUFFLED[f"{role}_id"] for name, role in PIECES.items()}
DEFAULT_IDS = {"pad": 0, "unk": 1, "start": 2, "end": 3}
# A tokenizer, its backbone, and the ids of its special tokens.
TOKENIZERS = {
    "words": (
        lambda **arguments: DietBertTokenizer(LETTERS, **arguments),
        DietBertBackbone,
        {"cls": 5, "sep": 3, "pad": 6, "mask": 1, "start": 5, "end": 3},
    ),
    "pieces": (
        lambda **arguments: DietBertSentencePieceTokenizer(proto(), **arguments),
        DietBertBackbone,
        {**DEFAULT_IDS, "cls": 2, "sep": 3, "mask": 4},
    ),
    "shuffled pieces": (
        lambda **arguments: DietBertSentencePieceTokenizer(proto("shuffled"), **arguments),
        DietBertBackbone,
        {**SHUFFLED_IDS, "cls": SHUFFLED["bos_id"], "sep": SHUFFLED["eos_id"], "mask": 1},
    ),
    "translator": (
        lambda **arguments: DietTransformerTokenizer(translator_proto("default"), **arguments),
        DietTransformerBackbone,
        DEFAULT_IDS,
    ),
    "shuffled translator": (
        lambda **arguments: DietTransformerTokenizer(translator_proto("shuffled"), **arguments),
        DietTransformerBackbone,
        SHUFFLED_IDS,
    ),
}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


@every_tokenizer
def test_special_tokens(name):
    make, backbone_cls, expected = TOKENIZERS[name]
    tokenizer = make()
    assert tokenizer.backbone_cls is backbone_cls
    for special, token_id in expected.items():
        assert getattr(tokenizer, f"{special}_token_id") == token_id
        assert getattr(tokenizer, f"{special}_token") == tokenizer.get_vocabulary()[token_id]
    assert sorted(tokenizer.special_token_ids) == sorted(set(expected.values()))
    assert [tokenizer.token_to_id(token) for token in tokenizer.special_tokens] == (
        tokenizer.special_token_ids
    )
    # A text cannot contain special tokens.
    found = tokenizer("the [CLS] [MASK] [GO] <s> fox [END] [P] <pad> [SEP]").tolist()
    assert not set(found) & (set(expected.values()) - {getattr(tokenizer, "unk_token_id", None)})


@every_tokenizer
def test_configuration_preset_and_pickle(name, tmp_path):
    make, _, expected = TOKENIZERS[name]
    tokenizer = make(sequence_length=9, dtype="int64", name="mine")
    tokenizer.save_to_preset(str(tmp_path))
    copy = type(tokenizer).from_config(json.loads(json.dumps(tokenizer.get_config())))
    assert copy.get_config() == tokenizer.get_config()
    assert copy.get_config()["name"] == "mine"
    assert (copy.special_tokens, copy.pad_token_id) == ([], None)
    copy.load_preset_assets(str(tmp_path))
    for each in (copy, pickle.loads(pickle.dumps(tokenizer))):
        assert each.get_config() == tokenizer.get_config()
        assert each.get_vocabulary() == tokenizer.get_vocabulary()
        assert each.pad_token_id == expected["pad"]
        found = each(ALL_TEXTS)
        assert found.dtype == "int64"
        np.testing.assert_array_equal(found, tokenizer(ALL_TEXTS))


@every_tokenizer
def test_detokenize(name):
    tokenizer = TOKENIZERS[name][0]()
    texts = ["the fox", "fox"] if name == "words" else TEXTS["de"]
    assert tokenizer.detokenize(tokenizer(texts)) == texts


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
}


def test_every_argument_of_words_survives_the_configuration():
    known = set(inspect.signature(keras_hub.tokenizers.WordPieceTokenizer).parameters)
    assert set(NOT_DEFAULT) == known - {"vocabulary", "kwargs", "dtype"}
    tokenizer = DietBertTokenizer([*VOCABULARY, "[OOV]"], **NOT_DEFAULT)
    config = DietBertTokenizer.from_config(tokenizer.get_config()).get_config()
    assert {name: config[name] for name in NOT_DEFAULT} == NOT_DEFAULT


@pytest.mark.parametrize("add", ["add_bos", "add_eos"])
def test_pieces_with_start_or_end(add, tmp_path):
    tokenizer = DietBertSentencePieceTokenizer(proto("shuffled"), **{add: True})
    found = tokenizer("the fox").tolist()
    plain = DietBertSentencePieceTokenizer(proto("shuffled"))("the fox").tolist()
    assert found == ([4, *plain] if add == "add_bos" else [*plain, 0])
    with pytest.raises(ValueError, match=rf"must not add special.*tokenizer\.{add}="):
        DietBertTextClassifierPreprocessor(tokenizer, sequence_length=13)(["the fox"])


def test_presets_keep_the_class_of_the_tokenizer(tmp_path):
    for tokenizer in (multilingual_tokenizer(), DietBertTokenizer(VOCABULARY)):
        folder = tmp_path / tokenizer.name
        tiny_backbone().save_to_preset(folder)
        tokenizer.save_to_preset(str(folder))
        for base in (keras_hub.models.Tokenizer, type(tokenizer), DietBertTokenizer):
            loaded = base.from_preset(folder if base is type(tokenizer) else str(folder))
            assert type(loaded) is type(tokenizer)
            assert loaded.get_vocabulary() == tokenizer.get_vocabulary()
        # A preprocessor that was not saved takes the tokenizer of the preset.
        preprocessor = DietBertTextClassifierPreprocessor.from_preset(str(folder))
        assert type(preprocessor.tokenizer) is type(tokenizer)


def without(**options):
    model = io.BytesIO()
    options = {"pad_id": 3, "control_symbols": ["[MASK]"], **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ALL_TEXTS),
        model_writer=model,
        vocab_size=59,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


WORDS, PIECES_OF_BERT = DietBertTokenizer, DietBertSentencePieceTokenizer
REFUSED = {
    "missing text": (
        lambda: words().tokenize_with_offsets(["the", None]),
        "`text` must hold strings. Received: None in row 1",
    ),
    "missing text in a call": (
        lambda: words()(["the", None]),
        "`inputs` must hold strings. Received: None in row 1",
    ),
    "length 0": (lambda: WORDS(LETTERS, sequence_length=0), "`sequence_length` must be a positive"),
    "lowercase str": (lambda: WORDS(LETTERS, lowercase="no"), "`lowercase` must be one of False"),
    "no padding token": (
        lambda: PIECES_OF_BERT(without(pad_id=-1)),
        "without pad token",
    ),
    "no start token": (lambda: PIECES_OF_BERT(without(bos_id=-1)), "without cls token (bos_id=-1)"),
    "no end token": (
        lambda: DietTransformerTokenizer(without(eos_id=-1)),
        "without end token (eos_id=-1). Make one with `DietTransformerTokenizer.from_texts`",
    ),
    "no mask token": (
        lambda: PIECES_OF_BERT(without(control_symbols=["<mask>"])),
        "must have a token `[MASK]`",
    ),
    "one string": (lambda: PIECES_OF_BERT.from_texts("fox"), "Received: a string"),
    "one string a language": (
        lambda: PIECES_OF_BERT.from_texts({"en": "fox"}),
        "Received: a string",
    ),
    "missing line": (
        lambda: PIECES_OF_BERT.from_texts({"en": ["fox"], "de": ["Fuchs", None]}),
        "Received: None in row 1",
    ),
    "an iterator of a language": (
        lambda: PIECES_OF_BERT.from_texts({"en": iter(["fox"])}),
        "`texts['en']` must be a list",
    ),
    "no text of a language": (
        lambda: PIECES_OF_BERT.from_texts({"en": ["fox"], "de": []}),
        "`sizes['de']` must be a positive integer",
    ),
    "kind of model": (
        lambda: PIECES_OF_BERT.from_texts(TEXTS, model_type="word"),
        "must be one of 'bpe', 'unigram'",
    ),
}


@pytest.mark.parametrize("call, message", REFUSED.values(), ids=list(REFUSED))
def test_refusals(call, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
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
    for exponent, seed in ((0.0, 0), (0.0, 5), (1.0, 0)):
        sampled = list(sample_languages(TEXTS, exponent, seed))
        expected = DietBertSentencePieceTokenizer.from_texts(sampled, **options)
        for texts in (TEXTS, {**TEXTS, "en": file}, {**TEXTS, "en": [file]}):
            tokenizer = DietBertSentencePieceTokenizer.from_texts(
                texts, sampling_exponent=exponent, seed=seed, **options
            )
            assert tokenizer.get_vocabulary() == expected.get_vocabulary()
    everything = DietBertSentencePieceTokenizer.from_texts(ALL_TEXTS, **options)
    assert everything.get_vocabulary() == tokenizer.get_vocabulary()
    everything = DietTransformerTokenizer.from_texts(ALL_TEXTS, **options)
    for texts in ([file, *TEXTS["de"], *TEXTS["zh"]], iter(ALL_TEXTS)):
        assert DietTransformerTokenizer.from_texts(texts, **options).proto == everything.proto
    options["vocabulary_size"] = 41
    english = DietTransformerTokenizer.from_texts(TEXTS["en"], **options)
    assert DietTransformerTokenizer.from_texts(file, **options).proto == english.proto


def test_a_part_of_the_texts_is_the_same_in_every_process():
    many = {
        language: [f"{text} {i}" for text in texts for i in range(20)]
        for language, texts in TEXTS.items()
    }
    first = list(sample_languages(many, 0.5, seed=3))[:101]
    expected = DietBertSentencePieceTokenizer.from_texts(first, **OPTIONS)
    part = DietBertSentencePieceTokenizer.from_texts(
        many, input_sentence_size=101, seed=3, **OPTIONS
    )
    assert part.get_vocabulary() == expected.get_vocabulary()
    everything = DietBertSentencePieceTokenizer.from_texts(many, seed=3, **OPTIONS)
    assert part.get_vocabulary() != everything.get_vocabulary()


def test_long_texts_are_read():
    """SentencePiece leaves out texts with more than 4192 bytes by default."""
    for cls in (DietBertSentencePieceTokenizer, DietTransformerTokenizer):
        tokenizer = cls.from_texts(["the fox", "zebra " * 1000], 20, "bpe")
        assert "▁zebra" in tokenizer.get_vocabulary()


def test_sizes_in_sentencepieces_errors_work():
    with pytest.raises(RuntimeError, match=r"smaller than required_chars. 9 vs (\d+)") as error:
        DietTransformerTokenizer.from_texts(ALL_TEXTS, 9)
    smallest = int(str(error.value).split(" vs ")[1].split(".")[0])
    assert DietTransformerTokenizer.from_texts(ALL_TEXTS, smallest).vocabulary_size() == smallest
    with pytest.raises(RuntimeError, match=r"size too high \(9000\).* value <= "):
        DietTransformerTokenizer.from_texts(ALL_TEXTS, 9000)


@pytest.mark.parametrize("in_language", [False, True])
def test_files_that_cannot_be_read_are_named(tmp_path, in_language):
    file = tmp_path / "latin.txt"
    file.write_bytes("the fox\nschläft\n".encode("latin-1"))
    for path, error, message in (
        (file, ValueError, rf"UTF-8\. Received: '{file}', where line 2 is not UTF-8 at byte 4"),
        (tmp_path / "no.txt", FileNotFoundError, r"no\.txt"),
    ):
        with pytest.raises(error, match=message):
            DietBertSentencePieceTokenizer.from_texts(
                {**TEXTS, "de": path} if in_language else [*ALL_TEXTS, path], 71
            )


# === Pieces in tasks ===


def test_packed_pieces():
    tokenizer = multilingual_tokenizer()
    preprocessor = DietBertTextClassifierPreprocessor(tokenizer, sequence_length=23)
    outputs = preprocessor((["the fox", "狗睡觉"], ["der Hund", ""]))
    for row, pair in enumerate([("the fox", "der Hund"), ("狗睡觉", "")]):
        first, second = ids(tokenizer, pair)
        expected = [4, *first, 0, *second, 0]
        padding = [6] * (23 - len(expected))
        assert to_numpy(outputs["token_ids"])[row].tolist() == expected + padding
        assert to_numpy(outputs["padding_mask"])[row].sum() == len(expected)
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * len(padding)
        assert to_numpy(outputs["segment_ids"])[row].tolist() == segments


def test_filled_masks_and_presets_with_pieces(tmp_path):
    """A token that begins no word continues the word before."""
    preprocessor = DietBertMaskedLMPreprocessor(multilingual_tokenizer(), sequence_length=13)
    backbone = tiny_backbone(num_layers=1, vocabulary_size=SIZES["shuffled"] + 2)
    model = randomize_weights(DietBertMaskedLM(backbone, preprocessor=preprocessor))
    model.save_to_preset(str(tmp_path))
    loaded = DietBertMaskedLM.from_preset(str(tmp_path))
    assert type(loaded.preprocessor.tokenizer) is DietBertSentencePieceTokenizer
    tokenizer = loaded.preprocessor.tokenizer
    found = loaded.fill_mask("the qu [MASK] fox", top_k=SIZES["shuffled"])
    assert [each["token"] for each in found] == [
        each["token"] for each in model.fill_mask("the qu [MASK] fox", top_k=SIZES["shuffled"])
    ]
    texts = {result["token"]: result["text"] for result in found}
    assert len(texts) == SIZES["shuffled"]
    long = [token for token in tokenizer.get_vocabulary() if len(token.strip("▁")) > 1]
    assert {token.startswith("▁") for token in long} == {True, False}
    for token in long:
        space = " " if token.startswith("▁") else ""
        assert texts[token] == f"the qu{space}{token.removeprefix('▁')} fox"
