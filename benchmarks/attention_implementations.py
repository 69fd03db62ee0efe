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
import json
from collections.abc import Callable, Sequence
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
)
from keras_diet.models import DietBertBackbone

MODULE = "benchmarks.attention_implementations"
ENCODINGS = {"diet_abs": bert_models.DIET_ABS, "diet_rel": bert_models.DIET_REL}
IMPLEMENTATIONS = {
    "diet_abs": ("full", "features", "blockwise", "hugging_face"),
    "diet_rel": ("full", "blockwise"),
}


def implementations(encoding: str) -> list[str]:
    """Return the implementations on this backend."""
    missing = [] if keras.config.backend() == "torch" else ["hugging_face"]
    return [name for name in IMPLEMENTATIONS[encoding] if name not in missing]


def make_model(
    encoding: str, implementation: str, length: int, size: str, options: argparse.Namespace
) -> Any:
    if implementation == "hugging_face":
        return bert_models.make_model(implementation, size, length, dropout=options.dropout)
    return DietBertBackbone(
        **bert_models.SIZES[size],
        **ENCODINGS[encoding],
        vocabulary_size=bert_models.VOCABULARY_SIZE,
        dropout=options.dropout,
        max_sequence_length=length,
        attention_implementation=implementation,
        dtype=options.dtype,
    )


def make_step(
    encoding: str,
    implementation: str,
    length: int,
    step: str,
    options: argparse.Namespace,
    size: str | None = None,
) -> Callable[[], Any]:
    """Return a function that runs a step with one sequence."""
    size = size or options.size
    model = make_model(encoding, implementation, length, size, options)
    inputs = bert_models.make_inputs(1, length)
    targets = bert_models.make_targets(size, 1, length)
    return bert_models.make_step(implementation, model, step, inputs, targets, options.dtype)


def measure_times(
    encoding: str, length: int, step: str, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Return the milliseconds of each implementation, and their ratios to `full`."""
    keras.backend.clear_session()
    steps = {
        implementation: make_step(encoding, implementation, length, step, options)
        for implementation in implementations(encoding)
    }
    return measure.compare(steps, options.rounds, "full")


def measure_memory(
    encoding: str, implementation: str, length: int, step: str, options: argparse.Namespace
) -> float:
    """Return the MiB that a step adds to a separate process."""
    arguments = ("--cell", encoding, implementation, length, step)
    settings = ("--size", options.size, "--dropout", options.dropout, "--dtype", options.dtype)
    return json.loads(measure.in_own_process(MODULE, *arguments, *settings))


def measure_cell(
    encoding: str, length: int, step: str, options: argparse.Namespace
) -> dict[str, Any]:
    rows = measure_times(encoding, length, step, options)
    for implementation, row in rows.items():
        row["mib"] = measure_memory(encoding, implementation, length, step, options)
    return {"encoding": encoding, "length": length, "step": step, "rows": rows}


def print_memory(
    encoding: str, implementation: str, length: int, step: str, options: argparse.Namespace
) -> None:
    # A small model loads the libraries and compilers into memory.
    make_step(encoding, implementation, 64, step, options, size="tiny")()
    function = make_step(encoding, implementation, length, step, options)
    print(json.dumps(measure.memory_of(function)))


INTRODUCTION = """\
- *Milliseconds* is the median of the rounds.
- *Ratio to full* is the median of the ratios in each round, with their quartiles.
- *MiB* is the memory that a step adds to a separate process.
"""


def columns_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row of results in the table."""
    low, high = row["ratio_quartiles"]
    ratio = f"{row['ratio_to_full']:.2f} ({low:.2f} - {high:.2f})"
    compiling = f"{row['compile_seconds']:.1f}"
    return f"{row['milliseconds']:.0f}", ratio, f"{row['mib']:.0f}", compiling


def make_page(runs: dict[str, Any]) -> str:
    return page_of("Attention of BERT by length", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    columns = ["tokens", "encoding", "implementation", "milliseconds", "ratio to full"]
    columns += ["MiB", "first call, s"]
    for step in bert_models.STEPS:
        rows = [
            [str(cell["length"]), cell["encoding"], implementation, *columns_of(row)]
            for cell in run["cells"].values()
            if cell["step"] == step
            for implementation, row in cell["rows"].items()
        ]
        if rows:
            lines += [f"### {step.capitalize()} step", "", *markdown_table(columns, rows), ""]
    return lines[:-1]


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    lengths = [512, 1024, 2048, 4096, 8192]
    parser.add_argument("--size", choices=bert_models.SIZES, default="small", help="size of BERT")
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="in tokens")
    steps = bert_models.STEPS
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps, help="steps to time")
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=list(ENCODINGS))
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each kind")
    parser.add_argument("--dropout", type=float, default=bert_models.DROPOUT, help="dropout rate")
    parser.add_argument("--dtype", choices=bert_models.DTYPES, default="float32")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    return parse(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    keras.utils.set_random_seed(bert_models.SEED)
    if options.cell:
        encoding, implementation, length, step = options.cell
        print_memory(encoding, implementation, int(length), step, options)
        return
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
