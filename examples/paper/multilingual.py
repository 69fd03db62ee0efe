"""XNLI and XQuAD from end to end, with small multilingual models.

The command pretrains a model for each position encoding on text in all languages of XNLI. Then it
fine-tunes the models on English pairs of sentences and on English questions, and evaluates them on
XNLI and XQuAD, language by language. It runs three examples: `pretrain_masked_lm.py`,
`finetune_xnli.py` and `finetune_qa.py`. The models are small and see little text, so the numbers
are low. They show that each step works in each language.

    KERAS_BACKEND=tensorflow python -m examples.paper.multilingual --data DATA \
        --output examples/paper/results/multilingual.json

`--data` is a folder with `xnli/dev-LL.tsv`, `xnli/test-LL.tsv` and `xnli/test-labels.txt` in
XTREME's form, `xquad/xquad.LL.json`, and `squad_v1.1/train*.json`. MNLI is not needed: the first
1,992 pairs of `dev-en.tsv` replace it. The same pairs of each language are the text for
pretraining. The evaluation uses `test-LL.tsv`, or the last 498 pairs of `dev-LL.tsv` for languages
without a test file. An interrupted run continues if you give the same command again.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import make_parser, markdown_table, page_of, parse, save, start
from examples.paper import xnli_data
from examples.paper.common import positive_int
from examples.paper.example_runs import as_options, read_table, run_example, validation_losses

MODULE = "examples.paper.multilingual"
# Three hypotheses belong to one premise, so this is a multiple of three.
TRAINING_PAIRS = 1992
PRETRAINING = {
    "vocabulary-size": 8000,
    "sequence-length": 256,
    "num-layers": 2,
    "num-heads": 4,
    "hidden-dim": 128,
    "intermediate-dim": 512,
    "steps": 400,
    "batch-size": 16,
}
PAIRS = {"sequence-length": 96, "batch-size": 32, "learning-rates": 0.0005, "epochs": 4}
QUESTIONS = {
    "sequence-length": 256,
    "doc-stride": 128,
    "batch-size": 16,
    "learning-rates": 0.0005,
    "epochs": 2,
    "examples": 1500,
}
SETTINGS = ("position_encoding", "evaluation_examples")


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    recipe = {"pretraining": PRETRAINING, "pairs": PAIRS, "questions": QUESTIONS}
    for files in ("xnli/dev-en.tsv", "squad_v1.1/train*.json", "xquad/xquad.??.json"):
        if not list(options.data.glob(files)):
            sys.exit(f"--data must hold {files}. Received: {options.data}")
    run = start(MODULE, options, SETTINGS, **recipe)
    run["pairs"] = write_pairs_and_texts(options)
    pretrain(options)
    finetune(options)
    for name in options.position_encoding:
        preset = preset_of(options, name)
        run["cells"][name] = {
            "losses": validation_losses(preset.parent),
            **{task: scores(options.runs / task, preset) for task in ("xnli", "qa")},
        }
    save(options, run, make_page)
    print(make_page({options.name: run}))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with xnli, xquad and squad_v1.1")
    add("--position-encoding", nargs="+", default=["diet_abs", "input"], help="one model for each")
    add("--evaluation-examples", type=positive_int, default=501, help="most of each language")
    add("--runs", type=Path, default=Path("runs", "multilingual"), help="folder for the runs")
    return parse(parser, argv)


# === Data ===


def write_pairs_and_texts(options: argparse.Namespace) -> dict[str, list[str | int]]:
    """Write a text and pairs to evaluate for each language, and English pairs to train on.

    Returns:
        The name of the file and the number of the pairs to evaluate, for each language.
    """
    xnli, folder = options.data / "xnli", options.runs
    folder.mkdir(parents=True, exist_ok=True)
    sources: dict[str, list[str | int]] = {}
    for file in sorted(xnli.glob("dev-*.tsv")):
        language = xnli_data.language_of(file)
        pairs = read_pairs(file)
        training, evaluation = pairs[:TRAINING_PAIRS], pairs[TRAINING_PAIRS:]
        test = xnli / f"test-{language}.tsv"
        if test.exists():
            file, evaluation = test, read_pairs(test, xnli / "test-labels.txt")
        evaluation = evaluation[: options.evaluation_examples]
        sources[language] = [file.name, len(evaluation)]
        # A premise and its hypotheses are a document.
        groups = itertools.groupby(training, lambda pair: pair[0])
        documents = ("\n".join([premise, *(pair[1] for pair in of)]) for premise, of in groups)
        (folder / f"{language}.txt").write_text("\n\n".join(documents), encoding="utf-8")
        write_pairs(folder / f"xnli-{language}.tsv", evaluation)
        if language == "en":
            write_pairs(folder / "train.tsv", training)
    return sources


def read_pairs(file: Path, labels: Path | None = None) -> list[tuple[str, str, str]]:
    """Return premises, hypotheses and the names of their classes."""
    pairs = xnli_data.read(file, labels)
    names = (xnli_data.CLASSES[label] for label in pairs.labels)
    return list(zip(pairs.premises, pairs.hypotheses, names, strict=True))


def write_pairs(file: Path, pairs: Sequence[tuple[str, str, str]]) -> None:
    lines = ("\t".join(pair) + "\r\n" for pair in pairs)
    file.write_text("".join(lines), encoding="utf-8", newline="")


# === Runs ===


def pretrain(options: argparse.Namespace) -> None:
    words: list[Any] = ["--position-encoding", *options.position_encoding]
    for file in sorted(options.runs.glob("??.txt")):
        words += ["--language", file.stem, file]
    words += [*as_options(PRETRAINING), "--initial-score-stddev", "bert"]
    words += ["--output-dir", options.runs / "pretraining"]
    run_example("pretrain_masked_lm.py", *words)


def finetune(options: argparse.Namespace) -> None:
    presets = [preset_of(options, name) for name in options.position_encoding]
    pairs = sorted(options.runs.glob("xnli-??.tsv"))
    words = ["--presets", *presets, *as_options(PAIRS)]
    words += ["--train", options.runs / "train.tsv", "--test", *pairs]
    run_example("finetune_xnli.py", *words, "--output-dir", options.runs / "xnli")
    questions = sorted((options.data / "squad_v1.1").glob("train*.json"))
    words = ["--presets", *presets, *as_options(QUESTIONS), "--train", *questions]
    words += ["--xquad", *sorted((options.data / "xquad").glob("xquad.??.json"))]
    words += ["--evaluation-examples", options.evaluation_examples]
    run_example("finetune_qa.py", *words, "--output-dir", options.runs / "qa")


def preset_of(options: argparse.Namespace, name: str) -> Path:
    return options.runs / "pretraining" / name / "preset"


# === Results ===


def scores(folder: Path, preset: Path) -> dict[str, dict[str, float]]:
    """Return the metrics of a model for each language, and at the end for their mean."""
    found: dict[str, dict[str, float]] = {}
    for row in read_table(folder / "results.csv"):
        if row["model"] == str(preset):
            language = row["task"].split()[-1]
            found.setdefault(language, {})[row["metric"]] = float(row["median"])
    return dict(sorted(found.items(), key=lambda item: (item[0] == "mean", item[0])))


def make_page(runs: dict[str, Any]) -> str:
    return page_of("XNLI and XQuAD with small multilingual models", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    cells, pairs = run["cells"], run["pairs"]
    lines = markdown_table(
        ["", *cells],
        [["loss of masked tokens", *(f"{cell['losses'][-1]:.2f}" for cell in cells.values())]],
    )
    lines += ["", "### XNLI: accuracy", ""]
    rows = []
    for language in next(iter(cells.values()))["xnli"]:
        file, number = pairs.get(language, ["", ""])
        values = (f"{cell['xnli'][language]['accuracy']:.1f}" for cell in cells.values())
        rows.append([language, file, f"{number}", *values])
    lines += markdown_table(["language", "file", "pairs", *cells], rows)
    lines += ["", "### XQuAD: F1 and exact match", ""]
    names = ("f1", "exact_match")
    rows = [
        [
            language,
            *(f"{cell['qa'][language][name]:.1f}" for cell in cells.values() for name in names),
        ]
        for language in next(iter(cells.values()))["qa"]
    ]
    columns = [f"{name}, {title}" for name in cells for title in ("F1", "exact match")]
    return [*lines, *markdown_table(["language", *columns], rows)]


if __name__ == "__main__":
    main()
