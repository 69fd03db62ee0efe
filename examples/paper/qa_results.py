"""The results of `finetune_qa.py`: metrics, the runs to compare, and their summary."""

import itertools
import statistics

from examples.paper.run_table import RunTable, at_best_rate, metrics_of, spread
from keras_diet import metrics

TABLE = RunTable(
    varied=("model", "learning_rate", "seed"),
    options=(
        *("epochs", "batch_size", "sequence_length", "doc_stride", "warmup_proportion"),
        *("weight_decay", "optimizer", "accumulation_steps", "examples", "evaluation_examples"),
        *("squad_version", "null_threshold", "bert", "add_segments", "backend"),
        *("train", "squad", "xquad", "mlqa", "tydiqa"),
    ),
)
METRICS = ("f1", "exact_match")


def evaluate(predictions, questions, data_set, language, squad_version):
    """Return F1 and exact match in percent, as the authors of a data set define them."""
    if data_set == "mlqa":
        return metrics.mlqa_metrics(predictions, questions.texts, language)
    # XTREME uses SQuAD's metrics for XQuAD and TyDiQA in all languages.
    version = squad_version if data_set in ("squad", "embedded") else "1.1"
    return metrics.squad_metrics(predictions, questions.texts, version)


# === Runs ===


def missing_runs(path, arguments):
    """Return the runs that the arguments ask for and the table does not have."""
    grid = itertools.product(arguments.models, arguments.learning_rates, arguments.seeds)
    return TABLE.missing(path, arguments, grid)


def runs_to_compare(path, arguments):
    """Return the finished runs of these models with these options, at any rate."""
    runs = TABLE.with_options(path, arguments)
    return [run for run in runs if run["model"] in arguments.models]


# === The summary ===


def with_means(found):
    """Add the mean over the languages of each data set that has several."""
    means = {}
    for data_set, metric in dict.fromkeys(
        (name.split(".")[0], name.split(".")[2]) for name in found
    ):
        values = [
            value
            for name, value in found.items()
            if name.startswith(f"{data_set}.") and name.endswith(f".{metric}")
        ]
        if len(values) > 1:
            means[f"{data_set}.mean.{metric}"] = statistics.mean(values)
    return {**found, **means}


def summarize(runs):
    """Return a row for each model, data set, language and metric, at the best learning rate.

    The best rate has the best median of the first metric of the table.
    """
    rows = []
    for model in dict.fromkeys(run["model"] for run in runs):
        of_model = [run for run in runs if run["model"] == model]
        best, found = at_best_rate(
            of_model, lambda values: next(iter(values)), lambda run: with_means(metrics_of(run))
        )
        for name in found[0]:
            data_set, language, metric = name.split(".")
            keys = {"task": f"{data_set} {language}", "metric": metric, "model": model}
            values = spread([values[name] for values in found])
            rows.append({**keys, "learning_rate": best, **values})
    return sorted(rows, key=lambda row: (row["task"], row["metric"]))
