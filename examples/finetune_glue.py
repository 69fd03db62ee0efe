"""Fine-tune DietBert models on tasks of GLUE, side by side.

For each model and task a classifier is trained with each learning rate of a grid and each seed, as
in the paper (appendix A: AdamW, warm-up over a tenth of the steps, then linear decay). Of the
learning rates that ran with the most seeds, that with the best median is reported, with the lowest
and the highest value. Metrics are GLUE's, on the validation split: Matthews correlation, accuracy,
Pearson and Spearman correlation.

    python examples/finetune_glue.py
    python examples/finetune_glue.py --presets runs/diet_abs/preset runs/input/preset \\
        --tasks cola rte stsb --data DATA --learning-rates 1e-4 3e-4 --seeds 0 1 2

Without options three small models without pretraining learn whether the words of a sentence are in
order, on sentences made by rule. `--data` is a folder with GLUE's files, `tfds` or `datasets`.
Every run adds a line to `runs.csv` in the output folder, and runs that have one are not repeated:
start the script again after an interruption. `results.csv`, `results.md` and `results.png` sum up
the runs with the same options.
"""

import argparse
import contextlib
import csv
import itertools
import os
import statistics
import sys
import warnings
from pathlib import Path

# Before Keras is imported: one choice of backend for whoever did not make one.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import glue_data
import keras
import numpy as np
from tqdm import tqdm

from keras_diet import models, pretraining

# What a run is, and the options that must be the same for runs to be compared.
OPTIONS = ("epochs", "batch_size", "sequence_length", "warmup_proportion", "weight_decay")
OPTIONS += ("examples", "add_segments", "backend", "strategy")
FIELDS = ("model", "task", "learning_rate", "seed", *OPTIONS)


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
        "--strategy",
        choices=["none", "mirrored", "tpu"],
        default="none",
        help="TensorFlow only: train on all GPUs of this machine, or on the TPU that TPU_NAME "
        "names, by default this machine's; --batch-size counts the examples on all devices",
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
    for name in ("sequence_length", "epochs", "batch_size", "examples"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    check_strategy(parser, arguments)
    arguments.backend = keras.config.backend()
    return arguments


def check_strategy(parser, arguments):
    """Stop where `tf.distribute` cannot work, and say what does."""
    backend = keras.config.backend()
    if arguments.strategy != "none" and backend != "tensorflow":
        parser.error(
            f"--strategy {arguments.strategy} needs KERAS_BACKEND=tensorflow, not {backend}. For "
            "JAX and PyTorch see docs/distribution.md."
        )


def make_strategy(arguments):
    """Return the `tf.distribute` strategy to train with, or `None`."""
    if arguments.strategy == "none":
        return None
    import tensorflow as tf

    if arguments.strategy == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=os.environ.get("TPU_NAME", "local")
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    else:
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    replicas = strategy.num_replicas_in_sync
    if arguments.batch_size % replicas:
        sys.exit(
            f"--batch-size must be a multiple of the number of devices, {replicas}. "
            f"Received: {arguments.batch_size}"
        )
    print(f"{replicas} devices, {arguments.batch_size // replicas} examples on each")
    return strategy


def model_names(arguments):
    return arguments.presets or arguments.position_encoding


def random_preset(position_encoding, arguments):
    """Save a small model without pretraining, with a vocabulary of the embedded task."""
    length = arguments.sequence_length
    folder = arguments.output_dir / "random" / f"{position_encoding}_{length}"
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
        max_sequence_length=length,
        position_encoding=position_encoding,
        segment_encoding="per-head" if position_encoding.startswith("diet") else "input",
    )
    tokenizer = models.DietBertTokenizer(vocabulary, lowercase=True)
    # The file that is looked for comes last, should this be interrupted.
    tokenizer.save_to_preset(str(folder))
    backbone.save_to_preset(str(folder))
    return str(folder)


