"""Plain text in: files to documents, paragraphs to sentences, and languages in their shares."""

import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from keras_diet import validation

# === Documents and sentences ===

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


# === Languages ===

T = TypeVar("T")


def language_probabilities(sizes: Mapping[str, int], sampling_exponent: float) -> dict[str, float]:
    """Return the probability of each language, as in XLM.

    With `p_i`, the share of language `i` in all data,

        q_i = p_i**sampling_exponent / sum_j p_j**sampling_exponent

    With an exponent of 1, languages keep their shares. With smaller exponents, languages with
    little data are read more often. With 0, all languages are read equally often.

    Args:
        sizes: Mapping of each language to the size of its data, such as the number of sentences.
        sampling_exponent: float in [0, 1]. XLM has 0.5 for its vocabulary, and 0.7 for its batches.

    Returns:
        Dictionary of each language and its probability.

    Raises:
        ValueError: If a size is not a positive integer, or if `sampling_exponent` is out of range.

    Example:

    ```python
    keras_diet.pretraining.language_probabilities({"en": 900, "sw": 100}, sampling_exponent=0.5)
    # {"en": 0.75, "sw": 0.25}
    ```

    References:
     - [Lample and Conneau, 2019](https://arxiv.org/abs/1901.07291), section 3.1
    """
    exponent = validation.rate("sampling_exponent", sampling_exponent)
    for language, size in sizes.items():
        validation.positive_int(f"sizes[{language!r}]", size)
    shares = np.array(list(sizes.values()), "float64") / sum(sizes.values())
    probabilities = shares**exponent / np.sum(shares**exponent)
    return dict(zip(sizes, probabilities.tolist(), strict=True))


def sample_languages(
    texts: Mapping[str, Iterable[T]],
    sampling_exponent: float = 0.5,
    seed: int = 0,
    num_samples: int | None = None,
) -> Iterator[T]:
    """Yield texts of several languages, mixed as `language_probabilities` says.

    One call is one epoch. Language `i` has `round(q_i * num_samples)` texts in it, at least one, at
    random places. If this is more than the language has, its texts repeat: each of them comes
    equally often, or once more. If this is less, the texts are a random part without repetitions.
    The texts of a language stay in their order. The same arguments give the same texts. Another
    `seed` gives another epoch, with other parts.

    Args:
        texts: Mapping of each language to its sentences or documents. They are counted first, so
            they are read several times: pass lists, not iterators.
        sampling_exponent: float in [0, 1]. As in `language_probabilities`. Defaults to `0.5`.
        seed: int. Seed of the order and of the parts. Defaults to `0`.
        num_samples: int or `None`. The number of texts in an epoch, up to rounding. Defaults to
            `None`, which means the number of all texts.

    Returns:
        An iterator of texts.

    Raises:
        ValueError: If a language has no texts, or if they can be read only once.

    Example:

    ```python
    texts = {"en": ["one", "two", "three", "four"], "sw": ["moja"]}
    list(keras_diet.pretraining.sample_languages(texts, sampling_exponent=0.0, num_samples=6))
    # three of the English texts, and "moja" three times
    ```

    References:
     - [Lample and Conneau, 2019](https://arxiv.org/abs/1901.07291), section 3.1
    """
    validation.optional_positive_int("num_samples", num_samples)
    for language, of_language in texts.items():
        if isinstance(of_language, (str, Iterator)):
            raise ValueError(
                f"`texts[{language!r}]` must be a list, which can be read several times. Received: "
                f"{type(of_language).__name__}"
            )
    sizes = {language: _count(of_language) for language, of_language in texts.items()}
    probabilities = language_probabilities(sizes, sampling_exponent)
    total = num_samples or sum(sizes.values())
    counts = [max(1, round(total * probability)) for probability in probabilities.values()]
    generator = np.random.default_rng(seed)
    streams = [
        _repeated(texts[language], sizes[language], count, generator.spawn(1)[0])
        for language, count in zip(sizes, counts, strict=True)
    ]
    order = np.repeat(np.arange(len(counts)), counts)
    generator.shuffle(order)
    return (next(streams[i]) for i in order)


def _count(texts: Iterable[Any]) -> int:
    return len(texts) if isinstance(texts, Collection) else sum(1 for _ in texts)


def _repeated(
    texts: Iterable[T], size: int, count: int, generator: np.random.Generator
) -> Iterator[T]:
    """Yield `count` of `size` texts: all of them several times, then a random part."""
    passes, rest = divmod(count, size)
    for _ in range(passes):
        yield from texts
    is_chosen = np.zeros(size, "bool")
    is_chosen[generator.permutation(size)[:rest]] = True
    yield from (text for text, chosen in zip(texts, is_chosen, strict=True) if chosen)
