"""Tokenizers of trained encoders, compared with `transformers`."""

import functools
import importlib
import io
import json
import pathlib
import pickle
import shutil
import tempfile

import keras
import numpy as np
import pytest
import sentencepiece
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, normalizers, pre_tokenizers, processors

from keras_diet.models import (
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
    DietBertQuestionAnswerer,
    DietBertQuestionAnswererPreprocessor,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenClassifierPreprocessor,
    DietBertTokenizer,
    HuggingFaceTokenizer,
)
from tests.helpers import assert_all_close, assert_close
from tests.models.multilingual import TEXTS
from tests.models.test_tokenizers import ANY_TEXT, AWKWARD_TEXTS, CHARACTERS, check_spans
from tests.models.tiny import AT_INPUT, VOCABULARY, randomize_weights, tiny_backbone
from tests.models.tiny_encoders import make

pytestmark = pytest.mark.any_backend
TRAINING = [*(text for texts in TEXTS.values() for text in texts), *CHARACTERS, "foxes 123 fine é"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERTS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
A = ["the fox", "", "a quick brown fox jumped", "der Fuchs", "😀é  猫 the lazy dog ."]
B = ["the dog sleeps .", "fox", "", "schläft over the lazy dog", "½ ﬁne"]


def byte_pairs(texts, size):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, size, min_frequency=1, special_tokens=SPECIAL[:4])
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(merge) for merge in model["merges"]]}


def roberta(texts, size, **arguments):
    mask = tokenizers.AddedToken("<mask>", lstrip=True, special=True)
    return transformers.RobertaTokenizer(**byte_pairs(texts, size), mask_token=mask, **arguments)


def modern_bert(texts, size):
    """Byte-level BPE with BERT's template, and spans with the space before, as in ModernBERT."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(**byte_pairs(texts, size)))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(["  ", "   "])
    tokenizer.add_special_tokens([*BERTS[:4], tokenizers.AddedToken("[MASK]", lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    roles = {f"{token[1:-1].lower()}_token": token for token in BERTS}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=names, **roles
    )


def pieces(texts, size):
    """Unigram with SentencePiece's normalization, as arguments of classes of `transformers`."""
    from transformers.utils import sentencepiece_model_pb2_new as pb2

    file, model = io.BytesIO(), pb2.ModelProto()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=file, vocab_size=size, minloglevel=2,
        hard_vocab_limit=False, max_sentence_length=2**20,
    )  # fmt: skip
    model.ParseFromString(file.getvalue())
    words = [(piece.piece, piece.score) for piece in model.pieces[3:]]
    return words, {"_spm_precompiled_charsmap": model.normalizer_spec.precompiled_charsmap}


def xlm_roberta(texts, size):
    words, table = pieces(texts, size)
    vocabulary = [*((token, 0.0) for token in SPECIAL[:4]), *words]
    return transformers.XLMRobertaTokenizer(vocabulary, **table)


def deberta(texts, size):
    words, _ = pieces(texts, size)
    first = [(token, 0.0) for token in ("[PAD]", "[CLS]", "[SEP]", "[UNK]")]
    return transformers.DebertaV2Tokenizer([*first, *words], split_by_punct=True)


def word_pieces(texts, size, special_tokens):
    tokenizer = tokenizers.BertWordPieceTokenizer()
    tokenizer.train_from_iterator(texts, size, min_frequency=1, special_tokens=special_tokens)
    return tokenizer.get_vocab()


def mpnet(texts, size):
    """The vocabulary has BERT's special tokens too, which MPNet does not use."""
    words = word_pieces(texts, size, [*SPECIAL[:4], *BERTS])
    return transformers.MPNetTokenizer(words | {"<mask>": len(words)})


def bert(texts, size):
    return transformers.BertTokenizer(word_pieces(texts, size, BERTS))


