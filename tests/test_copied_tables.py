"""Tables of pages that copy results: each cell has the numbers of its cell in the file.

`COPIES` has a row for each table: the page, the columns of the table, and a function that returns
the numbers of each cell, by the names of its row and its column.
"""

import csv
import itertools
import json
import re
import statistics
from pathlib import Path

import pytest
import scipy.stats

pytestmark = pytest.mark.any_backend
DOCS = Path(__file__).parents[1] / "docs"
PAPER = DOCS.parent / "examples" / "paper"
BENCHMARKS, RESULTS = DOCS / "benchmarks", PAPER / "results"
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
SCALES = {"0.002": 0.002, "0.02": 0.02, "0.1": 0.1, "0.5": 0.5, "1": 1.0, "2": 2.0}


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


def recomputation():
    runs = {"PyTorch": "PyTorch", "TensorFlow": "TensorFlow"}
    runs["JAX with the flag"] = "JAX with a flag of XLA"
    return {
        (f'`"{name}"`', column): [row["mib"], row["ratio_to_none"]]
        for column, run in runs.items()
        for name, row in cells_of("recomputation", run)["diet_abs"]["rows"].items()
    }


def encoders():
    names = ("Spearman", "in `transformers`", "largest difference", "time, one text")
    cells = {}
    for run in BACKENDS.values():
        for encoder, cell in cells_of("trained_encoders", run).items():
            ratios = [cell["ratio"][size][0] for size in ("1", "32")]
            values = [*cell["spearman"].values(), cell["largest_difference"], *ratios]
            for name, value in zip((*names, "time, 32 texts"), values, strict=True):
                cells[f"{encoder}, {run}", name] = [value]
    return cells


def types():
    runs = json.loads((BENCHMARKS / "trained_encoders.json").read_text(encoding="utf-8"))
    return {
        (f'`"{name}"`', run): [value]
        for run, results in runs.items()
        for name, value in results["types"].items()
    }


def packed():
    columns = {"padded": "padded", "`length_buckets`": "length_buckets", "packed": "packed"}
    columns["`length_buckets`, texts sorted"] = "length_buckets, sorted"
    ((_, _, rows),) = tables_of(BENCHMARKS / "packed_texts.md")
    return {
        (f"{row['batch']}, {row['step']}", column): numbers_of(row["texts/s"])
        for row in rows
        for column, name in columns.items()
        if row["texts"] == name
    }


def pretraining():
    columns = {"diet_abs": "DIET-ABS", "input": "positions at the input"}
    # The last epoch is the last row.
    return {
        (BACKENDS[row["backend"]], columns[row["encoding"]]): [float(row["val_loss"])]
        for row in rows_of("pretraining.csv")
    }


def finetuning():
    names = {("embedded en", "f1"): "questions, F1", ("de", "accuracy"): "pairs, German"}
    names |= {("embedded en", "exact_match"): "questions, exact match"}
    names |= {("en", "accuracy"): "pairs, English accuracy (chance: 33)"}
    names |= {("es", "accuracy"): "pairs, Spanish"}
    columns = {"diet_rel": "DIET-REL", "diet_abs": "DIET-ABS", "input": "input"}
    return {
        (names[row["task"], row["metric"]], columns[row["model"]]): [float(row["median"])]
        for row in rows_of("finetune.csv")
        if (row["task"], row["metric"]) in names
    }


def conversion():
    names = {"shuffled positions": "the original, positions shuffled", "none": "no positions"}
    names |= {"diet_abs": "DIET-ABS, no sharing", "diet_rel": "DIET-REL, no sharing"}
    columns = {"before": "before healing", "after_100_steps": "after 100 steps"}
    return {
        (names[row["model"]], column): [float(row[name])]
        for row in rows_of("convert_bert.csv")
        for name, column in columns.items()
        if row[name]
    }


def multilingual():
    path = RESULTS / "multilingual.md"
    accuracy = printed(path, {"XNLI, accuracy": "mean"}, {"DIET-ABS": "diet_abs", "input": "input"})
    columns = {"DIET-ABS": "diet_abs, F1", "input": "input, F1"}
    f1 = printed(path, {"XQuAD, F1": "mean"}, columns)
    return {**accuracy, **f1, ("XNLI, accuracy", "chance"): [100 / 3]}


def answers():
    models = {
        "`transformers.BertForQuestionAnswering`, all positions": "hugging_face",
        "the same, context": "hugging_face_context",
        '`from_bert(bert, "input")`, context': "input",
        '`from_bert(bert, "diet_abs", sharing="layer-wise")`, context': "diet_abs",
        '`from_bert(bert, "diet_rel")`, context': "diet_rel",
    }
    columns = {name: name for name in ("seeds", "F1", "exact match")}
    found = printed(RESULTS / "question_answering.md", models, columns)
    # The page has the number of seeds, and means without deviations.
    return {
        (row, name): [len(values) if name == "seeds" else values[0]]
        for (row, name), values in found.items()
    }


def losses(name, row, stddev, width=128, rate=0.002):
    """The last losses of the seeds."""
    runs = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["runs"]
    setting = (row, stddev, width, rate)
    return [
        run["losses"][-1]
        for run in sorted(runs, key=lambda run: run["seed"])
        if (run["row"], run["stddev"], run["width"], run["learning_rate"]) == setting
    ]


def mean_losses(cells):
    return {cell: [statistics.mean(found)] for cell, found in cells.items() if found}


ROWS = {f"DIET-ABS, rank {rank}": f"diet_abs, rank {rank}" for rank in (8, 16, 32, 64, 128)}
ROWS |= {"DIET-REL": "diet_rel", "T5": "t5", "FIRE": "fire", "TUPE-A": "tupe_abs"}
ROWS |= {"positions at the input": "input"}


