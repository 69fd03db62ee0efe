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

from benchmarks import measure
from benchmarks.results import make_parser, markdown_table, measure_cells, page_of, parse, start
from keras_diet import layers
from keras_diet.types import Tensor

MODULE = "benchmarks.long_sequences"
LAYERS = ("DIET-ABS", "Linformer", "DIET-ABS-LIN")
STEPS = ("training", "inference")
SIZES = ("num_heads", "hidden_dim", "projection_dim")
SEED = 0


@keras.saving.register_keras_serializable(package="keras_diet_benchmarks")
class Attention(keras.layers.Layer):
    """Self-attention with the positions of one of the `LAYERS`."""

    def __init__(self, kind: str, length: int, options: argparse.Namespace, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        heads, head_dim = options.num_heads, options.hidden_dim // options.num_heads
        projected = None if kind == "DIET-ABS" else options.projection_dim
        self.keys = None if projected is None else np.zeros((1, projected))
        self.position_bias = None
        if kind != "Linformer":
            self.position_bias = layers.AbsolutePositionBias(
                heads, length, rank=head_dim, key_length=projected
            )
        if projected is None:
            self.attention = layers.BiasedMultiHeadAttention(heads, head_dim)
        else:
            make = layers.LinformerMultiHeadAttention
            self.attention = make(heads, head_dim, length, projected)

    def call(self, x: Tensor) -> Tensor:
        bias = None if self.position_bias is None else self.position_bias(x, self.keys)
        return self.attention(x, x, attention_bias=bias)


def make_step(length: int, kind: str, step: str, options: argparse.Namespace) -> Callable[[], Any]:
    inputs = keras.Input((length, options.hidden_dim))
    model = keras.Model(inputs, Attention(kind, length, options)(inputs))
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
        sizes = ((64,), (length,))
        rows = measure.time_and_memory(makers, *sizes, options.rounds, LAYERS[0])
        cell |= {f"{kind}, {step}": row for kind, row in rows.items()}
    return cell


def make_page(runs: dict[str, Any]) -> str:
    return page_of("One attention layer by length", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    """Return a table of times and a table of memory."""
    lines = []
    columns = [f"{kind}, {step}" for step in STEPS for kind in LAYERS]
    for quantity, name in (("milliseconds", "milliseconds"), ("mib", "MiB")):
        rows = [
            [length, *(f"{row[column][quantity]:.1f}" for column in columns)]
            for length, row in run["cells"].items()
        ]
        lines += [*markdown_table([name, *columns], rows), ""]
    return lines[:-1]


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], help="in tokens"
    )
    parser.add_argument("--num-heads", type=int, default=4, help="attention heads")
    parser.add_argument("--hidden-dim", type=int, default=256, help="size of the hidden states")
    parser.add_argument("--projection-dim", type=int, default=256, help="keys of Linformer")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each kind")
    options = parse(parser, argv)
    run = start(MODULE, options, (*SIZES, "rounds"), seed=SEED)
    # The keys of a JSON object are strings.
    cells = {
        str(length): functools.partial(measure_length, length, options)
        for length in options.lengths
    }
    measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
