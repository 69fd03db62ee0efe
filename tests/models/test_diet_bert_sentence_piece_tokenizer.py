"""`DietBertSentencePieceTokenizer`: BERT's special tokens in a SentencePiece model."""

import io
import json

import keras_hub
import numpy as np
import pytest
import sentencepiece

from keras_diet import layers, pretraining
from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLMPreprocessor,
    DietBertSentencePieceTokenizer,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import assert_close, to_numpy
from tests.models.multilingual import SHUFFLED, SIZES, TEXTS, multilingual_tokenizer, proto
from tests.models.tasks import CLASSES, TASKS
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

ALL_TEXTS = [text for texts in TEXTS.values() for text in texts]
HARD_TEXTS = ["", "  the\tquick\nfox ", "THE FOX", "½ … ﬁ", "猫 cat猫", "[CLS] the [MASK] [SEP]"]
LENGTH = 13


def ids(tokenizer, texts):
    return [np.asarray(tokenizer(text)).tolist() for text in texts]


@pytest.mark.parametrize("kind", SIZES)
def test_ids_are_those_of_sentencepiece(kind):
    tokenizer = multilingual_tokenizer(kind)
    expected = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    texts = ALL_TEXTS + HARD_TEXTS
    assert ids(tokenizer, texts) == [expected.encode(text) for text in texts]
    assert tokenizer(texts) == expected.encode(texts)
    assert tokenizer.vocabulary_size() == SIZES[kind]
    assert tokenizer.detokenize(tokenizer(ALL_TEXTS)) == ALL_TEXTS


@pytest.mark.any_backend
def test_special_tokens():
    default, shuffled = multilingual_tokenizer("default"), multilingual_tokenizer()
    tokens = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    for expected_id, (name, token) in enumerate(tokens.items()):
        assert getattr(default, f"{name}_token") == token
        assert getattr(default, f"{name}_token_id") == expected_id
    pieces = {"pad": "pad", "unk": "unk", "cls": "bos", "sep": "eos", "start": "bos", "end": "eos"}
    for name, piece in pieces.items():
        assert getattr(shuffled, f"{name}_token") == SHUFFLED[f"{piece}_piece"]
        assert getattr(shuffled, f"{name}_token_id") == SHUFFLED[f"{piece}_id"]
    assert (shuffled.mask_token, shuffled.mask_token_id) == ("[MASK]", 1)
    assert sorted(shuffled.special_token_ids) == [0, 1, 2, 4, 6]
    assert sorted(shuffled.special_tokens) == ["[?]", "[END]", "[GO]", "[MASK]", "[P]"]
    # A text cannot contain special tokens.
    assert not {0, 1, 4, 6} & set(shuffled("[GO] the [MASK] fox [END] [P]").tolist())
    assert DietBertSentencePieceTokenizer.backbone_cls is DietBertBackbone


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["text", "empty", "truncated"])
def test_other_files_are_refused(tmp_path, kind):
    content = {"text": b"the fox\n" * 40, "empty": b"", "truncated": proto()[:300]}[kind]
    path = tmp_path / "model.spm"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"complete SentencePiece model.*{len(content)} bytes"):
        DietBertSentencePieceTokenizer(content)
    message = r"complete SentencePiece model.*`DietBertSentencePieceTokenizer\.from_texts"
    with pytest.raises(ValueError, match=message):
        DietBertSentencePieceTokenizer(path)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "options, message",
    [
        ({"pad_id": -1}, r"without pad token \(pad_id=-1\)"),
        ({"bos_id": -1}, r"without cls token \(bos_id=-1\)"),
        ({"eos_id": -1}, r"without sep token \(eos_id=-1\)"),
        ({"control_symbols": ["<mask>"]}, r"must have a token `\[MASK\]`.*control_symbols="),
    ],
    ids=str,
)
def test_models_without_a_special_token_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DietBertSentencePieceTokenizer.from_texts(ALL_TEXTS, 61, **options)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(ALL_TEXTS), model_writer=model, vocab_size=61, minloglevel=2
    )
    with pytest.raises(ValueError, match=r"without pad token .*`DietBertSent.*from_texts`"):
        DietBertSentencePieceTokenizer(model.getvalue())


