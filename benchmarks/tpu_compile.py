"""What each position encoding costs on a TPU, by the figures of the TPU's compiler; needs no TPU.

BERT with each encoding is compiled for the chips of a TPU topology: inference and a training step
(AdamW), in data parallel, weights on every chip and the batch split among them. The compiler says
how many operations a chip performs, how many bytes it moves and how much memory it needs; nothing
is executed. Results go to the screen and, after each program, to `--output` as JSON, with a page of
tables beside it; `--resume` goes on where such a file ends.

    pip install "keras-diet[tpu-compile]"
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --output runs/tpu_compile.json
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --sizes small --steps inference --rows shaw
    KERAS_BACKEND=jax python -m benchmarks.tpu_compile --sizes small --steps inference \\
        --length 8192 --global-batch 16 --rows input diet_abs diet_abs_features diet_abs_full
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import math
import multiprocessing.pool
import os
import re
import subprocess
import sys
import time
from unittest import mock

import keras
from tqdm import tqdm

from benchmarks import bert_models, measure
from benchmarks.results import add_file_options, head_of_page, markdown_table, start, write
from keras_diet.models import DietBertBackbone

MODULE = "benchmarks.tpu_compile"
SIZES, STEPS = bert_models.SIZES, ("inference", "training")
# The compiler computes the same of the same model, and neither caches nor loops in PyTorch.
ENCODINGS = {
    name: arguments
    for name, arguments in bert_models.ENCODINGS.items()
    if name not in ("input_again", "diet_abs_cached", *bert_models.ON_TORCH)
}
# Other ways of attending than what "auto" takes; with long sequences it takes blocks.
OTHER_WAYS = {
    "input_features": {**ENCODINGS["input"], "attention_implementation": "features"},
    "diet_abs_features": {**ENCODINGS["diet_abs"], "attention_implementation": "features"},
    "diet_abs_full": {**ENCODINGS["diet_abs"], "attention_implementation": "full"},
    "diet_rel_full": {**ENCODINGS["diet_rel"], "attention_implementation": "full"},
}
ROWS = {**ENCODINGS, **OTHER_WAYS}
# Table 1 of Chen et al. (2021): step time on TPU v2 over that of `input`. Ke et al. is TUPE-R.
PAPER = {
    "base, training": {"shaw": 1.13, "tupe_rel": 1.01, "diet_abs": 1.0, "diet_rel": 1.0},
    "base, inference": {"shaw": 1.33, "tupe_rel": 1.19, "diet_abs": 1.0, "diet_rel": 1.0},
    "small, training": {"shaw": 1.24, "tupe_rel": 1.04, "diet_abs": 1.0, "diet_rel": 1.0},
    "small, inference": {"shaw": 1.65, "tupe_rel": 1.27, "diet_abs": 1.01, "diet_rel": 1.0},
}
PAPER_LENGTH = 128
# Peak bfloat16 FLOP/s and bytes/s of a chip, https://cloud.google.com/tpu/docs/v5e.
CHIPS = {"v5e": (197e12, 819e9)}
# Columns of the tables: name, unit and form of a figure, and what is compared with `input`.
FIGURES = {
    "TFLOP": ("flops", 1e12, "{:.3f}"),
    "GB moved": ("bytes_accessed", 1e9, "{:.2f}"),
    "Mcycles": ("estimated_cycles", 1e6, "{:.2f}"),
    "roofline, ms": ("roofline_seconds", 1e-3, "{:.1f}"),
    "arguments, MiB": ("argument_bytes", 2**20, "{:.0f}"),
    "output, MiB": ("output_bytes", 2**20, "{:.0f}"),
    "temporary, MiB": ("temporary_bytes", 2**20, "{:.0f}"),
    "peak, MiB": ("peak_bytes", 2**20, "{:.0f}"),
    "compiling, s": ("compile_seconds", 1, "{:.0f}"),
}
COMPARED = {
    "FLOPs": "flops",
    "bytes moved": "bytes_accessed",
    "cycles": "estimated_cycles",
    "roofline": "roofline_seconds",
    "temporary": "temporary_bytes",
    "peak": "peak_bytes",
}
# A loop, of which the compiler counts one turn, and a kernel, of which it counts nothing.
UNCOUNTED = (" while(", '"tpu_custom_call"')
# What the figures depend on: a file with others cannot be gone on with.
SETTINGS = ("topology", "global_batch", "length", "dropout", "dtype")
PACKAGES = ("jaxlib", "libtpu")
ENVIRONMENT = {
    # Models are built on the CPU, on a machine with a TPU as well.
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # Where no TPU is used there is nothing to lock.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
INTRODUCTION = """\
All figures are those of the compiler, for one chip; nothing was executed.

