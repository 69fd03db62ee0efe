"""The results of all backends and their targets, in two tables.

This command reads the files of `benchmarks.step_time` and `benchmarks.attention_implementations` in
a folder. Figures that miss their target before rounding are bold. Ratios are medians over the
rounds.

    python -m benchmarks.summary docs/benchmarks
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import bert_models
from benchmarks.results import markdown_table

DIET = ("diet_abs", "diet_rel")
# Other rows with a column of ratios to `input`, without a target.
OTHERS = ("shaw", "tupe_abs")
# Targets: the largest ratios, by length and by backend, and the smallest share of the rate.
TO_INPUT = {128: 1.01, 512: 1.03}
TO_KERASHUB = {"torch": 0.90}
TO_HUGGING_FACE = 1.00
GEMM_SHARE = 0.85
# The largest ratio of cached positions to `input`, for one sequence of 512 tokens.
CACHED = 1.00
# The largest ratios of other implementations of attention to `full`, by length and step.
TIME_OF_LENGTH = {(8192, "inference"): 1.1}
MEMORY_OF_LENGTH = {(8192, "inference"): 1 / 8, (4096, "training"): 1 / 4}
IMPLEMENTATIONS = ("features", "blockwise")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number, and its target, if any."""

    value: float | None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def misses(self) -> bool:
        too_large = self.at_most is not None and self.value > self.at_most
        return too_large or (self.at_least is not None and self.value < self.at_least)

    def show(self, form: str = "{:.3f}") -> str:
        if self.value is None:
            return ""
        text = form.format(self.value)
        return f"**{text}**" if self.misses else text


def read_cells(
    folder: Path, benchmark: str = "step_time"
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return `(results, cell)` for each cell in all files, in the order of the table."""
    found = []
    for path in sorted(folder.glob(f"{benchmark}_*.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        found += [(results, cell) for cell in results["cells"].values()]
    sizes = list(bert_models.SIZES)

    def order(item):
        results, cell = item
        size = cell.get("size", results["settings"].get("size"))
        return sizes.index(size), cell["length"], cell["step"], backend_of(results)

    return sorted(found, key=order)


def backend_of(results: dict[str, Any]) -> str:
    """Return the backend, with its accelerator and other settings that are not the default."""
    machine, settings = results["machine"], results["settings"]
    parts = [machine["backend"] + (" without XLA" if settings.get("xla") is False else "")]
    if machine["device"] != "cpu":
        parts.append(machine["device"])
    if settings["dtype"] != "float32":
        parts.append(settings["dtype"])
    return ", ".join(parts)


def columns_of(backend: str, cell: dict[str, Any]) -> dict[str, str]:
    """Return the figures of a cell by the headings of their columns."""
    rows = cell["rows"]

    def ratio(row, to=None):
        if row not in rows or (to and to not in rows):
            return None
        return rows[row]["ratio_to_input"] / (rows[to]["ratio_to_input"] if to else 1)

    to_input, to_kerashub = TO_INPUT.get(cell["length"]), TO_KERASHUB.get(backend, 1.00)
    columns = {row: Figure(ratio(row), to_input).show() for row in DIET}
    columns["input_again"] = Figure(ratio("input_again")).show()
    cached = CACHED if (cell["length"], cell["batch_size"]) == (512, 1) else None
    columns["diet_abs_cached"] = Figure(ratio("diet_abs_cached"), cached).show()
    columns |= {row: Figure(ratio(row)).show() for row in OTHERS}
    for row in DIET:
        columns[f"{row} / KerasHub"] = Figure(ratio(row, "kerashub"), to_kerashub).show()
    for row in ("diet_abs", "diet_abs_exact_gelu", "diet_abs_in_torch_loop"):
        figure = Figure(ratio(row, "hugging_face"), TO_HUGGING_FACE)
        columns[f"{row} / Hugging Face"] = figure.show()
    has_target = (cell["size"], cell["length"], cell["step"]) == ("base", 128, "inference")
    share = rows["diet_abs"]["gemm_share"] if "diet_abs" in rows else None
    share = Figure(share, at_least=GEMM_SHARE if has_target else None)
    columns["share of the rate"] = share.show("{:.1%}")
    return columns


def make_table(cells: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Return the lines of the table of step times, without empty columns."""
    lines = []
    for results, cell in cells:
        name = f"{cell['size']}, {cell['batch_size']} x {cell['length']}, {cell['step']}"
        figures = columns_of(results["machine"]["backend"], cell)
        lines.append({"cell": name, "backend": backend_of(results), **figures})
    columns = [name for name in lines[0] if any(line[name] for line in lines)]
    return markdown_table(columns, [[line[name] for name in columns] for line in lines])


def make_table_of_lengths(cells: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Return the lines of the table of implementations of attention, relative to `full`."""
    lines = []
    for results, cell in cells:
        length_and_step, rows = (cell["length"], cell["step"]), cell["rows"]
        name = f"{results['settings']['size']}, 1 x {cell['length']}, {cell['step']}"
        for implementation in IMPLEMENTATIONS:
            if implementation in rows:
                row = rows[implementation]
                time, memory = row["ratio_to_full"], row["mib"] / rows["full"]["mib"]
                figures = [
                    Figure(time, TIME_OF_LENGTH.get(length_and_step)).show("{:.2f}"),
                    Figure(memory, MEMORY_OF_LENGTH.get(length_and_step)).show(),
                ]
                backend = backend_of(results)
                lines.append([name, cell["encoding"], backend, implementation, *figures])
    columns = ["cell", "encoding", "backend", "implementation", "time / full", "memory / full"]
    return markdown_table(columns, lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the files")
    folder = parser.parse_args(argv).folder
    cells, lengths = read_cells(folder), read_cells(folder, "attention_implementations")
    if not cells:
        parser.error(f"The folder must contain step_time_*.json. Received: {folder}")
    print("\n".join(make_table(cells)))
    if lengths:
        print("\n".join(["", *make_table_of_lengths(lengths)]))


if __name__ == "__main__":
    main()
