"""Text files become documents, and paragraphs become sentences."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.pretraining import read_documents, split_sentences, text

pytestmark = pytest.mark.any_backend


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content, documents",
    [
        ("\n\none\n two \n \t\n\nthree\n", [["one", "two"], ["three"]]),
        # The marks of WikiExtractor separate documents, and blank lines do not.
        (
            '\n<doc id="1">\nA\n\nFirst.\n</doc>\n<doc id="2">\nB\n<b>\n</doc>\noutside\n',
            [["A", "First."], ["B", "<b>"], ["outside"]],
        ),
        # Marks are text in a file that does not start with one.
        ("intro\n<doc 1>\n\n</doc>\n", [["intro", "<doc 1>"], ["</doc>"]]),
        # White space, byte order marks and the lines of Windows.
        ("\ufeff10\u00a0km \t far\r\n\r\n\u3000b\u2009c\r\n", [["10 km far"], ["b c"]]),
    ],
    ids=["plain", "WikiExtractor", "marks", "white space"],
)
def test_documents_of_a_file(tmp_path, content, documents):
    assert list(read_documents(write(tmp_path / "a.txt", content))) == documents


def test_files_are_read_in_the_given_order_and_end_a_document(tmp_path):
    second = write(tmp_path / "1.txt", "second")
    first = write(tmp_path / "2.txt", "first\n")
    assert list(read_documents([str(first), second])) == [["first"], ["second"]]


def test_long_documents_are_split_into_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_MAX_DOCUMENT_LINES", 3)
    path = write(tmp_path / "a.txt", "\n".join("abcdefg") + "\n\nh\n")
    assert list(read_documents(path)) == [[*"abc"], [*"def"], ["g"], ["h"]]


def test_files_are_streamed(tmp_path):
    good = write(tmp_path / "good.txt", "one\n\ntwo\n")
    bad = write(tmp_path / "latin.txt", b"good\ncaf\xe9 au lait\n")
    documents = read_documents([good, bad])
    assert [next(documents), next(documents)] == [["one"], ["two"]]
    with pytest.raises(ValueError, match=r"latin\.txt.*line 2 is not UTF-8 at byte 3"):
        next(documents)
    # Files that cannot be opened are found before the others are read.
    with pytest.raises(FileNotFoundError, match=r"absent\.txt"):
        read_documents([good, tmp_path / "absent.txt"])
    with pytest.raises(IsADirectoryError):
        read_documents([good, tmp_path])


@pytest.mark.parametrize("content", ["", " \n\n\t\n", "<doc id='1'>\n\n</doc>\n"])
def test_files_without_text(tmp_path, content):
    path = write(tmp_path / "empty.txt", content)
    assert list(read_documents([path, path])) == []


@pytest.mark.parametrize(
    "paragraph, sentences",
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("", []),
        ("  no end mark ", ["no end mark"]),
        ('He said "Stop." (Twice.) Then', ['He said "Stop."', "(Twice.)", "Then"]),
        ("J. Smith met Dr. No in the U.S. Army.", ["J. Smith met Dr. No in the U.S. Army."]),
        (
            "Mr. A, Mrs. B, Ms. C, Prof. D, St. E. Xmr. F",
            ["Mr. A, Mrs. B, Ms. C, Prof. D, St. E. Xmr.", "F"],
        ),
        ("He has 3. She has 4. Xy. Z", ["He has 3.", "She has 4.", "Xy.", "Z"]),
        ("approx. five etc. but not 3.14 or a.b", ["approx. five etc. but not 3.14 or a.b"]),
        ("Wait... What?! Yes.", ["Wait...", "What?!", "Yes."]),
        ("他来了。她走了！“真的？”对。", ["他来了。", "她走了！", "“真的？”", "对。"]),  # noqa: RUF001
    ],
)
def test_split_sentences(paragraph, sentences):
    assert split_sentences(paragraph) == sentences


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.text(st.one_of(st.characters(), st.sampled_from(' .!?…。aA")\u00a0'))))
def test_splitting_loses_nothing_but_white_space(paragraph):
    sentences = split_sentences(paragraph)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


def test_long_paragraphs():
    paragraph = "A sentence of words. " * 50_000
    assert len(split_sentences(paragraph)) == 50_000
