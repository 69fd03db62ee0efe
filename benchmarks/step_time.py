"""Step times of BERT with each position encoding: Table 1 of Chen et al. (2021), measured.

The reference is a `DietBertBackbone` with positions and segments at the input (`input`). Each model
alternates with the reference, in a new order in each round. A ratio is the median of the ratios in
each round. With `--memory`, the memory of each step is measured in a separate process.

The results are printed. After each model they are also written to `--output` as JSON, and to a page
of tables beside it. `--resume` adds to the results in `--output`.

    KERAS_BACKEND=torch python -m benchmarks.step_time --output runs/step_time_torch.json
    KERAS_BACKEND=jax python -m benchmarks.step_time --sizes small --rows diet_abs kerashub
"""

import argparse
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras

from benchmarks import bert_models, measure, results

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


def measure_row(
    makers: dict[str, Callable[..., Any]], row: str, sizes: tuple, options: argparse.Namespace
) -> dict[str, Any]:
    keras.backend.clear_session()
    reference = measure.make_reference(makers["input"], *sizes)
    step = reference if row == "input" else makers[row](*sizes)
    found = measure.compare_with(reference, step, options.rounds)
    if options.memory:
        size, shape = sizes
        model = bert_models.make_model(row, size, shape[1])
        found["weights_mib"] = 4 * bert_models.count_weights(row, model) / 2**20
        steps = (functools.partial(makers[row], each, shape) for each in ("tiny", size))
        found["step_mib"] = measure.in_own_process(measure.memory_after, *steps)
    return found


def cells_of(options: argparse.Namespace) -> dict[str, dict[str, Callable[[], Any]]]:
    """Return a function for each row of each cell."""
    cells = {}
    for size, shape, step in itertools.product(options.sizes, options.shapes, options.steps):
        settings = {"step": step, "dtype": options.dtype, "dropout": options.dropout}
        settings["jit_compile"] = options.xla
        makers = {
            row: functools.partial(bert_models.make_step_of_row, row=row, **settings)
            for row in bert_models.ROWS
            if row in ("input", *options.rows) and bert_models.has_row(row, step)
        }
        cells[f"{size}, {shape[0]} x {shape[1]} tokens, {step}"] = {
            row: functools.partial(measure_row, makers, row, (size, shape), options)
            for row in makers
        }
    return cells


def make_page(runs: dict[str, Any]) -> str:
    """Return the page of the runs of a backend."""
    backend = next(iter(runs.values()))["machine"]["backend"]
    title = f"Step times on {results.BACKENDS[backend]}"
    return results.page_of(title, INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    for name, cell in run["cells"].items():
        rows = [format_row(row, cell) for row in bert_models.ROWS if row in cell]
        columns = [column for column in rows[0] if any(row[column] for row in rows)]
        cells = [[row[column] for column in columns] for row in rows]
        lines += [f"### {name}", "", *results.markdown_table(columns, cells), ""]
    return lines[:-1]


def format_row(row: str, rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the cells of a row by the headings of their columns. Some are empty."""
    values = rows[row]

    def interval(quartiles, form):
        return " - ".join(format(value, form) for value in quartiles)

    def memory(name):
        return f"{values[name]:.0f}" if name in values else ""

    def to(other):
        return f"{values['ratio'] / rows[other]['ratio']:.3f}" if other in rows else ""

    _, quartiles = measure.median_and_quartiles(values["seconds"])
    fastest = min(values["seconds"]) / min(values["reference_seconds"])
    return {
        "model": row,
        "ms": f"{values['milliseconds']:.1f}",
        "quartiles of ms": interval([1000 * value for value in quartiles], ".1f"),
        "to `input`": f"{values['ratio']:.3f}",
        "quartiles": interval(values["ratio_quartiles"], ".3f"),
        "fastest": f"{fastest:.3f}",
        "to KerasHub": to("kerashub"),
        "to Hugging Face": to("hugging_face"),
        "compiling, s": f"{values['compile_seconds']:.1f}",
        "weights, MiB": memory("weights_mib"),
        "step, MiB": memory("step_mib"),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    sizes, steps = list(bert_models.SIZES), list(bert_models.STEPS)
    add, default, help_of_sizes = parser.add_argument, ["base", "small"], "tiny is for tests"
    add("--sizes", nargs="+", choices=sizes, default=default, help=help_of_sizes)
    shapes = [(8, 128), (2, 512)]
    add("--shapes", type=results.shape, nargs="+", default=shapes, help="sequences x tokens")
    add("--steps", nargs="+", choices=steps, default=steps, help="steps to time")
    rows = [
        row for row in bert_models.ROWS if any(bert_models.has_row(row, step) for step in steps)
    ]
    add("--rows", nargs="+", choices=rows, default=rows, metavar="ROW", help="besides `input`")
    add("--rounds", type=int, default=5, help="timed steps of each model")
    add("--dtype", choices=bert_models.DTYPES, default="float32")
    add("--dropout", type=float, default=bert_models.DROPOUT, help="dropout rate")
    add("--xla", action=argparse.BooleanOptionalAction, default=True, help="TensorFlow's compiler")
    add("--memory", action="store_true", help="also measure memory (slow)")
    options = results.parse(parser, argv)
    keras.utils.set_random_seed(bert_models.SEED)
    xla = options.xla if keras.config.backend() == "tensorflow" else None
    names = ("rounds", "dtype", "dropout", "memory")
    run = results.start(__spec__.name, options, names, xla=xla, seed=bert_models.SEED)
    results.measure_cells(options, run, cells_of(options), make_page)


if __name__ == "__main__":
    main()