def check_lengths(arguments):
    """Stop before the first run if a preset takes shorter sequences only."""
    for preset in arguments.presets or ():
        backbone = models.DietBertBackbone.from_preset(preset, load_weights=False)
        if backbone.max_sequence_length < arguments.sequence_length:
            sys.exit(
                f"--sequence-length must be at most {backbone.max_sequence_length} for {preset}. "
                f"Received: {arguments.sequence_length}. For longer sequences use "
                "`keras_diet.models.extend_positions` first."
            )


def make_classifier(preset, task, arguments):
    """Return a classifier on the backbone of a preset; its tokenizer must fit."""
    backbone = models.DietBertBackbone.from_preset(preset)
    if arguments.add_segments:
        backbone = models.add_segments(backbone)
    return models.DietBertTextClassifier(
        backbone, num_classes=task.num_classes, preprocessor=make_preprocessor(preset, arguments)
    )


def make_preprocessor(preset, arguments):
    tokenizer = models.DietBertTokenizer.from_preset(preset)
    return models.DietBertTextClassifierPreprocessor(
        tokenizer, sequence_length=arguments.sequence_length
    )


def preprocess(preprocessor, texts):
    """Return the arrays of texts; each is tokenized once for all runs."""
    return {name: np.asarray(array, "int32") for name, array in preprocessor(texts).items()}


def num_batches(num_examples, arguments):
    """Return the number of steps in an epoch; with a strategy all batches are full."""
    if arguments.strategy == "none":
        return -(-num_examples // arguments.batch_size)
    if num_examples < arguments.batch_size:
        sys.exit(
            f"With --strategy, --batch-size must be at most the number of examples, {num_examples}."
            f" Received: {arguments.batch_size}"
        )
    return num_examples // arguments.batch_size


def compile_classifier(classifier, num_examples, learning_rate, arguments):
    steps = arguments.epochs * num_batches(num_examples, arguments)
    schedule = pretraining.WarmupLinearDecay(learning_rate, steps, arguments.warmup_proportion)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=arguments.weight_decay)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    # With a strategy Keras cannot compile the step of all devices as one.
    jit_compile = keras.config.backend() != "torch" and arguments.strategy == "none"
    classifier.compile(optimizer=optimizer, jit_compile=jit_compile)


