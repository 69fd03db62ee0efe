import os
import weakref

import keras_hub
import numpy as np
import pytest

from keras_diet.pretraining import (
    pack_sentences,
    pack_text_files,
    read_documents,
    split_sentences,
    write_packed,
)

pytestmark = pytest.mark.any_backend

PAD, CLS, SEP = 0, 2, 3
WORDS = [2 * chr(code) for code in range(ord("a"), ord("x"))]


def pack(documents, tokenizer, length):
    return list(pack_sentences(documents, tokenizer, length))


def words(sequences, tokenizer):
    return [" ".join(map(tokenizer.id_to_token, sequence)) for sequence in sequences]


def random_documents(seed, num_documents=40):
    """Lines of up to four sentences of 2 to 29 tokens, in uneven documents."""
    rng = np.random.default_rng(seed)

    def sentence():
        return " ".join(rng.choice(WORDS, rng.integers(1, 29))) + "."

    def line():
        return " ".join(sentence().capitalize() for _ in range(rng.integers(0, 5)))

    return [[line() for _ in range(rng.integers(1, 4))] for _ in range(num_documents)]


def tokens_of_sentences(documents, tokenizer):
    sentences = [s for document in documents for line in document for s in split_sentences(line)]
    return [token for tokens in tokenizer(sentences) for token in tokens]


def test_sentences_fill_sequences_in_order(tokenizer):
    documents = [["aa bb. Cc dd ee. Ff."], ["gg."]]
    assert words(pack(documents, tokenizer, 9), tokenizer) == [
        "[CLS] aa bb . cc dd ee . [SEP]",
        "[CLS] ff . [SEP] gg . [SEP] [PAD] [PAD]",
    ]


def test_a_document_that_starts_a_sequence_has_no_separator(tokenizer):
    assert words(pack([["aa bb cc"], ["dd ee ff"]], tokenizer, 5), tokenizer) == [
        "[CLS] aa bb cc [SEP]",
        "[CLS] dd ee ff [SEP]",
    ]


def test_the_separator_takes_a_place(tokenizer):
    assert len(pack([["aa bb", "cc"]], tokenizer, 5)) == 1
    assert len(pack([["aa bb"], ["cc"]], tokenizer, 5)) == 2
    assert len(pack([["aa bb"], ["cc"]], tokenizer, 6)) == 1


def test_long_sentences_are_cut_into_full_pieces(tokenizer):
    documents = [["aa"], ["bb cc dd ee ff gg hh", "ii"]]
    assert words(pack(documents, tokenizer, 5), tokenizer) == [
        "[CLS] aa [SEP] [PAD] [PAD]",
        "[CLS] bb cc dd [SEP]",
        "[CLS] ee ff gg [SEP]",
        "[CLS] hh ii [SEP] [PAD]",
    ]


def test_a_long_sentence_that_fills_its_pieces_leaves_no_empty_sequence(tokenizer):
    assert words(pack([["aa bb cc dd"]], tokenizer, 4), tokenizer) == [
        "[CLS] aa bb [SEP]",
        "[CLS] cc dd [SEP]",
    ]


def test_sentences_without_tokens_are_skipped(tokenizer):
    documents = [["aa", "\u200b"], ["\u200b", "bb"], ["\u200b"], []]
    assert words(pack(documents, tokenizer, 7), tokenizer) == [
        "[CLS] aa [SEP] bb [SEP] [PAD] [PAD]"
    ]


@pytest.mark.parametrize("length", [3, 4, 7, 13, 31, 64, 1000])
def test_no_token_is_lost(tokenizer, length):
    documents = random_documents(length)
    sequences = np.stack(pack(documents, tokenizer, length))
    assert sequences.dtype == "int32"
    assert sequences.shape[1] == length
    flat = sequences[(sequences != PAD) & (sequences != CLS) & (sequences != SEP)]
    assert flat.tolist() == tokens_of_sentences(documents, tokenizer)
    assert (sequences[:, 0] == CLS).all()
    for sequence in sequences:
        end = np.flatnonzero(sequence != PAD)[-1]
        assert sequence[end] == SEP
        assert (sequence[end:-1] == SEP).sum() <= 1
        assert (sequence != CLS)[1:].all()