@pytest.mark.any_backend
def test_configuration_and_files(tmp_path):
    tokenizer = DietBertSentencePieceTokenizer(
        proto("shuffled"), sequence_length=9, add_bos=True, dtype="int64", name="pieces"
    )
    tokenizer.save_to_preset(str(tmp_path))
    copy = DietBertSentencePieceTokenizer.from_config(
        json.loads(json.dumps(tokenizer.get_config()))
    )
    assert copy.get_config() == tokenizer.get_config()
    assert (copy.special_tokens, copy.mask_token_id) == ([], None)
    copy.load_preset_assets(str(tmp_path))
    assert copy.get_config() == tokenizer.get_config()
    assert ids(copy, ALL_TEXTS) == ids(tokenizer, ALL_TEXTS)
    assert ids(copy, ["a"])[0][0] == 4
    (tmp_path / "assets/tokenizer/vocabulary.spm").write_bytes(proto())
    with pytest.raises(ValueError, match="61 tokens, but 67 tokens were saved"):
        copy.load_preset_assets(str(tmp_path))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments", [{"add_bos": True}, {"add_eos": True}, {"sequence_length": 5}], ids=str
)
def test_preprocessors_refuse_tokenizers_that_pack(arguments):
    tokenizer = DietBertSentencePieceTokenizer(proto(), **arguments)
    name = next(iter(arguments))
    with pytest.raises(ValueError, match=rf"must not add special.*tokenizer\.{name}="):
        DietBertTextClassifierPreprocessor(tokenizer, sequence_length=LENGTH)(["the fox"])


# === Training ===


@pytest.mark.any_backend
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_training_gives_the_same_tokens_again(model_type):
    first, second = (
        DietBertSentencePieceTokenizer.from_texts(TEXTS, 61, model_type, seed=3) for _ in range(2)
    )
    assert first.proto == second.proto
    assert first.vocabulary_size() == 61


@pytest.mark.any_backend
def test_texts_of_languages_are_sampled(tmp_path):
    """Training on languages is training on the texts that `sample_languages` yields."""
    file = tmp_path / "en.txt"
    file.write_text("\n".join(TEXTS["en"]) + "\n", encoding="utf-8")
    options = {"vocabulary_size": 71, "model_type": "bpe", "character_coverage": 1.0}
    for exponent, seed in ((0.0, 0), (0.0, 5), (1.0, 0)):
        sampled = list(pretraining.sample_languages(TEXTS, exponent, seed))
        expected = DietBertSentencePieceTokenizer.from_texts(sampled, **options)
        for texts in (TEXTS, {**TEXTS, "en": file}, {**TEXTS, "en": [file]}):
            tokenizer = DietBertSentencePieceTokenizer.from_texts(
                texts, sampling_exponent=exponent, seed=seed, **options
            )
            assert tokenizer.get_vocabulary() == expected.get_vocabulary()
    everything = DietBertSentencePieceTokenizer.from_texts(ALL_TEXTS, **options)
    assert everything.get_vocabulary() == tokenizer.get_vocabulary()


@pytest.mark.any_backend
def test_files_with_line_ends_of_windows_give_the_same_tokens(tmp_path):
    options = {"vocabulary_size": 71, "model_type": "bpe", "character_coverage": 1.0}
    # The default normalization would remove a byte order mark.
    options["normalization_rule_name"] = "identity"
    expected = DietBertSentencePieceTokenizer.from_texts(ALL_TEXTS, **options)
    file = tmp_path / "texts.txt"
    file.write_bytes("\r\n".join(ALL_TEXTS).encode("utf-8-sig"))
    tokenizer = DietBertSentencePieceTokenizer.from_texts(file, **options)
    assert tokenizer.get_vocabulary() == expected.get_vocabulary()


