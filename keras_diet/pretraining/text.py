"""Plain text in: files to documents, paragraphs to sentences."""

import itertools
import os
import re
from collections.abc import Iterable, Iterator

# A file without a blank line is one document. A longer document is split into parts, so that
# memory stays bounded for every file. Articles and chapters are much shorter.
_MAX_DOCUMENT_LINES = 100_000

# An end mark, with the quotes and brackets that close after it. A full stop after a single letter
# ("J. Smith", "U.S.") or after a title does not end a sentence. Chinese and Japanese do not put a
# space after a full stop.
_SENTENCE_END = re.compile(
    r"""
    (?<!\b[^\W\d_]) (?<!\bDr) (?<!\bMr) (?<!\bMs) (?<!\bSt) (?<!\bMrs) (?<!\bProf)
    [.!?…]+ ["'”’»)\]]* (?=\s)
    | [。！？]+ ["'”’»)\]」』）]*
    """,  # noqa: RUF001
    re.VERBOSE,
)
_NEXT_CHARACTER = re.compile(r"\s*(.?)", re.DOTALL)


def read_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> Iterator[list[str]]:
    """Stream the documents of UTF-8 text files, in the order of the files.

    If the first non-blank line of a file starts with `<doc `, the file is read in WikiExtractor's
    format: `<doc ...>` and `</doc>` lines separate documents and are dropped, and blank lines are
    ignored. In any other file, blank lines separate documents. A document never spans two files.

    One line is one paragraph. Each run of white space in a line becomes one space, because
    KerasHub's WordPiece splits only at ASCII white space. It would turn `"10\\u00a0km"` (a no-break
    space) into one `[UNK]`. Nothing else is changed.

    Only one document at a time is in memory. A document of more than 100,000 lines is returned in
    parts of 100,000 lines.

    Args:
        paths: str, path or iterable of them. The files, read in this order.

    Returns:
        An iterator of documents. Each document is a list of non-empty lines (`str`).

    Raises:
        OSError: Immediately, if a path is not a file.
        ValueError: While reading, if a line is not UTF-8.

    Example:

    ```python
    with open("corpus.txt", "w") as file:
        file.write("Newton\\nA physicist.\\n\\nOpticks\\nA book.\\n")
    for document in keras_diet.pretraining.read_documents("corpus.txt"):
        print(document)  # ["Newton", "A physicist."], then ["Opticks", "A book."]
    ```

    References:
     - [WikiExtractor](https://github.com/attardi/wikiextractor)
    """
    return itertools.chain.from_iterable(map(file_documents, readable_files(paths)))


def split_sentences(text: str) -> list[str]:
    """Split a paragraph into sentences, approximately.

    A sentence ends at `.`, `!`, `?` or `…`, including closing quotes and brackets, if white space
    follows. It ends at `。`, `！` or `？` anywhere. It does not end before a lower-case letter,
    after a single letter (`J. Smith`) or after a title such as `Dr.`. Sentences are only the unit
    of packing, so a wrong split only changes where a sequence may end.

    Args:
        text: str. A paragraph.

    Returns:
        List of non-empty sentences. Together they contain every character of `text` in order,
        except the white space between sentences.

    Example:

    ```python
    keras_diet.pretraining.split_sentences('"Who is it?" It was J. Smith. He left.')
    # ['"Who is it?"', 'It was J. Smith.', 'He left.']
    ```
    """
    ends = [end.end() for end in _SENTENCE_END.finditer(text)]
    ends = [end for end in ends if not _next_character(text, end).islower()]
    starts = [0, *ends]
    sentences = [text[start:end].strip() for start, end in zip(starts, [*ends, None], strict=True)]
    return [sentence for sentence in sentences if sentence]


def _next_character(text: str, start: int) -> str:
    """Return the first character that is not white space, or `""` at the end."""
    match = _NEXT_CHARACTER.match(text, start)
    return match[1] if match else ""


def readable_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[str]:
    """Return a list of paths. A path that is not a file raises the `OSError` of opening it."""
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    names = [os.fspath(path) for path in paths]
    for name in names:
        # A missing file should not be found out after hours of reading the others.
        open(name, "rb").close()
    return names


def file_documents(path: str | os.PathLike[str]) -> Iterator[list[str]]:
    """Stream the documents of one file, as `read_documents`. An empty file has none."""
    marked = None
    document: list[str] = []
    for line in utf8_lines(path):
        line = " ".join(line.split())
        if marked is None and line:
            marked = line.startswith("<doc ")
        is_mark = bool(marked) and (line.startswith("<doc ") or line == "</doc>")
        is_end = is_mark or not (line or marked)
        if document and (is_end or len(document) == _MAX_DOCUMENT_LINES):
            yield document
            document = []
        if line and not is_mark:
            document.append(line)
    if document:
        yield document


def utf8_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Stream the lines of a UTF-8 file. The error of another file names the line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"Text files must be UTF-8. Received: {str(path)!r}, where line {number} is "
                    f"not UTF-8 at byte {error.start} ({error.reason}). Convert it to UTF-8."
                ) from error
