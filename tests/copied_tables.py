"""Compares tables and sentences of pages with the results that they copy.

A test has a table `COPIES` with a row for each table of a page: the page, a column of the table,
and a function that returns the numbers of each cell, by the names of its row and its column. Its
`CLAIMS` have a row for each sentence with a link to a result: the page, the text with # for each
number, and a function that returns the numbers.
"""

import csv
import itertools
import json
import os
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAPER = DOCS.parent / "examples" / "paper"
BENCHMARKS, RESULTS = DOCS / "benchmarks", PAPER / "results"
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
NUMBER = r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)"
PRESET = "../keras_diet/models/diet_bert/presets/diet_bert_tiny_en/README"


def words_of(cell):
    return re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", cell.replace(",", ""))


def numbers_of(cell):
    return list(map(float, words_of(cell)))


def tables_of(path):
    """The tables of a page, each as its columns, its rows by name, and its rows."""
    tables = []
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        if block.startswith("|"):
            lines = [line.strip()[1:-1].split("|") for line in block.splitlines()]
            columns, _, *rows = [[cell.strip() for cell in line] for line in lines]
            cells = [dict(zip(columns, row, strict=True)) for row in rows]
            tables.append((columns, dict(zip((row[0] for row in rows), cells, strict=True)), cells))
    return tables


def printed(path, rows, columns):
    """The numbers of a page of results, under other names of rows and columns."""
    for found, by_name, _ in tables_of(path):
        if set(columns.values()) <= set(found) and set(rows.values()) <= set(by_name):
            return {
                (row, column): numbers_of(by_name[of_row][of_column])
                for (row, of_row), (column, of_column) in itertools.product(
                    rows.items(), columns.items()
                )
                if by_name[of_row][of_column]
            }
    raise AssertionError(f"{path} has no table with {rows} and {columns}")


def cells_of(name, run):
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))[run]["cells"]


def rows_of(name):
    return list(csv.DictReader((RESULTS / name).read_text(encoding="utf-8").splitlines()))


def shown_cells(page, column, expected):
    """The cells of a table of a page with numbers: the table that has the most of the rows."""
    tables = [table for table in tables_of(DOCS / f"{page}.md") if column in table[0]]
    names = {row for row, _ in expected}
    table = max(tables, key=lambda table: len(names & set(row_names(table, names))))
    return {
        (row, name): text
        for row, cells in zip(row_names(table, names), table[2], strict=True)
        for name, text in list(cells.items())[1:]
        if numbers_of(text) and name in {column for _, column in expected}
    }


def row_names(table, names):
    """The names of rows: the first cell, or the first two."""
    rows = [list(cells.values()) for cells in table[2]]
    pairs = [", ".join(row[:2]) for row in rows]
    return pairs if set(pairs) & names else [row[0] for row in rows]


def compare(word, value, where):
    number, _, exponent = word.replace(",", "").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(number.partition(".")[2]))
    assert abs(float(word.replace(",", "")) - value) <= 0.5001 * unit, (where, word, value)


def check_cells(page, column, expected):
    """Compare the table of a page that has the column with the numbers of a result."""
    shown = shown_cells(page, column, expected)
    assert shown.keys() == expected.keys(), sorted(shown.keys() ^ expected.keys())
    for cell, text in shown.items():
        for word, value in zip(words_of(text), expected[cell], strict=True):
            compare(word, value, (cell, text))


def check_sentence(page, text, numbers):
    """Compare the numbers of a sentence, which has # for each, with those of a result."""
    prose = " ".join((DOCS.parent / f"{page}.md").read_text(encoding="utf-8").split())
    found = re.search(pattern_of(text), prose)
    assert found, f"{page}.md has no sentence: {text}"
    for word, value in zip(found.groups(), numbers, strict=True):
        compare(word, value, text)


def pattern_of(claim):
    return re.escape(claim).replace(re.escape("#"), NUMBER)


# === What is not compared ===


def room_of(text):
    """The room whose results a text links, `None` for no results. The paper's room has its own."""
    links = " ".join(re.findall(r"\]\(([^)]*)\)", text))
    rooms = {"paper": r"examples/paper/results/", "benchmarks": r"benchmarks/(?!README)"}
    return next((room for room, folder in rooms.items() if re.search(folder, links)), None)


def pages():
    """All pages but those of results, by their paths."""
    files = [DOCS.parent / "README.md", *DOCS.rglob("*.md"), DOCS / f"{PRESET}.md"]
    texts = {path.resolve(): path.read_text(encoding="utf-8") for path in files}
    return {path: text for path, text in texts.items() if "\n- Started: " not in text}


def sentences_with_results(room):
    """Each sentence, or cell of a table of words, that links a result and has a decimal number.

    It comes after its page, and before the paragraph or the row that has it.
    """
    for path, text in pages().items():
        page = path.relative_to(DOCS.parent.resolve()).with_suffix("").as_posix()
        text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for block in re.split(r"\n\s*\n|\n(?=- |\d\. |\|)", text):
            parts = block.split("|") if block.startswith("|") else [" ".join(block.split())]
            for part in parts:
                for sentence in re.split(r"(?<=[.!?:]) +(?=[A-Z`\"'(*])", part):
                    rest = re.sub(r"\]\([^)]*\)|`[^`]*`", "", sentence)
                    rest = re.sub(r"(?:PyTorch|JAX|SQuAD|Python|Keras) \d+\.\d+", "", rest)
                    if room_of(sentence) == room and re.search(r"\d\.\d", rest):
                        yield page, sentence, " ".join(block.split())


def check_all_sentences(room, claims):
    """Check that each sentence with a result of a room is among the claims."""
    found = list(sentences_with_results(room))
    unknown = [
        (page, sentence)
        for page, sentence, block in found
        if not any(page == of and re.search(pattern_of(text), block) for of, text, _ in claims)
    ]
    assert not unknown, unknown
    assert len(found) > 3, "The search finds too little."


def check_all_tables(room, copies):
    """Check that each table of numbers whose text links a result of a room is compared."""
    found = set()
    for path, text in pages().items():
        name = Path(os.path.relpath(path, DOCS)).with_suffix("").as_posix()
        blocks = re.split(r"\n\s*\n", text)
        for i, block in enumerate(blocks):
            near = blocks[max(0, i - 2) : i] + blocks[i + 1 : i + 2]
            around = "".join(each for each in near if not each.startswith("|"))
            if block.startswith("|") and room_of(around) == room and has_results(block):
                found.add((name, block.splitlines()[0]))
    unknown = {
        (page, line)
        for page, line in found
        if not any(page == of and column in line for of, column in copies)
    }
    assert not unknown, unknown
    assert len(found) > 3, "The search finds too little."


def has_results(block):
    """Whether a table has numbers of results: with a point, or of three digits, in its cells."""
    rows = block.splitlines()[2:]
    words = re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", "", "".join(rows))
    return re.search(r"\d\.\d|\d{3}", words)
