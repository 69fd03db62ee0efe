"""The page and the pictures of `initial_scores.py`."""

import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.results import head_of_page, markdown_table, mean_and_deviation, write
from examples.paper.initial_scores_runs import LENGTHS
from examples.paper.initial_scores_scale import MASKED, ROWS

COLORS = [*(f"C{number}" for number in range(10)), "black", "gold"]


def key_of(run: dict[str, Any]) -> tuple:
    return tuple(run[name] for name in ("row", "width", "stddev", "learning_rate", "seed"))


def save(path: Path, results: dict[str, Any]) -> None:
    """Write the results, their page, and pictures of what they contain."""
    order = list(ROWS)
    results["runs"].sort(
        key=lambda run: (
            *(run["width"], order.index(run["row"]), run["stddev"] or 0),
            *(run["learning_rate"], run["seed"]),
        )
    )
    write(path, results, make_page(results))
    losses = plot_losses(results)
    if any(axes.lines for axes in losses.axes):
        losses.savefig(path.with_suffix(".svg"))
    if lengths_of(results)[1]:
        plot_lengths(results).savefig(path.with_name(f"{path.stem}_lengths.svg"))


def settings_of(results: dict[str, Any]) -> dict[tuple, list[dict[str, Any]]]:
    """Return the runs of each setting. They differ in the seed only."""
    settings: dict[tuple, list[dict[str, Any]]] = {}
    for run in results["runs"]:
        settings.setdefault(key_of(run)[:-1], []).append(run)
    return settings


def loss_of(run: dict[str, Any]) -> float:
    return run["losses"][-1]


def mean_loss(runs: list[dict[str, Any]]) -> float:
    return statistics.mean(map(loss_of, runs))


def make_page(results: dict[str, Any]) -> str:
    lines = [
        *head_of_page("The scale of the initial positional scores", results),
        "Losses of masked tokens of held-out text, mean and deviation over the seeds. `s` is the",
        'standard deviation of the positional scores before training. For "input, P" and',
        '"sinusoidal", it is the factor of the positions.',
        "",
    ]
    table = [
        [
            *(row, str(width), name_of(stddev)),
            measured(runs),
            *(f"{rate:g}", str(len(runs)), mean_and_deviation(map(loss_of, runs), 3)),
        ]
        for (row, width, stddev, rate), runs in settings_of(results).items()
    ]
    columns = ["", "width", "s", "measured", "rate", "seeds", "loss"]
    lines += markdown_table(columns, table)
    columns, table = lengths_of(results)
    if table:
        lines += ["", "## Longer sequences than in training", ""]
        lines += ["Each row has the `s` with the lowest loss of those that were evaluated.", ""]
        lines += markdown_table(columns, table)
    columns, table = glue_of(results)
    if table:
        lines += ["", "## GLUE, in percent", "", *markdown_table(columns, table)]
    return "\n".join(lines)


def measured(runs: list[dict[str, Any]]) -> str:
    scores = [run["first_scores"] for run in runs]
    return "" if None in scores else f"{statistics.mean(scores):.3f}"


def name_of(stddev: float | None) -> str:
    return "as made" if stddev is None else f"{stddev:g}"


def lengths_of(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    table = [
        [
            *(row, str(width), name_of(stddev)),
            *(mean_and_deviation(losses_of_length(runs, length), 3) for length in LENGTHS),
        ]
        for (row, width, stddev, _), runs in best_settings(results).items()
    ]
    return ["", "width", "s", *map(str, LENGTHS)], table


def losses_of_length(runs: list[dict[str, Any]], length: int) -> list[float]:
    return [run["lengths"][str(length)] for run in runs]


def glue_of(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the table of GLUE, with the metrics in percent."""
    found = {setting: runs for setting, runs in settings_of(results).items() if "glue" in runs[0]}
    names = [
        (task, metric)
        for task, values in (next(iter(found.values()))[0]["glue"] if found else {}).items()
        for metric in values
    ]
    table = [
        [
            *(row, str(width), name_of(stddev)),
            *(
                mean_and_deviation((100 * run["glue"][task][metric] for run in runs), 1)
                for task, metric in names
            ),
        ]
        for (row, width, stddev, _), runs in found.items()
    ]
    return ["", "width", "s", *map(" ".join, names)], table


def best_settings(results: dict[str, Any]) -> dict[tuple, list[dict[str, Any]]]:
    """Of the runs with lengths, return those with the lowest mean loss of each row and width."""
    best: dict[tuple, tuple] = {}
    settings = settings_of({"runs": [run for run in results["runs"] if run["lengths"]]})
    for setting in sorted(settings, key=lambda each: mean_loss(settings[each])):
        best.setdefault(setting[:2], setting)
    return {setting: settings[setting] for setting in settings if setting in best.values()}


def plot_losses(results: dict[str, Any]) -> Figure:
    """Draw the loss over the standard deviation of the first scores, with a dot for each seed."""
    widths = sorted({run["width"] for run in results["runs"]})
    usual_rate = statistics.mode(run["learning_rate"] for run in results["runs"])
    figure = Figure(figsize=(4.5 * len(widths) + 2.5, 4), layout="constrained")
    all_axes = figure.subplots(1, len(widths), squeeze=False, sharey=True)[0]
    labels: dict[str, Any] = {}
    for axes, width in zip(all_axes, widths, strict=True):
        for row in ROWS:
            lines = [
                (statistics.mean(run["first_scores"] for run in runs), runs)
                for (name, of_width, stddev, rate), runs in settings_of(results).items()
                if (name, of_width, rate) == (row, width, usual_rate)
                and runs[0]["first_scores"] is not None
            ]
            if len(lines) < 2:
                continue
            lines.sort(key=lambda line: line[0])
            places, means = [line[0] for line in lines], [mean_loss(line[1]) for line in lines]
            color = labels[row].get_color() if row in labels else COLORS[len(labels)]
            style = "--" if row.startswith("input") else "-"
            labels[row] = axes.plot(places, means, style, color=color)[0]
            for place, runs in lines:
                axes.plot([place] * len(runs), list(map(loss_of, runs)), ".", color=color)
        axes.set(title=f"width {width}", xscale="log", ylabel="validation loss")
        axes.set_xlabel("standard deviation of the initial positional scores")
    figure.legend(labels.values(), labels, loc="outside right upper", fontsize="small")
    return figure


def plot_lengths(results: dict[str, Any]) -> Figure:
    """Draw the loss of longer sequences, for the best scale of each row. Dots mean masks."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    best = best_settings(results)
    width = min(setting[1] for setting in best)
    unmasked = list(dict.fromkeys(row.removesuffix(MASKED) for row, *_ in best))
    for (row, of_width, *_), runs in best.items():
        if of_width == width:
            means = [statistics.mean(losses_of_length(runs, n)) for n in LENGTHS]
            number = unmasked.index(row.removesuffix(MASKED))
            style = ":" if row.endswith(MASKED) else ("-", "--")[number // 10 % 2]
            axes.plot(LENGTHS, means, style, color=f"C{number % 10}", label=row, marker=".")
    axes.set(xscale="log", xlabel="tokens of a sequence", ylabel="validation loss")
    axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
    axes.minorticks_off()
    figure.legend(loc="outside right upper", fontsize="small")
    return figure
