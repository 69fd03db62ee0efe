"""The page of the step times: a table for each cell."""

import statistics

from benchmarks import bert_models
from benchmarks.results import head_of_page, markdown_table

INTRODUCTION = """\
Milliseconds are the median of the rounds. What is compared *to `input`* was timed in turn with
`input`: the median of the ratios of each round, and their quartiles; *fastest* is the ratio of the
fastest rounds, which other work on the machine disturbs least. *To KerasHub* and *to Hugging Face*
are quotients of two ratios to `input`. `input_again` is a second model like `input`: how far it is
from 1 is noise. *Compiling* is the first call. *Of the rate*: operations of BERT's matrix products
in the fastest round, as a share of what the backend reaches in one large product. *Step* is the
memory that steps hold at most beside the model's weights.
"""


def count_measurements(results):
    rows = [values for cell in results["cells"].values() for values in cell["rows"].values()]
    return len(rows) + sum("step_mib" in values for values in rows)


def add_ratios(rows):
    """Compare with what was timed in another group: by way of the reference in both."""
    for other in bert_models.OTHERS:
        if other in rows:
            for values in rows.values():
                ratio = values["ratio_to_input"] / rows[other]["ratio_to_input"]
                values[f"ratio_to_{other}"] = ratio


def make_page(results):
    """Return the results as Markdown."""
    title = f"Step times on {results['machine']['backend']}"
    lines = [*head_of_page(title, results), INTRODUCTION]
    for name, cell in results["cells"].items():
        lines += [f"## {name}", "", *make_table(cell["rows"]), ""]
    return "\n".join(lines)


def make_table(rows):
    """Return the lines of one table, without columns of what was not measured."""
    rates = [values["gemm_flops_per_second"] for values in rows.values()]
    lines = [format_row(row, rows[row]) for row in bert_models.ROWS if row in rows]
    columns = [name for name in lines[0] if any(line[name] for line in lines)]
    table = markdown_table(columns, [[line[name] for name in columns] for line in lines])
    return [f"The rate: {statistics.median(rates) / 1e9:.3g} GFLOP/s.", "", *table]


def format_row(row, values):
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
        "of the rate": number("gemm_share", ".0%"),
        "weights, MiB": number("weights_mib", ".0f"),
        "step, MiB": number("step_mib", ".0f"),
    }