- *GB moved*: operands and results of all operations, in memory and on the chip.
- *Mcycles*: the compiler's estimates of what each operation takes, in sum. Copies that run beside
  computations, and what chips send each other, have none.
- The compiler counts a loop once, such as the one over blocks of queries, and does not look into
  kernels, such as JAX's for attention. Of programs that have them, only the memory is shown.
- *Roofline*, an estimate from these figures: the longer of the times that the operations and the
  bytes take at the peaks of the chip. Those of v5e are
  [Google Cloud's](https://cloud.google.com/tpu/docs/v5e), 197 TFLOP/s in bfloat16 and 819 GB/s.
- *Arguments* are the weights, in training the optimizer's state too, and the inputs; *temporary* is
  what the program allocates beside them; *peak* is the most at a time, with what is on the chip.
- *Compiling* depends on the machine and on what else it does.
- *Table 1* is the step time that the paper measured on TPU v2, over that of `input`.
"""


def make_model(size, row, options):
    return DietBertBackbone(
        bert_models.VOCABULARY_SIZE,
        **SIZES[size],
        **ROWS[row],
        dropout=options.dropout,
        max_sequence_length=max(512, options.length),
        dtype=options.dtype,
    )


def make_inference(model):
    """Return a step and the variables that it takes before the inputs."""
    import jax

    def step(weights, state, inputs):
        return model.stateless_call(weights, state, inputs, training=False)[0]

    return jax.jit(step), (model.trainable_variables, model.non_trainable_variables)


def make_training(model):
    """Return a step and the variables that it takes before the inputs."""
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
    # As in `model.fit`, the new variables take the place of the old ones.
    return jax.jit(step, donate_argnums=(0, 1, 2)), variables


@contextlib.contextmanager
def as_on(devices):
    """Answer layers that ask JAX what it computes on, and go another way on a TPU."""
    import jax

    with (
        mock.patch.object(jax, "devices", return_value=devices),
        mock.patch.object(jax, "default_backend", return_value=devices[0].platform),
    ):
        yield


def compile_for_tpu(step, variables, options):
    """Compile a step for all chips of the topology."""
    import jax
    from jax.experimental import topologies
    from jax.sharding import NamedSharding, PartitionSpec

    tpu = topologies.get_topology_desc(platform="tpu", topology_name=options.topology)
    # Kernels, which the compiler does not divide, are divided as Keras is told here.
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


def estimated_cycles(program):
    """Return the sum of the compiler's estimates for the operations of a program."""
    entry = program[program.index("\nENTRY ") :]
    return sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', entry)))


def figures_of(compiled):
    """Return what the compiler says about a program, for one chip."""
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


def compile_program(size, step, row, options):
    """Return the figures of a program, or why it does not compile."""
    make_step = {"inference": make_inference, "training": make_training}[step]
    function, variables = make_step(make_model(size, row, options))
    start = time.perf_counter()
    try:
        compiled = compile_for_tpu(function, variables, options)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return {"compile_seconds": time.perf_counter() - start, **figures_of(compiled)}


def compile_in_own_process(program, arguments):
    """Return the result of `compile_program`; a compiler that ends its process ends no other."""
    command = [sys.executable, "-m", MODULE, *arguments, "--program", *program]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=measure.ROOT, env=environment
    )
    if done.returncode:
        messages = done.stderr.splitlines() or [""]
        return {"error": f"exit status {done.returncode}: {messages[-1]}"}
    return json.loads(done.stdout.splitlines()[-1])


