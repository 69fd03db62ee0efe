"""The cost of each position encoding on a TPU, as its compiler estimates it; needs no TPU.

BERT with each encoding is compiled for the chips of a TPU topology: inference and a training step
(AdamW), data-parallel, with the weights on every chip and the batch split among the chips. The
compiler reports how many operations a chip performs, how many bytes it moves and how much memory it
needs. Nothing is executed. Each program has its own process, because the compiler may crash. It
takes up to 6 GB.

The results are printed. After each program they are also written to `--output` as JSON, and to a
page of tables beside it. `--resume` adds to the results in `--output`.

    pip install ".[tpu-compile]"
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --output runs/tpu_compile.json
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --sizes small --steps inference --rows shaw
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --sizes small --steps inference \\
        --length 8192 --global-batch 16 --rows input diet_abs diet_abs_features diet_abs_full
"""

import argparse
import contextlib
import functools
import importlib.metadata
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import keras

from benchmarks import bert_models, measure, results

PACKAGES = ("jaxlib", "libtpu")
ENVIRONMENT = {
    # Models are built on the CPU, even on a machine with a TPU.
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # Programs are not executed, so several processes may load the library.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
# The compiler's figures do not vary, so `input_again` is not needed. Cached positions and models
# for PyTorch are left out.
LEFT_OUT = ("input_again", "diet_abs_cached", *bert_models.ON_TORCH)
ENCODINGS = [name for name in bert_models.ENCODINGS if name not in LEFT_OUT]
# Other implementations of attention than "auto", which computes blocks for long sequences.
OTHER_WAYS = {
    "input_features": ("input", "features"),
    "diet_abs_features": ("diet_abs", "features"),
    "diet_abs_full": ("diet_abs", "full"),
    "diet_rel_full": ("diet_rel", "full"),
}
ROWS = (*ENCODINGS, *OTHER_WAYS)
# The compiler counts one iteration of a loop, and does not count the operations of a kernel.
UNCOUNTED = (" while(", '"tpu_custom_call"')
# Table 1 of Chen et al. (2021): step times on TPU v2 relative to `input`. "Ke et al." is TUPE-R.
PAPER = {
    "base, training": {"shaw": 1.13, "tupe_rel": 1.01, "diet_abs": 1.0, "diet_rel": 1.0},
    "base, inference": {"shaw": 1.33, "tupe_rel": 1.19, "diet_abs": 1.0, "diet_rel": 1.0},
    "small, training": {"shaw": 1.24, "tupe_rel": 1.04, "diet_abs": 1.0, "diet_rel": 1.0},
    "small, inference": {"shaw": 1.65, "tupe_rel": 1.27, "diet_abs": 1.01, "diet_rel": 1.0},
}
PAPER_LENGTH = 128
# Peak bfloat16 FLOP/s and bytes/s of a chip, https://cloud.google.com/tpu/docs/v5e.
CHIPS = {"v5e": (197e12, 819e9)}
# For each figure its column, unit and format, and the column of its ratio to `input`.
FIGURES = {
    "flops": ("TFLOP", 1e12, "{:.3f}", "FLOPs"),
    "bytes_accessed": ("GB moved", 1e9, "{:.2f}", "bytes moved"),
    "estimated_cycles": ("Mcycles", 1e6, "{:.2f}", "cycles"),
    "roofline_seconds": ("roofline, ms", 1e-3, "{:.1f}", "roofline"),
    "argument_bytes": ("arguments, MiB", 2**20, "{:.0f}", None),
    "output_bytes": ("output, MiB", 2**20, "{:.0f}", None),
    "temporary_bytes": ("temporary, MiB", 2**20, "{:.0f}", "temporary"),
    "peak_bytes": ("peak, MiB", 2**20, "{:.0f}", "peak"),
    "compile_seconds": ("compiling, s", 1, "{:.0f}", None),
}


# === Programs ===


def make_model(size: str, row: str, options: argparse.Namespace) -> keras.Model:
    name, implementation = OTHER_WAYS.get(row, (row, "auto"))
    settings = (size, options.length, options.dtype, options.dropout)
    return bert_models.make_model(name, *settings, attention_implementation=implementation)


def make_inference(model: keras.Model) -> tuple[Callable[..., Any], tuple[list, ...]]:
    """Return a step and the variables that are its arguments before the inputs."""
    import jax

    def step(weights, state, inputs):
        return model.stateless_call(weights, state, inputs, training=False)[0]

    return jax.jit(step), (model.trainable_variables, model.non_trainable_variables)


def make_training(model: keras.Model) -> tuple[Callable[..., Any], tuple[list, ...]]:
    """Return a step and the variables that are its arguments before the inputs."""
    import jax

    optimizer = keras.optimizers.AdamW()
    optimizer.build(model.trainable_variables)

    def loss(weights, state, inputs):
        outputs, state = model.stateless_call(weights, state, inputs, training=True)
        squares = [keras.ops.square(keras.ops.cast(x, "float32")) for x in outputs.values()]
        return sum(keras.ops.mean(square) for square in squares), state

    def step(weights, state, optimizer_state, inputs):
        gradient = jax.value_and_grad(loss, has_aux=True)
        (value, state), gradients = gradient(weights, state, inputs)
        weights, optimizer_state = optimizer.stateless_apply(optimizer_state, gradients, weights)
        return weights, state, optimizer_state, value

    variables = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    # As in `model.fit`, the new variables replace the old ones in memory.
    return jax.jit(step, donate_argnums=(0, 1, 2)), variables


@contextlib.contextmanager
def as_on(devices: list[Any]) -> Iterator[None]:
    """Let JAX report these devices, because layers choose another implementation on a TPU."""
    import jax

    with (
        mock.patch.object(jax, "devices", return_value=devices),
        mock.patch.object(jax, "default_backend", return_value=devices[0].platform),
    ):
        yield


def compile_for_tpu(
    step: Callable[..., Any], variables: tuple[list, ...], options: argparse.Namespace
) -> Any:
    """Compile a step for all chips of the topology."""
    import jax
    from jax.experimental import topologies
    from jax.sharding import NamedSharding, PartitionSpec

    tpu = topologies.get_topology_desc(platform="tpu", topology_name=options.topology)
    # The compiler does not partition kernels. Keras partitions them by this distribution.
    distribution = keras.distribution.DataParallel(devices=tpu.devices)
    mesh = distribution.device_mesh.backend_mesh
    on_every_chip = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec(distribution.batch_dim_name))
    variables = [
        [jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=on_every_chip) for v in group]
        for group in variables
    ]
    ids = jax.ShapeDtypeStruct((options.global_batch, options.length), "int32", sharding=split)
    inputs = {"token_ids": ids, "segment_ids": ids, "padding_mask": ids}
    with as_on(tpu.devices), distribution.scope():
        lowered = step.lower(*variables, inputs)
    return lowered.compile()


