"""`tokenize_with_offsets`: the tokenizer's ids, and the place of each token in the text."""

# ruff: noqa: RUF001 - the texts are awkward on purpose.

import functools
import itertools
import random

import numpy as np
import pytest

from keras_diet.models import (
    DietBertSentencePieceTokenizer,
    DietBertTokenizer,
    DietTransformerTokenizer,
)

pytestmark = pytest.mark.any_backend

CHARACTERS = "nthequickfoxaszm[]1230.…éü¿!ñöﬁ猫犬문안нетقطهकीกิน😀ß⁄ガΣσςə"
# Not the usual order, and pieces that are no letters of the alphabet.
VOCABULARY = [
    *("the", "[MASK]", "fox", "[SEP]", "##es", "[CLS]", "[PAD]", "[UNK]", "fine", "strasse"),
    *dict.fromkeys(CHARACTERS),
    *(f"##{character}" for character in dict.fromkeys(CHARACTERS)),
]
AWKWARD_TEXTS = {
    "empty": "",
    "blanks": " \t\n ",
    "tabs": "the\tfox\r\n  foxes ",
    "accents": "Thé Fóx, naïve ñ",
    "combining": "The\u0301 fo\u0308x \u0301a a\u0323\u0307",
    "ligatures": "ﬁne ﬀ ½ … Ǆ ㎏",
    "german": "STRASSE Straße ẞ",
    "greek": "ΣΟΦΟΣ σοφός",
    "turkish": "İstanbul ılık",
    "full width": "Ｔｈｅ　ｆｏｘ！ ｶﾞ",
    "chinese": "猫the犬 猫,犬𠀀",
    "korean": "문안 문안",
    "arabic": "قِطَّة القط ﻻ",
    "hindi": "की कि क्ष",
    "thai": "กินข้าว",
    "emoji": "fox😀fox ❤\ufe0f 👩\u200d💻 🇩🇪",
    "controls": "th\u200be f\x00o\x07x a\u00adb \ufefffox",
    "long word": "fox" * 40 + " fox",
    "long in bytes": "é" * 51 + " fox",
    "special tokens": "the [MASK] fox[SEP]es [mask] [CLS",
    "unknown": "the œ zebra foxes",
    "a special token of the user": "the quick fox, Quick fox",
    "fillers": "a\u3164\u115fb \u034f",
    "marks at half width": "カﾞ ｶﾞ",
}
ARGUMENTS = [
    {},
    {"lowercase": True},
    {"strip_accents": True},
    {"lowercase": True, "strip_accents": True},
    {"lowercase": True, "split_on_cjk": False},
    {"lowercase": True, "special_tokens_in_strings": True},
    {"special_tokens_in_strings": True, "special_tokens": ["quick fox"]},
]


def called(tokenizer, text):
    return np.asarray(tokenizer(text)).tolist()


def tokens(tokenizer, text):
    """The tokens of a text, each with its part of the text."""
    ids, offsets = tokenizer.tokenize_with_offsets(text)
    return [(tokenizer.id_to_token(i), text[a:b]) for i, (a, b) in zip(ids, offsets, strict=True)]


def check_order(offsets, length):
    """Each span is in the text and not empty. The next begins where it ends, or is the same."""
    for start, end in offsets:
        assert 0 <= start < end <= length
    for first, second in itertools.pairwise(offsets):
        assert first == second or first[1] <= second[0]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: "-".join(arguments) or "-")
def test_ids_are_those_of_the_tokenizer(arguments):
    tokenizer = DietBertTokenizer(VOCABULARY, **arguments)
    for text in AWKWARD_TEXTS.values():
        ids, offsets = tokenizer.tokenize_with_offsets(text)
        assert ids == called(tokenizer, text)
        check_order(offsets, len(text))
    together = tokenizer.tokenize_with_offsets(list(AWKWARD_TEXTS.values()))
    assert together == [tokenizer.tokenize_with_offsets(text) for text in AWKWARD_TEXTS.values()]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: "-".join(arguments) or "-")
