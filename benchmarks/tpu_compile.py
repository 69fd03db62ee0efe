"""The cost of each position encoding on a TPU, as its compiler estimates it; needs no TPU.

BERT with each encoding is compiled for the chips of a TPU topology: inference and a training step
(AdamW), data-parallel, with the weights on every chip and the batch split among the chips. The
compiler reports how many operations a chip performs, how many bytes it moves and how much memory it
needs. Nothing is executed.

The results are printed. After each program they are also written to `--output` as JSON, and to a
page of tables beside it. `--resume` adds to the results in `--output`.

    pip install ".[tpu-compile]"
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --output runs/tpu_compile.json
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --sizes small --steps inference --rows shaw
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --sizes small --steps inference \\
        --length 8192 --global-batch 16 --rows input diet_abs diet_abs_features diet_abs_full
"""

import argparse
import importlib.metadata
import importlib.util
import math
import multiprocessing.pool
import os
import re
from collections.abc import Sequence

import keras
from tqdm import tqdm

from benchmarks import bert_models, measure
from benchmarks.results import make_parser, parse, save, start
from benchmarks.tpu_compile_results import compare, make_page
from benchmarks.tpu_programs import ENCODINGS, ROWS, STEPS, compile_program

MODULE = "benchmarks.tpu_compile"
# The figures depend on these options, so `--resume` needs the same values.
SETTINGS = ("topology", "global_batch", "length", "dropout", "dtype")
PACKAGES = ("jaxlib", "libtpu")
ENVIRONMENT = {
    # Models are built on the CPU, even on a machine with a TPU.
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # Programs are not executed, so several processes may load the library.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


def compile_in_own_process(
    program: tuple[str, str, str], options: argparse.Namespace
) -> dict[str, float | str]:
    """Return the result of `compile_program`, called in another process that may crash."""
    try:
        return measure.in_own_process(compile_program, *program, options)
    except Exception as error:
        return {"error": repr(error)}


def number_of_chips(topology: str) -> int | None:
    """Return the number of chips of a topology such as `"v5e:4x4"`, or `None` if it is invalid."""
    match = re.fullmatch(r"\w+:(\d+(?:x\d+)+)", topology)
    return math.prod(map(int, match[1].split("x"))) if match else None


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=bert_models.SIZES, default=["base", "small"])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ENCODINGS)
    parser.add_argument("--topology", default="v5e:4x4", help="kind and number of chips")
    parser.add_argument("--global-batch", type=int, default=4096, help="sequences on all chips")
    parser.add_argument("--length", type=int, default=128, help="of a sequence, in tokens")
    parser.add_argument("--dropout", type=float, default=0.1, help="dropout rate")
    parser.add_argument("--dtype", default="mixed_bfloat16", help="dtype policy of the models")
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        help="programs at a time; each takes a core and up to 6 GB",
    )
    options = parse(parser, arguments)
    chips = number_of_chips(options.topology)
    if not chips:
        parser.error(f"--topology must look like v5e:4x4. Received: {options.topology!r}")
    if options.global_batch % chips:
        parser.error(
            f"--global-batch must be divisible by the {chips} chips. "
            f"Received: {options.global_batch}"
        )
    if keras.config.backend() != "jax":
        parser.error(
            "Only JAX can compile for a TPU on a machine without one. "
            f"Received: KERAS_BACKEND={keras.config.backend()}. Set KERAS_BACKEND=jax."
        )
    if importlib.util.find_spec("libtpu") is None:
        parser.error('The compiler for TPUs is not installed. Run pip install ".[tpu-compile]".')
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    # For the processes of the programs.
    os.environ |= ENVIRONMENT
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    run = start(MODULE, options, SETTINGS, computes_on="cpu", **versions)
    cells = run["cells"]
    programs = [
        (size, step, row)
        for size in options.sizes
        for step in options.steps
        for row in options.rows
        if "compile_seconds" not in cells.get(f"{size}, {step}", {}).get(row, {})
    ]

    def compile_one(program):
        return program, compile_in_own_process(program, options)

    with multiprocessing.pool.ThreadPool(options.processes) as pool:
        compiled = pool.imap_unordered(compile_one, programs)
        for (size, step, row), figures in tqdm(compiled, total=len(programs), unit="program"):
            rows = {**cells.get(f"{size}, {step}", {}), row: figures}
            rows = {name: rows[name] for name in ROWS if name in rows}
            compare(rows, options.topology.split(":")[0])
            cells[f"{size}, {step}"] = rows
            save(options, run, make_page)
    print(make_page({options.name: run}))


if __name__ == "__main__":
    main()
