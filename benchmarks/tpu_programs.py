"""BERT with each encoding as programs for TPUs, and the figures that their compiler gives.

JAX compiles a program for the chips of a TPU topology on a machine without a TPU. The figures are
for one chip. Nothing is executed.
"""

import argparse
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras

from benchmarks import bert_models

STEPS = ("inference", "training")
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
) -> dict[str, float | str]:
    """Return the figures of a program, or the error of the compiler."""
    make_step = {"inference": make_inference, "training": make_training}[step]
    function, variables = make_step(make_model(size, row, options))
    start = time.perf_counter()
    try:
        compiled = compile_for_tpu(function, variables, options)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return {"compile_seconds": time.perf_counter() - start, **figures_of(compiled)}
