"""Step times of BERT with each position encoding: Table 1 of Chen et al. (2021), measured.

The reference is a `DietBertBackbone` with positions and segments at the input (`input`). Models are
timed in groups. Each group alternates with the reference, in a new order in each round. A ratio is
the median of the ratios in each round. With `--memory`, the memory of each step is measured in a
separate process.

The results are printed. After each group they are also written to `--output` as JSON, and to a page
of tables beside it. `--resume` adds to the results in `--output`.

    KERAS_BACKEND=torch python -m benchmarks.step_time --output runs/step_time_torch.json
    KERAS_BACKEND=jax python -m benchmarks.step_time --sizes small --rows diet_abs kerashub
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
from tqdm import tqdm

from benchmarks import bert_models, measure
from benchmarks.results import make_parser, parse, save, start
from benchmarks.step_time_results import add_ratios, count_measurements, make_page

MODULE = "benchmarks.step_time"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A table of the page: one size, length, step and batch size."""

    size: str
    length: int
    step: str
    batch_size: int

    @property
    def name(self) -> str:
        return f"{self.size}, {self.batch_size} x {self.length} tokens, {self.step}"

    @property
    def rows(self) -> list[str]:
        return [row for row in bert_models.ROWS if bert_models.has_row(row, self.step)]

    def make_model(self, row: str, options: argparse.Namespace) -> Any:
        return bert_models.make_model(row, self.size, self.length, options.dtype)

    def make_step(self, row: str, model: Any, options: argparse.Namespace) -> Callable[[], Any]:
        inputs = bert_models.make_inputs(self.batch_size, self.length)
        targets = bert_models.make_targets(self.size, self.batch_size, self.length)
        return bert_models.make_step(
            row, model, self.step, inputs, targets, options.dtype, options.xla
        )


def time_cell(
    cell: Cell, rows: Iterable[str], options: argparse.Namespace
) -> Iterator[dict[str, dict[str, Any]]]:
    """Time the named rows, and yield the results of each group."""
    others = [row for row in rows if row != "input"]
    groups = [others[i : i + options.group] for i in range(0, len(others), options.group)]
    # Models contain reference cycles. Clear the models of the previous cell, and of each group.
    keras.backend.clear_session()
    reference = cell.make_step("input", cell.make_model("input", options), options)
    first_call = {"input": measure.seconds(reference)}
    for group in groups or [[]]:
        steps = {"input": reference}
        for row in group:
            steps[row] = cell.make_step(row, cell.make_model(row, options), options)
            first_call[row] = measure.seconds(steps[row])
        results = time_group(steps, options)
        for row, values in results.items():
            values["compile_seconds"] = first_call[row]
        yield results
        del steps
        keras.backend.clear_session()


def time_group(
    steps: dict[str, Callable[[], Any]], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return the results of the models in a group, which includes `input`."""
    # Untimed calls allocate memory, now that the models of other groups are gone.
    measure.time_in_turn(steps, 1)
    times = measure.time_in_turn(steps, options.rounds)
    results = {}
    for row, seconds in times.items():
        median, quartiles = measure.median_and_quartiles(seconds)
        to_input, ratio_quartiles = measure.ratio(seconds, times["input"])
        results[row] = {
            "milliseconds": 1000 * median,
            "quartiles": [1000 * quartile for quartile in quartiles],
            "ratio_to_input": to_input,
            "ratio_to_input_quartiles": ratio_quartiles,
            "fastest_to_input": min(seconds) / min(times["input"]),
            "seconds": seconds,
            "seconds_of_input": times["input"],
        }
    return results


def measure_memory(cell: Cell, row: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the memory of a row. Call it in a new process."""
    # A small model loads the libraries and compilers into memory.
    tiny = dataclasses.replace(cell, size="tiny")
    tiny.make_step(row, tiny.make_model(row, options), options)()
    model = cell.make_model(row, options)
    step = cell.make_step(row, model, options)
    weights = 4 * bert_models.count_weights(row, model) / 2**20
    return {"weights_mib": weights, "step_mib": measure.memory_of(step)}


def run_cell(
    cell: Cell, run: dict[str, Any], options: argparse.Namespace, save_run: Callable[[], None]
) -> None:
    """Measure the missing rows of a cell, and save the results after each group."""
    new = {**dataclasses.asdict(cell), "rows": {}}
    rows = run["cells"].setdefault(cell.name, new)["rows"]
    wanted = [row for row in cell.rows if row in options.rows]
    missing = [row for row in wanted if row not in rows]
    for group in time_cell(cell, missing, options) if missing else ():
        # The reference keeps the times of its first group.
        rows.update({row: values for row, values in group.items() if row not in rows})
        add_ratios(rows)
        save_run()
    if options.memory:
        for row in wanted:
            if "step_mib" not in rows[row]:
                rows[row] |= measure.in_own_process(measure_memory, cell, row, options)
                save_run()


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    sizes, steps = list(bert_models.SIZES), list(bert_models.STEPS)
    rows = [
        row
        for row in bert_models.ROWS
        if any(bert_models.has_row(row, step) for step in bert_models.STEPS)
    ]
    parser.add_argument(
        "--sizes",
        nargs="+",
        choices=sizes,
        default=["base", "small"],
        help="sizes of BERT; tiny is for tests",
    )
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512], help="in tokens")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens in a batch")
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps, help="steps to time")
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=rows,
        default=rows,
        metavar="ROW",
        help="models; `input` is always included",
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each model")
    parser.add_argument("--group", type=int, default=4, help="models in a group besides `input`")
    parser.add_argument("--dtype", choices=bert_models.DTYPES, default="float32")
    parser.add_argument(
        "--xla", action=argparse.BooleanOptionalAction, default=True, help="TensorFlow's compiler"
    )
    parser.add_argument("--memory", action="store_true", help="also measure memory (slow)")
    options = parse(parser, argv)
    options.rows = {"input", *options.rows}
    return options


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    cells = [
        Cell(size, length, step, max(options.tokens // length, 1))
        for size in options.sizes
        for length in options.lengths
        for step in options.steps
    ]
    keras.utils.set_random_seed(bert_models.SEED)
    names = ("tokens", "rounds", "group", "dtype")
    xla = options.xla if keras.config.backend() == "tensorflow" else None
    run = start(MODULE, options, names, xla=xla, seed=bert_models.SEED)
    total = sum(row in options.rows for cell in cells for row in cell.rows)
    with tqdm(total=total * (1 + options.memory), unit="measurement") as progress:

        def save_run():
            save(options, run, make_page)
            progress.n = count_measurements(run)
            progress.refresh()

        for cell in cells:
            run_cell(cell, run, options, save_run)
    print(make_page({options.name: run}))


if __name__ == "__main__":
    main()
