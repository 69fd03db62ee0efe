"""Step times of this checkout and of another one, in one run.

Each checkout has its own process. The processes take steps one after the other, in a new order each
round, so that a busy machine slows both. A ratio is the median of the ratios of the rounds: below
1, this checkout is faster.

    git worktree add ../before HEAD~20
    KERAS_BACKEND=jax python -m benchmarks.compare_commits ../before --output runs/compare_jax.json
"""

import functools
import inspect
import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import measure, results

ROWS = ("input", "diet_abs", "diet_rel", "shaw", "t5", "tupe_rel")


def work() -> None:
    """Take a step whenever a line on standard input names it. Steps of other sizes are deleted."""
    import json
    import sys

    from benchmarks import bert_models

    steps, sizes = {}, None
    for line in sys.stdin:
        row, size, shape = json.loads(line)
        if sizes != (size, shape):
            steps, sizes = {}, (size, shape)
        if row not in steps:
            model = bert_models.make_model(row, size, shape[1])
            inputs = bert_models.make_inputs(*shape)
            steps[row] = bert_models.make_step(row, model, "inference", inputs, None)
        steps[row]()
        print("done", flush=True)


class Worker:
    """The process of a checkout, which needs only `benchmarks/bert_models.py`."""

    def __init__(self, checkout: Path) -> None:
        command = [sys.executable, "-c", f"{inspect.getsource(work)}\nwork()"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, cwd=checkout, **pipes)

    def step(self, *step: Any) -> None:
        print(json.dumps(step), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line == "done\n":
                return
        raise RuntimeError("A worker has stopped. Its error is above.")


def measure_cell(
    workers: dict[str, Worker], rows: Sequence[str], size: str, shape: tuple, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each row for each checkout."""
    steps = {
        (row, name): functools.partial(worker.step, row, size, shape)
        for row in rows
        for name, worker in workers.items()
    }
    # The first steps compile.
    measure.time_in_turn(steps, 2)
    times = measure.time_in_turn(steps, rounds)
    return {row: {name: times[row, name] for name in workers} for row in rows}


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("Step times of two checkouts", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    columns = ["step", "model", "this, ms", "other, ms", "this / other", "this / its `input`"]
    rows = []
    for name, cell in run["cells"].items():
        for row, times in cell.items():
            this, other = times["this"], times["other"]
            medians = (measure.median_and_quartiles(each)[0] for each in (this, other))
            ratios = (measure.ratio(this, each)[0] for each in (other, cell["input"]["this"]))
            numbers = (f"{1000 * median:.1f}" for median in medians)
            rows.append([name, row, *numbers, *(f"{ratio:.3f}" for ratio in ratios)])
    return results.markdown_table(columns, rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    add, sizes, shapes = parser.add_argument, ["small", "base"], [(8, 128), (2, 512)]
    add("other", type=Path, help="folder of the other checkout")
    add("--sizes", nargs="+", default=sizes, help="sizes of BERT")
    add("--shapes", type=results.shape, nargs="+", default=shapes, help="sequences x tokens")
    add("--rows", nargs="+", choices=ROWS, default=ROWS[:3], metavar="ROW", help="besides `input`")
    add("--rounds", type=int, default=15, help="timed steps of each row")
    options = results.parse(parser, argv)
    run = results.start(__spec__.name, options, ("rounds",), other=measure.commit(options.other))
    workers = {"this": Worker(measure.ROOT), "other": Worker(options.other)}
    rows = dict.fromkeys(("input", *options.rows))
    cells = {
        f"{size}, {shape[0]} x {shape[1]} tokens": functools.partial(
            measure_cell, workers, list(rows), size, shape, options.rounds
        )
        for size, shape in itertools.product(options.sizes, options.shapes)
    }
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
