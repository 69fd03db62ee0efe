"""The page and the picture of the study: means, standard deviations and paired tests."""

import math
import statistics

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from benchmarks.results import date_and_commit, markdown_table, mean_and_deviation

BASELINE = "input"
GLUE_NOTE = (
    "The values are in percent. A number in brackets is the p of the test against the row that the "
    "last column names. That column has the difference of the means."
)
# Fewer rows have no useful rank correlation.
MIN_ROWS = 5
CORRELATION_NOTE = (
    "Spearman's rank correlation of the loss with the values of each task, over the encodings. It "
    "is -1 if a lower loss always comes with a higher value. The last row leaves out the encoding "
    "without which p is highest."
)


def make_page(results):
    """Return the page: the recipes, tables of losses, and tables of GLUE."""
    return "\n".join([*_head(results), *_loss_section(results), *_glue_section(results["rows"])])


def _head(results):
    recipe = dict(results["recipe"])
    glue_recipe = recipe.pop("glue", {})
    tasks = _tasks(results["rows"])
    glue = f"--glue glue --tasks {' '.join(tasks)} " if tasks else ""
    return [
        "# The study of position encodings",
        "",
        f"    KERAS_BACKEND={recipe['backend']} python -m examples.paper.study \\",
        "        --text enwiki_2015/train/* --validation-text enwiki_2015/valid/* \\",
        f"        {glue}--output examples/paper/results/study.json",
        "",
        f"- Started: {date_and_commit(results['machine'])}",
        f"- Recipe: {_as_text(recipe)}",
        *([f"- Recipe of fine-tuning: {_as_text(glue_recipe)}"] if tasks else []),
        "- Tests: paired t-tests of the seeds",
        "",
    ]


def _as_text(recipe):
    return ", ".join(f"{name} {value}" for name, value in recipe.items())


def _loss_section(results):
    lines = [
        "## Validation loss of masked language modeling",
        "",
        "A model that knows only how often each token occurs has a loss of "
        f"{results['word_frequencies']:.4f}.",
    ]
    for baseline, rows in _groups(results["rows"]).items():
        lines += ["", f"### {_title(baseline)}", "", *_losses(rows, baseline)]
    return lines


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


def _glue_section(rows):
    finetuned = {name: cell for name, cell in rows.items() if cell["glue"]}
    if not finetuned:
        return []
    tasks, groups = _tasks(finetuned), _groups(finetuned)
    lines = ["", "## GLUE, development sets", "", GLUE_NOTE]
    for baseline, group in groups.items():
        lines += ["", f"### {_title(baseline)}", "", *_glue(group, tasks, baseline)]
    encodings = groups.get(BASELINE, {}).values()
    complete = [cell for cell in encodings if cell["seeds"] and _all_scores(cell, tasks)["mean"]]
    if len(complete) >= MIN_ROWS:
        table = _correlations(complete, tasks)
        lines += ["", "### Losses and tasks", "", CORRELATION_NOTE, "", *table]
    return lines


def _glue(rows, tasks, baseline):
    """Return the table of GLUE, the best mean first, with p-values of tests against a baseline."""
    scores = {name: _all_scores(cell, tasks) for name, cell in rows.items()}
    of_baseline = scores.get(baseline, {})
    means = {name: _mean(scores[name]["mean"]) for name in scores}
    lines = []
    for name in sorted(means, key=means.get, reverse=True):
        cells = []
        for column, values in scores[name].items():
            difference, p_value = paired(values, of_baseline.get(column, {}), 1)
            in_brackets = f" ({p_value})" if p_value else ""
            cells.append(mean_and_deviation(values.values(), 1) + in_brackets)
        lines.append([name, *cells, difference])
    return markdown_table(["", *tasks, "mean", f"difference to `{baseline}`"], lines)


def _correlations(cells, tasks):
    """Return the table of rank correlations of the mean loss with the means of the tasks."""
    losses = np.array([statistics.mean(_final_losses(cell).values()) for cell in cells])
    scores = [_all_scores(cell, tasks) for cell in cells]
    columns = [("correlation", "p", "p without one encoding")]
    for column in (*tasks, "mean"):
        values = np.array([_mean(of_row[column]) for of_row in scores])
        test = stats.spearmanr(losses, values)
        others = (np.arange(len(cells)) != left_out for left_out in range(len(cells)))
        weakest = max(stats.spearmanr(losses[kept], values[kept]).pvalue for kept in others)
        columns.append((f"{test.statistic:.2f}", _as_p_value(test.pvalue), _as_p_value(weakest)))
    return markdown_table(["", *tasks, "mean"], zip(*columns, strict=True))


def _mean(values):
    """Return the mean over the seeds. Rows without a finished seed are the last ones."""
    return statistics.mean(values.values()) if values else -math.inf


def _all_scores(cell, tasks):
    """Return the score of each seed in each task, and the mean of seeds that have all tasks."""
    scores = {task: _scores(cell, task) for task in tasks}
    seeds = [seed for seed in cell["glue"] if all(seed in values for values in scores.values())]
    means = {seed: statistics.mean(values[seed] for values in scores.values()) for seed in seeds}
    return {**scores, "mean": means}


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
    return text, _as_p_value(test.pvalue)


def _as_p_value(value):
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


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
