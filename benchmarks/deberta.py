"""Time of DeBERTa v3 beside KerasHub and `transformers`: inference and training steps.

Random weights with the sizes of DeBERTa-v3-small. The rows take turns. `transformers` runs on
PyTorch only. The row `no_positions` is our encoder without the scores of positions, which shows
what these scores cost. The row `in_torch_loop` is our encoder with the optimizer and the loop of
PyTorch, as `transformers` has them.

    KERAS_BACKEND=jax python -m benchmarks.deberta --output runs/deberta_jax.json
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np

from benchmarks import bert_models, measure
from benchmarks.results import make_parser, markdown_table, measure_cells, page_of, parse, start
from keras_diet.models import DietBertBackbone

MODULE = "benchmarks.deberta"
SMALL = {"num_layers": 6, "hidden_dim": 768, "num_heads": 12, "intermediate_dim": 3072}
SIZES = {
    "small": {"vocabulary_size": 128_100, **SMALL},
    "tiny": {"vocabulary_size": 99, **bert_models.SIZES["tiny"]},
}


def make_hugging_face_model(sizes: dict[str, int]) -> Any:
    import torch
    import transformers

    config = transformers.DebertaV2Config(
        vocab_size=sizes["vocabulary_size"],
        num_hidden_layers=sizes["num_layers"],
        hidden_size=sizes["hidden_dim"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=sizes["intermediate_dim"],
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return transformers.DebertaV2Model(config).to(device)


def make_step(row: str, size: str, step: str, shape: tuple[int, int]) -> Callable[[], Any]:
    """Return a function that runs one step of a row."""
    sizes = SIZES[size]
    inputs = bert_models.make_inputs(*shape)
    inputs["token_ids"] %= sizes["vocabulary_size"]
    targets = np.zeros((*shape, sizes["hidden_dim"]), "float32")
    if row == "hugging_face":
        import torch

        model = make_hugging_face_model(sizes).train(step == "training")
        device = model.device

        def forward(inputs):
            ids, mask = (
                torch.as_tensor(inputs[name], device=device)
                for name in ("token_ids", "padding_mask")
            )
            return {"states": model(ids, mask).last_hidden_state}

        parameters = list(model.parameters())
        return bert_models.make_torch_step(forward, parameters, step, inputs, {"states": targets})
    if row == "kerashub":
        model = keras_hub.models.DebertaV3Backbone(**sizes, bucket_size=256)
        del inputs["segment_ids"]
    else:
        encoding = "none" if row == "no_positions" else "deberta"
        backbone = DietBertBackbone(
            **sizes, position_encoding=encoding, segment_encoding="none", activation="gelu"
        )
        model = keras.Model(backbone.input, backbone.output["sequence_output"])
    if row == "in_torch_loop":
        parameters = [variable.value for variable in model.trainable_variables]
        return bert_models.make_torch_step(
            lambda inputs: {"states": model(inputs, training=True)},
            parameters,
            step,
            inputs,
            {"states": targets},
        )
    return bert_models.make_step(row, model, step, inputs, targets)


def measure_cell(
    size: str, step: str, shape: tuple[int, int], rounds: int
) -> dict[str, dict[str, Any]]:
    keras.backend.clear_session()
    rows = ["keras_diet", "no_positions", "kerashub"]
    if keras.config.backend() == "torch":
        rows += ["hugging_face", *["in_torch_loop"] * (step == "training")]
    steps = {row: make_step(row, size, step, shape) for row in rows}
    return measure.compare(steps, rounds, "keras_diet")


INTRODUCTION = """\
- *Milliseconds* is the median of the rounds.
- *keras_diet / row* is the time of keras_diet, divided by the time of the row: the median of the
  ratios in each round. Below 1, keras_diet is faster.
- *no_positions* is our encoder without the scores of positions.
- *in_torch_loop* is our encoder with the loop and the optimizer of PyTorch, as *hugging_face*. The
  other rows have those of Keras.
"""


def make_page(runs: dict[str, Any]) -> str:
    return page_of("DeBERTa v3", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    rows = [
        [name, row, f"{cell['milliseconds']:.0f}", f"{1 / cell['ratio_to_keras_diet']:.2f}"]
        for name, cells in run["cells"].items()
        for row, cell in cells.items()
    ]
    return markdown_table(["step", "row", "milliseconds", "keras_diet / row"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--size", choices=SIZES, default="small", help="sizes of the encoder")
    steps = bert_models.STEPS
    parser.add_argument("--steps", nargs="+", choices=steps, default=list(steps), help="kinds")
    parser.add_argument("--shapes", nargs="+", default=["8x128", "2x512"], help="texts x tokens")
    parser.add_argument("--rounds", type=int, default=7, help="timed steps of each row")
    options = parse(parser, argv)
    run = start(MODULE, options, ("size", "rounds"), seed=bert_models.SEED)
    cells = {
        f"{step}, {shape}": functools.partial(
            measure_cell, options.size, step, tuple(map(int, shape.split("x"))), options.rounds
        )
        for step in options.steps
        for shape in options.shapes
    }
    measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
