"""Fine-tune one BERT on SQuAD: Hugging Face's model on PyTorch, and ours with three encodings.

All rows have the same start, head, windows, batches in the same order, schedule and dropout rates.
AdamW has the same epsilon and the same weights without decay. `hugging_face` is trained by a plain
loop. Its weights are then loaded into our model, so the search for answers is the same, too. Its
loss is over all positions. Our loss excludes the question and padding, and `hugging_face_context`
has our loss. At the end, steps of all rows are timed.

`--bert` is a folder with Hugging Face's BERT, and `--data` one with `train*.json` and `dev*.json`
of SQuAD 1.1. The results are printed. After each run they are also written to `--output` as JSON,
and to a page beside it. `--resume` adds the rows and seeds that are missing in `--output`.

    KERAS_BACKEND=torch python -m examples.paper.question_answering --bert BERT --data squad_v1.1 \
        --output examples/paper/results/question_answering.json --resume
"""

import argparse
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks import measure
from benchmarks.results import (
    make_parser,
    markdown_table,
    mean_and_deviation,
    page_of,
    parse,
    save,
    start,
)
from examples.paper import qa_data
from examples.paper.common import positive_int
from examples.paper.question_answering_steps import ROWS, make_step
from keras_diet import metrics, models

MODULE = "examples.paper.question_answering"
SETTINGS = (
    *("examples", "evaluation_examples", "epochs", "batch_size", "sequence_length", "doc_stride"),
    *("learning_rate", "warmup_proportion", "weight_decay", "rounds"),
)


# === Data ===


def read_questions(folder: Path, split: str, most: int | None) -> Any:
    """Return questions of a split, or the same random part of them in each run."""
    files = sorted(folder.glob(f"{split}*.json"))
    if not files:
        sys.exit(f"--data must hold {split}*.json. Received: {folder}")
    questions = qa_data.read(files)
    number = len(questions.ids)
    chosen = sorted(np.random.default_rng(0).permutation(number)[:most])
    rows = zip(questions.ids, questions.questions, questions.contexts, questions.golds, strict=True)
    rows = list(rows)
    return qa_data.from_rows(rows[i] for i in chosen)


