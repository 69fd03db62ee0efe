"""The step times of all backends in one table, with what we aim at.

Reads the files that `benchmarks.step_time` wrote into a folder. Figures that miss their target
before they are rounded are bold. Ratios are medians over the rounds.

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
OTHERS = ("input_again", "diet_abs_cached", "shaw", "tupe_abs")
TO_INPUT = {128: 1.01, 512: 1.03}
TO_KERASHUB = {"torch": 0.90}
TO_HUGGING_FACE = 1.00
GEMM_SHARE = 0.85


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


def read_cells(folder):
    """Return `(results, cell)` for the cells of all files, in the order of the table."""
    found = []
    for path in sorted(folder.glob("step_time_*.json")):
        results = json.loads(path.read_text(encoding="utf-8"))
        found += [(results, cell) for cell in results["cells"].values()]
    sizes = list(bert_models.SIZES)
    return sorted(
        found,
        key=lambda item: (
            sizes.index(item[1]["size"]),
            item[1]["length"],
            item[1]["step"],
            backend_of(item[0]),
        ),
    )


def backend_of(results):
    """Return the backend and what is special about its run."""
    machine, settings = results["machine"], results["settings"]
    parts = [machine["backend"] + (" without XLA" if settings["xla"] is False else "")]
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
    """Return the lines of the table, without columns that are empty."""
    lines = []
    for results, cell in cells:
        name = f"{cell['size']}, {cell['batch_size']} x {cell['length']}, {cell['step']}"
        figures = columns_of(results["machine"]["backend"], cell)
        lines.append({"cell": name, "backend": backend_of(results), **figures})
    columns = [name for name in lines[0] if any(line[name] for line in lines)]
    return markdown_table(columns, [[line[name] for name in columns] for line in lines])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where the files are")
    cells = read_cells(parser.parse_args(argv).folder)
    if not cells:
        parser.error("folder has no step_time_*.json")
    print("\n".join(make_table(cells)))


if __name__ == "__main__":
    main()