KINDS = {
    "roberta": roberta,
    "prefixed": functools.partial(roberta, add_prefix_space=True),
    "modern bert": modern_bert,
    "xlm-roberta": xlm_roberta,
    "mpnet": mpnet,
    "bert": bert,
    "deberta": deberta,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def read(folder):
    """The tokenizer of a folder, as we and as `transformers` read it."""
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    return HuggingFaceTokenizer.from_hugging_face(folder), theirs


def pair_of(make, texts, size):
    with tempfile.TemporaryDirectory() as folder:
        make(texts, size).save_pretrained(folder)
        return read(folder)


@functools.cache
def trained(kind):
    return pair_of(KINDS[kind], TRAINING, 330)


def trimmed(text, span):
    """A span without the white space around it."""
    part = text[slice(*span)]
    start = span[0] + len(part) - len(part.lstrip())
    return start, start + len(part.strip())


# === Ids, spans, texts ===


@every_kind
@settings(deadline=None, max_examples=10, derandomize=True)
@given(texts=st.lists(ANY_TEXT, max_size=9))
def test_any_text_has_the_ids_and_spans_of_transformers(kind, texts):
    ours, theirs = trained(kind)
    texts = [*AWKWARD_TEXTS, "the <mask> a</s>b<pad>", "  a   b\n\n[MASK] ", "▁ Ġ", *texts]
    expected = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    assert ours(texts) == expected["input_ids"]
    spans = [
        [trimmed(text, span) for span in of_text]
        for text, of_text in zip(texts, expected["offset_mapping"], strict=True)
    ]
    found = ours.tokenize_with_offsets(texts)
    assert found == list(zip(expected["input_ids"], spans, strict=True))
    for text, (ids, of_text) in zip(texts, found, strict=True):
        check_spans(text, of_text)
        assert ours(text).tolist() == ids
        assert ours.detokenize(ids) == theirs.decode(ids)


@every_kind
def test_vocabulary(kind):
    ours, theirs = trained(kind)
    vocabulary = ours.get_vocabulary()
    assert ours.vocabulary_size() == len(vocabulary) == len(theirs)
    for token, token_id in theirs.get_vocab().items():
        assert (vocabulary[token_id], ours.id_to_token(token_id)) == (token, token)
        assert ours.token_to_id(token) == token_id
    for role in ("cls", "sep", "pad", "mask", "unk"):
        assert getattr(ours, f"{role}_token") == getattr(theirs, f"{role}_token")
        assert getattr(ours, f"{role}_token_id") == getattr(theirs, f"{role}_token_id")
    assert (ours.start_token, ours.end_token) == (ours.cls_token, ours.sep_token)
    assert sorted(ours.special_token_ids) == sorted(
        {theirs.cls_token_id, theirs.sep_token_id, theirs.pad_token_id}
        | {theirs.mask_token_id, theirs.unk_token_id}
    )


@pytest.mark.parametrize(
    "kind, token, expected",
    [
        ("roberta", "Ġcat", ("cat", True)),
        ("roberta", "cat", ("cat", False)),
        ("roberta", "ĠschlÃ¤ft", ("schläft", True)),
        ("roberta", "Ġ", ("", True)),
        ("xlm-roberta", "▁cat", ("cat", True)),
        ("xlm-roberta", "é", ("é", False)),
        ("mpnet", "##es", ("es", False)),
        ("mpnet", "fox", ("fox", True)),
    ],
)
def test_texts_of_tokens(kind, token, expected):
    assert trained(kind)[0].split_token(token) == expected


@pytest.fixture
def spm(tmp_path, monkeypatch):
    """A folder with `spm.model` and without `tokenizer.json`. The mask is not in the model."""
    from transformers.utils import sentencepiece_model_pb2_new as pb2

    # The package has a function of the same name. The module of sentencepiece needs another version
    # of protobuf than TensorFlow.
    convert_slow_tokenizer = importlib.import_module("transformers.convert_slow_tokenizer")
    monkeypatch.setattr(convert_slow_tokenizer, "import_protobuf", lambda: pb2)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING), model_prefix=str(tmp_path / "spm"), vocab_size=330,
        hard_vocab_limit=False, max_sentence_length=2**20, minloglevel=2, pad_id=0, bos_id=1,
        eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
        unk_piece="[UNK]",
    )  # fmt: skip
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    return tmp_path


OF_PIECES = {
    "tokenizer_config.json": {"do_lower_case": True, "add_prefix_space": False, "unk_token": "[U]"},
    "special_tokens_map.json": {"mask_token": "[M]"},
    # The vocabulary has not as many tokens.
    "added_tokens.json": {"<e1>": 901},
}