@pytest.mark.any_backend
@pytest.mark.parametrize("in_language", [False, True])
def test_files_in_another_encoding_are_refused(tmp_path, in_language):
    file = tmp_path / "latin.txt"
    file.write_bytes("the fox\nschläft\n".encode("latin-1"))
    message = rf"`texts` must name UTF-8 files\. Received: '{file}', where line 2 is not UTF-8 at"
    with pytest.raises(ValueError, match=message):
        DietBertSentencePieceTokenizer.from_texts(
            {**TEXTS, "de": file} if in_language else [*ALL_TEXTS, file], 71
        )


@pytest.mark.any_backend
def test_a_part_of_the_texts_is_the_same_in_every_process():
    many = {
        language: [f"{text} {i}" for text in texts for i in range(20)]
        for language, texts in TEXTS.items()
    }
    options = {"vocabulary_size": 71, "model_type": "bpe", "character_coverage": 1.0}
    first = list(pretraining.sample_languages(many, 0.5, seed=3))[:101]
    expected = DietBertSentencePieceTokenizer.from_texts(first, **options)
    part = DietBertSentencePieceTokenizer.from_texts(
        many, input_sentence_size=101, seed=3, **options
    )
    assert part.get_vocabulary() == expected.get_vocabulary()
    everything = DietBertSentencePieceTokenizer.from_texts(many, seed=3, **options)
    assert part.get_vocabulary() != everything.get_vocabulary()


@pytest.mark.any_backend
def test_long_texts_are_read():
    """SentencePiece leaves out texts with more than 4192 bytes by default."""
    tokenizer = DietBertSentencePieceTokenizer.from_texts(["the fox", "zebra " * 1000], 20, "bpe")
    assert "▁zebra" in tokenizer.get_vocabulary()


@pytest.mark.any_backend
def test_small_exponents_give_small_languages_more_tokens():
    english, swahili = ["fox", "dog", "cat", "bird", "tree"], ["mbweha", "mbwa", "paka", "ndege"]
    texts = {"en": [f"{a} {b}" for a in english for b in english] * 5, "sw": [" ".join(swahili)]}
    found = {}
    for exponent in (1.0, 0.0):
        tokenizer = DietBertSentencePieceTokenizer.from_texts(
            texts, 40, "bpe", sampling_exponent=exponent
        )
        found[exponent] = {f"▁{word}" for word in swahili} & set(tokenizer.get_vocabulary())
    assert found == {1.0: set(), 0.0: {f"▁{word}" for word in swahili}}


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "texts, arguments, message",
    [
        (TEXTS, {}, r"at most \d+, because.*Received: vocabulary_size=120000"),
        (TEXTS, {"sampling_exponent": 1.5}, r"`sampling_exponent` must be a number in \[0, 1\]"),
        (TEXTS, {"model_type": "word"}, "must be one of 'bpe', 'unigram'"),
        ({}, {}, "`texts` must be a dictionary with a key for each language"),
        ({"en": iter(["fox"])}, {}, r"`texts\['en'\]` must be a list or a path.*read several"),
        ({"en": "fox"}, {}, "`texts` must be an iterable of strings.*Received: str"),
        ({"en": ["fox"], "de": ["Fuchs", None]}, {}, "Received: None in row 1"),
        ({"en": ["fox"], "de": []}, {}, r"`texts\['de'\]` must hold at least one text"),
    ],
)
def test_errors_of_training(texts, arguments, message):
    with pytest.raises(ValueError, match=message):
        DietBertSentencePieceTokenizer.from_texts(texts, **arguments)


# === Tasks and presets ===


def multilingual_task(task, **arguments):
    cls, preprocessor_cls, head = CLASSES[task]
    backbone = tiny_backbone(num_layers=1, vocabulary_size=SIZES["shuffled"] + 2, **arguments)
    preprocessor = preprocessor_cls(multilingual_tokenizer(), sequence_length=LENGTH)
    return randomize_weights(cls(backbone, preprocessor=preprocessor, **head))


def test_packed_inputs():
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


