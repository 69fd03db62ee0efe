"""The page and the picture of the study: means, standard deviations and paired tests."""

import statistics

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.results import date_and_commit, markdown_table, mean_and_deviation

BASELINE = "input"


def make_page(results):
    """Return the page: the recipe, a table of losses, and a table of GLUE."""
    recipe = ", ".join(f"{name} {value}" for name, value in results["recipe"].items())
    tasks = _tasks(results["rows"])
    glue = f"--glue glue --tasks {' '.join(tasks)} " if tasks else ""
    lines = [
        "# The study of position encodings",
        "",
        f"    KERAS_BACKEND={results['recipe']['backend']} python -m benchmarks.study \\",
        "        --text enwiki_2015/train/* --validation-text enwiki_2015/valid/* \\",
        f"        {glue}--output docs/benchmarks/study.json",
        "",
        f"- Started: {date_and_commit(results['machine'])}",
        f"- Recipe: {recipe}",
        "- Tests: paired t-tests of the seeds, against `input`",
        "",
        "## Validation loss of masked language modeling",
        "",
        *_losses(results["rows"]),
        "",
        "A model that knows only how often each token occurs has a loss of "
        f"{results['word_frequencies']:.4f}.",
    ]
    if tasks:
        lines += ["", "## GLUE, development sets", "", *_glue(results["rows"], tasks)]
    return "\n".join(lines)


def _losses(rows):
    """Return the table of final losses, the best row first."""
    final = {
        name: {seed: run["losses"][-1] for seed, run in cell["seeds"].items()}
        for name, cell in rows.items()
        if cell["seeds"]
    }
    lines = []
    for name in sorted(final, key=lambda name: statistics.mean(final[name].values())):
        values = final[name]
        (rate,) = {run["learning_rate"] for run in rows[name]["seeds"].values()}
        difference, p_value = paired(values, final.get(BASELINE, {}))
        cells = [f"{rate:g}", str(len(values)), mean_and_deviation(values.values(), 4)]
        lines.append([name, *cells, difference, p_value])
    columns = ["", "learning rate", "seeds", "loss", "difference to `input`", "p"]
    return markdown_table(columns, lines)


def _glue(rows, tasks):
    """Return the table of GLUE: a column for each task, the mean of the tasks, and its test."""
    lines, baseline = [], _means(rows.get(BASELINE, {"glue": {}}), tasks)
    for name, cell in rows.items():
        scores = [_scores(cell, task) for task in tasks]
        if any(scores):
            means = _means(cell, tasks)
            columns = [mean_and_deviation(values.values(), 1) for values in (*scores, means)]
            lines.append([name, *columns, paired(means, baseline)[1]])
    return markdown_table(["", *tasks, "mean", "p of the mean"], lines)


def _means(cell, tasks):
    """Return the mean of all tasks, for each seed that has all tasks."""
    scores = [_scores(cell, task) for task in tasks]
    seeds = [seed for seed in cell["glue"] if all(seed in values for values in scores)]
    return {seed: statistics.mean(values[seed] for values in scores) for seed in seeds}


def _tasks(rows):
    return list(
        dict.fromkeys(
            task for cell in rows.values() for scores in cell["glue"].values() for task in scores
        )
    )


def _scores(cell, task):
    """Return the first metric of a task in percent, for each seed."""
    return {
        seed: 100 * next(iter(scores[task].values()))
        for seed, scores in cell["glue"].items()
        if task in scores
    }


def paired(values, baseline):
    """Return the mean difference to the baseline and the p-value, over the common seeds."""
    seeds = [seed for seed in values if seed in baseline]
    differences = [values[seed] - baseline[seed] for seed in seeds]
    if not seeds or not any(differences):
        return "", ""
    text = f"{statistics.mean(differences):+.4f}"
    if len(seeds) < 2:
        return text, ""
    test = stats.ttest_rel([values[seed] for seed in seeds], [baseline[seed] for seed in seeds])
    return text, f"{test.pvalue:.3f}"


def plot(results):
    """Draw the mean loss of each row over the tokens, and a band from the lowest to the highest."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for place, (name, cell) in enumerate(results["rows"].items()):
        runs = list(cell["seeds"].values())
        if not runs:
            continue
        losses = np.array([run["losses"] for run in runs])
        style = {"color": f"C{place % 10}", "linestyle": ("-", "--", ":")[place // 10 % 3]}
        axes.plot(runs[0]["tokens"], losses.mean(0), label=name, linewidth=1, **style)
        axes.fill_between(
            runs[0]["tokens"], losses.min(0), losses.max(0), color=style["color"], alpha=0.2
        )
    axes.axhline(results["word_frequencies"], color="gray", linewidth=0.5, label="word frequencies")
    axes.set(xlabel="tokens", ylabel="validation loss")
    axes.legend(fontsize="small", ncols=2)
    return figure