def test_sequences_are_full(tokenizer):
    documents = random_documents(0)
    sequences = pack(documents, tokenizer, 64)
    # A sentence has at most 29 tokens, so at most 29 places and the place of a separator are free.
    assert min((sequence != PAD).sum() for sequence in sequences[:-1]) >= 64 - 30
    assert sum(SEP in sequence[1:-1].tolist() for sequence in sequences) > len(sequences) / 2


def test_calls_of_the_tokenizer_do_not_change_the_sequences(tokenizer, monkeypatch):
    documents = random_documents(1)
    whole = pack(documents, tokenizer, 20)
    monkeypatch.setattr("keras_diet.pretraining.packing._SENTENCES_PER_CALL", 3)
    np.testing.assert_array_equal(pack(documents, tokenizer, 20), whole)


class Document(list):
    """A document that tells whether it is still in memory."""


def test_packing_keeps_one_document_and_one_call_of_sentences(tokenizer, monkeypatch):
    monkeypatch.setattr("keras_diet.pretraining.packing._SENTENCES_PER_CALL", 6)
    references = []

    def documents():
        for _ in range(50):
            document = Document(["aa bb cc."] * 3)
            references.append(weakref.ref(document))
            yield document

    # A sequence holds one sentence, so each call of the tokenizer gives six sequences.
    for number, _ in enumerate(pack_sentences(documents(), tokenizer, 6)):
        assert len(references) <= 2 * ((number + 1) // 6 + 1)
        alive = sum(reference() is not None for reference in references)
        assert alive <= 2
    assert number == 149


def test_writing_keeps_one_sequence(tmp_path):
    references = []

    def sequences():
        for number in range(20):
            assert sum(reference() is not None for reference in references) <= 1
            sequence = np.array([number, 1])
            references.append(weakref.ref(sequence))
            yield sequence

    assert write_packed(sequences(), tmp_path / "tokens.npy", 2, show_progress=False) == 20


def test_special_tokens_may_have_any_id(shifted_tokenizer):
    documents = [["aa bb. Cc"], ["ee"]]
    (sequence,) = pack(documents, shifted_tokenizer, 11)
    cls, sep, pad = (shifted_tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]", "[PAD]"))
    unknown = shifted_tokenizer.token_to_id("[UNK]")
    assert pad == 7
    assert sequence.tolist() == [cls, 0, 1, unknown, 3, sep, 9, sep, pad, pad, pad]


def test_numpy_reads_the_written_file(tmp_path):
    rows = np.arange(35).reshape(7, 5)
    path = tmp_path / "tokens.npy"
    assert write_packed(iter(rows), path, 5, show_progress=False) == 7
    loaded = np.load(path, mmap_mode="r")
    assert isinstance(loaded, np.memmap)
    assert loaded.dtype == "int32"
    np.testing.assert_array_equal(loaded, rows)
    assert os.listdir(tmp_path) == ["tokens.npy"]


@pytest.mark.parametrize(
    "vocabulary_size, dtype",
    [(None, "int32"), (100, "uint16"), (2**16, "uint16"), (2**16 + 1, "int32")],
)
def test_storage_type(tmp_path, vocabulary_size, dtype):
    path = tmp_path / "tokens.npy"
    top = min(vocabulary_size or 2**31, 2**31) - 1
    write_packed([np.array([0, top])], path, 2, vocabulary_size, show_progress=False)
    assert np.load(path).dtype == dtype
    assert np.load(path).tolist() == [[0, top]]


def test_header_has_room_for_any_number_of_rows(tmp_path):
    path = tmp_path / "tokens.npy"
    write_packed((np.array([7]) for _ in range(12_345)), path, 1, 10, show_progress=False)
    assert np.load(path).shape == (12_345, 1)
    assert (np.load(path) == 7).all()


def test_interrupted_run_leaves_only_the_old_file(tmp_path):
    path = tmp_path / "tokens.npy"
    write_packed([np.array([1, 2])], path, 2, show_progress=False)

    def interrupted():
        yield np.array([3, 4])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_packed(interrupted(), path, 2, show_progress=False)
    assert os.listdir(tmp_path) == ["tokens.npy"]
    assert np.load(path).tolist() == [[1, 2]]


def test_pack_text_files(tokenizer, tmp_path, capfd):
    (tmp_path / "1.txt").write_text("aa bb. Cc dd.\n")
    (tmp_path / "2.txt").write_text("ee ff.\n\ngg.\n")
    paths = [tmp_path / "1.txt", str(tmp_path / "2.txt")]
    tokens = pack_text_files(paths, tokenizer, 9, tmp_path / "tokens.npy", show_progress=False)
    assert isinstance(tokens, np.memmap)
    assert not tokens.flags.writeable
    assert tokens.dtype == "uint16"
    assert capfd.readouterr() == ("", "")
    assert words(tokens, tokenizer) == [
        "[CLS] aa bb . cc dd . [SEP] [PAD]",
        "[CLS] ee ff . [SEP] gg . [SEP] [PAD]",
    ]


def test_progress_is_shown_when_wanted(tmp_path, capfd):
    write_packed([np.array([1])], tmp_path / "tokens.npy", 1)
    assert "1/1" in capfd.readouterr().err


def test_wikipedia_loses_no_token(wikipedia, tokenizer):
    documents = list(read_documents(wikipedia / "valid" / "AB_wiki_95.txt"))[:10]
    sequences = np.stack(pack(documents, tokenizer, 128))
    flat = sequences[(sequences != PAD) & (sequences != CLS) & (sequences != SEP)]
    assert flat.tolist() == tokens_of_sentences(documents, tokenizer)
    # Ten documents end at most nine times within a sequence.
    assert (sequences == SEP).sum() <= len(sequences) + 9
    assert (sequences == PAD).mean() < 0.15


def test_short_sequences_are_refused(tokenizer):
    with pytest.raises(ValueError, match=r"`sequence_length` must be at least 3.*=2"):
        pack_sentences([], tokenizer, 2)
    with pytest.raises(ValueError, match="`sequence_length` must be a positive integer"):
        pack_sentences([], tokenizer, 8.0)


def test_tokenizers_that_do_not_fit_are_refused():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "aa"]
    plain = keras_hub.tokenizers.WordPieceTokenizer(vocabulary)
    with pytest.raises(ValueError, match="`tokenizer` must have `cls_token_id`"):
        pack_sentences([], plain, 8)
    truncating = keras_hub.models.BertTokenizer(vocabulary, sequence_length=4)
    with pytest.raises(ValueError, match=r"must not pad or truncate.*sequence_length=4"):
        pack_sentences([], truncating, 8)
    strings = keras_hub.models.BertTokenizer(vocabulary, dtype="string")
    with pytest.raises(ValueError, match="`tokenizer` must return integers"):
        pack_sentences([], strings, 8)


