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

MODULE = "benchmarks.recomputation"
RECOMPUTE = ("none", "attention", "block")
ENCODINGS = {"diet_abs": bert_models.DIET_ABS, "diet_rel": bert_models.DIET_REL}


def make_step(
    encoding: str, recompute: str, options: argparse.Namespace, size: str | None = None
) -> Callable[[], Any]:
    """Return a function that runs a training step."""
    size, batch_size, length = size or options.size, options.batch_size, options.length
    model = DietBertBackbone(
        **bert_models.SIZES[size],
        **ENCODINGS[encoding],
        vocabulary_size=bert_models.VOCABULARY_SIZE,
        dropout=options.dropout,
        max_sequence_length=length,
        recompute=recompute,
        dtype=options.dtype,
    )
    inputs = bert_models.make_inputs(batch_size, length)
    targets = bert_models.make_targets(size, batch_size, length)
    return bert_models.make_step(encoding, model, "training", inputs, targets, options.dtype)


def measure_times(encoding: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the milliseconds of each row, and their ratios to `none`."""
    keras.backend.clear_session()
    steps = {name: make_step(encoding, name, options) for name in RECOMPUTE}
    return measure.compare(steps, options.rounds, "none")


def measure_memory(encoding: str, recompute: str, options: argparse.Namespace) -> float:
    """Return the MiB that a step adds to a separate process."""
    names = ("size", "batch_size", "length", "dropout", "dtype")
    settings = [
        part
        for name in names
        for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))
    ]
    return json.loads(measure.in_own_process(MODULE, "--cell", encoding, recompute, *settings))


def measure_cell(encoding: str, options: argparse.Namespace) -> dict[str, Any]:
    rows = measure_times(encoding, options)
    for name, row in rows.items():
        row["mib"] = measure_memory(encoding, name, options)
    return {"rows": rows}


def print_memory(encoding: str, recompute: str, options: argparse.Namespace) -> None:
    # A small model loads the libraries and compilers into memory.
    small = argparse.Namespace(**{**vars(options), "batch_size": 1, "length": 64})
    make_step(encoding, recompute, small, size="tiny")()
    print(json.dumps(measure.memory_of(make_step(encoding, recompute, options))))


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
    rows = []
    for encoding, cell in run["cells"].items():
        for name, row in cell["rows"].items():
            low, high = row["ratio_quartiles"]
            ratio = f"{row['ratio_to_none']:.2f} ({low:.2f} - {high:.2f})"
            numbers = (f"{row['milliseconds']:.0f}", ratio, f"{row['mib']:.0f}")
            rows.append([encoding, name, *numbers, f"{row['compile_seconds']:.1f}"])
    return markdown_table(columns, rows)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--size", choices=bert_models.SIZES, default="small", help="size of BERT")
    parser.add_argument("--batch-size", type=int, default=16, help="sequences in a step")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=["diet_abs"])
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each row")
    parser.add_argument("--dropout", type=float, default=bert_models.DROPOUT, help="dropout rate")
    parser.add_argument("--dtype", choices=bert_models.DTYPES, default="float32")
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    return parse(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    keras.utils.set_random_seed(bert_models.SEED)
    if options.cell:
        print_memory(*options.cell, options)
        return
    names = ("size", "batch_size", "length", "dropout", "dtype", "rounds")
    run = start(MODULE, options, names, seed=bert_models.SEED)
    cells = {
        encoding: functools.partial(measure_cell, encoding, options)
        for encoding in options.encodings
    }
    measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
