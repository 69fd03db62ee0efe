"""Time of DeBERTa v3 beside KerasHub and `transformers`: inference and training steps.

Random weights with the sizes of DeBERTa-v3-small. The rows take turns. `transformers` runs on
PyTorch only. The row `no_positions` is our encoder without the scores of positions, which shows
what these scores cost. The row `deberta_in_torch_loop` is our encoder with the optimizer and the
loop of PyTorch, as `transformers` has them.

    KERAS_BACKEND=jax python -m benchmarks.deberta --output runs/deberta_jax.json
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np

from benchmarks import bert_models, measure, results
from keras_diet.models import DietBertBackbone

SIZES = {
    "small": {"vocabulary_size": 128_100, **bert_models.SIZES["base"], "num_layers": 6},
    "tiny": {"vocabulary_size": 99, **bert_models.SIZES["tiny"]},
}


def make_hugging_face_model(size: str) -> Any:
    return bert_models.make_hugging_face_model(
        "DebertaV2Config",
        **SIZES[size],
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    )


def make_step(row: str, size: str, step: str, shape: tuple[int, int]) -> Callable[[], Any]:
    """Return a function that runs one step of a row."""
    sizes = SIZES[size]
    inputs = bert_models.make_inputs(*shape)
    inputs["token_ids"] %= sizes["vocabulary_size"]
    targets: Any = np.zeros((*shape, sizes["hidden_dim"]), "float32")
    if row == "hugging_face":
        model, targets = make_hugging_face_model(size), {"sequence_output": targets}
    elif row == "kerashub":
        model = keras_hub.models.DebertaV3Backbone(**sizes, bucket_size=256)
        del inputs["segment_ids"]
    else:
        encoding = "none" if row == "no_positions" else "deberta"
        backbone = DietBertBackbone(
            **sizes, position_encoding=encoding, segment_encoding="none", activation="gelu"
        )
        outputs = {"sequence_output": backbone.output["sequence_output"]}
        model, targets = keras.Model(backbone.input, outputs), {"sequence_output": targets}
    return bert_models.make_step(row, model, step, inputs, targets)


def measure_cell(
    size: str, step: str, shape: tuple[int, int], rounds: int
) -> dict[str, dict[str, Any]]:
    keras.backend.clear_session()
    rows = ("keras_diet", "no_positions", "kerashub", "hugging_face", "deberta_in_torch_loop")
    steps = {
        row: make_step(row, size, step, shape) for row in rows if bert_models.has_row(row, step)
    }
    return measure.compare(steps, rounds)


INTRODUCTION = """\
- *Milliseconds* is the median of the rounds.
- *keras_diet / row* is the time of keras_diet, divided by the time of the row: the median of the
  ratios in each round. Below 1, keras_diet is faster.
- *no_positions* is our encoder without the scores of positions.
- *deberta_in_torch_loop* is our encoder with the loop and the optimizer of PyTorch, as
  *hugging_face*. The other rows have those of Keras.
"""


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("DeBERTa v3", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    rows = [
        [name, row, f"{cell['milliseconds']:.0f}", f"{1 / cell['ratio']:.2f}"]
        for name, cells in run["cells"].items()
        for row, cell in cells.items()
    ]
    return results.markdown_table(["step", "row", "milliseconds", "keras_diet / row"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    parser.add_argument("--size", choices=SIZES, default="small", help="sizes of the encoder")
    steps = bert_models.STEPS
    parser.add_argument("--steps", nargs="+", choices=steps, default=list(steps), help="kinds")
    shapes, shape = [(8, 128), (2, 512)], results.shape
    parser.add_argument("--shapes", type=shape, nargs="+", default=shapes, help="texts x tokens")
    parser.add_argument("--rounds", type=int, default=7, help="timed steps of each row")
    options = results.parse(parser, argv)
    run = results.start(__spec__.name, options, ("size", "rounds"), seed=bert_models.SEED)
    cells = {
        f"{step}, {shape[0]}x{shape[1]}": functools.partial(
            measure_cell, options.size, step, shape, options.rounds
        )
        for step in options.steps
        for shape in options.shapes
    }
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
