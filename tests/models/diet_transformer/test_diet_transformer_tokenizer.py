"""`DietTransformerTokenizer`: SentencePiece with special tokens that the model names."""

import io
import json

import numpy as np
import pytest
import sentencepiece

from keras_diet.models import DietTransformerTokenizer
from tests.models.diet_transformer.pairs import SHUFFLED, SOURCES, TARGETS

TEXTS = SOURCES + TARGETS
HARD_TEXTS = ["", "  the\tquick\nfox ", "THE FOX", "½ … ﬁ", "猫 cat猫", "<s> the </s> fox <pad>"]


def ids(tokenizer, texts):
    return [np.asarray(tokenizer(text)).tolist() for text in texts]


def test_ids_are_those_of_sentencepiece(tokenizer):
    expected = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    texts = TEXTS + HARD_TEXTS
    assert ids(tokenizer, texts) == [expected.encode(text) for text in texts]
    assert tokenizer(texts) == expected.encode(texts)
    assert tokenizer.vocabulary_size() == expected.vocab_size() > 50
    assert tokenizer.detokenize(tokenizer(TEXTS)) == TEXTS


@pytest.mark.any_backend
def test_special_tokens(proto, shuffled_proto):
    default, shuffled = DietTransformerTokenizer(proto), DietTransformerTokenizer(shuffled_proto)
    tokens = {"pad": "<pad>", "unk": "<unk>", "start": "<s>", "end": "</s>"}
    for expected_id, (name, token) in enumerate(tokens.items()):
        assert getattr(default, f"{name}_token") == token
        assert getattr(default, f"{name}_token_id") == expected_id
    for name, piece in {"pad": "pad", "unk": "unk", "start": "bos", "end": "eos"}.items():
        assert getattr(shuffled, f"{name}_token") == SHUFFLED[f"{piece}_piece"]
        assert getattr(shuffled, f"{name}_token_id") == SHUFFLED[f"{piece}_id"]
    assert sorted(shuffled.special_token_ids) == [0, 3, 5, 7]
    assert sorted(shuffled.special_tokens) == ["[?]", "[END]", "[GO]", "[P]"]
    # A text cannot contain special tokens.
    assert not {0, 5, 7} & set(shuffled("[GO] the [END] fox [P]").tolist())


@pytest.mark.any_backend
def test_models_from_files(tmp_path, proto):
    path = tmp_path / "model.spm"
    path.write_bytes(proto)
    for argument in (path, str(path), proto):
        assert DietTransformerTokenizer(argument).proto == proto


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["text", "empty", "truncated"])
def test_other_files_are_refused(tmp_path, proto, kind):
    content = {"text": b"the fox\n" * 40, "empty": b"", "truncated": proto[:300]}[kind]
    path = tmp_path / "model.spm"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"complete SentencePiece model.*{len(content)} bytes"):
        DietTransformerTokenizer(content)
    with pytest.raises(
        ValueError, match=r"complete SentencePiece model.*`DietTransformerT.*from_texts"
    ):
        DietTransformerTokenizer(path)


@pytest.mark.any_backend
@pytest.mark.parametrize("name, piece", [("pad", "pad"), ("start", "bos"), ("end", "eos")])
def test_models_without_a_special_token_are_refused(name, piece):
    model = io.BytesIO()
    arguments = {"pad_id": 3, f"{piece}_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=50, minloglevel=2, **arguments
    )
    with pytest.raises(ValueError, match=rf"without {name} token \({piece}_id=-1\).*from_texts"):
        DietTransformerTokenizer(model.getvalue())


@pytest.mark.any_backend
def test_configuration_and_files(tmp_path, shuffled_proto):
    tokenizer = DietTransformerTokenizer(
        shuffled_proto, sequence_length=9, add_bos=True, dtype="int64", name="pieces"
    )
    tokenizer.save_to_preset(str(tmp_path))
    copy = DietTransformerTokenizer.from_config(json.loads(json.dumps(tokenizer.get_config())))
    assert copy.get_config() == tokenizer.get_config()
    assert (copy.special_tokens, copy.pad_token_id) == ([], None)
    copy.load_preset_assets(str(tmp_path))
    assert copy.get_config() == tokenizer.get_config()
    assert ids(copy, TEXTS) == ids(tokenizer, TEXTS)
    # The start token comes first, and padding last.
    assert ids(copy, ["a"])[0][0] == 5
    assert ids(copy, ["a"])[0][-1] == 7
    assert copy.name == "pieces"