def number_of_chips(topology):
    match = re.fullmatch(r"\w+:(\d+(?:x\d+)+)", topology)
    return match and math.prod(map(int, match[1].split("x")))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["base", "small"])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ENCODINGS))
    parser.add_argument("--topology", default="v5e:4x4", help="kind and number of chips")
    parser.add_argument("--global-batch", type=int, default=4096, help="sequences on all chips")
    parser.add_argument("--length", type=int, default=128, help="of a sequence, in tokens")
    parser.add_argument("--dropout", type=float, default=0.1, help="dropout rate")
    parser.add_argument("--dtype", default="mixed_bfloat16", help="dtype policy of the models")
    parser.add_argument(
        "--processes", type=int, default=1, help="programs at a time, on a core and up to 6 GB each"
    )
    add_file_options(parser)
    parser.add_argument("--program", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chips = number_of_chips(options.topology)
    if not chips:
        parser.error(f"--topology must look like v5e:4x4, not {options.topology!r}")
    if options.global_batch % chips:
        parser.error(f"--global-batch {options.global_batch} cannot be split among {chips} chips")
    if options.resume and options.output is None:
        parser.error("--resume needs the --output file to go on with")
    if keras.config.backend() != "jax":
        parser.error(
            "only JAX compiles for a TPU without having one: set KERAS_BACKEND=jax, not "
            f"{keras.config.backend()}"
        )
    if importlib.util.find_spec("libtpu") is None:
        parser.error('the compiler for TPUs is missing: pip install "keras-diet[tpu-compile]"')
    return options


def compare(rows, chip):
    """Add to the rows of a table the roofline of the chip, and their ratios to `input`."""
    for values in rows.values():
        if "flops" in values and chip in CHIPS:
            flops, bytes_per_second = CHIPS[chip]
            times = values["flops"] / flops, values["bytes_accessed"] / bytes_per_second
            values["roofline_seconds"] = max(times)
    reference = rows.get("input", {})
    for values in rows.values():
        values["ratios_to_input"] = {
            name: values[name] / reference[name]
            for name in COMPARED.values()
            if name in values and reference.get(name)
        }


def make_page(results):
    """Return the results as Markdown."""
    lines = [*head_of_page("Costs on a TPU, by its compiler", results), INTRODUCTION]
    paper = PAPER if results["settings"]["length"] == PAPER_LENGTH else {}
    for name, rows in results["cells"].items():
        lines += [f"## {name}", "", *figures_table(rows), "", "Over those of `input`:", ""]
        lines += [*ratios_table(rows, paper.get(name, {})), ""]
    return "\n".join(lines)


def figures_table(rows):
    def line(values):
        if "error" in values:
            return [values["error"], *[""] * (len(FIGURES) - 1)]
        return [
            form.format(values[name] / unit) if name in values else ""
            for name, unit, form in FIGURES.values()
        ]

    return markdown_table(["", *FIGURES], [[row, *line(values)] for row, values in rows.items()])


def ratios_table(rows, paper):
    def line(row, values):
        ratios = [values["ratios_to_input"].get(name) for name in COMPARED.values()]
        cells = ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
        return [row, *cells, f"{paper[row]:.2f}" if row in paper else ""]

    body = [line(row, values) for row, values in rows.items()]
    return markdown_table(["", *COMPARED, "Table 1"], body)


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse_arguments(arguments)
    if options.program:
        print(json.dumps(compile_program(*options.program, options)))
        return
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    results = start(MODULE, arguments, options, SETTINGS, computes_on="cpu", **versions)
    cells = results["cells"]
    programs = [
        (size, step, row)
        for size in options.sizes
        for step in options.steps
        for row in options.rows
        if "compile_seconds" not in cells.get(f"{size}, {step}", {}).get(row, {})
    ]

    def compile_one(program):
        return program, compile_in_own_process(program, arguments)

    with multiprocessing.pool.ThreadPool(options.processes) as pool:
        compiled = pool.imap_unordered(compile_one, programs)
        for (size, step, row), figures in tqdm(compiled, total=len(programs), unit="program"):
            rows = {**cells.get(f"{size}, {step}", {}), row: figures}
            rows = {name: rows[name] for name in ROWS if name in rows}
            compare(rows, options.topology.split(":")[0])
            cells[f"{size}, {step}"] = rows
            if options.output:
                write(options.output, results, make_page(results))
    print(make_page(results))


if __name__ == "__main__":
    main()
