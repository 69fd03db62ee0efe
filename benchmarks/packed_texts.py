"""Texts a second of a classifier: padded to the full length, with `length_buckets`, and packed.

The model is new, because only its time counts. The texts of SST-2 go through `predict` and `fit`
with the same batches of texts in each row: the order of the file, or from long to short texts.

    KERAS_BACKEND=torch python -m benchmarks.packed_texts --data sst2_glue/test.tsv \\
        --output runs/packed_texts_torch.json
"""

import csv
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks import measure, results
from keras_diet import models

SEED = 0
STEPS = ("inference", "training")
SIZES = {"length": 128, "num_layers": 4, "hidden_dim": 256, "encoding": "diet_abs"}
BUCKETS = {"length_buckets": tuple(range(8, SIZES["length"], 8))}
# Arguments of the preprocessor, and whether the texts are sorted by length.
ROWS = {
    "padded": ({}, False),
    "length_buckets": (BUCKETS, False),
    "length_buckets, sorted": (BUCKETS, True),
    "packed": ({"packed": True}, False),
}


def read_texts(path: Path, number: int | None = None) -> tuple[list[str], np.ndarray]:
    """Return the first sentences of a file of SST-2, and their labels."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:number]
    return [row["sentence"] for row in rows], np.array([int(row["label"]) for row in rows])


def make_classifier(row: str) -> models.DietBertTextClassifier:
    keras.utils.set_random_seed(SEED)
    tokenizer = models.DietBertTokenizer.from_preset("diet_bert_tiny_en")
    length, hidden_dim = SIZES["length"], SIZES["hidden_dim"]
    backbone = models.DietBertBackbone(
        tokenizer.vocabulary_size(),
        SIZES["num_layers"],
        hidden_dim // 64,
        hidden_dim,
        4 * hidden_dim,
        max_sequence_length=length,
        position_encoding=SIZES["encoding"],
    )
    preprocessor = models.DietBertTextClassifierPreprocessor(tokenizer, length, **ROWS[row][0])
    classifier = models.DietBertTextClassifier(backbone, 2, preprocessor)
    classifier.compile(keras.optimizers.AdamW(1e-5), metrics=None)
    return classifier


def calls_of(
    row: str, texts: list[str], labels: np.ndarray, batch_size: int
) -> dict[str, Callable[[], Any]]:
    """Return functions that predict the classes of all texts, and that train on all texts."""
    classifier = make_classifier(row)
    if ROWS[row][1]:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        texts, labels = [texts[i] for i in order], labels[order]
    arguments = {"batch_size": batch_size, "verbose": 0}
    return {
        "inference": functools.partial(classifier.predict, texts, **arguments),
        # The same batches in each epoch, so that the first one compiles all programs.
        "training": functools.partial(classifier.fit, texts, labels, shuffle=False, **arguments),
    }


def measure_cell(
    texts: list[str], labels: np.ndarray, batch_size: int, rounds: int
) -> dict[str, Any]:
    calls = {row: calls_of(row, texts, labels, batch_size) for row in ROWS}
    return {
        step: measure.compare({row: of_row[step] for row, of_row in calls.items()}, rounds)
        for step in STEPS
    }


def make_page(runs: dict[str, Any]) -> str:
    title = "Classification of short texts: padded, in buckets, packed"
    return results.page_of(title, "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    columns = ["batch", "step", "texts", "texts/s", "tokens/s", "time / padded (quartiles)"]
    rows, totals = [], ("num_texts", "num_tokens")
    for batch_size, cell in run["cells"].items():
        for step, found in cell.items():
            for name, row in found.items():
                rates = (1000 * run[key] / row["milliseconds"] for key in totals)
                numbers = (f"{rate:,.0f}" for rate in rates)
                rows.append([batch_size, step, name, *numbers, results.ratio_of(row)])
    introduction = (
        f"{run['num_texts']} texts with {run['num_tokens']} tokens. A batch is a number of texts, "
        "which all rows share. Padding does not count as tokens."
    )
    return [introduction, "", *results.markdown_table(columns, rows)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="file of SST-2 with sentences and labels")
    add("--num-texts", type=int, help="only so many texts")
    add("--batch-sizes", nargs="+", type=int, default=[32, 128], help="texts in a batch")
    add("--rounds", type=int, default=5, help="passes over the texts that are timed")
    options = results.parse(parser, argv)
    texts, labels = read_texts(options.data, options.num_texts)
    run = results.start(__spec__.name, options, ("num_texts", "rounds"), **SIZES, seed=SEED)
    mask = make_classifier("padded").preprocessor(texts)["padding_mask"]
    run |= {"num_texts": len(texts), "num_tokens": int(mask.sum())}
    cells = {
        str(batch_size): functools.partial(measure_cell, texts, labels, batch_size, options.rounds)
        for batch_size in options.batch_sizes
    }
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