def test_ids_of_random_texts(arguments):
    """Any characters of the first three planes, with many marks and parts of Hangul."""
    generator = random.Random(29)
    tokenizer = DietBertTokenizer(VOCABULARY, **arguments)
    ranges = [(32, 0x250), (0x300, 0x36F), (0x900, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x30FF)]
    ranges += [(0xAC00, 0xD7A3), (0xFB00, 0xFFEF), (0x10000, 0x1FFFF), (0x20000, 0x2FA1F)]
    for _ in range(150):
        text = "".join(
            generator.choice([chr(generator.randint(*generator.choice(ranges))), "f", " "])
            for _ in range(23)
        )
        ids, offsets = tokenizer.tokenize_with_offsets(text)
        assert ids == called(tokenizer, text), ascii(text)
        check_order(offsets, len(text))


def test_pieces_and_unknown_words():
    tokenizer = DietBertTokenizer(VOCABULARY)
    assert tokens(tokenizer, " foxes,the  zebra.") == [
        ("fox", "fox"),
        ("##es", "es"),
        ("[UNK]", ","),
        ("the", "the"),
        ("[UNK]", "zebra"),
        (".", "."),
    ]
    assert tokenizer.tokenize_with_offsets("a foxes") == (
        [VOCABULARY.index(token) for token in ("a", "fox", "##es")],
        [(0, 1), (2, 5), (5, 7)],
    )


@pytest.mark.parametrize(
    "text, arguments, expected",
    [
        ("ﬁne", {}, [("ﬁ", "ﬁ"), ("##n", "n"), ("##e", "e")]),
        ("ﬁne", {"lowercase": True}, [("fine", "ﬁne")]),
        ("Straße!", {"lowercase": True}, [("strasse", "Straße"), ("!", "!")]),
        ("ﬁ", {"lowercase": True}, [("f", "ﬁ"), ("##i", "ﬁ")]),
        ("Ｔｈｅ　ｆｏｘ", {"lowercase": True}, [("[UNK]", "Ｔｈｅ　ｆｏｘ")]),
        ("Ｆｏｘ！", {"lowercase": True}, [("fox", "Ｆｏｘ"), ("!", "！")]),
        ("é", {}, [("é", "é")]),
        ("x e\u0301a", {"lowercase": True}, [("x", "x"), ("é", "e\u0301"), ("##a", "a")]),
        ("x éa", {"strip_accents": True}, [("x", "x"), ("e", "é"), ("##a", "a")]),
        ("fo\u0308x e", {"strip_accents": True}, [("fox", "fo\u0308x"), ("e", "e")]),
        (
            "Fo\u0308ﬁ́x",
            {"lowercase": True, "strip_accents": True},
            [("f", "F"), ("##o", "o\u0308"), ("##f", "ﬁ́"), ("##i", "ﬁ́"), ("##x", "x")],
        ),
        ("猫the犬", {}, [("猫", "猫"), ("the", "the"), ("犬", "犬")]),
        ("猫犬", {"split_on_cjk": False}, [("猫", "猫"), ("##犬", "犬")]),
        ("f\u200box a", {}, [("f", "f"), ("o", "o"), ("##x", "x"), ("a", "a")]),
        ("a\u034fe", {"lowercase": True}, [("a", "a\u034f"), ("##e", "e")]),
        ("…", {"lowercase": True}, [(".", "…"), ("##.", "…"), ("##.", "…")]),
        ("a\ue000", {}, [("[UNK]", "a\ue000")]),
        ("f" * 100 + " a", {}, [("f", "f"), *[("##f", "f")] * 99, ("a", "a")]),
        ("f" * 101 + " a", {}, [("[UNK]", "f" * 101), ("a", "a")]),
        ("é" * 51 + " a", {}, [("[UNK]", "é" * 51), ("a", "a")]),
        ("[MASK]the", {"special_tokens_in_strings": True}, [("[MASK]", "[MASK]"), ("the", "the")]),
        (
            "Z[MASK] [ma]",
            {"special_tokens_in_strings": True, "lowercase": True},
            [("z", "Z"), ("[MASK]", "[MASK]"), ("[", "["), ("m", "m"), ("##a", "a"), ("]", "]")],
        ),
    ],
    ids=ascii,
)
def test_spans(text, arguments, expected):
    assert tokens(DietBertTokenizer(VOCABULARY, **arguments), text) == expected