def test_documents_must_be_lists_of_lines(tokenizer):
    with pytest.raises(ValueError, match="`documents` must contain lists of lines"):
        pack(["a document"], tokenizer, 8)


def test_nothing_to_write(tmp_path):
    with pytest.raises(ValueError, match="`sequences` must contain at least one sequence"):
        write_packed([], tmp_path / "tokens.npy", 5, show_progress=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "row, message",
    [
        (np.array([1, 2]), r"shape \(3,\).*shape=\(2,\)"),
        (np.array([1.0, 2.0, 3.0]), "dtype=float64"),
        (np.array([1, 2, 10]), r"\[0, 10\).*from 1 to 10"),
        (np.array([-1, 2, 3]), r"\[0, 10\).*from -1 to 3"),
    ],
)
def test_bad_sequences(tmp_path, row, message):
    with pytest.raises(ValueError, match=message):
        write_packed([row], tmp_path / "tokens.npy", 3, 10, show_progress=False)
    assert os.listdir(tmp_path) == []


def test_bad_output_paths(tmp_path):
    rows = [np.array([1])]
    for path in (tmp_path, tmp_path / "absent" / "tokens.npy"):
        with pytest.raises(ValueError, match="a file in an existing folder"):
            write_packed(rows, path, 1, show_progress=False)
