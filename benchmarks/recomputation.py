"""Time and memory of a training step of BERT, for each value of `recompute`.

`none` keeps everything for the gradient. `attention` computes the attention layers again, and
`block` the blocks. The rows alternate, and `none` is the reference.

The memory is the memory that a step adds to a separate process: the memory of the accelerator, if
there is one, or main memory. The results are printed. After each cell they are also written to
`--output` as JSON, and to a page beside it. `--resume` adds to the results in `--output`.

    KERAS_BACKEND=jax python -m benchmarks.recomputation --output runs/recomputation_jax.json
"""

import argparse
import functools
from collections.abc import Sequence
from typing import Any

import keras

from benchmarks import bert_models, measure
from benchmarks.results import (
    make_parser,
    markdown_table,
    measure_cells,
    page_of,
    parse,
    start,
    time_and_memory_of,
)

MODULE = "benchmarks.recomputation"
RECOMPUTE = ("none", "attention", "block")
ENCODINGS = ("diet_abs", "diet_rel")


def measure_cell(encoding: str, options: argparse.Namespace) -> dict[str, Any]:
    settings = {"step": "training", "dtype": options.dtype, "dropout": options.dropout}
    make = functools.partial(bert_models.make_step_of_row, row=encoding, **settings)
    makers = {name: functools.partial(make, recompute=name) for name in RECOMPUTE}
    small, sizes = ("tiny", (1, 64)), (options.size, (options.batch_size, options.length))
    return {"rows": measure.time_and_memory(makers, small, sizes, options.rounds, "none")}


INTRODUCTION = """\
- *Milliseconds* is the median of the rounds.
- *Ratio to none* is the median of the ratios in each round, with their quartiles.
- *MiB* is the memory that a step adds to a separate process, with its gradients and the state of
  the optimizer.
"""


def make_page(runs: dict[str, Any]) -> str:
    return page_of("Recomputation in training of BERT", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    columns = ["encoding", "recompute", "milliseconds", "ratio to none", "MiB", "first call, s"]
    rows = [
        [encoding, name, *time_and_memory_of(row, "none")]
        for encoding, cell in run["cells"].items()
        for name, row in cell["rows"].items()
    ]
    return markdown_table(columns, rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--size", choices=bert_models.SIZES, default="small", help="size of BERT")
    parser.add_argument("--batch-size", type=int, default=16, help="sequences in a step")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=["diet_abs"])
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each row")
    parser.add_argument("--dropout", type=float, default=bert_models.DROPOUT, help="dropout rate")
    parser.add_argument("--dtype", choices=bert_models.DTYPES, default="float32")
    options = parse(parser, argv)
    keras.utils.set_random_seed(bert_models.SEED)
    names = ("size", "batch_size", "length", "dropout", "dtype", "rounds")
    run = start(MODULE, options, names, seed=bert_models.SEED)
    cells = {
        encoding: functools.partial(measure_cell, encoding, options)
        for encoding in options.encodings
    }
    measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
