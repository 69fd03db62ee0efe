"""Table 4 of the paper at the scale of Multi30k: translators with different position encodings.

This command runs `examples/translate.py` for each direction, encoding and seed. All runs have the
same data, size, budget and search. A run that was interrupted is resumed, and a finished one is
not run again. The table has the means over the seeds, with standard deviations.

    python -m benchmarks.translation --data multi30k --directions en-de de-en --seeds 0 1 \
        --output docs/benchmarks/translation.json

The folder of the data holds `train.en`, `val.en`, `test_2016_flickr.en` and the same files of the
other languages (https://github.com/multi30k/dataset, task 1).
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import tqdm

from benchmarks.results import markdown_table, write

# Arguments of `examples/translate.py` for each row of the table.
ROWS = {
    "sinusoidal": [],
    "shaw": ["--max-distance", "20"],
    "diet_rel": [],
    "diet_abs": [],
}
# The same for all rows.
RECIPE = {
    "num-layers": 3,
    "num-heads": 4,
    "hidden-dim": 256,
    "intermediate-dim": 1024,
    "vocabulary-size": 8000,
    "sequence-length": 128,
    "tokens-per-batch": 4096,
    "learning-rate": 0.001,
    "warmup-steps": 2000,
    "epochs": 60,
    "averaged-epochs": 5,
}
EXAMPLE = Path(__file__).parents[1] / "examples" / "translate.py"


def main(argv=None):
    arguments = parse_arguments(argv)
    runs = [
        (direction, row, seed)
        for seed in arguments.seeds
        for direction in arguments.directions
        for row in arguments.encodings
    ]
    results = []
    for direction, row, seed in tqdm.tqdm(runs, unit="run", disable=not sys.stderr.isatty()):
        folder = arguments.runs / f"{direction}-{row}-{seed}"
        if not (folder / "bleu.json").exists():
            subprocess.run(command(arguments, direction, row, seed, folder), check=True)
        bleu = json.loads((folder / "bleu.json").read_text())
        results.append({"direction": direction, "encoding": row, "seed": seed, **bleu})
    page = "\n".join(["# Translation of Multi30k: BLEU on test2016", "", *table_of(results), ""])
    write(arguments.output, {"recipe": recipe_of(arguments), "runs": results}, page)
    print(page)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="Train and compare translators.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the text files")
    parser.add_argument("--directions", nargs="+", default=["en-de"], help="such as en-de cs-en")
    parser.add_argument("--encodings", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs", "translation"))
    parser.add_argument("--output", type=Path, required=True, help="file of the results (.json)")
    parser.add_argument(
        "--change",
        nargs="+",
        type=lambda text: text.split("="),
        default=[],
        help="other values of the recipe, such as epochs=5",
    )
    return parser.parse_args(argv)


def recipe_of(arguments):
    return {**RECIPE, **dict(arguments.change)}


def command(arguments, direction, row, seed, folder):
    """Return the command of one run."""
    languages = direction.split("-")
    words = [sys.executable, str(EXAMPLE), "--position-encoding", row, *ROWS[row]]
    for option, split in (
        ("--text", "train"),
        ("--validation-text", "val"),
        ("--test-text", "test_2016_flickr"),
    ):
        words += [option, *(str(arguments.data / f"{split}.{language}") for language in languages)]
    for name, value in recipe_of(arguments).items():
        words += [f"--{name}", str(value)]
    return [*words, "--seed", str(seed), "--output-dir", str(folder)]


def table_of(results):
    """Return the table: a row for each encoding, and a column for each direction."""
    encodings = list(dict.fromkeys(result["encoding"] for result in results))
    directions = list(dict.fromkeys(result["direction"] for result in results))
    rows = []
    for encoding in encodings:
        row = [encoding]
        for direction in directions:
            scores = [
                result["bleu"]
                for result in results
                if (result["encoding"], result["direction"]) == (encoding, direction)
            ]
            row.append(_mean(scores))
        rows.append(row)
    return markdown_table(["", *directions], rows)


def _mean(scores):
    if len(scores) == 1:
        return f"{scores[0]:.2f}"
    return f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"


if __name__ == "__main__":
    main()
