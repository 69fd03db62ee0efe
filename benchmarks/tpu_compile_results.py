"""The page of the costs on a TPU: the compiler's figures and their ratios to `input`."""

from typing import Any

from benchmarks.results import markdown_table, page_of

# Table 1 of Chen et al. (2021): step times on TPU v2 relative to `input`. "Ke et al." is TUPE-R.
PAPER = {
    "base, training": {"shaw": 1.13, "tupe_rel": 1.01, "diet_abs": 1.0, "diet_rel": 1.0},
    "base, inference": {"shaw": 1.33, "tupe_rel": 1.19, "diet_abs": 1.0, "diet_rel": 1.0},
    "small, training": {"shaw": 1.24, "tupe_rel": 1.04, "diet_abs": 1.0, "diet_rel": 1.0},
    "small, inference": {"shaw": 1.65, "tupe_rel": 1.27, "diet_abs": 1.01, "diet_rel": 1.0},
}
PAPER_LENGTH = 128
# Peak bfloat16 FLOP/s and bytes/s of a chip, https://cloud.google.com/tpu/docs/v5e.
CHIPS = {"v5e": (197e12, 819e9)}
# Columns of the first table: the name of a figure, its unit and its format.
FIGURES = {
    "TFLOP": ("flops", 1e12, "{:.3f}"),
    "GB moved": ("bytes_accessed", 1e9, "{:.2f}"),
    "Mcycles": ("estimated_cycles", 1e6, "{:.2f}"),
    "roofline, ms": ("roofline_seconds", 1e-3, "{:.1f}"),
    "arguments, MiB": ("argument_bytes", 2**20, "{:.0f}"),
    "output, MiB": ("output_bytes", 2**20, "{:.0f}"),
    "temporary, MiB": ("temporary_bytes", 2**20, "{:.0f}"),
    "peak, MiB": ("peak_bytes", 2**20, "{:.0f}"),
    "compiling, s": ("compile_seconds", 1, "{:.0f}"),
}
# Columns of the second table: the figures that are compared with `input`.
COMPARED = {
    "FLOPs": "flops",
    "bytes moved": "bytes_accessed",
    "cycles": "estimated_cycles",
    "roofline": "roofline_seconds",
    "temporary": "temporary_bytes",
    "peak": "peak_bytes",
}
INTRODUCTION = """\
The compiler gave all figures, for one chip. Nothing was executed.

- *GB moved* counts the operands and results of all operations, in memory and on the chip.
- *Mcycles* is the sum of the compiler's estimates for all operations. The compiler has no estimate
  for copies during computations and for communication between chips.
- The compiler counts only one iteration of a loop, such as the loop over blocks of queries. It does
  not count the operations of kernels, such as JAX's kernel for attention. The tables only show the
  memory of programs with loops or kernels.
- *Roofline* is an estimate of the time at the peak rates of the chip: the time for the operations
  or the time for the bytes moved, if that is longer. For v5e, the peak rates are 197 TFLOP/s in
  bfloat16 and 819 GB/s ([Google Cloud](https://cloud.google.com/tpu/docs/v5e)).
- *Arguments* are the weights and the inputs, and in training the state of the optimizer.
- *Temporary* is the memory that the program allocates besides its arguments and outputs.
- *Peak* is the largest amount of memory at a time, including memory on the chip.
- *Compiling* depends on the machine and its load.
- *Table 1* is the ratio of step times to `input` that the paper measured on TPU v2.
"""


def compare(rows: dict[str, dict[str, Any]], chip: str) -> None:
    """Add the roofline of the chip and the ratios to `input` to the rows of a table."""
    for values in rows.values():
        if "flops" in values and chip in CHIPS:
            flops, bytes_per_second = CHIPS[chip]
            times = values["flops"] / flops, values["bytes_accessed"] / bytes_per_second
            values["roofline_seconds"] = max(times)
    reference = rows.get("input", {})
    for values in rows.values():
        values["ratios_to_input"] = {
            name: values[name] / reference[name]
            for name in COMPARED.values()
            if name in values and reference.get(name)
        }


def make_page(runs: dict[str, Any]) -> str:
    return page_of("Costs on a TPU, by its compiler", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    paper = PAPER if run["settings"]["length"] == PAPER_LENGTH else {}
    for name, rows in run["cells"].items():
        lines += [f"### {name}", "", *figures_table(rows), "", "Ratios to `input`:", ""]
        lines += [*ratios_table(rows, paper.get(name, {})), ""]
    return lines[:-1]


def figures_table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines of the table of figures."""

    def line(values):
        if "error" in values:
            return [values["error"], *[""] * (len(FIGURES) - 1)]
        return [
            form.format(values[name] / unit) if name in values else ""
            for name, unit, form in FIGURES.values()
        ]

    return markdown_table(["", *FIGURES], [[row, *line(values)] for row, values in rows.items()])


def ratios_table(rows: dict[str, dict[str, Any]], paper: dict[str, float]) -> list[str]:
    """Return the lines of the table of ratios, with the ratios of the paper."""

    def line(row, values):
        ratios = [values["ratios_to_input"].get(name) for name in COMPARED.values()]
        cells = ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        return [row, *cells, f"{paper[row]:.2f}" if row in paper else ""]

    body = [line(row, values) for row, values in rows.items()]
    return markdown_table(["", *COMPARED, "Table 1"], body)
