"""The results of `finetune_glue.py`: GLUE's metrics, the runs to compare, and their summary."""

import itertools
import statistics
import warnings

import numpy as np
from scipy import stats
from sklearn import metrics

from examples.paper.glue_tasks import MEAN_OF_THE_PAPER, TASKS
from examples.paper.run_table import RunTable, at_best_rate, spread

TABLE = RunTable(
    varied=("model", "segments", "task", "learning_rate", "seed"),
    options=(
        *("epochs", "batch_size", "sequence_length", "warmup_proportion", "weight_decay"),
        *("optimizer", "accumulation_steps"),
        *("examples", "checkpoint_interval", "backend", "strategy"),
    ),
)

METRICS = {
    "matthews": metrics.matthews_corrcoef,
    "accuracy": metrics.accuracy_score,
    "f1": metrics.f1_score,
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


# === Runs ===


def missing_runs(path, arguments):
    """Return the runs that the arguments ask for and the table does not have."""
    # The order keeps the runs of a model and task together.
    grid = itertools.product(
        *(arguments.tasks, model_names(arguments), arguments.segment_encoding),
        *(arguments.learning_rates, arguments.seeds),
    )
    rows = [(model, segments, task, rate, seed) for task, model, segments, rate, seed in grid]
    return TABLE.missing(path, arguments, rows)


def runs_to_compare(path, arguments):
    """Return the finished runs of these models and tasks with these options, at any rate."""
    return [
        run
        for run in TABLE.with_options(path, arguments)
        if run["model"] in model_names(arguments)
        and run["segments"] in arguments.segment_encoding
        and run["task"] in arguments.tasks
    ]


def model_names(arguments):
    return arguments.presets or arguments.position_encoding


# === The summary ===


def summarize(runs):
    """Return a row for each model, task and metric, at the best learning rate."""
    groups, rows = {}, []
    for run in runs:
        groups.setdefault((run["model"], run["segments"], run["task"]), []).append(run)
    for (model, segments, task), of_group in groups.items():
        names = TASKS[task].results
        best, found = at_best_rate(of_group, lambda values, names=names: names[0])
        for name in names:
            keys = {"task": task, "metric": name, "model": model, "segments": segments}
            values = spread([100 * values[name] for values in found])
            rows.append({**keys, "learning_rate": best, **values})
    return sorted(rows, key=lambda row: (row["task"], row["metric"]))


def means(rows):
    """Return a row with the mean for each model that has all results of the paper's tables."""
    medians = {}
    for row in rows:
        of_model = medians.setdefault((row["model"], row["segments"]), {})
        of_model[row["task"], row["metric"]] = float(row["median"])
    return [
        {
            "model": model,
            "segments": segments,
            "mean": f"{statistics.mean(found[result] for result in MEAN_OF_THE_PAPER):.1f}",
        }
        for (model, segments), found in medians.items()
        if set(MEAN_OF_THE_PAPER) <= set(found)
    ]
