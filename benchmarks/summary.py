"""The results of all backends in two tables, with what we aim at.

Reads the files that `benchmarks.step_time` and `benchmarks.attention_implementations` wrote into a
folder. Figures that miss their target before they are rounded are bold. Ratios are medians over the
rounds.

    python -m benchmarks.summary docs/benchmarks
"""

import argparse
import dataclasses
import json
from pathlib import Path

from benchmarks import bert_models
from benchmarks.results import markdown_table

DIET = ("diet_abs", "diet_rel")
# Rows beside DIET that are shown as ratios to `input`, without a target.
OTHERS = ("shaw", "tupe_abs")
TO_INPUT = {128: 1.01, 512: 1.03}
TO_KERASHUB = {"torch": 0.90}
TO_HUGGING_FACE = 1.00
GEMM_SHARE = 0.85
# Of one sequence with 512 tokens, over `input`.
CACHED = 1.00
# Of a way of attending over all scores at once, by length and step.
TIME_OF_LENGTH = {(8192, "inference"): 1.1}
MEMORY_OF_LENGTH = {(8192, "inference"): 1 / 8, (4096, "training"): 1 / 4}
OUR_WAYS = ("features", "blockwise")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number, and the bound that it should keep, if any."""

    value: float | None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def misses(self):
        too_large = self.at_most is not None and self.value > self.at_most
        return too_large or (self.at_least is not None and self.value < self.at_least)

    def show(self, form="{:.3f}"):
        if self.value is None:
            return ""
        text = form.format(self.value)
        return f"**{text}**" if self.misses else text


def read_cells(folder, benchmark="step_time"):
    """Return `(results, cell)` for the cells of all files, in the order of the table."""
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


def backend_of(results):
    """Return the backend and what is special about its run."""
    machine, settings = results["machine"], results["settings"]
    parts = [machine["backend"] + (" without XLA" if settings.get("xla") is False else "")]
    if machine["device"] != "cpu":
        parts.append(machine["device"])
    if settings["dtype"] != "float32":
        parts.append(settings["dtype"])
    return ", ".join(parts)


def columns_of(backend, cell):
    """Return the figures of a cell by the headings of their columns."""
    rows = cell["rows"]

    def ratio(row, to=None):
        if row not in rows or (to and to not in rows):
            return None
        return rows[row]["ratio_to_input"] / (rows[to]["ratio_to_input"] if to else 1)

    allowed = TO_INPUT.get(cell["length"])
    to_kerashub = TO_KERASHUB.get(backend, 1.00)
    columns = {row: Figure(ratio(row), allowed).show() for row in DIET}
    columns["input_again"] = Figure(ratio("input_again")).show()
    cached = CACHED if (cell["length"], cell["batch_size"]) == (512, 1) else None
    columns["diet_abs_cached"] = Figure(ratio("diet_abs_cached"), cached).show()
    columns |= {row: Figure(ratio(row)).show() for row in OTHERS}
    for row in DIET:
        figure = Figure(ratio(row, "kerashub"), to_kerashub)
        columns[f"{row} / KerasHub"] = figure.show()
    for row in ("diet_abs", "diet_abs_exact_gelu", "diet_abs_in_torch_loop"):
        figure = Figure(ratio(row, "hugging_face"), TO_HUGGING_FACE)
        columns[f"{row} / Hugging Face"] = figure.show()
    aimed_at = cell["size"] == "base" and cell["step"] == "inference" and cell["length"] == 128
    share = rows["diet_abs"]["gemm_share"] if "diet_abs" in rows else None
    columns["share of the rate"] = Figure(share, at_least=GEMM_SHARE if aimed_at else None).show(
        "{:.1%}"
    )
    return columns


def make_table(cells):
    """Return the lines of the table of step times, without columns that are empty."""
    lines = []
    for results, cell in cells:
        name = f"{cell['size']}, {cell['batch_size']} x {cell['length']}, {cell['step']}"
        figures = columns_of(results["machine"]["backend"], cell)
        lines.append({"cell": name, "backend": backend_of(results), **figures})
    columns = [name for name in lines[0] if any(line[name] for line in lines)]
    return markdown_table(columns, [[line[name] for name in columns] for line in lines])


def make_table_of_lengths(cells):
    """Return the lines of the table of ways to attend, over all scores at once."""
    lines = []
    for results, cell in cells:
        length_and_step, rows = (cell["length"], cell["step"]), cell["rows"]
        name = f"{results['settings']['size']}, 1 x {cell['length']}, {cell['step']}"
        for way in OUR_WAYS:
            if way in rows:
                time, memory = rows[way]["ratio_to_full"], rows[way]["mib"] / rows["full"]["mib"]
                figures = [
                    Figure(time, TIME_OF_LENGTH.get(length_and_step)).show("{:.2f}"),
                    Figure(memory, MEMORY_OF_LENGTH.get(length_and_step)).show(),
                ]
                lines.append([name, cell["encoding"], backend_of(results), way, *figures])
    columns = ["cell", "encoding", "backend", "way", "time / full", "memory / full"]
    return markdown_table(columns, lines)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where the files are")
    folder = parser.parse_args(argv).folder
    cells, lengths = read_cells(folder), read_cells(folder, "attention_implementations")
    if not cells:
        parser.error("folder has no step_time_*.json")
    print("\n".join(make_table(cells)))
    if lengths:
        print("\n".join(["", *make_table_of_lengths(lengths)]))


if __name__ == "__main__":
    main()
