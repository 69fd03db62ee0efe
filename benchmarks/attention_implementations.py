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
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
from tqdm import tqdm

from benchmarks import bert_models, measure
from benchmarks.results import (
    add_file_options,
    head_of_page,
    markdown_table,
    parse_file_options,
    start,
    write,
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
    compiling = {name: measure.seconds(function) for name, function in steps.items()}
    times = measure.time_in_turn(steps, options.rounds)
    results = {}
    for implementation, seconds in times.items():
        median, _ = measure.median_and_quartiles(seconds)
        ratio, quartiles = measure.ratio(seconds, times["full"])
        results[implementation] = {
            "milliseconds": 1000 * median,
            "ratio_to_full": ratio,
            "ratio_quartiles": quartiles,
            "compile_seconds": compiling[implementation],
            "seconds": seconds,
        }
    return results


def measure_memory(
    encoding: str, implementation: str, length: int, step: str, options: argparse.Namespace
) -> float:
    """Return the MiB that a step adds to a separate process."""
    arguments = ("--cell", encoding, implementation, length, step)
    settings = ("--size", options.size, "--dropout", options.dropout, "--dtype", options.dtype)
    return json.loads(measure.in_own_process(MODULE, *arguments, *settings))


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


def make_page(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    title = f"BERT-{results['settings']['size']}: attention by length"
    lines = [*head_of_page(title, results), INTRODUCTION]
    columns = ["tokens", "encoding", "implementation", "milliseconds", "ratio to full"]
    columns += ["MiB", "first call, s"]
    for step in bert_models.STEPS:
        rows = [
            [str(cell["length"]), cell["encoding"], implementation, *columns_of(row)]
            for cell in results["cells"].values()
            if cell["step"] == step
            for implementation, row in cell["rows"].items()
        ]
        if rows:
            lines += [f"## {step.capitalize()} step", "", *markdown_table(columns, rows), ""]
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    lengths = [512, 1024, 2048, 4096, 8192]
    parser.add_argument("--size", choices=bert_models.SIZES, default="small", help="size of BERT")
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="in tokens")
    steps = bert_models.STEPS
    parser.add_argument("--steps", nargs="+", choices=steps, default=steps, help="steps to time")
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=list(ENCODINGS))
    parser.add_argument("--rounds", type=int, default=3, help="timed steps of each kind")
    parser.add_argument("--dropout", type=float, default=bert_models.DROPOUT, help="dropout rate")
    dtypes = ["float32", "mixed_bfloat16"]
    parser.add_argument("--dtype", choices=dtypes, default="float32", help="dtype policy")
    add_file_options(parser)
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    return parse_file_options(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    options = parse_arguments(argv)
    keras.utils.set_random_seed(bert_models.SEED)
    if options.cell:
        encoding, implementation, length, step = options.cell
        print_memory(encoding, implementation, int(length), step, options)
        return
    names = ("size", "dropout", "dtype", "rounds")
    results = start(MODULE, argv, options, names, seed=bert_models.SEED)
    cells = [
        (encoding, length, step)
        for length in options.lengths
        for step in options.steps
        for encoding in options.encodings
    ]
    for encoding, length, step in tqdm(cells, unit="cell"):
        name = f"{encoding}, {length} tokens, {step}"
        if name in results["cells"]:
            continue
        rows = measure_times(encoding, length, step, options)
        for implementation, row in rows.items():
            row["mib"] = measure_memory(encoding, implementation, length, step, options)
        cell = {"encoding": encoding, "length": length, "step": step, "rows": rows}
        results["cells"][name] = cell
        if options.output:
            write(options.output, results, make_page(results))
    print(make_page(results))


if __name__ == "__main__":
    main()