def scales():
    return mean_losses(
        {
            (row, column): losses("initial_scores", name, stddev)
            for row, name in ROWS.items()
            for column, stddev in SCALES.items()
        }
    )


def four_layers():
    columns = {"BERT's": None, "0.5": 0.5, "1": 1.0, "2": 2.0}
    found = {
        (row, column): losses("initial_scores_4_layers", name, stddev, 256, 0.001)
        for row, name in ROWS.items()
        for column, stddev in columns.items()
    }
    tests = {
        (row, "p (BERT's and 1)"): [p_of(found[row, "BERT's"], found[row, "1"])]
        for row in ROWS
        if found[row, "1"]
    }
    return mean_losses(found) | tests


def p_of(first, second):
    return scipy.stats.ttest_rel(first, second).pvalue


def documents():
    rows = {"no positions": ("none", None), "positions at the input": ("input", None)}
    for name, row in (("DIET-ABS", "diet_abs, rank 32"), ("DIET-REL", "diet_rel")):
        rows[f"{name}, BERT's initial values"] = (row, None)
        rows[f"{name}, scores of 1"] = (row, 1.0)
    rows |= {"T5": ("t5", None), "TUPE-A": ("tupe_abs", None), "ALiBi": ("alibi", None)}
    rows["rotary positions"] = ("rotary", None)
    columns = {"alone": "", "masks": ", document masks"}
    columns |= {
        f"segments {where}": f", segments {where}" for where in ("at the input", "per head")
    }
    found = {
        (row, column): losses("initial_scores_documents", name + suffix, stddev)
        for row, (name, stddev) in rows.items()
        for column, suffix in columns.items()
    }
    tests = {
        (row, "p (alone and masks)"): [p_of(found[row, "alone"], found[row, "masks"])]
        for row in rows
    }
    return mean_losses(found) | tests


TRANSLATORS = {
    "sinusoids": "sinusoidal",
    "Shaw et al. (2018)": "shaw",
    "DIET-REL": "diet_rel",
    "DIET-ABS": "diet_abs",
    "Marian (sinusoids, post-norm)": "marian",
    "our model with Marian's blocks": "sinusoidal_post_norm",
    "the same, with Marian's initial weights": "sinusoidal_from_marian",
}
EMBEDDED = {
    "before": "before",
    "after 830 entailment pairs of XNLI": "after entailment",
    "after 5,749 scored pairs of STS-B": "after scores",
}
LIBRARIES = ("keras_diet", "sentence-transformers")
COPIES = {
    ("get_started/cost_and_speed", "PyTorch"): recomputation,
    ("guides/trained_encoders", "Spearman"): encoders,
    ("guides/trained_encoders", "JAX"): types,
    ("guides/data_and_presets", "padded"): packed,
    ("guides/pretraining", "DIET-ABS"): pretraining,
    ("guides/finetuning", "DIET-REL"): finetuning,
    ("guides/from_bert", "before healing"): conversion,
    ("guides/multilingual", "chance"): multilingual,
    ("guides/question_answering", "exact match"): answers,
    ("guides/embeddings", "Pearson"): lambda: printed(
        PAPER / "README.md", EMBEDDED, {"Pearson": "pearson", "Spearman": "spearman"}
    ),
    ("guides/embeddings", "our time of a step divided by theirs"): lambda: printed(
        BENCHMARKS / "train_embedders.md",
        {"0": "0", "1": "1"},
        {"before": "before", "our time of a step divided by theirs": "time of a step"}
        | {name: f"after, {name}" for name in LIBRARIES},
    ),
    ("guides/translation", "CS-EN"): lambda: printed(
        RESULTS / "translation.md",
        TRANSLATORS,
        {name.upper(): name for name in ("en-de", "de-en", "en-cs", "cs-en")},
    ),
    ("reproduction/initial_scores", "0.002"): scales,
    ("reproduction/initial_scores", "BERT's"): four_layers,
    ("reproduction/documents", "masks"): documents,
}


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


@pytest.mark.parametrize("page, column", COPIES, ids=lambda text: text.replace("/", " "))
def test_cells_are_those_of_the_files(page, column):
    expected = COPIES[page, column]()
    shown = shown_cells(page, column, expected)
    assert shown.keys() == expected.keys()
    for cell, text in shown.items():
        for word, value in zip(words_of(text), expected[cell], strict=True):
            number, _, exponent = word.partition("e")
            unit = 10.0 ** (int(exponent or 0) - len(number.partition(".")[2]))
            assert abs(float(word) - value) <= 0.5001 * unit, (cell, text, value)


def test_each_table_beside_a_result_is_compared():
    """A table of numbers whose text links a file of results."""
    found = set()
    for folder in ("get_started", "guides", "reproduction"):
        for page in (DOCS / folder).glob("*.md"):
            blocks = re.split(r"\n\s*\n", page.read_text(encoding="utf-8"))
            for i, block in enumerate(blocks):
                near = blocks[max(0, i - 2) : i] + blocks[i + 1 : i + 2]
                around = "".join(each for each in near if not each.startswith("|"))
                is_result = re.search(r"\]\([./]+(benchmarks|examples/paper/results)/", around)
                if block.startswith("|") and is_result and re.search(r"\d\.\d|\d{3}", block):
                    found.add((f"{folder}/{page.stem}", block.splitlines()[0]))
    compared = {
        (page, line)
        for page, line in found
        for other, column in COPIES
        if page == other and column in line
    }
    assert found == compared
    assert len(found) >= 9
