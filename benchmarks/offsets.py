"""Check `tokenize_with_offsets` on real texts: token ids, and answers mapped to tokens and back.

For each language, this counts the texts whose ids differ from the ids of calling the tokenizer. It
also maps each gold answer to the tokens that it touches, and these tokens back to characters. The
result is the same text, unless a token crosses the border of the answer. The tokenizers are
trained on the same texts.

`--data` is a folder with `xquad/xquad.LL.json`, `squad_v1.1/dev*.json` and `xnli/*-LL.tsv`, as
their authors publish them. The results hold numbers only.

    python -m benchmarks.offsets --data DATA --output docs/benchmarks/offsets.json
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import (
    add_file_options,
    head_of_page,
    markdown_table,
    parse_file_options,
    start,
    write,
)
from keras_diet import models, pretraining

MODULE = "benchmarks.offsets"
TOKENIZERS = ("WordPiece", "WordPiece without accents", "SentencePiece")
Answers = list[tuple[str, int]]
COUNTS = ("texts", "different_ids", "answers", "same", "crossed", "other")


def read_questions(file: Path) -> Iterator[tuple[str, Answers]]:
    """Yield the texts of a file in SQuAD's format, each with its answers and their starts."""
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            answers = [
                (answer["text"], answer["answer_start"])
                for question in paragraph["qas"]
                for answer in question["answers"]
            ]
            yield paragraph["context"], answers
            yield from ((question["question"], []) for question in paragraph["qas"])


def read_pairs(file: Path) -> Iterator[tuple[str, Answers]]:
    """Yield premises and hypotheses of a file of XNLI, which have no answers."""
    with open(file, encoding="utf-8", newline="\r\n") as lines:
        for line in lines:
            yield from ((text, []) for text in line.removesuffix("\r\n").split("\t")[:2])


def read_data(folder: Path) -> dict[str, list[tuple[str, Answers]]]:
    """Return the texts of each data set and language. Texts that repeat are read once."""
    readers = {"xquad/*.json": read_questions, "xnli/*-??.tsv": read_pairs}
    data: dict[str, dict[str, Answers]] = {}
    for pattern, reader in {"squad_v1.1/dev*.json": read_questions, **readers}.items():
        for file in sorted(folder.glob(pattern)):
            language = "en" if file.parent.name.startswith("squad") else file.stem[-2:]
            texts = data.setdefault(f"{file.parent.name} {language}", {})
            for text, answers in reader(file):
                texts.setdefault(text, []).extend(answers)
    if not data:
        sys.exit(f"--data has no texts. Received: {folder}, without {', '.join(readers)}")
    return {name: list(texts.items()) for name, texts in data.items()}


def make_tokenizer(name: str, data: dict[str, Any], size: int) -> Any:
    """Train a tokenizer on the texts of all languages."""
    languages: dict[str, list[str]] = {}
    for key, texts in data.items():
        languages.setdefault(key[-2:], []).extend(text for text, _ in texts)
    if name == "SentencePiece":
        return models.DietBertSentencePieceTokenizer.from_texts(
            languages, size, input_sentence_size=50_000
        )
    options = {"lowercase": True, "strip_accents": name.endswith("without accents")}
    vocabulary = pretraining.train_wordpiece_vocabulary(
        pretraining.sample_languages(languages),
        size,
        limit_alphabet=size // 5,
        show_progress=False,
        **options,
    )
    return models.DietBertTokenizer(vocabulary, **options)


def check_answer(text: str, offsets: list[tuple[int, int]], answer: str, start: int) -> str:
    """Return whether the tokens of an answer give the same text, or a token crosses its border."""
    end = start + len(answer)
    touched = [span for span in offsets if span[0] < end and span[1] > start]
    if not touched or text[start:end] != answer:
        return "other"
    first, last = touched[0][0], touched[-1][1]
    if (first, last) == (start, end):
        return "same"
    return "crossed" if first < start or last > end else "other"


def check_texts(tokenizer: Any, texts: list[tuple[str, Answers]]) -> dict[str, int]:
    """Return how many texts and answers are as expected."""
    counts = dict.fromkeys(COUNTS, 0)
    called = tokenizer([text for text, _ in texts])
    for (text, answers), expected in zip(texts, called, strict=True):
        ids, offsets = tokenizer.tokenize_with_offsets(text)
        counts["texts"] += 1
        counts["different_ids"] += ids != [int(token) for token in expected]
        for answer, position in answers:
            counts["answers"] += 1
            counts[check_answer(text, offsets, answer, position)] += 1
    return counts


def make_page(results: dict[str, Any]) -> str:
    rows = []
    for name, cell in results["cells"].items():
        shares = [
            f"{100 * cell[key] / cell['answers']:.2f} %" if cell["answers"] else ""
            for key in ("same", "crossed", "other")
        ]
        numbers = [f"{cell[key]:,}" for key in ("texts", "different_ids", "answers")]
        rows.append([name, *numbers, *shares])
    columns = ("tokenizer, data, language", "texts", "texts with other ids", "answers")
    columns += ("the same text", "a token crosses the border", "other")
    lines = head_of_page("Offsets of tokens on real texts", results)
    return "\n".join([*lines, *markdown_table(columns, rows)])


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--vocabulary-size", type=int, default=40_000, help="number of tokens")
    add_file_options(parser)
    options = parse_file_options(parser, argv)
    results = start(MODULE, argv, options, ("vocabulary_size",))
    data = read_data(options.data)
    for name in TOKENIZERS:
        missing = [key for key in data if f"{name}, {key}" not in results["cells"]]
        tokenizer = make_tokenizer(name, data, options.vocabulary_size) if missing else None
        for key in missing:
            results["cells"][f"{name}, {key}"] = check_texts(tokenizer, data[key])
        if options.output:
            write(options.output, results, make_page(results))
    print(make_page(results))


if __name__ == "__main__":
    main()
