"""Time and memory of one layer of full attention and of Linformer, from 512 to 8192 tokens.

There are three layers: full attention with DIET-ABS, Linformer without positions, and DIET-ABS-LIN.
For each length, a training step and an inference step are timed. The layers alternate, in a new
order in each round. The memory of each step is measured in a separate process.

The results are printed. After each length they are also written to `--output` as JSON, and to a
page beside it. `--resume` adds to the results in `--output`.

    KERAS_BACKEND=jax python -m benchmarks.long_sequences --output runs/long_sequences_jax.json
"""

import argparse
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from benchmarks import measure, results
from keras_diet import layers

LAYERS = ("DIET-ABS", "Linformer", "DIET-ABS-LIN")
STEPS = ("training", "inference")
SIZES = ("num_heads", "hidden_dim", "projection_dim")
SEED = 0


def make_step(length: int, kind: str, step: str, options: argparse.Namespace) -> Callable[[], Any]:
    heads, head_dim = options.num_heads, options.hidden_dim // options.num_heads
    projected = None if kind == "DIET-ABS" else options.projection_dim
    inputs = keras.Input((length, options.hidden_dim))
    bias = None
    if kind != "Linformer":
        make_bias = layers.AbsolutePositionBias(heads, length, rank=head_dim, key_length=projected)
        bias = make_bias(inputs, projected and np.zeros((1, projected)))
    if projected is None:
        attention = layers.BiasedMultiHeadAttention(heads, head_dim)
    else:
        attention = layers.LinformerMultiHeadAttention(heads, head_dim, length, projected)
    model = keras.Model(inputs, attention(inputs, inputs, attention_bias=bias))
    model.compile(optimizer="sgd", loss="mse", jit_compile=keras.config.backend() != "torch")
    x = np.random.default_rng(SEED).normal(size=(1, length, options.hidden_dim)).astype("float32")
    if step == "training":
        return lambda: model.train_on_batch(x, x)
    return lambda: model.predict_on_batch(x)


def measure_length(length: int, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the figures of each layer and step."""
    cell = {}
    for step in STEPS:
        make = functools.partial(make_step, step=step, options=options)
        makers = {kind: functools.partial(make, kind=kind) for kind in LAYERS}
        rows = measure.time_and_memory(makers, (64,), (length,), options.rounds)
        cell |= {f"{kind}, {step}": row for kind, row in rows.items()}
    return cell


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("One attention layer by length", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    """Return a table of times and a table of memory."""
    lines = []
    columns = [f"{kind}, {step}" for step in STEPS for kind in LAYERS]
    for quantity, name in (("milliseconds", "milliseconds"), ("mib", "MiB")):
        rows = [
            [length, *(f"{row[column][quantity]:.1f}" for column in columns)]
            for length, row in run["cells"].items()
        ]
        lines += [*results.markdown_table([name, *columns], rows), ""]
    return lines[:-1]


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], help="in tokens"
    )
    parser.add_argument("--num-heads", type=int, default=4, help="attention heads")
    parser.add_argument("--hidden-dim", type=int, default=256, help="size of the hidden states")
    parser.add_argument("--projection-dim", type=int, default=256, help="keys of Linformer")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each kind")
    options = results.parse(parser, argv)
    run = results.start(__spec__.name, options, (*SIZES, "rounds"), seed=SEED)
    # The keys of a JSON object are strings.
    cells = {
        str(length): functools.partial(measure_length, length, options)
        for length in options.lengths
    }
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
