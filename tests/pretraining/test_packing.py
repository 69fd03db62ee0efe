"""Full sentences in sequences of one length, and files of them."""

import os
import tempfile
import weakref

import keras_hub
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.pretraining import (
    number_documents,
    pack_sentences,
    pack_text_files,
    write_packed,
)

pytestmark = pytest.mark.any_backend

PAD, CLS, SEP = 0, 2, 3
WORDS = [2 * chr(code) for code in range(ord("a"), ord("x"))]
TOKENIZER = keras_hub.models.BertTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "."], lowercase=True
)


def pack(documents, tokenizer, length, **options):
    return list(pack_sentences(documents, tokenizer, length, **options))


def words(sequences, tokenizer):
    return [" ".join(map(tokenizer.id_to_token, sequence)) for sequence in sequences]


@pytest.mark.parametrize("pad", [0, 90])
def test_documents_of_a_sequence(tokenizer, pad):
    documents = [["aa"], ["bb cc"], ["dd ee ff gg hh ii jj kk ll", "mm"], ["nn"]]
    sequences = pack(documents, tokenizer, 9, document_masks=True)
    assert words(sequences, tokenizer) == [
        "[CLS] aa [SEP] [CLS] bb cc [SEP] [PAD] [PAD]",
        "[CLS] dd ee ff gg hh ii jj [SEP]",
        # The second separator and its token would fit without `[CLS]`.
        "[CLS] kk ll mm [SEP] [CLS] nn [SEP] [PAD]",
    ]
    token_ids = np.where(np.stack(sequences) == PAD, pad, np.stack(sequences))
    ids = number_documents(token_ids, SEP, pad)
    assert ids.dtype == "int32"
    assert ids.tolist() == [
        [1, 1, 1, 2, 2, 2, 2, 0, 0],
        [1] * 9,
        [1, 1, 1, 1, 1, 2, 2, 2, 0],
    ]
    # Padding inside of a text belongs to its document.
    ids = number_documents([CLS, 9, SEP, 8, PAD, SEP, 7, SEP, PAD], SEP)
    assert ids.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 0]


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    length=st.integers(3, 31),
    call=st.sampled_from([1, 3, 1024]),
    documents=st.lists(
        st.lists(
            st.lists(st.sampled_from([*WORDS, "\u200b", "zz"]), max_size=40).map(" ".join),
            max_size=5,
        ),
        max_size=9,
    ),
)
def test_unpacking_gives_the_sentences(length, call, documents):
    """No token is lost, whatever the sentences are, and no sequence ends too early."""
    lines = [(i, TOKENIZER(x).tolist()) for i, document in enumerate(documents) for x in document]
    lines = [(i, tokens) for i, tokens in lines if tokens]
    # Where each sentence begins, its document, and its number of tokens.
    starts = np.cumsum([0, *(len(tokens) for _, tokens in lines)]).tolist()
    sentences = {start: (i, len(x)) for start, (i, x) in zip(starts, lines, strict=False)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_diet.pretraining.packing._SENTENCES_PER_CALL", call)
        sequences = pack(documents, TOKENIZER, length)
    found, document, free = [], -1, 0
    for sequence in sequences:
        assert (sequence.dtype, sequence.shape) == ("int32", (length,))
        end = int(np.flatnonzero(sequence != PAD)[-1])
        assert (sequence[0], sequence[end]) == (CLS, SEP)
        # The sentence before a border had no more room, and a long one has filled its sequence.
        following, size = sentences.get(len(found), (document, 1))
        assert free < size + (following != document) or not found
        for place, token in enumerate(sequence[1:end].tolist()):
            if token == SEP:
                # A separator stands before each document that does not start a sequence.
                assert place > 0
                assert sentences[len(found)][0] != document
                document = sentences[len(found)][0]
                continue
            following, _ = sentences.get(len(found), (document, 1))
            assert following == document or place == 0
            document = following
            found.append(token)
        free = length - 1 - end
    assert found == [token for _, tokens in lines for token in tokens]


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


@settings(deadline=None, max_examples=20, derandomize=True)
@given(num_rows=st.sampled_from([1, 7, 99, 101, 12_345]), length=st.integers(1, 5))
def test_numpy_reads_the_written_file(num_rows, length):
    """The header has room for any number of rows."""
    rows = np.random.default_rng(num_rows).integers(0, 2**31 - 1, (num_rows, length))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens.npy")
        assert write_packed(iter(rows), path, length, show_progress=False) == num_rows
        loaded = np.load(path, mmap_mode="r")
        assert isinstance(loaded, np.memmap)
        assert loaded.dtype == "int32"
        np.testing.assert_array_equal(loaded, rows)
        assert os.listdir(folder) == ["tokens.npy"]


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
    tokens = pack_text_files(paths, tokenizer, 9, tmp_path / "tokens.npy", document_masks=True)
    assert words(tokens, tokenizer)[1] == "[CLS] ee ff . [SEP] [CLS] gg . [SEP]"


@pytest.mark.parametrize(
    "vocabulary_size, dtype",
    [(None, "int32"), (100, "uint16"), (2**16, "uint16"), (2**16 + 1, "int32")],
)
def test_ids_and_errors_of_files(tmp_path, vocabulary_size, dtype):
    """After an error or an interruption, the folder is as it was."""
    path = tmp_path / "tokens.npy"
    top = min(vocabulary_size or 2**31, 2**31) - 1
    write_packed([np.array([0, top])], path, 2, vocabulary_size, show_progress=False)
    assert np.load(path).dtype == dtype
    for wrong in ([0, top + 1], [-1, 0], [0.0, 1.0], [0, 1, 2], [[0, 1]]):
        with pytest.raises(ValueError, match="`sequences` must be integer arrays"):
            write_packed([[0, 1], wrong], path, 2, vocabulary_size, show_progress=False)

    def interrupted():
        yield np.array([0, 1])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_packed(interrupted(), path, 2, show_progress=False)
    assert os.listdir(tmp_path) == ["tokens.npy"]
    assert np.load(path).tolist() == [[0, top]]
