"""A table of finished runs, and their summary: medians over seeds at the best learning rate.

`finetune_glue.py`, `finetune_qa.py` and `finetune_xnli.py` compare models in many runs. A run is a
dictionary with the columns of the table: what varies between runs, such as a model and a seed, the
options that runs must share to be compared, and the metrics as text, such as `"matthews=0.5"`.
"""

import csv
import hashlib
import shutil
import statistics

import numpy as np
from matplotlib.figure import Figure


class RunTable:
    """A CSV file with a line for each finished run.

    Args:
        varied: Names of the columns that vary between runs.
        options: Names of the options that runs must share. A run with other options is repeated,
            and summarized separately.
    """

    def __init__(self, varied, options):
        self.varied, self.options = varied, options
        self.keys = (*varied, *options)
        self.columns = (*self.keys, "metrics")

    def shared_options(self, arguments):
        """Return the options as text, like the values in the table."""
        options = {name: getattr(arguments, name) for name in self.options}
        return {
            name: " ".join(map(str, value)) if isinstance(value, list) else str(value)
            for name, value in options.items()
        }

    def missing(self, path, arguments, rows):
        """Return a run for each row of `varied` values that the table does not have."""
        options = self.shared_options(arguments)
        runs = [dict(zip(self.varied, row, strict=True)) | options for row in rows]
        done = {self._key_of(run) for run in self.read(path)}
        return [run for run in runs if self._key_of(run) not in done]

    def with_options(self, path, arguments):
        """Return the finished runs with these options."""
        options = self.shared_options(arguments).items()
        return [run for run in self.read(path) if options <= run.items()]

    def _key_of(self, run):
        return tuple(str(run[name]) for name in self.keys)

    def read(self, path):
        """Return the finished runs."""
        _drop_cut_line(path)
        if not path.exists():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames) != self.columns:
                raise SystemExit(
                    f"{path} must have the columns {', '.join(self.columns)}. "
                    f"Received: {', '.join(reader.fieldnames)}. Choose another --output-dir."
                )
            return list(reader)

    def checkpoints(self, path, run):
        """Return the folder for the checkpoints of a run. Each run has its own."""
        key = hashlib.sha256("\n".join(self._key_of(run)).encode()).hexdigest()
        return path.parent / "checkpoints" / key[:16]

    def append(self, path, run, found):
        """Add a finished run and its metrics, and delete its checkpoints."""
        text = " ".join(f"{name}={value:.6f}" for name, value in found.items())
        is_new = not path.exists()
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            if is_new:
                writer.writeheader()
            writer.writerow({**run, "metrics": text})
        shutil.rmtree(self.checkpoints(path, run), ignore_errors=True)
        return text


def _drop_cut_line(path):
    """Remove the last line if an interruption cut it: its run is not complete."""
    written = path.read_bytes() if path.exists() else b""
    whole = written[: written.rfind(b"\n") + 1]
    if not whole:
        path.unlink(missing_ok=True)
    elif whole != written:
        path.write_bytes(whole)


def metrics_of(run):
    parts = (part.split("=") for part in run["metrics"].split(" "))
    return {name: float(value) for name, value in parts}


# === The summary ===


def at_best_rate(runs, first, metrics_of=metrics_of):
    """Return the learning rate with the best median of a metric, and the metrics of its runs.

    Only rates with the most seeds are compared.

    Args:
        runs: Runs that differ in learning rate and seed.
        first: Function of the metrics of a run that returns the name of the metric to compare.
        metrics_of: Function that returns the metrics of a run.
    """
    by_rate = {}
    for run in runs:
        by_rate.setdefault(run["learning_rate"], []).append(metrics_of(run))
    most = max(map(len, by_rate.values()))
    medians = {
        rate: statistics.median(values[first(values)] for values in found)
        for rate, found in by_rate.items()
        if len(found) == most
    }
    best = max(medians, key=medians.get)
    return best, by_rate[best]


def spread(values):
    """Return the columns for the values of all seeds."""
    return {
        "seeds": len(values),
        "median": f"{statistics.median(values):.1f}",
        "lowest": f"{min(values):.1f}",
        "highest": f"{max(values):.1f}",
    }


def write_summary(rows, folder, means=()):
    """Write the rows as `results.csv`, `results.md` and `results.png`, and means below them."""
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    tables = [_as_markdown(table) for table in (rows, means) if table]
    (folder / "results.md").write_text("\n".join(tables), encoding="utf-8")
    plot(rows).savefig(folder / "results.png", dpi=150)


def _as_markdown(rows):
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def plot(rows):
    """Draw medians as bars, with lines from the lowest to the highest run."""
    groups = list(dict.fromkeys((row["task"], row["metric"]) for row in rows))
    models = list(dict.fromkeys(_label_of(row) for row in rows))
    figure = Figure(figsize=(2 + 1.5 * len(groups), 3.5), layout="tight")
    axes = figure.subplots()
    width = 0.8 / len(models)
    for number, model in enumerate(models):
        own = [row for row in rows if _label_of(row) == model]
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


def _label_of(row):
    segments = row.get("segments", "unchanged")
    return row["model"] + ("" if segments == "unchanged" else f", {segments} segments")
