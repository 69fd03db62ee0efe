"""Time and memory of BERT by length, for each implementation of its attention.

The same model computes all scores at once (`full`), as one dot product of features (`features`),
or for one block of queries at a time (`blockwise`). The implementations alternate, with one
sequence in a step, and `full` is the reference. On PyTorch, `full` passes the positional scores to
the fused kernel. There is one more row on PyTorch: `hugging_face`, a BERT with positions at the
input.

The memory is the memory that a step adds to a separate process: the memory of the accelerator, if
there is one, or main memory. The results are printed. After each length they are also written to
`--output` as JSON, and to a page beside it. `--resume` adds to the results in `--output`.

    KERAS_BACKEND=jax python -m benchmarks.attention_implementations --output runs/long_jax.json
    KERAS_BACKEND=torch python -m benchmarks.attention_implementations --steps inference \\
        --lengths 512 1024 2048 4096 8192 16384 --dtype mixed_bfloat16 --output runs/long_gpu.json
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

MODULE = "benchmarks.attention_implementations"
IMPLEMENTATIONS = {
    "diet_abs": ("full", "features", "blockwise", "hugging_face"),
    "diet_rel": ("full", "blockwise"),
}


def measure_cell(
    encoding: str, length: int, step: str, options: argparse.Namespace
) -> dict[str, Any]:
    settings = {"step": step, "dtype": options.dtype, "dropout": options.dropout}
    make = functools.partial(bert_models.make_step_of_row, **settings)
    makers = {
        name: functools.partial(make, row=name)
        if name == "hugging_face"
        else functools.partial(make, row=encoding, attention_implementation=name)
        for name in IMPLEMENTATIONS[encoding]
        if bert_models.has_row(name, step)
    }
    small, sizes = ("tiny", (1, 64)), (options.size, (1, length))
    rows = measure.time_and_memory(makers, small, sizes, options.rounds, "full")
    return {"encoding": encoding, "length": length, "step": step, "rows": rows}


INTRODUCTION = """\
- *Milliseconds* is the median of the rounds.
- *Ratio to full* is the median of the ratios in each round, with their quartiles.
- *MiB* is the memory that a step adds to a separate process.
"""


def make_page(runs: dict[str, Any]) -> str:
    return page_of("Attention of BERT by length", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    columns = ["tokens", "encoding", "implementation", "milliseconds", "ratio to full"]
    columns += ["MiB", "first call, s"]
    for step in bert_models.STEPS:
        rows = [
            [str(cell["length"]), cell["encoding"], name, *time_and_memory_of(row, "full")]
            for cell in run["cells"].values()
            if cell["step"] == step
            for name, row in cell["rows"].items()
        ]
        if rows:
            lines += [f"### {step.capitalize()} step", "", *markdown_table(columns, rows), ""]
    return lines[:-1]


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    lengths, encodings = [512, 1024, 2048, 4096, 8192], list(IMPLEMENTATIONS)
    parser.add_argument("--size", choices=bert_models.SIZES, default="small", help="size of BERT")
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="in tokens")
    steps = bert_models.STEPS
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps, help="steps to time")
    parser.add_argument("--encodings", nargs="+", choices=encodings, default=encodings)
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each kind")
    parser.add_argument("--dropout", type=float, default=bert_models.DROPOUT, help="dropout rate")
    parser.add_argument("--dtype", choices=bert_models.DTYPES, default="float32")
    options = parse(parser, argv)
    keras.utils.set_random_seed(bert_models.SEED)
    names = ("size", "dropout", "dtype", "rounds")
    run = start(MODULE, options, names, seed=bert_models.SEED)
    cells = {
        f"{encoding}, {length} tokens, {step}": functools.partial(
            measure_cell, encoding, length, step, options
        )
        for length in options.lengths
        for step in options.steps
        for encoding in options.encodings
    }
    measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
