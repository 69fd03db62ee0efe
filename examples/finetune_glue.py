"""Fine-tune DietBert models on tasks of GLUE, side by side.

For each model and task a classifier is trained with each learning rate of a grid and each seed, as
in the paper (appendix A: AdamW, warm-up over a tenth of the steps, then linear decay). Of the
learning rates that with the best median over the seeds is reported, with the lowest and the highest
value. Metrics are GLUE's, on the validation split: Matthews correlation, accuracy, Pearson and
Spearman correlation.

    python examples/finetune_glue.py
    python examples/finetune_glue.py --presets runs/diet_abs/preset runs/input/preset \\
        --tasks cola rte stsb --data DATA --learning-rates 1e-4 3e-4 --seeds 0 1 2

Without options three small models without pretraining learn whether the words of a sentence are in
order, on sentences made by rule. `--data` is a folder with GLUE's files, `tfds` or `datasets`.
Every run adds a line to `runs.csv` in the output folder, and runs that have one are not repeated:
start the script again after an interruption. `results.csv`, `results.md` and `results.png` sum up.
"""

import argparse
import csv
import itertools
import os
import statistics
import sys
from pathlib import Path

# Before Keras is imported: one choice of backend for whoever did not make one.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import glue_data
import keras
import numpy as np
from tqdm import tqdm

from keras_diet import models, pretraining

FIELDS = ("model", "task", "learning_rate", "seed", "epochs", "batch_size", "sequence_length")


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--presets",
        nargs="+",
        metavar="PRESET",
        help="models to start from: folders or addresses of presets. Without them small random "
        "models are made, one for each --position-encoding",
    )
    parser.add_argument(
        "--position-encoding",
        nargs="+",
        default=["diet_rel", "diet_abs", "input"],
        help="of random models, where there are no --presets",
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=["embedded"],
        choices=list(glue_data.TASKS),
        help="what to learn; all but embedded need --data",
    )
    parser.add_argument("--data", help="folder with GLUE's files, tfds, or datasets")
    parser.add_argument(
        "--sequence-length", type=int, help="tokens in an input; default: 128, embedded 12"
    )
    parser.add_argument(
        "--learning-rates", nargs="+", type=float, default=[1e-3], help="grid, peaks of the rate"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="runs of each rate")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the examples")
    parser.add_argument("--batch-size", type=int, default=32, help="examples in a batch")
    parser.add_argument("--warmup-proportion", type=float, default=0.1, help="part of the steps")
    parser.add_argument("--weight-decay", type=float, default=0.01, help="of AdamW")
    parser.add_argument("--examples", type=int, help="most training examples; default: all")
    parser.add_argument(
        "--add-segments",
        action="store_true",
        help="give models that were pretrained without segments new ones, at zero",
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=Path("runs", "finetune_glue", keras.config.backend()),
        help="where results go",
    )
    arguments = parser.parse_args(argv)
    if arguments.data is None and set(arguments.tasks) != {"embedded"}:
        parser.error("--tasks other than embedded need --data: a folder, tfds or datasets")
    if arguments.sequence_length is None:
        arguments.sequence_length = 12 if arguments.tasks == ["embedded"] else 128
    for name in ("sequence_length", "epochs", "batch_size"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    return arguments


def model_names(arguments):
    return arguments.presets or arguments.position_encoding


def random_preset(position_encoding, arguments):
    """Save a small model without pretraining, with a vocabulary of the embedded task."""
    folder = arguments.output_dir / "random" / position_encoding
    if (folder / "config.json").exists():
        return str(folder)
    texts, _ = glue_data.load("embedded", "train", None)
    vocabulary = pretraining.train_wordpiece_vocabulary(texts, 200)
    keras.utils.set_random_seed(0)
    backbone = models.DietBertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=arguments.sequence_length,
        position_encoding=position_encoding,
        segment_encoding="per-head" if position_encoding.startswith("diet") else "input",
    )
    tokenizer = models.DietBertTokenizer(vocabulary, lowercase=True)
    backbone.save_to_preset(str(folder))
    tokenizer.save_to_preset(str(folder))
    return str(folder)


def make_classifier(preset, task, arguments):
    """Return a classifier on the backbone of a preset, and the preprocessor of its texts."""
    backbone = models.DietBertBackbone.from_preset(preset)
    if arguments.add_segments:
        backbone = models.add_segments(backbone)
    return models.DietBertTextClassifier(backbone, num_classes=task.num_classes)


def make_preprocessor(preset, arguments):
    tokenizer = models.DietBertTokenizer.from_preset(preset)
    return models.DietBertTextClassifierPreprocessor(
        tokenizer, sequence_length=arguments.sequence_length
    )


def preprocess(preprocessor, texts):
    """Return the arrays of texts; each is tokenized once for all runs."""
    return {name: np.asarray(array) for name, array in preprocessor(texts).items()}


def compile_classifier(classifier, num_examples, learning_rate, arguments):
    steps = arguments.epochs * -(-num_examples // arguments.batch_size)
    schedule = pretraining.WarmupLinearDecay(learning_rate, steps, arguments.warmup_proportion)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=arguments.weight_decay)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    classifier.compile(optimizer=optimizer, jit_compile=keras.config.backend() != "torch")


def evaluate(outputs, labels, task):
    """Return the official metrics of logits or scores."""
    from scipy import stats
    from sklearn import metrics

    predicted = outputs[:, 0] if task.num_classes == 1 else outputs.argmax(axis=-1)
    functions = {
        "matthews": metrics.matthews_corrcoef,
        "accuracy": metrics.accuracy_score,
        "pearson": lambda labels, values: stats.pearsonr(labels, values).statistic,
        "spearman": lambda labels, values: stats.spearmanr(labels, values).statistic,
    }
    return {name: float(functions[name](labels, predicted)) for name in task.metrics}