def estimated_cycles(program: str) -> int:
    """Return the sum of the compiler's estimates for the operations of a program."""
    entry = program[program.index("\nENTRY ") :]
    return sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', entry)))


def figures_of(compiled: Any) -> dict[str, float]:
    """Return the compiler's figures for a program, for one chip."""
    memory, program = compiled.memory_analysis(), compiled.as_text()
    figures = {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "peak_bytes": memory.peak_memory_in_bytes,
    }
    if any(uncounted in program for uncounted in UNCOUNTED):
        return figures
    cost = compiled.cost_analysis()
    return {
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "estimated_cycles": estimated_cycles(program),
        **figures,
    }


def compile_program(
    size: str, step: str, row: str, options: argparse.Namespace
) -> dict[str, float]:
    """Return the figures of a program. Call it in a new process, because the compiler may crash."""
    make_step = {"inference": make_inference, "training": make_training}[step]
    function, variables = make_step(make_model(size, row, options))
    start = time.perf_counter()
    compiled = compile_for_tpu(function, variables, options)
    return {"compile_seconds": time.perf_counter() - start, **figures_of(compiled)}


# === The program ===

INTRODUCTION = """\
The compiler gave all figures, for one chip. Nothing was executed.

- *GB moved* counts the operands and results of all operations, in memory and on the chip.
- *Mcycles* is the sum of the compiler's estimates for all operations. The compiler has no estimate
  for copies during computations and for communication between chips.
- The compiler counts only one iteration of a loop, such as the loop over blocks of queries. It does
  not count the operations of kernels, such as JAX's kernel for attention. The tables only show the
  memory of programs with loops or kernels.
- *Roofline* is an estimate of the time at the peak rates of the chip: the time for the operations
  or the time for the bytes moved, if that is longer. For v5e, the peak rates are 197 TFLOP/s in
  bfloat16 and 819 GB/s ([Google Cloud](https://cloud.google.com/tpu/docs/v5e)).
- *Arguments* are the weights and the inputs, and in training the state of the optimizer.
- *Temporary* is the memory that the program allocates besides its arguments and outputs.
- *Peak* is the largest amount of memory at a time, including memory on the chip.
- *Compiling* depends on the machine and its load.
- *Table 1* is the ratio of step times to `input` that the paper measured on TPU v2.
"""


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("Costs on a TPU, by its compiler", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    peak = CHIPS.get(run["settings"]["topology"].split(":")[0])
    for name, cell in run["cells"].items():
        paper = PAPER.get(name, {}) if run["settings"]["length"] == PAPER_LENGTH else {}
        rows = {row: with_roofline(cell[row], peak) for row in ROWS if row in cell}
        lines += [f"### {name}", "", *figures_table(rows), "", "Ratios to `input`:", ""]
        lines += [*ratios_table(rows, paper), ""]
    return lines[:-1]


def with_roofline(values: dict[str, float], peak: tuple[float, float] | None) -> dict[str, float]:
    """Return the figures of a program, and its time at the peak rates of a chip if both count."""
    if peak is None or "flops" not in values:
        return values
    flops, bytes_per_second = peak
    times = values["flops"] / flops, values["bytes_accessed"] / bytes_per_second
    return {**values, "roofline_seconds": max(times)}


def figures_table(rows: dict[str, dict[str, float]]) -> list[str]:
    body = [
        [row]
        + [
            form.format(values[name] / unit) if name in values else ""
            for name, (_, unit, form, _) in FIGURES.items()
        ]
        for row, values in rows.items()
    ]
    return results.markdown_table(["", *(column for column, *_ in FIGURES.values())], body)


def ratios_table(rows: dict[str, dict[str, float]], paper: dict[str, float]) -> list[str]:
    """Return the lines of the table of ratios, with the ratios of the paper."""
    compared = {name: column for name, (*_, column) in FIGURES.items() if column}
    reference = rows.get("input", {})
    body = []
    for row, values in rows.items():
        ratios = [
            f"{values[name] / reference[name]:.3f}"
            if name in values and reference.get(name)
            else ""
            for name in compared
        ]
        body.append([row, *ratios, f"{paper[row]:.2f}" if row in paper else ""])
    return results.markdown_table(["", *compared.values(), "Table 1"], body)


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    add, steps = parser.add_argument, list(bert_models.STEPS)
    add("--sizes", nargs="+", choices=bert_models.SIZES, default=["base", "small"])
    add("--steps", nargs="+", choices=steps, default=steps)
    add("--rows", nargs="+", choices=ROWS, default=ENCODINGS)
    add("--topology", default="v5e:4x4", help="kind and number of chips")
    add("--global-batch", type=int, default=4096, help="sequences on all chips")
    add("--length", type=int, default=128, help="of a sequence, in tokens")
    add("--dropout", type=float, default=0.1, help="dropout rate")
    add("--dtype", default="mixed_bfloat16", help="dtype policy of the models")
    options = results.parse(parser, argv)
    if keras.config.backend() != "jax":
        parser.error("Only JAX can compile for a TPU on a machine without one.")
    # For the processes of the programs.
    os.environ |= ENVIRONMENT
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    names = ("topology", "global_batch", "length", "dropout", "dtype")
    run = results.start(__spec__.name, options, names, computes_on="cpu", **versions)
    cells = {
        f"{size}, {step}": {
            row: functools.partial(
                measure.in_own_process, compile_program, size, step, row, options
            )
            for row in options.rows
        }
        for size in options.sizes
        for step in options.steps
    }
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
