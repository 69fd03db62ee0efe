"""Table 4 of the paper at the scale of Multi30k: translators with different position encodings.

This command runs `translate.py` for each direction, encoding and seed. All runs have the
same data, size, budget and search. A run that was interrupted is resumed, and a finished one is
not run again, also if only the file of the results is left. The table has the means over the
seeds, with standard deviations.

    python -m examples.paper.translation --data multi30k --directions en-de de-en --seeds 0 1 \
        --output examples/paper/results/translation.json

The folder of the data holds `train.en`, `val.en`, `test_2016_flickr.en` and the same files of the
other languages (https://github.com/multi30k/dataset, task 1).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import tqdm

from benchmarks.results import markdown_table, mean_and_deviation, write
from examples.paper.example_runs import ENVIRONMENT, FOLDER, as_options, validation_losses

EXAMPLE = FOLDER / "translate.py"
PEER = FOLDER / "translation_peer.py"
FROM_MARIAN = FOLDER / "translation_from_marian.py"
# The script of each row of the table, and arguments of this row. Marian is a model of
# `transformers`, whose BLEU checks ours. It has post-norm blocks, so one of our rows has them too,
# and another one also begins with Marian's initial weights. All rows have our beam search.
ROWS = {
    "sinusoidal": (EXAMPLE, "--position-encoding", "sinusoidal"),
    "sinusoidal_post_norm": (EXAMPLE, "--position-encoding", "sinusoidal", "--post-norm"),
    "sinusoidal_from_marian": (FROM_MARIAN, "--position-encoding", "sinusoidal", "--post-norm"),
    "shaw": (EXAMPLE, "--position-encoding", "shaw", "--max-distance", "20"),
    "diet_rel": (EXAMPLE, "--position-encoding", "diet_rel"),
    "diet_abs": (EXAMPLE, "--position-encoding", "diet_abs"),
    **{
        f"{name}, scores of {stddev}": (
            *(EXAMPLE, "--position-encoding", name, "--initial-score-stddev", stddev),
        )
        for name in ("diet_abs", "diet_rel")
        for stddev in ("0.5", "1")
    },
    "marian": (PEER,),
}
# The same for all rows.
RECIPE = {
    "num-layers": 2,
    "num-heads": 4,
    "hidden-dim": 128,
    "intermediate-dim": 512,
    "vocabulary-size": 4000,
    "sequence-length": 80,
    "tokens-per-batch": 2048,
    "learning-rate": 0.002,
    "warmup-steps": 600,
    "epochs": 8,
    "averaged-epochs": 3,
}


def main(argv=None):
    arguments = parse_arguments(argv)
    runs = [
        (direction, row, seed)
        for seed in arguments.seeds
        for direction in arguments.directions
        for row in arguments.encodings
    ]
    results = earlier_results(arguments)
    for run in tqdm.tqdm(runs, unit="run", disable=not sys.stderr.isatty()):
        if run in results:
            continue
        direction, row, seed = run
        folder = arguments.runs / f"{direction}-{row}-{seed}"
        words = command(arguments, *run, folder)
        claim(folder, words)
        if not (folder / "bleu.json").exists():
            subprocess.run(words, check=True, env=ENVIRONMENT)
        run_of_table = {"direction": direction, "encoding": row, "seed": seed}
        results[run] = {**run_of_table, **results_of(folder)}
        write_results(arguments, list(results.values()))
    print(make_page({"recipe": recipe_of(arguments), "runs": list(results.values())}))


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
    changes = {name: type(RECIPE[name])(value) for name, value in arguments.change}
    return {**RECIPE, **changes}


def earlier_results(arguments):
    """Return the runs in the file of the results, by direction, encoding and seed."""
    if not arguments.output.exists():
        return {}
    earlier = json.loads(arguments.output.read_text(encoding="utf-8"))
    if earlier["recipe"] != recipe_of(arguments):
        sys.exit(
            f"{arguments.output} has results of another recipe: {earlier['recipe']}. Use the same "
            "recipe, or another --output."
        )
    return {(run["direction"], run["encoding"], run["seed"]): run for run in earlier["runs"]}


def command(arguments, direction, row, seed, folder):
    """Return the command of one run."""
    languages = direction.split("-")
    words = [sys.executable, *map(str, ROWS[row])]
    for option, split in (
        ("--text", "train"),
        ("--validation-text", "val"),
        ("--test-text", "test_2016_flickr"),
    ):
        words += [option, *(str(arguments.data / f"{split}.{language}") for language in languages)]
    words += map(str, as_options(recipe_of(arguments)))
    return [*words, "--seed", str(seed), "--output-dir", str(folder)]


def claim(folder, words):
    """Write the command of a run into its folder, or stop if the folder is of another command."""
    path = folder / "command.json"
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != words:
        sys.exit(f"{folder} holds a run of another command. Choose another --runs.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(words), encoding="utf-8")


def results_of(folder):
    """Return BLEU and the validation losses of a finished run.

    Marian has a second BLEU, of the search of `transformers`.
    """
    results = json.loads((folder / "bleu.json").read_text())
    with_transformers = folder / "transformers" / "bleu.json"
    if with_transformers.exists():
        results["bleu_with_transformers"] = json.loads(with_transformers.read_text())["bleu"]
    return {**results, "validation_losses": validation_losses(folder)}


def write_results(arguments, results):
    """Write the results, a page with their table, and a picture."""
    contents = {"recipe": recipe_of(arguments), "runs": results}
    write(arguments.output, contents, make_page(contents))
    plot(results).savefig(arguments.output.with_suffix(".svg"))


def make_page(contents):
    """Return the results as Markdown."""
    recipe = ", ".join(f"{name} {value}" for name, value in contents["recipe"].items())
    results = contents["runs"]
    directions, seeds = (_different(results, name) for name in ("direction", "seed"))
    return "\n".join(
        [
            "# Translation of Multi30k: BLEU on test2016",
            "",
            "    python -m examples.paper.translation --data multi30k --output "
            "examples/paper/results/translation.json \\",
            f"        --directions {' '.join(directions)} --seeds {' '.join(map(str, seeds))}",
            "",
            f"- Recipe: {recipe}",
            f"- SacreBLEU: {results[0]['signature']}",
            "- Mean of the seeds, and their standard deviation",
            "",
            *table_of(results),
        ]
    )


def table_of(results):
    """Return the table: a row for each encoding and search, and a column for each direction."""
    directions = _different(results, "direction")
    rows = {(encoding, "bleu"): encoding for encoding in _different(results, "encoding")}
    rows |= {
        (run["encoding"], "bleu_with_transformers"): f"{run['encoding']}, search of transformers"
        for run in results
        if "bleu_with_transformers" in run
    }
    lines = [
        [title, *(mean_and_deviation(_scores(results, row, score, name), 2) for name in directions)]
        for (row, score), title in rows.items()
    ]
    return markdown_table(["", *directions], lines)


def plot(results):
    """Draw the loss of each run over its epochs, and the BLEU of all runs."""
    figure, (losses, scores) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    directions = _different(results, "direction")
    for place, encoding in enumerate(_different(results, "encoding")):
        color = f"C{place}"
        for run in (run for run in results if run["encoding"] == encoding):
            values = run["validation_losses"]
            losses.plot(range(1, len(values) + 1), values, color=color, linewidth=1)
            x = directions.index(run["direction"]) + 0.1 * place
            label = encoding if run is _first_run(results, encoding) else None
            scores.plot(x, run["bleu"], "o", color=color, label=label)
    losses.set(xlabel="epoch", ylabel="validation loss")
    scores.set(ylabel="BLEU on test2016", xticks=range(len(directions)), xticklabels=directions)
    scores.legend()
    return figure


def _first_run(results, encoding):
    return next(run for run in results if run["encoding"] == encoding)


def _different(results, name):
    return list(dict.fromkeys(result[name] for result in results))


def _scores(results, encoding, score, direction):
    return [
        run[score]
        for run in results
        if run["encoding"] == encoding and run["direction"] == direction
    ]


if __name__ == "__main__":
    main()