def train_and_evaluate(preset, task, splits, learning_rate, seed, arguments):
    keras.utils.set_random_seed(seed)
    classifier = make_classifier(preset, task, arguments)
    inputs, labels = splits["train"]
    compile_classifier(classifier, len(labels), learning_rate, arguments)
    options = {"batch_size": arguments.batch_size, "verbose": 0}
    # KerasHub's own `fit` makes datasets of arrays, and never shuffles them.
    keras.Model.fit(classifier, inputs, labels, epochs=arguments.epochs, **options)
    inputs, labels = splits["validation"]
    outputs = keras.Model.predict(classifier, inputs, **options)
    return evaluate(np.asarray(outputs, "float32"), labels, task)


def load_splits(name, preset, arguments):
    preprocessor, splits = make_preprocessor(preset, arguments), {}
    for split in ("train", "validation"):
        texts, labels = glue_data.load(name, split, arguments.data)
        if split == "train" and arguments.examples:
            keep = slice(arguments.examples)
            texts = tuple(part[keep] for part in texts) if isinstance(texts, tuple) else texts[keep]
            labels = labels[keep]
        splits[split] = preprocess(preprocessor, texts), labels
    return splits


# === Results ===


def read_runs(path):
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def append_run(path, run):
    """Add a line at once, so that an interruption loses no finished run."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*FIELDS, "metrics"])
        if is_new:
            writer.writeheader()
        writer.writerow(run)


def key_of(run):
    return tuple(str(run[name]) for name in FIELDS)


def metrics_of(run):
    parts = (part.split("=") for part in run["metrics"].split(" "))
    return {name: float(value) for name, value in parts}


def summarize(runs):
    """Return a row for each model and task: the best learning rate by the median of its seeds."""
    rows = []
    for model, task in dict.fromkeys((run["model"], run["task"]) for run in runs):
        by_rate = {}
        for run in runs:
            if (run["model"], run["task"]) == (model, task):
                by_rate.setdefault(run["learning_rate"], []).append(metrics_of(run))
        first = glue_data.TASKS[task].metrics[0]
        best = max(by_rate, key=lambda rate: statistics.median(m[first] for m in by_rate[rate]))
        for metric in glue_data.TASKS[task].metrics:
            values = [run_metrics[metric] for run_metrics in by_rate[best]]
            rows.append(
                {
                    "task": task,
                    "metric": metric,
                    "model": model,
                    "learning_rate": best,
                    "seeds": len(values),
                    "median": f"{100 * statistics.median(values):.1f}",
                    "lowest": f"{100 * min(values):.1f}",
                    "highest": f"{100 * max(values):.1f}",
                }
            )
    return sorted(rows, key=lambda row: (row["task"], row["metric"]))


def write_summary(rows, folder):
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    (folder / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    plot(rows, folder / "results.png")


def plot(rows, path):
    """Draw the medians as bars, with lines from the lowest to the highest run."""
    from matplotlib import pyplot

    columns = list(dict.fromkeys((row["task"], row["metric"]) for row in rows))
    names = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = pyplot.subplots(figsize=(2 + 1.5 * len(columns), 3.5))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        found = {(row["task"], row["metric"]): row for row in rows if row["model"] == name}
        places = [i for i, column in enumerate(columns) if column in found]
        values = np.array(
            [
                [float(found[columns[i]][key]) for key in ("median", "lowest", "highest")]
                for i in places
            ]
        )
        offset = (number - (len(names) - 1) / 2) * width
        errors = [values[:, 0] - values[:, 1], values[:, 2] - values[:, 0]]
        axes.bar(np.array(places) + offset, values[:, 0], width, yerr=errors, label=name, capsize=3)
    axes.set_xticks(range(len(columns)), [f"{task}\n{metric}" for task, metric in columns])
    axes.set_ylabel("median of the seeds")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main(argv=None):
    arguments = parse_arguments(argv)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    path = arguments.output_dir / "runs.csv"
    done = {key_of(run) for run in read_runs(path)}
    grid = list(itertools.product(arguments.learning_rates, arguments.seeds))
    cells = list(itertools.product(arguments.tasks, model_names(arguments)))
    with tqdm(total=len(cells) * len(grid), unit="run", disable=not sys.stderr.isatty()) as bar:
        for task, model in cells:
            preset = model if arguments.presets else random_preset(model, arguments)
            splits = None
            for learning_rate, seed in grid:
                run = {
                    "model": model,
                    "task": task,
                    "learning_rate": learning_rate,
                    "seed": seed,
                    **{name: getattr(arguments, name) for name in FIELDS[4:]},
                }
                if key_of(run) not in done:
                    splits = splits or load_splits(task, preset, arguments)
                    found = train_and_evaluate(
                        preset, glue_data.TASKS[task], splits, learning_rate, seed, arguments
                    )
                    run["metrics"] = " ".join(
                        f"{name}={value:.6f}" for name, value in found.items()
                    )
                    append_run(path, run)
                    tqdm.write(f"{model}, {task}, {learning_rate}, seed {seed}: {run['metrics']}")
                bar.update()
    wanted = set(model_names(arguments))
    runs = [
        run for run in read_runs(path) if run["model"] in wanted and run["task"] in arguments.tasks
    ]
    write_summary(summarize(runs), arguments.output_dir)
    print((arguments.output_dir / "results.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
