"""Time and memory of BERT for each value of an argument: of its attention, or of recomputation.

- `attention_implementation`: the same model computes all scores at once (`full`), as one dot
  product of features (`features`), or for one block of queries at a time (`blockwise`), and on a
  GPU with kernels of indices (`indexed`). On PyTorch, `full` passes the positional scores to the
  fused kernel, and there is one more row: `hugging_face`, a BERT with positions at the input.
- `recompute`: in training, `none` keeps everything for the gradient, `attention` computes the
  attention layers again, and `block` the blocks.

The rows alternate, and the first one is the reference. The memory is the memory that a step adds to
a separate process: the memory of the accelerator, if there is one, or main memory. The results are
printed. After each cell they are also written to `--output` as JSON, and to a page beside it.
`--resume` adds to the results in `--output`.

    KERAS_BACKEND=jax python -m benchmarks.time_and_memory recompute --shapes 16x512 \\
        --steps training --output runs/recomputation_jax.json
    KERAS_BACKEND=torch python -m benchmarks.time_and_memory attention_implementation \\
        --shapes 1x512 1x1024 1x2048 1x4096 1x8192 --dtype mixed_bfloat16 --output runs/gpu.json
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras

from benchmarks import bert_models, measure, results
from keras_diet.layers.attention.plan import INDEXED

VALUES = {
    "attention_implementation": {
        "diet_abs": ("full", "features", "blockwise", "hugging_face"),
        "diet_rel": ("full", "blockwise", "indexed"),
    },
    "recompute": dict.fromkeys(("diet_abs", "diet_rel"), ("none", "attention", "block")),
}
TITLES = {
    "attention_implementation": "Attention of BERT by length",
    "recompute": "Recomputation in training of BERT",
}
INTRODUCTION = """\
- *Milliseconds* is the median of the rounds.
- *Ratio* is the time relative to the first row of a step: the median of the ratios in each round,
  with their quartiles.
- *MiB* is the memory that a step adds to a separate process, in training with its gradients and
  the state of the optimizer.
"""


def has_value(value: str, step: str) -> bool:
    if value == "indexed":
        return measure.device() != "cpu" and keras.config.backend() in INDEXED
    return bert_models.has_row(value, step)


def measure_cell(
    encoding: str, shape: tuple[int, int], step: str, options: Any
) -> dict[str, dict[str, Any]]:
    settings = {"step": step, "dtype": options.dtype, "dropout": options.dropout}
    make = functools.partial(bert_models.make_step_of_row, **settings)
    makers = {
        value: functools.partial(make, row=value)
        if value == "hugging_face"
        else functools.partial(make, row=encoding, **{options.argument: value})
        for value in VALUES[options.argument][encoding]
        if has_value(value, step)
    }
    small, sizes = ("tiny", (1, 64)), (options.size, shape)
    return measure.time_and_memory(makers, small, sizes, options.rounds)


def make_page(argument: str, runs: dict[str, Any]) -> str:
    return results.page_of(TITLES[argument], INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    columns = ["step", "row", "milliseconds", "ratio", "MiB", "first call, s"]
    rows = [
        [
            *(name, value, f"{row['milliseconds']:.0f}", results.ratio_of(row)),
            *(f"{row['mib']:.0f}", f"{row['compile_seconds']:.1f}"),
        ]
        for name, cell in run["cells"].items()
        for value, row in cell.items()
    ]
    return results.markdown_table(columns, rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    encodings, steps = list(VALUES["recompute"]), bert_models.STEPS
    parser.add_argument("argument", choices=VALUES, help="what varies")
    parser.add_argument(
        "--shapes", type=results.shape, nargs="+", required=True, help="sequences x tokens"
    )
    parser.add_argument("--size", choices=bert_models.SIZES, default="small", help="size of BERT")
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps, help="steps to time")
    parser.add_argument("--encodings", nargs="+", choices=encodings, default=encodings)
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each row")
    parser.add_argument("--dropout", type=float, default=bert_models.DROPOUT, help="dropout rate")
    parser.add_argument("--dtype", choices=bert_models.DTYPES, default="float32")
    options = results.parse(parser, argv)
    keras.utils.set_random_seed(bert_models.SEED)
    names = ("argument", "size", "dropout", "dtype", "rounds")
    run = results.start(__spec__.name, options, names, seed=bert_models.SEED)
    cells = {
        f"{encoding}, {shape[0]} x {shape[1]} tokens, {step}": functools.partial(
            measure_cell, encoding, shape, step, options
        )
        for shape in options.shapes
        for step in options.steps
        for encoding in options.encodings
    }
    results.measure_cells(options, run, cells, functools.partial(make_page, options.argument))


if __name__ == "__main__":
    main()