def make_preprocessor(options: argparse.Namespace) -> models.DietBertQuestionAnswererPreprocessor:
    length = options.sequence_length
    return models.DietBertQuestionAnswererPreprocessor(
        models.DietBertTokenizer.from_bert(options.bert),
        length,
        options.doc_stride,
        # The search for answers computes short windows faster.
        length_buckets=(length // 2,),
    )


class Batches:
    """The windows of all questions, in a new order in each epoch."""

    def __init__(self, preprocessor: Any, questions: Any, options: argparse.Namespace) -> None:
        texts = questions.questions, questions.contexts
        self.inputs, self.labels, _ = preprocessor.columns(texts, questions.labels)
        self.num_windows = len(self.labels["start"])
        self.options = options

    @property
    def num_steps(self) -> int:
        return self.options.epochs * -(-self.num_windows // self.options.batch_size)

    def shuffled(self, seed: int) -> Iterator[tuple[dict, dict]]:
        """Yield inputs and labels, batch by batch and epoch after epoch."""
        rng = np.random.default_rng(seed)
        for _ in range(self.options.epochs):
            order = rng.permutation(self.num_windows)
            for first in range(0, self.num_windows, self.options.batch_size):
                rows = order[first : first + self.options.batch_size]
                yield tuple(
                    {name: array[rows] for name, array in part.items()}
                    for part in (self.inputs, self.labels)
                )


# === Measurements ===


def run_row(
    row: str,
    seed: int,
    preprocessor: Any,
    batches: Batches,
    evaluation: Any,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Train and evaluate a row, and return its metrics, losses and times."""
    step, trained = make_step(row, seed, preprocessor, batches.num_steps, options)
    steps = batches.shuffled(seed)
    bar = tqdm(steps, f"{row}, seed {seed}", batches.num_steps, disable=not sys.stderr.isatty())
    losses, seconds = [], []
    for inputs, labels in bar:
        begin = time.perf_counter()
        losses.append(step(inputs, labels))
        seconds.append(time.perf_counter() - begin)
    answerer, texts = trained(), (evaluation.questions, evaluation.contexts)
    begin = time.perf_counter()
    answers = answerer.answer(*texts, batch_size=options.batch_size)
    duration = time.perf_counter() - begin
    found = metrics.squad_metrics([answer["text"] for answer in answers], evaluation.texts)
    last = losses[-(len(losses) // options.epochs) :]
    return {
        "f1": found["f1"],
        "exact_match": found["exact_match"],
        "loss_of_last_epoch": float(np.mean(last)),
        "training_seconds": sum(seconds),
        "milliseconds_per_question": 1000 * duration / len(evaluation.ids),
    }


def measure_times(
    preprocessor: Any, batches: Batches, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return the time of a training step of each row, and its ratio to the first row."""
    seed = options.seeds[0]
    batch = next(batches.shuffled(seed))
    steps = {row: make_step(row, seed, preprocessor, 10**6, options)[0] for row in options.rows}
    functions = {row: functools.partial(step, *batch) for row, step in steps.items()}
    # The first calls compile.
    measure.time_in_turn(functions, 1)
    times = measure.time_in_turn(functions, options.rounds)
    rows = {}
    for row, seconds in times.items():
        ratio, quartiles = measure.ratio(seconds, times[options.rows[0]])
        median, _ = measure.median_and_quartiles(seconds)
        rows[row] = {"milliseconds": 1000 * median, "ratio": ratio, "ratio_quartiles": quartiles}
    return rows


def make_page(runs: dict[str, Any]) -> str:
    return page_of("Fine-tuning on SQuAD 1.1", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines, times = table_of_scores(run["cells"]), run.get("times", {})
    return [*lines, "", *table_of_times(times)] if times else lines


def table_of_scores(cells: dict[str, Any]) -> list[str]:
    columns = ["", "seeds", "F1", "exact match", "loss of the last epoch", "training, minutes"]
    columns += ["milliseconds of a question"]
    rows = []
    for row, cell in cells.items():
        values = {name: [run[name] for run in cell.values()] for name in next(iter(cell.values()))}
        minutes = [seconds / 60 for seconds in values["training_seconds"]]
        scores = (values[name] for name in ("f1", "exact_match", "loss_of_last_epoch"))
        rows.append(
            [
                row,
                " ".join(cell),
                *(mean_and_deviation(score, 2) for score in scores),
                mean_and_deviation(minutes, 1),
                mean_and_deviation(values["milliseconds_per_question"], 0),
            ]
        )
    return markdown_table(columns, rows)


def table_of_times(times: dict[str, Any]) -> list[str]:
    columns = ["a training step", "milliseconds", f"ratio to {next(iter(times))} (quartiles)"]
    rows = []
    for row, cell in times.items():
        low, high = cell["ratio_quartiles"]
        ratio = f"{cell['ratio']:.2f} ({low:.2f} - {high:.2f})"
        rows.append([row, f"{cell['milliseconds']:.0f}", ratio])
    return markdown_table(columns, rows)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--bert", type=Path, required=True, help="folder of the BERT to start from")
    add("--data", type=Path, required=True, help="folder with train*.json and dev*.json")
    add("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="rows to train")
    add("--examples", type=positive_int, help="training questions, by default all")
    add("--evaluation-examples", type=positive_int, help="questions to answer, by default all")
    add("--epochs", type=positive_int, default=2, help="passes over the windows")
    add("--batch-size", type=positive_int, default=16, help="windows in a batch")
    add("--sequence-length", type=positive_int, default=384, help="tokens of a window")
    add("--doc-stride", type=positive_int, default=128, help="tokens between two windows")
    add("--learning-rate", type=float, default=1e-4, help="peak of the schedule")
    add("--warmup-proportion", type=float, default=0.1, help="share of the steps to warm up")
    add("--weight-decay", type=float, default=0.01, help="of AdamW")
    add("--seeds", nargs="+", type=int, default=[0], help="of the head, the batches and dropout")
    add("--rounds", type=positive_int, default=10, help="timed steps of each row")
    return parse(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    results = start(MODULE, options, SETTINGS)
    preprocessor = make_preprocessor(options)
    batches = Batches(
        preprocessor, read_questions(options.data, "train", options.examples), options
    )
    evaluation = read_questions(options.data, "dev", options.evaluation_examples)
    results["windows"] = batches.num_windows

    for seed in options.seeds:
        for row in options.rows:
            cell = results["cells"].setdefault(row, {})
            if str(seed) not in cell:
                cell[str(seed)] = run_row(row, seed, preprocessor, batches, evaluation, options)
                save(options, results, make_page)
    if not set(options.rows) <= set(results.get("times", {})):
        results["times"] = measure_times(preprocessor, batches, options)
        save(options, results, make_page)
    print(make_page({options.name: results}))


if __name__ == "__main__":
    main()
