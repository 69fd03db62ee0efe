"""The page of the step times: a table for each cell."""

from typing import Any

from benchmarks import bert_models
from benchmarks.results import BACKENDS, markdown_table, page_of

INTRODUCTION = """\
- *ms* is the median of the rounds.
- *To `input`*: each model alternated with `input`. The column shows the median of the ratios in
  each round, followed by the quartiles of the ratios.
- *Fastest* is the ratio of the fastest rounds. Other programs on the machine disturb it least.
- *To KerasHub* and *to Hugging Face* are quotients of two ratios to `input`.
- `input_again` is the same model as `input`. Its distance from 1 is noise.
- *Compiling* is the time of the first call.
- *Weights* is the memory of the weights. *Step* is the largest additional memory during steps.
"""


def count_measurements(run: dict[str, Any]) -> int:
    rows = [values for cell in run["cells"].values() for values in cell["rows"].values()]
    return len(rows) + sum("step_mib" in values for values in rows)


def add_ratios(rows: dict[str, dict[str, Any]]) -> None:
    """Add ratios to the other libraries, which may be in other groups than a row.

    Every group contains `input`, so the ratio is the quotient of two ratios to `input`.
    """
    for other in bert_models.OTHERS:
        if other in rows:
            for values in rows.values():
                ratio = values["ratio_to_input"] / rows[other]["ratio_to_input"]
                values[f"ratio_to_{other}"] = ratio


def make_page(runs: dict[str, Any]) -> str:
    """Return the page of the runs of a backend."""
    backend = next(iter(runs.values()))["machine"]["backend"]
    return page_of(f"Step times on {BACKENDS[backend]}", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    for name, cell in run["cells"].items():
        lines += [f"### {name}", "", *make_table(cell["rows"]), ""]
    return lines[:-1]


def make_table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of one table, without empty columns."""
    lines = [format_row(row, rows[row]) for row in bert_models.ROWS if row in rows]
    columns = [name for name in lines[0] if any(line[name] for line in lines)]
    return markdown_table(columns, [[line[name] for name in columns] for line in lines])


def format_row(row: str, values: dict[str, Any]) -> dict[str, str]:
    """Return the cells of a row by the headings of their columns."""

    def number(name, form):
        return format(values[name], form) if name in values else ""

    def interval(name, form):
        return " - ".join(format(value, form) for value in values[name])

    return {
        "model": row,
        "ms": number("milliseconds", ".1f"),
        "quartiles of ms": interval("quartiles", ".1f"),
        "to `input`": number("ratio_to_input", ".3f"),
        "quartiles": interval("ratio_to_input_quartiles", ".3f"),
        "fastest": number("fastest_to_input", ".3f"),
        "to KerasHub": number("ratio_to_kerashub", ".3f"),
        "to Hugging Face": number("ratio_to_hugging_face", ".3f"),
        "compiling, s": number("compile_seconds", ".1f"),
        "weights, MiB": number("weights_mib", ".0f"),
        "step, MiB": number("step_mib", ".0f"),
    }
