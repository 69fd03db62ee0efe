"""All position encodings in the same training: masked language modeling, then tasks of GLUE.

Every row has the same text, tokens, sizes and steps. Short runs with another seed choose the
learning rate of each row from a grid. Then the row is pretrained with each seed by
`pretrain_masked_lm.py`, and fine-tuned by `finetune_glue.py`. The page has means
over the seeds, their standard deviations, and paired tests: of encodings against BERT's, `input`,
and of variants of DIET against the encoding itself.

    KERAS_BACKEND=tensorflow python -m examples.paper.study --text train/* \
        --validation-text valid/* --output examples/paper/results/study.json
    KERAS_BACKEND=tensorflow python -m examples.paper.study ... --glue GLUE --tasks cola rte

To resume an interrupted study, give the same command again. Results in the file are kept, also if
the folder of the runs is gone. `--rows` adds rows to the file. Several commands at the same time
need an `--output` each. `--merge FILE ...` adds the rows of their files to `--output`, and trains
nothing.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

import keras
import numpy as np
import tqdm

from benchmarks import measure
from benchmarks.results import write, write_text
from examples.paper import study_page
from examples.paper.example_runs import as_options, read_table, run_example, validation_losses
from examples.paper.run_table import metrics_of

ENCODINGS = (
    *("input", "none", "sinusoidal", "diet_abs", "diet_abs_input", "diet_rel", "shaw", "t5"),
    *("tupe_abs", "tupe_rel", "alibi", "kerple", "sandwich", "fire", "rotary", "transformer_xl"),
    *("deberta", "query_relative", "log_cpb", "forgetting"),
)
# The arguments of each row. The variants have the ranks and the sharing of Tables 8 and 9.
ROWS = {name: ("--position-encoding", name) for name in ENCODINGS} | {
    f"{name}, {option} {value}": ("--position-encoding", name, f"--{option}", value)
    for name, option, value in (
        ("diet_abs", "sharing", "none"),
        ("diet_abs", "sharing", "head-wise"),
        ("diet_abs", "rank", "8"),
        ("diet_abs", "rank", "128"),
        ("diet_rel", "sharing", "head-wise"),
        ("diet_rel", "sharing", "layer-wise"),
    )
}
# The same for all rows.
RECIPE = {
    "num-layers": 2,
    "num-heads": 4,
    "hidden-dim": 128,
    "intermediate-dim": 512,
    "vocabulary-size": 4000,
    "sequence-length": 64,
    "batch-size": 32,
    "dropout": 0.0,
    "steps": 3000,
    "validation-interval": 250,
    "warmup-proportion": 0.05,
}
# After 500 steps, a rate of 0.002 has a lower loss than 0.001, and after 3000 steps a higher one.
GRID_STEPS = 1000
# The study does not use the seed of the grid, so the choice of a rate favors no seed.
GRID_SEED = 1000
# Only SST-2 has more examples. All of them would take as long as the pretraining.
TASKS = ("cola", "sst2", "stsb", "rte")
GLUE_LEARNING_RATE = 3e-4
GLUE = {"epochs": 3, "batch-size": 32, "sequence-length": 64, "examples": 10_000}


def main(argv=None):
    arguments = parse_arguments(argv)
    results = start(arguments)
    if arguments.merge:
        for path in arguments.merge:
            merge(results, path)
        save(arguments, results)
        return
    bar = tqdm.tqdm(arguments.rows, unit="row", disable=not sys.stderr.isatty())
    for row in bar:
        bar.set_description(row)
        cell = cell_of(results, row)
        for rate in arguments.learning_rates:
            if str(rate) not in cell["grid"]:
                history = pretrain(arguments, row, rate, GRID_SEED)
                cell["grid"][str(rate)] = history["losses"][-1]
                save(arguments, results)
        for seed in map(str, arguments.seeds):
            if seed not in cell["seeds"]:
                cell["seeds"][seed] = pretrain(arguments, row, best_rate(cell), seed)
                save(arguments, results)
            scores = cell["glue"].get(seed, {})
            missing = [task for task in arguments.tasks if task not in scores]
            if missing:
                found = finetune(arguments, row, best_rate(cell), seed, missing)
                cell["glue"][seed] = scores | found
                save(arguments, results)
    print(study_page.make_page(results))


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--text", nargs="+", type=Path, required=True, help="text files, as in the example")
    add("--validation-text", nargs="+", type=Path, required=True, help="held-out text files")
    add("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    add("--learning-rates", nargs="+", type=float, default=[0.0005, 0.001, 0.002])
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--glue", help="folder with the files of GLUE; default: no fine-tuning")
    add("--tasks", nargs="+", default=None, help="default: cola sst2 stsb rte, with --glue")
    add("--glue-learning-rate", type=float, default=GLUE_LEARNING_RATE)
    add("--runs", type=Path, default=Path("runs", "study"), help="folder for the runs")
    add("--output", type=Path, required=True, help="file of the results (.json)")
    add("--merge", nargs="+", type=Path, help="add the rows of these files to --output, and stop")
    add("--change", nargs="+", type=lambda text: text.split("="), default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args(argv)
    if arguments.tasks and not arguments.glue:
        parser.error("--tasks needs --glue")
    if arguments.glue and arguments.tasks is None:
        arguments.tasks = list(TASKS)
    if GRID_SEED in arguments.seeds:
        parser.error(f"--seeds must not have {GRID_SEED}, which chooses the learning rates")
    arguments.tasks = arguments.tasks or []
    return arguments


# === Results ===


def start(arguments):
    """Return the results in the file, or results without rows."""
    recipe = recipe_of(arguments)
    files = {
        "text": [path.name for path in arguments.text],
        "validation-text": [path.name for path in arguments.validation_text],
    }
    machine = measure.machine("cpu")
    results = {"recipe": recipe, "files": files, "machine": machine, "rows": {}}
    if arguments.output.exists():
        results = json.loads(arguments.output.read_text(encoding="utf-8"))
        for name, expected in (("recipe", recipe), ("files", files)):
            check_is_same(results[name], expected, "--output", arguments.output)
    claim_runs(arguments, recipe)
    return results


def claim_runs(arguments, recipe):
    """Reserve the folder of the runs for a recipe and texts. They share their packed text."""
    texts = [str(path) for path in (*arguments.text, *arguments.validation_text)]
    claim, path = {**recipe, "texts": texts}, arguments.runs / "recipe.json"
    if path.exists():
        check_is_same(json.loads(path.read_text()), claim, "--runs", arguments.runs)
    else:
        write_text(path, json.dumps(claim))


def check_is_same(found, expected, option, path):
    changed = [name for name in expected if found.get(name) != expected[name]]
    if changed:
        sys.exit(
            f"{path} holds a study with other values of: {', '.join(changed)}. Use the same "
            f"values, or another {option}."
        )


def cell_of(results, row):
    """Return the results of a row, to which more can be added."""
    return results["rows"].setdefault(row, {"grid": {}, "seeds": {}, "glue": {}})


def merge(results, path):
    """Add the rows of another file. Both have the same recipe and text."""
    others = json.loads(path.read_text(encoding="utf-8"))
    for name in ("recipe", "files"):
        check_is_same(others[name], results[name], "--merge", path)
    results.setdefault("word_frequencies", others["word_frequencies"])
    for row, cell in others["rows"].items():
        mine = cell_of(results, row)
        add_new(mine["grid"], cell["grid"], f"{path}: {row}, grid")
        add_new(mine["seeds"], cell["seeds"], f"{path}: {row}, seed")
        for seed, scores in cell["glue"].items():
            add_new(mine["glue"].setdefault(seed, {}), scores, f"{path}: {row}, seed {seed}")
    results["rows"] = {row: results["rows"][row] for row in ROWS if row in results["rows"]}


def add_new(values, others, place):
    """Add the values of a dictionary to another one. Common keys must have equal values."""
    for name, value in others.items():
        # As text, because NaN is not equal to NaN.
        if json.dumps(values.setdefault(name, value)) != json.dumps(value):
            sys.exit(f"{place} {name} has other results than --output. Remove them in one file.")


def recipe_of(arguments):
    changes = {name: type(RECIPE[name])(value) for name, value in arguments.change}
    return {
        **RECIPE,
        **changes,
        "grid-steps": GRID_STEPS,
        "learning-rates": arguments.learning_rates,
        "glue": {**GLUE, "learning-rate": arguments.glue_learning_rate},
        "backend": keras.config.backend(),
    }


def save(arguments, results):
    """Write the results, their page, and a picture."""
    if "word_frequencies" not in results:
        results["word_frequencies"] = loss_of_word_frequencies(arguments.runs)
    write(arguments.output, results, study_page.make_page(results))
    study_page.plot(results).savefig(arguments.output.with_suffix(".svg"))


def best_rate(cell):
    """Return the learning rate with the lowest loss in the grid. NaN is not low."""
    return min(cell["grid"], key=lambda rate: (math.isnan(cell["grid"][rate]), cell["grid"][rate]))


def loss_of_word_frequencies(runs):
    """Return the validation loss of a model that knows only how often each token occurs."""
    tokens = (runs / "vocabulary.txt").read_text(encoding="utf-8").split("\n")
    train, validation = (np.load(runs / f"{name}.npy") for name in ("train", "validation"))
    counts = np.bincount(train.ravel(), minlength=len(tokens)).astype("float64")
    # These tokens are never masked.
    special = [tokens.index(token) for token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")]
    counts[special] = 0
    masked = validation[~np.isin(validation, special)]
    return float(np.log(counts.sum()) - np.log(np.maximum(counts[masked], 1)).mean())


# === Runs ===


def pretrain(arguments, row, rate, seed):
    """Pretrain a model, and return its validation losses after each interval, and its tokens."""
    folder = folder_of(arguments, row, rate, seed)
    recipe = {name: recipe_of(arguments)[name] for name in RECIPE}
    if seed == GRID_SEED:
        recipe |= {"steps": GRID_STEPS, "validation-interval": GRID_STEPS}
    words = ["pretrain_masked_lm.py", *ROWS[row], "--learning-rate", rate, "--seed", seed]
    words += ["--initial-score-stddev", "bert"]
    words += ["--text", *arguments.text, "--validation-text", *arguments.validation_text]
    share_data(arguments.runs, folder)
    run_example(*words, *as_options(recipe), "--output-dir", folder)
    share_data(folder, arguments.runs)
    losses = validation_losses(folder / encoding_of(row))
    interval = recipe["validation-interval"] * recipe["batch-size"] * recipe["sequence-length"]
    return {
        "learning_rate": float(rate),
        "losses": losses,
        "tokens": [interval * (i + 1) for i in range(len(losses))],
    }


def finetune(arguments, row, rate, seed, tasks):
    """Fine-tune a pretrained model on tasks, and return the metrics of each task."""
    folder = folder_of(arguments, row, rate, seed)
    preset = folder / encoding_of(row) / "preset"
    if not preset.exists():
        pretrain(arguments, row, rate, seed)
    words = ["finetune_glue.py", "--presets", preset, "--data", arguments.glue, "--tasks", *tasks]
    words += ["--learning-rates", arguments.glue_learning_rate, "--seeds", seed]
    run_example(*words, *as_options(GLUE), "--output-dir", folder / "glue")
    lines = {line["task"]: line for line in read_table(folder / "glue" / "runs.csv")}
    return {task: metrics_of(lines[task]) for task in tasks}


def folder_of(arguments, row, rate, seed):
    return arguments.runs / f"{row.replace(', ', '-').replace(' ', '-')}-{rate}-{seed}"


def encoding_of(row):
    return ROWS[row][1]


def share_data(source, target):
    """Link the vocabulary and the packed text of a run, so that the next run need not make them."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("vocabulary.txt", "train.npy", "validation.npy"):
        if (source / name).exists() and not (target / name).exists():
            os.link(source / name, target / name)


if __name__ == "__main__":
    main()
