"""Time and memory of one attention layer from 512 to 8192 tokens: full attention against Linformer.

Three layers, each with its positions: full attention with DIET-ABS, Linformer alone, and
DIET-ABS-LIN. For each length a training step and an inference step are timed, the layers in turn
(A B C A B C ...), and the peak memory of a process of its own is read. Results go to the screen as
a Markdown table and to `--output` as JSON, with the ratio of each length to the one before.

    KERAS_BACKEND=jax python -m benchmarks.long_sequences
"""

import argparse
import json
import os
import platform
import statistics
import sys

import keras
import numpy as np
from tqdm import tqdm

from benchmarks.measure import in_own_process, peak_memory, time_in_turn
from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    LinformerMultiHeadAttention,
)

LAYERS = ("DIET-ABS", "Linformer", "DIET-ABS-LIN")
STEPS = ("training", "inference")


@keras.saving.register_keras_serializable(package="keras_diet_benchmarks")
class Attention(keras.layers.Layer):
    """Self-attention with the positions of one row of the table."""

    def __init__(self, kind, length, options, **kwargs):
        super().__init__(**kwargs)
        heads, head_dim = options.num_heads, options.hidden_dim // options.num_heads
        projected = None if kind == "DIET-ABS" else options.projection_dim
        self.keys = None if projected is None else np.zeros((1, projected))
        self.position_bias = None
        if kind != "Linformer":
            self.position_bias = AbsolutePositionBias(
                heads, length, rank=head_dim, key_length=projected
            )
        if projected is None:
            self.attention = BiasedMultiHeadAttention(heads, head_dim)
        else:
            self.attention = LinformerMultiHeadAttention(heads, head_dim, length, projected)

    def call(self, x):
        bias = None if self.position_bias is None else self.position_bias(x, self.keys)
        return self.attention(x, x, attention_bias=bias)


def make_steps(kind, length, options, names):
    """Return a function for each of the named steps, compiled and called once."""
    inputs = keras.Input((length, options.hidden_dim))
    model = keras.Model(inputs, Attention(kind, length, options)(inputs))
    model.compile(optimizer="sgd", loss="mse", jit_compile=keras.config.backend() != "torch")
    x = np.random.default_rng(0).normal(size=(1, length, options.hidden_dim)).astype("float32")
    steps = {
        "training": lambda: model.train_on_batch(x, x),
        "inference": lambda: model.predict_on_batch(x),
    }
    steps = {name: steps[name] for name in names}
    for step in steps.values():
        step()
    return steps


def measure_time(length, options):
    """Return the median seconds of each layer and step, measured in turn."""
    functions = {
        (kind, step): function
        for kind in LAYERS
        for step, function in make_steps(kind, length, options, STEPS).items()
    }
    times = time_in_turn(functions, options.repeats)
    return {key: statistics.median(values) for key, values in times.items()}


def measure_memory(kind, length, step):
    """Return the MiB that a step adds to the peak memory of a new process."""
    line = in_own_process("benchmarks.long_sequences", *sys.argv[1:], "--cell", kind, length, step)
    return float(line)


def print_memory_of_cell(kind, length, step, options):
    # A short sequence first, so that libraries and compilers are in memory.
    make_steps(kind, 64, options, [step])
    before = peak_memory()
    make_steps(kind, length, options, [step])
    print(peak_memory() - before)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], help="in tokens"
    )
    parser.add_argument("--num-heads", type=int, default=4, help="attention heads")
    parser.add_argument("--hidden-dim", type=int, default=256, help="size of the hidden states")
    parser.add_argument("--projection-dim", type=int, default=256, help="keys of Linformer")
    parser.add_argument("--repeats", type=int, default=5, help="steps of each kind")
    parser.add_argument("--output", help="JSON file for the results")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def print_table(rows):
    columns = [f"{kind}, {step}" for step in STEPS for kind in LAYERS]
    for quantity in ("milliseconds", "MiB"):
        print(f"\n| {quantity} | " + " | ".join(columns) + " |")
        print("|---" * (len(columns) + 1) + "|")
        for length, row in rows.items():
            cells = [f"{row[column][quantity]:.1f}" for column in columns]
            print(f"| {length} | " + " | ".join(cells) + " |")


def main():
    options = parse_arguments()
    if options.cell:
        kind, length, step = options.cell
        print_memory_of_cell(kind, int(length), step, options)
        return
    rows = {}
    for length in tqdm(options.lengths, unit="length"):
        times = measure_time(length, options)
        keras.backend.clear_session()
        rows[length] = {
            f"{kind}, {step}": {
                "milliseconds": 1000 * time,
                "MiB": measure_memory(kind, length, step),
            }
            for (kind, step), time in times.items()
        }
    print(f"{keras.config.backend()}, {platform.machine()}, {os.cpu_count()} cores")
    print_table(rows)
    if options.output:
        with open(options.output, "w") as file:
            json.dump({"backend": keras.config.backend(), "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
