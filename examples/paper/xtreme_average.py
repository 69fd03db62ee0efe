"""Compute the average of XTREME's tasks in the paper, for each model.

It is the mean of seven numbers (Tables 3 and 5 of the paper): the accuracy on XNLI, and F1 and
exact match on XQuAD, MLQA and TyDiQA, each of which is a mean over languages.

    python -m examples.paper.xtreme_average runs/finetune_xnli/jax/results.csv \\
        runs/finetune_qa/jax/results.csv

The files come from `finetune_xnli.py` and `finetune_qa.py`. A model must have the same name in
both.
"""

import csv
import itertools
import statistics
import sys
from pathlib import Path

from examples.paper import common

QUESTIONS = itertools.product(("xquad", "mlqa", "tydiqa"), ("f1", "exact_match"))
COLUMNS = (("mean", "accuracy"), *((f"{name} mean", metric) for name, metric in QUESTIONS))


def main(argv=None):
    arguments = parse_arguments(argv)
    found = {}
    for path in arguments.results:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                of_model = found.setdefault(row["model"], {})
                of_model[row["task"], row["metric"]] = float(row["median"])
    if not found:
        sys.exit("The files have no results.")
    print(f"| model | {' | '.join(' '.join(column) for column in COLUMNS)} | average |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for model, values in found.items():
        cells = [f"{values[column]:.1f}" if column in values else "" for column in COLUMNS]
        average = f"{average_of(values):.1f}" if all(cells) else "incomplete"
        print(f"| {model} | {' | '.join(cells)} | {average} |")


def average_of(values):
    """Return the mean of the seven numbers."""
    return statistics.mean(values[column] for column in COLUMNS)


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="files with results (results.csv)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