def evaluate(outputs, labels, task):
    """Return the official metrics of logits or scores.

    Correlations with outputs that are all the same, or no numbers, are not defined: they are zero,
    as GLUE's Matthews correlation is then.
    """
    from scipy import stats
    from sklearn import metrics

    predicted = outputs[:, 0] if task.num_classes == 1 else outputs.argmax(axis=-1)
    functions = {
        "matthews": metrics.matthews_corrcoef,
        "accuracy": metrics.accuracy_score,
        "pearson": lambda labels, values: stats.pearsonr(labels, values).statistic,
        "spearman": lambda labels, values: stats.spearmanr(labels, values).statistic,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        values = {name: functions[name](labels, predicted) for name in task.metrics}
    return {name: float(np.nan_to_num(value)) for name, value in values.items()}


def train_and_evaluate(preset, task, splits, learning_rate, seed, arguments, strategy=None):
    keras.utils.set_random_seed(seed)
    inputs, labels = splits["train"]
    with strategy.scope() if strategy else contextlib.nullcontext():
        classifier = make_classifier(preset, task, arguments)
        compile_classifier(classifier, len(labels), learning_rate, arguments)
    fit(classifier, inputs, labels, seed, arguments)
    inputs, labels = splits["validation"]
    outputs = predict(classifier, inputs, len(labels), arguments)
    return evaluate(np.asarray(outputs, "float32"), labels, task)


def fit(classifier, inputs, labels, seed, arguments):
    # KerasHub's own `fit` makes datasets of arrays, and never shuffles them.
    if arguments.strategy == "none":
        options = {"batch_size": arguments.batch_size, "epochs": arguments.epochs, "verbose": 0}
        keras.Model.fit(classifier, inputs, labels, **options)
        return
    dataset = as_dataset((inputs, labels)).shuffle(len(labels), seed=seed)
    dataset = dataset.batch(arguments.batch_size, drop_remainder=True)
    keras.Model.fit(classifier, dataset, epochs=arguments.epochs, shuffle=False, verbose=0)


def predict(classifier, inputs, num_examples, arguments):
    if arguments.strategy == "none":
        options = {"batch_size": arguments.batch_size, "verbose": 0}
        return keras.Model.predict(classifier, inputs, **options)
    # The last batch is filled up with examples that are there already.
    size = -(-num_examples // arguments.batch_size) * arguments.batch_size
    full = {name: np.resize(array, (size, *array.shape[1:])) for name, array in inputs.items()}
    dataset = as_dataset(full).batch(arguments.batch_size, drop_remainder=True)
    return keras.Model.predict(classifier, dataset, verbose=0)[:num_examples]


def as_dataset(arrays):
    """Return arrays as a `tf.data.Dataset`: with a strategy, batches must have static shapes."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(arrays)


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


def drop_cut_line(path):
    """Remove a last line that an interruption has cut: its run is no finished one."""
    written = path.read_bytes() if path.exists() else b""
    whole = written[: written.rfind(b"\n") + 1]
    if not whole:
        path.unlink(missing_ok=True)
    elif whole != written:
        path.write_bytes(whole)


def read_runs(path):
    drop_cut_line(path)
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != [*FIELDS, "metrics"]:
            sys.exit(f"{path} has other columns than {FIELDS}. Choose another --output-dir.")
        return list(reader)


def append_run(path, run):
    """Add a line at once, so that an interruption loses no finished run."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*FIELDS, "metrics"])
        if is_new:
            writer.writeheader()
        writer.writerow(run)


def options_of(arguments):
    """Return the options that runs must share, as they are read from a file again."""
    return {name: str(getattr(arguments, name)) for name in OPTIONS}


def with_options(runs, options):
    return [run for run in runs if all(run[name] == options[name] for name in options)]


def key_of(run):
    return tuple(str(run[name]) for name in FIELDS)


def metrics_of(run):
    parts = (part.split("=") for part in run["metrics"].split(" "))
    return {name: float(value) for name, value in parts}


def summarize(runs):
    """Return a row for each model, task and metric: that of the best learning rate."""
    rows = []
    for model, task in dict.fromkeys((run["model"], run["task"]) for run in runs):
        by_rate = {}
        for run in runs:
            if (run["model"], run["task"]) == (model, task):
                by_rate.setdefault(run["learning_rate"], []).append(metrics_of(run))
        first = glue_data.TASKS[task].metrics[0]
        best = best_rate(by_rate, first)
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


def best_rate(by_rate, metric):
    """Return the rate with the best median, of those that have run with the most seeds."""
    most = max(map(len, by_rate.values()))
    medians = {
        rate: statistics.median(metrics[metric] for metrics in found)
        for rate, found in by_rate.items()
        if len(found) == most
    }
    return max(medians, key=medians.get)


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
    # Before anything is computed: the devices can only be chosen now.
    strategy = make_strategy(arguments)
    check_lengths(arguments)
    options = options_of(arguments)
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
                    **options,
                }
                if key_of(run) not in done:
                    splits = splits or load_splits(task, preset, arguments)
                    description = glue_data.TASKS[task]
                    found = train_and_evaluate(
                        preset, description, splits, learning_rate, seed, arguments, strategy
                    )
                    run["metrics"] = " ".join(
                        f"{name}={value:.6f}" for name, value in found.items()
                    )
                    append_run(path, run)
                    tqdm.write(f"{model}, {task}, {learning_rate}, seed {seed}: {run['metrics']}")
                bar.update()
    wanted = set(model_names(arguments))
    runs = [
        run
        for run in with_options(read_runs(path), options)
        if run["model"] in wanted and run["task"] in arguments.tasks
    ]
    write_summary(summarize(runs), arguments.output_dir)
    print((arguments.output_dir / "results.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