def test_arguments_of_the_vocabulary():
    vocabulary = ["[PAD]", "[OOV]", "[CLS]", "[SEP]", "[MASK]", "fox", "@@es"]
    tokenizer = DietBertTokenizer(vocabulary, oov_token="[OOV]", suffix_indicator="@@")
    assert tokenizer.tokenize_with_offsets("the foxes") == ([1, 5, 6], [(0, 3), (4, 7), (7, 9)])
    tokenizer.set_vocabulary(["the", *vocabulary])
    assert tokenizer.tokenize_with_offsets("the foxes")[0] == [0, 6, 7]


def test_bytes_and_arrays_of_texts():
    tokenizer = DietBertTokenizer(VOCABULARY)
    expected = tokenizer.tokenize_with_offsets("é the")
    assert tokenizer.tokenize_with_offsets(["é the".encode()]) == [expected]
    assert tokenizer.tokenize_with_offsets(np.array(["é the"])) == [expected]


@pytest.mark.parametrize(
    "arguments, text, message",
    [
        ({"sequence_length": 7}, "the", r"`sequence_length=None` .*Received: sequence_length=7"),
        ({"split": False}, "the", r"`split=True` .*Received: split=False"),
        ({}, ["the", None], r"`text` must hold strings. Received: None in row 1"),
        ({}, 5, "`text` must be a string or a list of strings.*Received: int"),
        ({}, [], "`text` must hold at least one example"),
        ({}, [["the"]], "`text` must be a string, a list of strings"),
        ({}, ("the", "fox"), "`text` must be a string or a list of strings.*Received: tuple"),
    ],
    ids=str,
)
def test_errors(arguments, text, message):
    with pytest.raises(ValueError, match=message):
        DietBertTokenizer(VOCABULARY, **arguments).tokenize_with_offsets(text)


# === SentencePiece ===

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
def test_ids_are_those_of_sentencepiece(name):
    generator = random.Random(31)
    characters = [*"".join(AWKWARD_TEXTS.values()), "▁", "<x>", "ﬁne ", " "]
    texts = list(AWKWARD_TEXTS.values())
    texts += ["".join(generator.choices(characters, k=19)) for _ in range(150)]
    tokenizer = pieces(name)
    for text in texts:
        ids, offsets = tokenizer.tokenize_with_offsets(text)
        assert ids == called(tokenizer, text), ascii(text)
        for start, end in offsets:
            assert 0 <= start <= end <= len(text)
        # Tokens overlap where a character became several.
        assert sorted(offsets) == offsets
        assert sorted(end for _, end in offsets) == [end for _, end in offsets]


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
        ("suffixes", "the fox", [("the▁", "the"), ("fox▁", "fox")]),
        ("suffixes", "œ a", [("[UNK]", "œ"), ("▁", ""), ("a▁", "a")]),
        ("symbols", "<x>a", [("▁", ""), ("<x>", "<x>"), ("a", "a")]),
        ("bpe", "[MASK]", [("▁", ""), ("[UNK]", "[MASK]")]),
        ("bpe", "", []),
        ("bpe", " \t", []),
    ],
    ids=ascii,
)
def test_spans_of_pieces(name, text, expected):
    assert tokens(pieces(name), text) == expected


def test_white_space_has_an_empty_span_before_the_next_word():
    _, offsets = pieces("bpe").tokenize_with_offsets("a  œ")
    assert offsets == [(0, 1), (3, 3), (3, 4)]


def test_other_sentencepiece_tokenizers():
    ours, translator = pieces("unigram"), DietTransformerTokenizer(pieces("unigram").proto)
    texts = ["the fox", "½ é"]
    assert translator.tokenize_with_offsets(texts) == ours.tokenize_with_offsets(texts)


@pytest.mark.parametrize("arguments", [{"add_bos": True}, {"add_eos": True}], ids=str)
def test_special_tokens_have_no_place(arguments):
    tokenizer = DietBertSentencePieceTokenizer(pieces("unigram").proto, **arguments)
    with pytest.raises(ValueError, match=rf"`{next(iter(arguments))}=False` .*=True"):
        tokenizer.tokenize_with_offsets("the")


def test_a_new_model_replaces_the_old_one():
    tokenizer = DietBertSentencePieceTokenizer(pieces("bpe").proto)
    before = tokenizer.tokenize_with_offsets("THE ﬁne")
    tokenizer.set_proto(pieces("folded").proto)
    assert tokenizer.tokenize_with_offsets("THE ﬁne")[0] == called(tokenizer, "THE ﬁne")
    assert tokenizer.tokenize_with_offsets("THE ﬁne") != before