@pytest.mark.any_backend
def test_a_changed_file_is_refused(tmp_path, proto, shuffled_proto):
    tokenizer = DietTransformerTokenizer(proto)
    tokenizer.save_to_preset(str(tmp_path))
    (tmp_path / "assets/tokenizer/vocabulary.spm").write_bytes(shuffled_proto)
    with pytest.raises(ValueError, match="59 tokens, but 61 tokens were saved"):
        DietTransformerTokenizer.from_config(tokenizer.get_config()).load_preset_assets(
            str(tmp_path)
        )


# === Training ===


@pytest.mark.any_backend
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_training_gives_the_same_tokens_again(model_type, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (
        DietTransformerTokenizer.from_texts(iter(TEXTS), 61, model_type, character_coverage=1.0)
        for _ in range(2)
    )
    assert first.proto == second.proto
    assert first.vocabulary_size() == 61
    assert list(tmp_path.iterdir()) == []


@pytest.mark.any_backend
def test_model_types(proto):
    unigram = DietTransformerTokenizer.from_texts(TEXTS, 61, "unigram")
    assert unigram.get_vocabulary() != DietTransformerTokenizer(proto).get_vocabulary()
    assert DietTransformerTokenizer.from_texts(TEXTS, 61, "bpe").proto == proto
    assert DietTransformerTokenizer.from_texts(TEXTS, 61).proto == proto


@pytest.mark.any_backend
def test_files_are_read_by_line(tmp_path, proto):
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    source.write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    target.write_text("\n".join(TARGETS), encoding="utf-8")
    assert DietTransformerTokenizer.from_texts([source, target], 61).proto == proto
    assert DietTransformerTokenizer.from_texts([source, *TARGETS], 61).proto == proto
    one_file = DietTransformerTokenizer.from_texts(source, 40)
    assert one_file.proto == DietTransformerTokenizer.from_texts(SOURCES, 40).proto


@pytest.mark.any_backend
def test_long_texts_are_not_left_out():
    tokenizer = DietTransformerTokenizer.from_texts(["fox " * 3000, "zebra"], 14)
    assert "▁fox" in tokenizer.get_vocabulary()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "texts, arguments, message",
    [
        (TEXTS, {"vocabulary_size": 9000}, r"at most \d+, because.*Received: vocabulary_size=9000"),
        (TEXTS, {"vocabulary_size": 9}, r"at least \d+, the number of char.*vocabulary_size=9\."),
        (TEXTS, {"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
        (TEXTS, {"model_type": "word"}, "must be one of 'bpe', 'unigram'. Received: .*'word'"),
        (TEXTS, {"vocabulary_size": 61, "pad": 3}, "SentencePiece cannot train.*unknown.*pad"),
        (TEXTS, {"model_prefix": "x"}, "`model_prefix` must be left out"),
        (TEXTS, {"vocabulary_size": 61, "pad_id": -1}, "without pad token"),
        ([], {}, "at least one text that is not empty"),
        ([" ", ""], {}, "at least one text that is not empty"),
        ("the fox", {}, "`texts` must be an iterable of strings, or of paths.*Received: str"),
        (["the fox", None], {}, "Received: None in row 1"),
    ],
    ids=str,
)
def test_errors(texts, arguments, message):
    with pytest.raises(ValueError, match=message):
        DietTransformerTokenizer.from_texts(texts, **arguments)


@pytest.mark.any_backend
def test_sizes_in_errors_work():
    with pytest.raises(ValueError, match="at least") as error:
        DietTransformerTokenizer.from_texts(TEXTS, 9)
    smallest = int(str(error.value).split("at least ")[1].split(",")[0])
    assert DietTransformerTokenizer.from_texts(TEXTS, smallest).vocabulary_size() == smallest
    with pytest.raises(ValueError, match="at most") as error:
        DietTransformerTokenizer.from_texts(TEXTS, 9000)
    largest = int(str(error.value).split("at most ")[1].split(",")[0])
    assert DietTransformerTokenizer.from_texts(TEXTS, largest).vocabulary_size() == largest


@pytest.mark.any_backend
def test_a_missing_file_is_named(tmp_path):
    for texts in (tmp_path / "train.en", [*TEXTS, tmp_path / "train.en"]):
        with pytest.raises(FileNotFoundError, match=r"train\.en"):
            DietTransformerTokenizer.from_texts(texts)
