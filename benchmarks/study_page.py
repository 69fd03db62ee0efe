"""The page and the picture of the study: means, standard deviations and paired tests."""

import math
import statistics

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.results import date_and_commit, markdown_table, mean_and_deviation

BASELINE = "input"


def make_page(results):
    """Return the page: the recipes, tables of losses, and tables of GLUE."""
    recipe = dict(results["recipe"])
    glue_recipe = recipe.pop("glue", {})
    finetuned = {name: cell for name, cell in results["rows"].items() if cell["glue"]}
    tasks = _tasks(finetuned)
    glue = f"--glue glue --tasks {' '.join(tasks)} " if tasks else ""
    lines = [
        "# The study of position encodings",
        "",
        f"    KERAS_BACKEND={results['recipe']['backend']} python -m benchmarks.study \\",
        "        --text enwiki_2015/train/* --validation-text enwiki_2015/valid/* \\",
        f"        {glue}--output docs/benchmarks/study.json",
        "",
        f"- Started: {date_and_commit(results['machine'])}",
        f"- Recipe: {_as_text(recipe)}",
        *([f"- Recipe of fine-tuning: {_as_text(glue_recipe)}"] if tasks else []),
        "- Tests: paired t-tests of the seeds",
        "",
        "## Validation loss of masked language modeling",
        "",
        "A model that knows only how often each token occurs has a loss of "
        f"{results['word_frequencies']:.4f}.",
    ]
    for baseline, rows in _groups(results["rows"]).items():
        lines += ["", f"### {_title(baseline)}", "", *_losses(rows, baseline)]
    if tasks:
        lines += ["", "## GLUE, development sets"]
    for baseline, rows in _groups(finetuned).items():
        lines += ["", f"### {_title(baseline)}", "", *_glue(rows, tasks, baseline)]
    return "\n".join(lines)


def _as_text(recipe):
    return ", ".join(f"{name} {value}" for name, value in recipe.items())


def _losses(rows, baseline):
    """Return the table of final losses, the best row first, with differences to a baseline."""
    losses = {name: _final_losses(cell) for name, cell in rows.items()}
    lines = []
    for name in _by_loss(rows):
        (rate,) = {run["learning_rate"] for run in rows[name]["seeds"].values()}
        difference, p_value = paired(losses[name], losses.get(baseline, {}))
        cells = [f"{rate:g}", str(len(losses[name])), mean_and_deviation(losses[name].values(), 4)]
        lines.append([name, *cells, difference, p_value])
    columns = ["", "learning rate", "seeds", "loss", f"difference to `{baseline}`", "p"]
    return markdown_table(columns, lines)


def _final_losses(cell):
    return {seed: run["losses"][-1] for seed, run in cell["seeds"].items()}


def _by_loss(rows):
    """Return the names of the rows with finished runs, the lowest mean loss first."""
    means = {
        name: statistics.mean(_final_losses(cell).values())
        for name, cell in rows.items()
        if cell["seeds"]
    }
    return sorted(means, key=lambda name: (math.isnan(means[name]), means[name]))


def _groups(rows):
    """Return the rows of each table and picture, under its baseline.

    Variants of a row, such as "diet_abs, rank 8", are compared with that row.
    """
    bases = dict.fromkeys(_base(name) for name in rows if name != _base(name))
    groups = {BASELINE: {name: cell for name, cell in rows.items() if name == _base(name)}}
    for base in bases:
        groups[base] = {name: cell for name, cell in rows.items() if _base(name) == base}
    return {baseline: group for baseline, group in groups.items() if group}


def _title(baseline):
    return "Encodings" if baseline == BASELINE else f"Variants of {baseline}"


def _base(name):
    return name.split(", ")[0]


def _glue(rows, tasks, baseline):
    """Return the table of GLUE, the best mean first, with differences to a baseline."""
    means = {name: _means(cell, tasks) for name, cell in rows.items()}
    lines = []
    for name in sorted(means, key=lambda name: _mean(means[name]), reverse=True):
        columns = [*(_scores(rows[name], task) for task in tasks), means[name]]
        cells = [mean_and_deviation(values.values(), 1) for values in columns]
        lines.append([name, *cells, *paired(means[name], means.get(baseline, {}), 1)])
    columns = [*tasks, "mean", f"difference to `{baseline}`", "p"]
    return markdown_table(["", *columns], lines)


def _mean(values):
    """Return the mean over the seeds. Rows without a finished seed are the last ones."""
    return statistics.mean(values.values()) if values else -math.inf


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


def paired(values, baseline, digits=4):
    """Return the mean difference to the baseline and the p-value, over the common seeds."""
    seeds = [seed for seed in values if seed in baseline]
    differences = [values[seed] - baseline[seed] for seed in seeds]
    if not seeds or not any(differences):
        return "", ""
    text = f"{statistics.mean(differences):+.{digits}f}"
    if len(seeds) < 2:
        return text, ""
    test = stats.ttest_rel([values[seed] for seed in seeds], [baseline[seed] for seed in seeds])
    return text, "< 0.001" if test.pvalue < 0.001 else f"{test.pvalue:.3f}"


def plot(results):
    """Draw the mean loss of each row over the tokens, and a band from the lowest to the highest.

    Variants of a row are below the encodings.
    """
    groups = _groups(results["rows"])
    figure = Figure(figsize=(9, 3.5 * len(groups)), layout="constrained")
    all_axes = figure.subplots(len(groups), squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, (baseline, rows) in zip(all_axes, groups.items(), strict=True):
        for place, name in enumerate(_by_loss(rows)):
            runs = list(rows[name]["seeds"].values())
            tokens, losses = runs[0]["tokens"], np.array([run["losses"] for run in runs])
            color, style = f"C{place % 10}", ("-", "--")[place // 10 % 2]
            axes.plot(tokens, losses.mean(0), style, color=color, label=name, linewidth=1)
            axes.fill_between(tokens, losses.min(0), losses.max(0), color=color, alpha=0.2)
        axes.axhline(
            results["word_frequencies"], color="gray", linewidth=0.5, label="word frequencies"
        )
        axes.set(title=_title(baseline), xlabel="tokens", ylabel="validation loss")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        # The order of the names is the order of the lines at the end.
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