@pytest.mark.parametrize("files", [{}, OF_PIECES], ids=["alone", "all"])
def test_pieces_of_deberta(files, spm):
    write(spm, files)
    ours, theirs = read(spm)
    texts = [*AWKWARD_TEXTS, *A, "The [MASK] fox\t é  ½", "a [M] fox <e1> \u1234☃"]
    assert ours(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours.mask_token_id == theirs.mask_token_id
    assert ours.get_vocabulary() == sorted(theirs.get_vocab(), key=theirs.get_vocab().get)
    # The pieces of another type would need other rules.
    (spm / "config.json").write_text('{"model_type": "albert"}')
    with pytest.raises(ValueError, match="must have a file"):
        HuggingFaceTokenizer.from_hugging_face(spm)


def test_words_of_a_bert_go_before_pieces(spm):
    (spm / "config.json").write_text('{"model_type": "bert"}')
    (spm / "vocab.txt").write_text("\n".join([*BERTS, "fox"]))
    assert HuggingFaceTokenizer.from_hugging_face(spm).get_vocabulary() == [*BERTS, "fox"]


def test_tokenizer_json_goes_before_pieces(spm):
    write(spm, in_config(tokenizer_class="PreTrainedTokenizerFast", pad_token="[PAD]"))
    of_class = HuggingFaceTokenizer.from_hugging_face(spm)
    assert of_class.template.start == [of_class.token_to_id("[CLS]")]
    (spm / "tokenizer.json").write_text(words())
    found = HuggingFaceTokenizer.from_hugging_face(spm)
    assert found.get_vocabulary() == [*BERTS, "fox"]


# === Packing ===


def arrays_of(encodings):
    return {
        "token_ids": np.array(encodings["input_ids"]),
        "segment_ids": np.array(encodings["token_type_ids"]),
        "padding_mask": np.array(encodings["attention_mask"]),
    }


@every_kind
def test_texts_and_pairs_are_packed_as_by_transformers(kind):
    ours, theirs = trained(kind)
    # With an odd number of tokens, the longer text of a pair keeps one more, or the second text.
    short = 8 + theirs.num_special_tokens_to_add(pair=True)
    for x in ((A,), (A, B), (A, A)):
        for length in (short, short + 1, 61):
            options = {"padding": "max_length", "truncation": True, "max_length": length}
            expected = arrays_of(theirs(*x, **options, return_token_type_ids=True))
            preprocessor = DietBertTextClassifierPreprocessor(ours, sequence_length=length)
            assert_all_close(preprocessor(x if len(x) > 1 else A), expected, 0)


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("roberta", DietBertTextClassifierPreprocessor),
        ("modern bert", DietBertMaskedLMPreprocessor),
    ],
)
def test_the_same_in_a_graph(kind, cls):
    tf = pytest.importorskip("tensorflow")
    # Nothing is random if all tokens are masked.
    masking = {"mask_selection_rate": 1.0, "mask_token_rate": 1.0, "random_token_rate": 0.0}
    arguments = masking if cls is DietBertMaskedLMPreprocessor else {}
    preprocessor = cls(trained(kind)[0], sequence_length=23, **arguments)
    texts = ["a\x00b", *A[1:]]
    one, three = (tf.data.Dataset.from_tensor_slices((x,)) for x in (texts, (texts, B, A)))
    for x, mapped in (
        (texts, one.map(preprocessor).batch(5)),
        ((texts, B, A), three.batch(5).map(preprocessor)),
    ):
        found = keras.tree.map_structure(np.asarray, next(iter(mapped)))
        keras.tree.map_structure(np.testing.assert_array_equal, found, preprocessor(x))


@every_kind
def test_windows_of_questions_are_those_of_transformers(kind):
    ours, theirs = trained(kind)
    question = "the quick fox"
    context = "a slow  red cat schläft 😀 on the mat . foxes and cats sing in the tall tree ."
    specials = theirs.num_special_tokens_to_add(pair=True)
    room, length = 11, 11 + specials + len(ours(question))
    preprocessor = DietBertQuestionAnswererPreprocessor(ours, sequence_length=length, doc_stride=5)
    x, y = preprocessor(([question], [context]), {"text": ["cat"], "answer_start": [12]})
    options = {"padding": "max_length", "truncation": "only_second", "max_length": length}
    expected = theirs(
        question, context, stride=room - 5, return_overflowing_tokens=True,
        return_token_type_ids=True, **options,
    )  # fmt: skip
    assert len(x["token_ids"]) > 2
    expected = arrays_of(expected)
    # `transformers` numbers the segments of all windows after the first one, also for XLM-R.
    expected["segment_ids"] *= kind in ("modern bert", "bert", "deberta")
    assert_all_close(x, expected, 0)
    start, end = y["start"][0], y["end"][0]
    assert ours.detokenize(x["token_ids"][0, start : end + 1]).strip() == "cat"


@pytest.mark.parametrize(
    "template, pair, sentence, labels",
    [
        # As in T5, and as in Llama.
        ("{} [SEP]", [5, 2, 5, 0, 2, 3, 3], [5, 0, 2], [7, 8, 0]),
        ("[CLS] {}", [1, 5, 1, 5, 0, 3, 3], [1, 5, 0], [0, 7, 8]),
    ],
)
def test_templates_without_start_or_end(template, pair, sentence, labels):
    tokenizer = tokenizers.Tokenizer.from_str(words())
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template.format("$A"),
        pair=f"{template.format('$A')} {template.format('$B')}",
        special_tokens=[("[SEP]", 2), ("[CLS]", 1)],
    )
    ours = HuggingFaceTokenizer(tokenizer)
    x = DietBertTextClassifierPreprocessor(ours, sequence_length=7)(("fox", "fox dog"))
    assert x["token_ids"].tolist() == pair
    tagger = DietBertTokenClassifierPreprocessor(ours, sequence_length=3)
    x, y, weights = tagger([["fox", "dog"]], [[7, 8]])
    assert (x["token_ids"].tolist(), y.tolist()) == ([sentence], [labels])
    np.testing.assert_array_equal(weights, y > 0)