def test_masks():
    tokenizer = multilingual_tokenizer()
    preprocessor = DietBertMaskedLMPreprocessor(
        tokenizer,
        sequence_length=LENGTH,
        mask_selection_rate=1.0,
        mask_selection_length=11,
        mask_token_rate=1.0,
        random_token_rate=0.0,
    )
    inputs, labels, weights = preprocessor(["狗睡觉 œ fox"])
    tokens = ids(tokenizer, ["狗睡觉 œ fox"])[0]
    assert tokenizer.unk_token_id in tokens
    kept = [token for token in tokens if token != tokenizer.unk_token_id]
    assert to_numpy(labels)[0, : len(kept)].tolist() == kept
    assert to_numpy(weights)[0].tolist() == [1] * len(kept) + [0] * (11 - len(kept))
    masked = [token if token == 2 else 1 for token in tokens]
    assert to_numpy(inputs["token_ids"])[0, : len(tokens) + 2].tolist() == [4, *masked, 0]


@pytest.mark.parametrize("task", TASKS)
def test_tasks_and_presets(tmp_path, task):
    """KerasHub takes any tokenizer of a backbone class, and must load the class that was saved."""
    model = multilingual_task(task)
    texts = ["the fox sleeps", "der Hund 狗"]

    def results(model):
        if task == "masked_lm":
            return [found["probability"] for found in model.fill_mask("the quick [MASK]", top_k=3)]
        if task == "embedder":
            return model.encode_text(texts, verbose=0)
        return model.predict(texts, verbose=0)

    expected = results(model)
    model.save_to_preset(str(tmp_path))
    base = next(base for base in type(model).__mro__ if base.__module__.startswith("keras_hub."))
    for cls in (type(model), base):
        loaded = cls.from_preset(str(tmp_path))
        assert type(loaded.preprocessor.tokenizer) is DietBertSentencePieceTokenizer
        assert_close(results(loaded), expected, 1e-5)
    preprocessor = type(model.preprocessor).from_preset(str(tmp_path))
    assert type(preprocessor.tokenizer) is DietBertSentencePieceTokenizer
    assert_close(results(layers.cache_positions(model)), expected, 1e-5)


@pytest.mark.any_backend
def test_presets_keep_the_class_of_the_tokenizer(tmp_path):
    tokenizers = {"pieces": multilingual_tokenizer(), "words": DietBertTokenizer(VOCABULARY)}
    for name, tokenizer in tokenizers.items():
        tiny_backbone().save_to_preset(tmp_path / name)
        tokenizer.save_to_preset(str(tmp_path / name))
        for base in (keras_hub.models.Tokenizer, type(tokenizer)):
            loaded = base.from_preset(str(tmp_path / name))
            assert type(loaded) is type(tokenizer)
            assert loaded.get_vocabulary() == tokenizer.get_vocabulary()
        # A preprocessor that was not saved takes the tokenizer of the preset.
        preprocessor = DietBertTextClassifierPreprocessor.from_preset(str(tmp_path / name))
        assert type(preprocessor.tokenizer) is type(tokenizer)
    other = "must have a `DietBertTokenizer`.*with a `DietBertSentencePieceTokenizer`. Load it"
    with pytest.raises(ValueError, match=other):
        DietBertTokenizer.from_preset(str(tmp_path / "pieces"))
    with pytest.raises(ValueError, match="with a `DietBertTokenizer`"):
        DietBertSentencePieceTokenizer.from_preset(tmp_path / "words")


@pytest.mark.any_backend
def test_texts_of_filled_masks():
    """A token that begins no word continues the word before."""
    model = multilingual_task("masked_lm")
    tokenizer = model.preprocessor.tokenizer
    found = model.fill_mask("the qu [MASK] fox", top_k=SIZES["shuffled"])
    texts = {result["token"]: result["text"] for result in found}
    assert len(texts) == SIZES["shuffled"]
    words = [token for token in tokenizer.get_vocabulary() if len(token.strip("▁")) > 1]
    assert {word.startswith("▁") for word in words} == {True, False}
    for token in words:
        word = token.removeprefix("▁")
        expected = f"the qu {word} fox" if token.startswith("▁") else f"the qu{word} fox"
        assert texts[token] == expected
