"""The results of `finetune_glue.py`: metrics, a table of finished runs, and their summary.

A run is a dictionary with the columns of the table: a model, a task, a learning rate, a seed, the
options that runs must share to be compared, and the metrics as text, such as `"matthews=0.5"`.
"""

import csv
import itertools
import statistics
import warnings

import glue_data
import numpy as np
from matplotlib.figure import Figure
from scipy import stats
from sklearn import metrics

# The options that runs must share. A run with other options is repeated, and summarized separately.
OPTIONS = (
    *("epochs", "batch_size", "sequence_length", "warmup_proportion", "weight_decay"),
    *("examples", "add_segments", "backend", "strategy"),
)
KEYS = ("model", "task", "learning_rate", "seed", *OPTIONS)
COLUMNS = (*KEYS, "metrics")

METRICS = {
    "matthews": metrics.matthews_corrcoef,
    "accuracy": metrics.accuracy_score,
    "pearson": lambda labels, values: stats.pearsonr(labels, values).statistic,
    "spearman": lambda labels, values: stats.spearmanr(labels, values).statistic,
}


def evaluate(outputs, labels, task):
    """Return the official metrics of logits or scores.

    A correlation is not defined if all outputs are equal or one is not a number. It is then zero,
    like the Matthews correlation in GLUE.
    """
    predicted = outputs[:, 0] if task.num_classes == 1 else outputs.argmax(axis=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        values = {name: METRICS[name](labels, predicted) for name in task.metrics}
    return {name: float(np.nan_to_num(value)) for name, value in values.items()}


# === Planned and finished runs ===


def missing_runs(path, arguments):
    """Return the runs that the arguments ask for and the table does not have."""
    options = shared_options(arguments)
    # The order keeps the runs of a model and task together.
    grid = itertools.product(
        arguments.tasks, model_names(arguments), arguments.learning_rates, arguments.seeds
    )
    runs = [
        {"model": model, "task": task, "learning_rate": rate, "seed": seed, **options}
        for task, model, rate, seed in grid
    ]
    done = {key_of(run) for run in read_runs(path)}
    return [run for run in runs if key_of(run) not in done]


def runs_to_compare(path, arguments):
    """Return the finished runs of these models and tasks with these options, at any rate."""
    options = shared_options(arguments)
    return [
        run
        for run in read_runs(path)
        if run["model"] in model_names(arguments)
        and run["task"] in arguments.tasks
        and all(run[name] == value for name, value in options.items())
    ]


def shared_options(arguments):
    """Return the options as text, like the values in the table."""
    return {name: str(getattr(arguments, name)) for name in OPTIONS}


def model_names(arguments):
    return arguments.presets or arguments.position_encoding


def key_of(run):
    """Return the values that identify a run, as text."""
    return tuple(str(run[name]) for name in KEYS)


# === The table of runs ===


def read_runs(path):
    """Return the finished runs in a table."""
    drop_cut_line(path)
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames) != COLUMNS:
            raise SystemExit(
                f"{path} must have the columns {', '.join(COLUMNS)}. "
                f"Received: {', '.join(reader.fieldnames)}. Choose another --output-dir."
            )
        return list(reader)


def drop_cut_line(path):
    """Remove the last line if an interruption cut it: its run is not complete."""
    written = path.read_bytes() if path.exists() else b""
    whole = written[: written.rfind(b"\n") + 1]
    if not whole:
        path.unlink(missing_ok=True)
    elif whole != written:
        path.write_bytes(whole)


def append_run(path, run, found):
    """Add a run and its metrics to the table, so that an interruption loses no finished run."""
    text = " ".join(f"{name}={value:.6f}" for name, value in found.items())
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerow({**run, "metrics": text})
    return text


def metrics_of(run):
    parts = (part.split("=") for part in run["metrics"].split(" "))
    return {name: float(value) for name, value in parts}


# === The summary ===


def summarize(runs):
    """Return a row for each model, task and metric, at the best learning rate."""
    rows = []
    for model, task in dict.fromkeys((run["model"], run["task"]) for run in runs):
        by_rate = {}
        for run in runs:
            if (run["model"], run["task"]) == (model, task):
                by_rate.setdefault(run["learning_rate"], []).append(metrics_of(run))
        names = glue_data.TASKS[task].metrics
        best = best_rate(by_rate, names[0])
        for name in names:
            values = [100 * found[name] for found in by_rate[best]]
            rows.append(
                {
                    "task": task,
                    "metric": name,
                    "model": model,
                    "learning_rate": best,
                    "seeds": len(values),
                    "median": f"{statistics.median(values):.1f}",
                    "lowest": f"{min(values):.1f}",
                    "highest": f"{max(values):.1f}",
                }
            )
    return sorted(rows, key=lambda row: (row["task"], row["metric"]))


def best_rate(by_rate, metric):
    """Return the rate with the best median, among the rates with the most seeds."""
    most = max(map(len, by_rate.values()))
    medians = {
        rate: statistics.median(values[metric] for values in found)
        for rate, found in by_rate.items()
        if len(found) == most
    }
    return max(medians, key=medians.get)


def write_summary(rows, folder):
    """Write the rows as `results.csv`, `results.md` and `results.png`."""
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    (folder / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    plot(rows).savefig(folder / "results.png", dpi=150)


def plot(rows):
    """Draw medians as bars, with lines from the lowest to the highest run."""
    groups = list(dict.fromkeys((row["task"], row["metric"]) for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure = Figure(figsize=(2 + 1.5 * len(groups), 3.5), layout="tight")
    axes = figure.subplots()
    width = 0.8 / len(models)
    for number, model in enumerate(models):
        own = [row for row in rows if row["model"] == model]
        offset = (number - (len(models) - 1) / 2) * width
        places = [groups.index((row["task"], row["metric"])) + offset for row in own]
        median, lowest, highest = (
            np.array([float(row[name]) for row in own]) for name in ("median", "lowest", "highest")
        )
        errors = [median - lowest, highest - median]
        axes.bar(places, median, width, yerr=errors, label=model, capsize=3)
    axes.set_xticks(range(len(groups)), [f"{task}\n{metric}" for task, metric in groups])
    axes.set_ylabel("median of the seeds")
    axes.legend(fontsize="small")
    return figure