def test_a_word_without_tokens():
    """Without a token for unknown words, it becomes padding."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "<s>": 1, "<pad>": 2}, []))
    tokenizer.add_special_tokens(["<s>", "<pad>"])
    tagger = DietBertTokenClassifierPreprocessor(HuggingFaceTokenizer(tokenizer), sequence_length=3)
    x, y, _ = tagger([["☃", "a"]], [[7, 8]])
    assert (x["token_ids"].tolist(), y.tolist()) == ([[2, 0, 2]], [[7, 8, 0]])


@pytest.mark.parametrize("kind", ["prefixed", "xlm-roberta", "mpnet", "bert"])
def test_words_are_packed_as_by_transformers(kind):
    ours, theirs = trained(kind)
    sentences = [["the", "cats", "Fuchs"], ["schläft", "猫"], ["foxes"]]
    y = [[3, 5, 7], [2, 4], [6]]
    preprocessor = DietBertTokenClassifierPreprocessor(ours, sequence_length=29)
    x, labels, weights = preprocessor(sentences, y)
    options = {"padding": "max_length", "max_length": 29, "return_token_type_ids": True}
    expected = theirs(sentences, is_split_into_words=True, **options)
    assert_all_close(x, arrays_of(expected), 0)
    for row, of_words in enumerate(y):
        words = expected.word_ids(row)
        firsts = [words.index(i) for i in range(len(of_words))]
        assert np.flatnonzero(weights[row]).tolist() == firsts
        assert labels[row, firsts].tolist() == of_words
    if kind == "prefixed":
        # A word has the same tokens, whatever the tokenizer puts before the first one.
        other = DietBertTokenClassifierPreprocessor(trained("roberta")[0], sequence_length=29)
        assert_all_close(other(sentences), x, 0)


# === Files and arguments ===


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
def test_filled_masks(kind):
    ours, theirs = trained(kind)
    preprocessor = DietBertMaskedLMPreprocessor(ours, sequence_length=13)
    backbone = tiny_backbone(num_layers=1, vocabulary_size=ours.vocabulary_size())
    model = randomize_weights(DietBertMaskedLM(backbone, preprocessor=preprocessor))
    text = "the <mask> cat"
    found = model.fill_mask(text, top_k=ours.vocabulary_size())
    texts = {guess["token"]: guess["text"] for guess in found}
    space = "▁" if kind == "xlm-roberta" else "Ġ"
    assert texts[f"{space}sl"] == "the sl cat"
    assert texts["ing" if kind == "roberta" else "e"] in ("theing cat", "thee cat")
    # The mask takes the space before it, if the file says so.
    ids = np.array([theirs(text)["input_ids"]])
    inputs = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids),
        "mask_positions": np.array([ids[0].tolist().index(theirs.mask_token_id)])[None],
    }
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(model(inputs)))[0, 0]
    for guess in found:
        token_id = ours.token_to_id(guess["token"])
        assert guess["probability"] == pytest.approx(float(expected[token_id]), rel=1e-4)


@pytest.mark.parametrize("kind", ["roberta", "without a template"])
def test_a_task_is_written_with_any_tokenizer(tmp_path, kind):
    ours, _ = trained("roberta")
    if kind == "without a template":
        # Nor has it a token for unknown words.
        file = json.loads(ours.fast_tokenizer().to_str()) | {"post_processor": None}
        file["added_tokens"] = file["added_tokens"][:3]
        ours = HuggingFaceTokenizer(json.dumps(file))
    arguments = {**AT_INPUT, "first_position": 2, "max_sequence_length": 61}
    backbone = tiny_backbone(vocabulary_size=ours.vocabulary_size(), **arguments)
    preprocessor = DietBertTextClassifierPreprocessor(ours, sequence_length=61)
    task = randomize_weights(DietBertTextClassifier(backbone, 3, preprocessor=preprocessor))
    task.export_to_hugging_face(tmp_path, "roberta")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    inputs = theirs(A, B, padding=True, return_tensors="pt")
    # RoBERTa's template does not number the segments.
    assert ("token_type_ids" in inputs) == (kind != "roberta")
    assert theirs.unk_token == ours.unk_token == ("<unk>" if kind == "roberta" else None)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert model.config.model_type == "roberta"
    assert_close(task.predict((A, B), verbose=0), model(**inputs).logits.detach(), 1e-5)


# === Files beside `tokenizer.json` ===


def flags(content, **others):
    """An added token with flags, as in files."""
    names = ("single_word", "lstrip", "rstrip", "normalized")
    return {"content": content, "special": True, **dict.fromkeys(names, False), **others}


def in_config(**settings):
    return {"tokenizer_config.json": settings}


# What files say, as far as it is not in the tokenizer of `transformers`: `None` removes a setting.
FILES = {
    "nothing else": {},
    "without a template": {**in_config(), "tokenizer.json": {"post_processor": None}},
    "ordinary words": in_config(split_special_tokens=True),
    "without segments": in_config(model_input_names=["input_ids"]),
    "other segments": in_config(model_input_names=None),
    "another mask": {
        **in_config(added_tokens_decoder=None),
        "special_tokens_map.json": {"mask_token": flags("<e2>", lstrip=True, rstrip=True)},
    },
}
# Special tokens inside, repeated emoji, and a normalized special token.
INSIDE = [
    *(
        "the <e1> fox <e2>  Fox",
        "<e1>the<e1>Fox <E2> THE Foxes",
        "<S> [sep] <e2><e2>Thé 猫猫犬 ﬁne",
    ),
    *("the [SEP] fox </s> <mask> cat [MASK] dog", "<mask> <mask>  <pad>[PAD]<extra_id_3> x"),
    *("👩\u200d💻👩\u200d💻 😀😀😀 ", *AWKWARD_TEXTS),
]


def words(**changes):
    """A small `tokenizer.json` of BERT, with changes."""
    tokenizer = tokenizers.BertWordPieceTokenizer({t: i for i, t in enumerate([*BERTS, "fox"])})
    return json.dumps(json.loads(tokenizer.to_str()) | changes)


def write(folder, files):
    """Change what the files of a folder say."""
    for name, changes in files.items():
        path = pathlib.Path(folder, name)
        contents = {**(json.loads(path.read_text()) if path.is_file() else {}), **changes}
        kept = {k: v for k, v in contents.items() if v is not None or k == "post_processor"}
        path.write_text(json.dumps(kept))


def assert_same_ids(ours, theirs, texts):
    assert ours(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    first, second = (theirs(text, add_special_tokens=False)["input_ids"] for text in ("fox", "dog"))
    start, separator, end, numbers_segments, _ = ours.template
    both = theirs("fox", "dog")
    assert both["input_ids"] == [*start, *first, *separator, *second, *end]
    # Without numbers, models take zeros.
    assert max(both.get("token_type_ids", [0])) == numbers_segments
    assert ours.vocabulary_size() == max(theirs.get_vocab().values()) + 1


@pytest.mark.parametrize("kind", ["roberta", "bert"])
def test_settings_of_all_files_are_read(kind, tmp_path):
    KINDS[kind](TRAINING, 330).save_pretrained(tmp_path / "original")
    for name, files in FILES.items():
        shutil.copytree(tmp_path / "original", tmp_path / name)
        write(tmp_path / name, files)
        ours, theirs = read(tmp_path / name)
        try:
            assert_same_ids(ours, theirs, INSIDE)
            for role in ("cls", "pad", "mask", "unk"):
                expected = getattr(theirs, f"{role}_token")
                assert getattr(ours, f"{role}_token") in (expected, expected or "<mask>")
        except AssertionError as error:
            raise AssertionError(f"files {name!r}: other ids than in transformers") from error
        if name == "ordinary words":
            copy = HuggingFaceTokenizer.from_config(ours.get_config())
            copy.set_tokenizer(ours.fast_tokenizer())
            assert copy(INSIDE) == ours(INSIDE) != read(tmp_path / "nothing else")[0](INSIDE)


BERT = json.loads(words())["normalizer"]
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
LEFT = {"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
FOR_BYTES = in_config(tokenizer_class="RobertaTokenizer")
# What `tokenizer.json` says, another file, and a part of the message.
DISAGREE = [
    ({"normalizer": {**BERT, "lowercase": False}}, {}, "`do_lower_case` .*takes True.*=False"),
    ({"normalizer": {**BERT, "strip_accents": True}}, {}, "`strip_accents` .*takes None.*=True"),
    ({"normalizer": {**BERT, "handle_chinese_chars": False}}, {}, "`tokenize_chinese_chars` must"),
    ({"pre_tokenizer": BYTES}, FOR_BYTES, "`add_prefix_space` .*takes False.*=True"),
    ({}, in_config(truncation_side="left"), "`truncation_side` must be 'right'"),
    ({"truncation": LEFT}, {}, "`truncation_side` must be 'right'"),
    (
        {},
        in_config(tokenizer_class="EsmTokenizer"),
        "says: EsmTokenizer has no attribute backend_tokenizer",
    ),
    ({}, in_config(tokenizer_class="RobertaTokenizer"), "type 'BPE', and the type 'WordPiece'"),
    ({}, in_config(cls_token={"content": "[CLS]"}), "says: .*cls_token"),
]


@pytest.mark.parametrize("file, others, message", DISAGREE)
def test_files_that_disagree_are_refused(file, others, message, tmp_path):
    """Earlier versions of `transformers` read `tokenizer.json`, and 5 reads the class."""
    (tmp_path / "vocab.txt").write_text("<cls>\n<pad>\n<eos>\n<unk>\nL\n")
    bytes_of_bert = {"model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "a": 2}, "merges": []}}
    changes = {**file, **bytes_of_bert} if others is FOR_BYTES else file
    (tmp_path / "tokenizer.json").write_text(words(**changes))
    write(tmp_path, in_config(tokenizer_class="BertTokenizer"))
    write(tmp_path, others)
    with pytest.raises(ValueError, match=message):
        HuggingFaceTokenizer.from_hugging_face(tmp_path)


def test_null_is_a_setting(tmp_path):
    (tmp_path / "tokenizer.json").write_text(words(normalizer={**BERT, "strip_accents": True}))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer_config.json").write_text('{"strip_accents": null}')
    ours, theirs = read(tmp_path)
    assert ours(["fóx"]) == theirs(["fóx"], add_special_tokens=False)["input_ids"]


def test_usual_names_without_a_template():
    names = ["<unk>", "</s>", "<pad>", "<s>", "<mask>"]
    fast = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    fast.add_special_tokens(names)
    ours = HuggingFaceTokenizer(fast)
    assert [getattr(ours, f"{r}_token") for r in ("unk", "sep", "pad", "cls", "mask")] == names


def test_the_arguments_of_a_bert(tmp_path):
    """Added tokens are in the vocabulary, and the model has the unknown token and the prefix."""

    def tokenizer(**changes):
        fast = tokenizers.Tokenizer.from_str(words(**changes))
        fast.add_tokens(["cat"])
        fast.save(str(tmp_path / "tokenizer.json"))
        roles = {"cls": "[MASK]", "sep": "[CLS]", "pad": "[SEP]", "mask": "cat", "unk": "fox"}
        roles = {f"{role}_token": token for role, token in roles.items()}
        files = in_config(tokenizer_class="PreTrainedTokenizerFast", **roles)
        write(tmp_path, {**files, "config.json": {"model_type": "bert"}})
        return DietBertTokenizer.from_bert(tmp_path)

    of_model = {"continuing_subword_prefix": "@@", "unk_token": "[PAD]"}
    model = json.loads(words())["model"] | of_model
    model["vocab"] |= {"@@es": 6}
    found = tokenizer(model=model)
    assert found.get_vocabulary() == [*BERTS, "fox", "@@es", "cat"]
    assert (found.oov_token, found(["foxes"])) == ("[PAD]", [[5, 6]])
    roles = (found.cls_token, found.sep_token, found.pad_token, found.mask_token)
    assert roles == ("[MASK]", "[CLS]", "[SEP]", "cat")
    for values, expected in (
        ((True, None, True), (True, True, True)),
        ((False, True, False), (False, True, False)),
        ((True, False, True), (True, False, True)),
    ):
        names = ("lowercase", "strip_accents", "handle_chinese_chars")
        found = tokenizer(normalizer=BERT | dict(zip(names, values, strict=True)))
        assert (found.lowercase, found.strip_accents, found.split_on_cjk) == expected
    for normalizer, name in ((None, None), ({"type": "NFC"}, "'NFC'")):
        with pytest.raises(ValueError, match=rf"'BertNormalizer'.*{name}"):
            tokenizer(normalizer=normalizer)
    with pytest.raises(ValueError, match=r"'WordPiece'.*'WordLevel'"):
        tokenizer(model={"type": "WordLevel", "vocab": model["vocab"], "unk_token": "[UNK]"})


def test_code_of_a_folder_is_not_run(tmp_path):
    (tmp_path / "tokenizer.json").write_text(words())
    (tmp_path / "fox.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Fox: pass\n")
    write(tmp_path, in_config(tokenizer_class="Fox", auto_map={"AutoTokenizer": [None, "fox.Fox"]}))
    with pytest.raises(ValueError, match=r"without code of the folder.*custom code"):
        HuggingFaceTokenizer.from_hugging_face(tmp_path)
    write(tmp_path, in_config(tokenizer_class="BertTokenizer"))
    assert HuggingFaceTokenizer.from_hugging_face(tmp_path)(["fox"]) == [[5]]
    assert not (tmp_path / "ran").exists()


def test_truncation_padding_and_gaps_of_a_file():
    """Files of sentence-transformers cut and pad, and ids may have gaps."""
    file = json.loads(words())
    file["model"]["vocab"]["cat"] = 8
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    ours = HuggingFaceTokenizer(tokenizer)
    assert ours(["fox cat fox", "fox"]) == [[5, 8, 5], [5]]
    assert ours.get_vocabulary()[5:] == ["fox", "", "", "cat"]


def test_forms_of_results_and_copies(tmp_path):
    padded = HuggingFaceTokenizer(words(), sequence_length=3, dtype="int64", name="mine")
    copy = HuggingFaceTokenizer.from_config(json.loads(json.dumps(padded.get_config())))
    assert (copy.special_tokens, copy.pad_token_id) == ([], None)
    padded.save_to_preset(str(tmp_path))
    copy.load_preset_assets(str(tmp_path))
    for each in (padded, copy, pickle.loads(pickle.dumps(padded))):
        assert each.get_config() == padded.get_config()
        found = each(np.array(["fox", "fox [SEP] fox fox"]))
        assert (each.name, found.dtype, found.tolist()) == ("mine", "int64", [[5, 3, 3], [5, 2, 5]])
    strings = HuggingFaceTokenizer(words(), dtype="string")
    assert strings([["fox"], ["dog fox", b"fox"]]) == [[["fox"]], [["[UNK]", "fox"], ["fox"]]]
    assert padded.detokenize(np.array([[5, 3], [5, 5]])) == ["fox [PAD]", "fox fox"]
    # A configuration cannot name a file.
    with pytest.raises(TypeError, match="tokenizer"):
        HuggingFaceTokenizer.from_config({"tokenizer": "tokenizer.json"})


@pytest.mark.parametrize(
    "config, expected",
    [
        # Roles without a name come from the template, and from the usual names.
        ({}, ("[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]")),
        ({"bos_token": "fox", "eos_token": "[UNK]"}, ("fox", "[UNK]", "[PAD]", "[MASK]", "[UNK]")),
        ({"cls_token": "fox", "bos_token": "[UNK]"}, ("fox", "[SEP]", "[PAD]", "[MASK]", "[UNK]")),
    ],
)
def test_roles_of_special_tokens(config, expected, tmp_path):
    (tmp_path / "tokenizer.json").write_text(words())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = HuggingFaceTokenizer.from_hugging_face(tmp_path)
    roles = ("cls", "sep", "pad", "mask", "unk")
    assert tuple(getattr(ours, f"{role}_token") for role in roles) == expected
    other = HuggingFaceTokenizer.from_hugging_face(tmp_path, mask_token="fox")
    assert (other.mask_token, other.mask_token_id) == ("fox", 5)


ADDED = json.loads(words())["added_tokens"]
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ],
    "special_tokens": {"[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}},
}
REFUSED = [
    (
        lambda: HuggingFaceTokenizer.from_hugging_face("/no"),
        "AutoTokenizer.from_pretrained(folder)",
    ),
    (lambda: HuggingFaceTokenizer("{"), "must be a tokenizer.json of Hugging Face"),
    (lambda: HuggingFaceTokenizer("{}"), "must be a tokenizer.json of Hugging Face"),
    (lambda: HuggingFaceTokenizer("no/tokenizer.json"), "no/tokenizer.json"),
    (lambda: HuggingFaceTokenizer(words(), mask_token="dog"), "`mask_token` must be a token"),
    (lambda: HuggingFaceTokenizer(words(added_tokens=[])), "must have added tokens"),
    (lambda: HuggingFaceTokenizer(words(added_tokens=ADDED[:3])), "`pad_token` must be a token"),
    (lambda: HuggingFaceTokenizer(words(post_processor=TEMPLATE)), "after one and two texts"),
    (lambda: HuggingFaceTokenizer(words())(["fox", "a\ud800"]), "in row 1"),
    (lambda: HuggingFaceTokenizer()("fox"), "A tokenizer must be set"),
    (lambda: HuggingFaceTokenizer(words()).token_to_id("dog"), "Received: 'dog'"),
    (lambda: HuggingFaceTokenizer(words()).id_to_token(6), "Received: 6"),
    (lambda: HuggingFaceTokenizer(words()).id_to_token(-1), "Received: -1"),
]


@pytest.mark.parametrize("call, message", REFUSED, ids=[row[1][:40] for row in REFUSED])
def test_refusals(call, message):
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        call()
    assert message in str(error.value)


# === Folders of tasks ===


def test_added_tokens_keep_their_flags(tmp_path):
    """A mask takes the space before it, also in files that we write."""
    ours, _ = trained("roberta")
    more = [flags("<e1>", rstrip=True), flags("Fox", special=False, single_word=True)]
    fast = tokenizers.Tokenizer.from_str(ours.fast_tokenizer().to_str())
    fast.add_tokens([tokenizers.AddedToken(**each) for each in more])
    ours = HuggingFaceTokenizer(fast)
    backbone = tiny_backbone(num_layers=1, vocabulary_size=len(ours.get_vocabulary()), **AT_INPUT)
    preprocessor = DietBertTextEmbedderPreprocessor(ours, sequence_length=11)
    DietBertTextEmbedder(backbone, preprocessor).export_to_hugging_face(tmp_path, "bert")
    written = json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
    assert written == json.loads(fast.to_str())["added_tokens"]
    assert any(token["lstrip"] for token in written)
    back, theirs = read(tmp_path)
    assert ours(INSIDE) == back(INSIDE) == theirs(INSIDE, add_special_tokens=False)["input_ids"]
    assert theirs.model_max_length == 11


@pytest.mark.parametrize("in_strings", [False, True])
def test_special_tokens_in_texts_are_written_as_they_are_read(in_strings, tmp_path):
    """Texts of users cannot contain special tokens, unless the tokenizer says so."""
    ours = DietBertTokenizer(VOCABULARY, special_tokens_in_strings=in_strings)
    preprocessor = DietBertTextEmbedderPreprocessor(ours, sequence_length=11)
    embedder = DietBertTextEmbedder(tiny_backbone(num_layers=1, **AT_INPUT), preprocessor)
    write_over = {"special_tokens_map.json": {"cls_token": "fox"}, "added_tokens.json": {"the": 3}}
    write(tmp_path, {**write_over, "sentence_roberta_config.json": {"max_seq_length": 5}})
    embedder.export_to_hugging_face(tmp_path, "bert")
    # Files of an older tokenizer would change the new one.
    assert not [name for name in write_over if (tmp_path / name).exists()]
    text = "the fox [SEP] the [MASK]"
    ids = ours(text).tolist()
    back, theirs = read(tmp_path)
    assert back(text).tolist() == theirs(text, add_special_tokens=False)["input_ids"] == ids
    assert (3 in ids) == in_strings


def sentence_file(kind, **settings):
    return {f"sentence_{kind}_config.json": settings}


TOKENIZERS = in_config(model_max_length=19)
LENGTHS = [
    # sentence-transformers 6 writes this one.
    (TOKENIZERS, 19),
    (TOKENIZERS | sentence_file("bert", max_seq_length=23), 23),
    (TOKENIZERS | sentence_file("bert", max_seq_length=None, do_lower_case=False), 19),
    (TOKENIZERS | sentence_file("distilbert", max_seq_length=29), 29),
    (in_config(model_max_length=None) | sentence_file("roberta", max_seq_length=17), 17),
    (sentence_file("bert", max_seq_length=23, processor_kwargs={"model_max_length": 31}), 31),
    (in_config(model_max_length=int(1e30)), 40),
    (in_config(model_max_length=None), 40),
]


@pytest.fixture(scope="module")
def sentence_transformer(tmp_path_factory):
    """The folder of a model of sentence-transformers that says no length."""
    import sentence_transformers

    folder = str(tmp_path_factory.mktemp("model"))
    tokenizer = modern_bert(TRAINING, 400)
    tokenizer.save_pretrained(folder)
    make("bert", vocab_size=len(tokenizer), max_position_embeddings=40).save_pretrained(folder)
    sentence_transformers.SentenceTransformer(folder, device="cpu").save_pretrained(folder)
    pathlib.Path(folder, "sentence_bert_config.json").unlink()
    return folder


@pytest.mark.parametrize("files, length", LENGTHS)
def test_the_longest_text_is_that_of_sentence_transformers(
    sentence_transformer, files, length, tmp_path
):
    import sentence_transformers

    shutil.copytree(sentence_transformer, tmp_path, dirs_exist_ok=True)
    write(tmp_path, files)
    reference = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert reference.max_seq_length == length
    embedder = DietBertTextEmbedder.from_hugging_face(tmp_path)
    texts = ["the fox", "the quick brown fox jumped over the lazy dogs " * 5]
    assert_close(embedder.encode_text(texts, verbose=0), reference.encode(texts), 1e-5)
    assert embedder.preprocessor.sequence_length == length
    buckets = tuple(n for n in (8, 12, 16, 24, 32, 48) if n < length)
    assert embedder.preprocessor.length_buckets == buckets


def test_the_case_of_a_sentence_transformer(sentence_transformer, tmp_path):
    import sentence_transformers

    shutil.copytree(sentence_transformer, tmp_path, dirs_exist_ok=True)
    texts, found = ["The FOX", "DER Fuchs sleeps [MASK] É"], []
    for lowercase in (True, False):
        write(tmp_path, sentence_file("bert", do_lower_case=lowercase))
        reference = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
        tokenizer = DietBertTextEmbedder.from_hugging_face(tmp_path).preprocessor.tokenizer
        found.append(tokenizer(texts))
        assert found[-1] == reference.tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "kind, is_read", [("electra", True), ("roformer", False), ("esm", False), ("roberta", False)]
)
def test_vocab_txt_alone_gives_a_preprocessor(kind, is_read, tmp_path):
    """Two tokenizers are not of the package `tokenizers`, and that of RoBERTa reads other files."""
    make(kind, vocab_size=len(BERTS) + 2).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*BERTS, "the", "fox"]))
    preprocessor = DietBertTextEmbedder.from_hugging_face(tmp_path).preprocessor
    assert (preprocessor is not None) == is_read
    if is_read:
        start, end = (BERTS.index(token) for token in ("[CLS]", "[SEP]"))
        row = preprocessor(["The fox"])["token_ids"][0]
        assert row[:4].tolist() == [start, len(BERTS), len(BERTS) + 1, end]
    if kind == "roberta":
        with pytest.raises(ValueError, match="says: RobertaTokenizer reads none of its files"):
            HuggingFaceTokenizer.from_hugging_face(tmp_path)


def test_the_longest_text_of_a_cross_encoder(sentence_transformer, tmp_path):
    import sentence_transformers
    import torch

    shutil.copytree(sentence_transformer, tmp_path / "a")
    (tmp_path / "a/modules.json").unlink()
    size = json.loads((tmp_path / "a/config.json").read_text())["vocab_size"]
    options = {"vocab_size": size, "max_position_embeddings": 40, "num_labels": 1}
    make("bert", "ForSequenceClassification", **options).save_pretrained(tmp_path / "a")
    reference = sentence_transformers.CrossEncoder(str(tmp_path / "a"), device="cpu", max_length=19)
    reference.save_pretrained(str(tmp_path / "b"))
    pairs = [("the fox", "a dog"), ("the quick brown fox " * 5, "the lazy dogs " * 5)]
    expected = reference.predict(pairs, activation_fn=torch.nn.Identity())
    classifier = DietBertTextClassifier.from_hugging_face(tmp_path / "b")
    assert classifier.preprocessor.sequence_length == 19
    found = classifier.predict(tuple(map(list, zip(*pairs, strict=True))), verbose=0)
    assert_close(found[:, 0], expected, 1e-5)
    # Windows of a question answerer have the default of their class, if it is shorter.
    with pytest.warns(UserWarning, match="has no head for this task"):
        answerer = DietBertQuestionAnswerer.from_hugging_face(tmp_path / "b")
    assert (answerer.preprocessor.sequence_length, answerer.preprocessor.doc_stride) == (19, 6)
