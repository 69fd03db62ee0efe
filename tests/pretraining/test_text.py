import pytest

from keras_diet.pretraining import read_documents, split_sentences, text

pytestmark = pytest.mark.any_backend


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_blank_lines_separate_documents(tmp_path):
    path = write(tmp_path / "a.txt", "\n\none\n two \n \t\n\nthree\n")
    assert list(read_documents([path])) == [["one", "two"], ["three"]]


def test_wikiextractor_marks_separate_documents_and_blank_lines_do_not(tmp_path):
    path = write(
        tmp_path / "wiki",
        '\n<doc id="1" title="A">\nA\n\nFirst.\n</doc>\n<doc id="2">\nB\n<b>\n</doc>\noutside\n',
    )
    assert list(read_documents(path)) == [["A", "First."], ["B", "<b>"], ["outside"]]


def test_marks_are_text_in_a_file_that_does_not_start_with_one(tmp_path):
    path = write(tmp_path / "a.txt", "intro\n<doc 1>\n\n</doc>\n")
    assert list(read_documents(path)) == [["intro", "<doc 1>"], ["</doc>"]]


def test_files_are_read_in_the_given_order_and_end_a_document(tmp_path):
    second = write(tmp_path / "1.txt", "second")
    first = write(tmp_path / "2.txt", "first\n")
    assert list(read_documents([str(first), second])) == [["first"], ["second"]]


def test_white_space_byte_order_marks_and_windows_lines_are_normalized(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeff10\u00a0km \t far\r\n\r\n\u3000b\u2009c\r\n")
    assert list(read_documents(path)) == [["10 km far"], ["b c"]]


def test_long_documents_are_split_into_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_MAX_DOCUMENT_LINES", 3)
    path = write(tmp_path / "a.txt", "\n".join("abcdefg") + "\n\nh\n")
    assert list(read_documents(path)) == [[*"abc"], [*"def"], ["g"], ["h"]]


def test_files_are_streamed(tmp_path):
    good = write(tmp_path / "good.txt", "one\n\ntwo\n")
    bad = write(tmp_path / "bad.txt", b"\xff\n")
    documents = read_documents([good, bad])
    assert [next(documents), next(documents)] == [["one"], ["two"]]
    with pytest.raises(ValueError, match="UTF-8"):
        next(documents)


def test_no_paths():
    with pytest.raises(ValueError, match="`paths` must name at least one text file"):
        read_documents([])


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"absent\.txt.*does not exist"):
        read_documents([tmp_path / "absent.txt"])


def test_directory(tmp_path):
    with pytest.raises(ValueError, match="is a directory"):
        read_documents(tmp_path)


def test_not_utf8_names_file_line_and_byte(tmp_path):
    path = write(tmp_path / "latin.txt", b"good\ncaf\xe9 au lait\n")
    with pytest.raises(ValueError, match=r"latin\.txt.*line 2 is not UTF-8 at byte 3"):
        list(read_documents(path))


@pytest.mark.parametrize("content", ["", " \n\n\t\n", "<doc id='1'>\n\n</doc>\n"])
def test_empty_training_text(tmp_path, content):
    path = write(tmp_path / "empty.txt", content)
    with pytest.raises(ValueError, match=r"Empty training text.*empty\.txt"):
        list(read_documents([path, path]))


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


def test_long_paragraphs():
    paragraph = "A sentence of words. " * 50_000
    assert len(split_sentences(paragraph)) == 50_000


def test_split_sentences_takes_strings_only():
    with pytest.raises(ValueError, match="`text` must be a string"):
        split_sentences(b"bytes")


def test_wikipedia_loses_nothing_but_white_space(wikipedia):
    path = wikipedia / "valid" / "AB_wiki_95.txt"
    raw = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in raw if not line.startswith(("<doc ", "</doc>"))]
    documents = list(read_documents(path))
    sentences = [s for document in documents for line in document for s in split_sentences(line)]
    assert len(documents) == len(raw) - len(kept) - len([x for x in raw if x == "</doc>"])
    assert "".join("".join(sentences).split()) == "".join("".join(kept).split())
    assert len(sentences) > 3 * len([line for line in kept if line]) / 2
