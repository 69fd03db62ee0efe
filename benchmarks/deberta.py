"""DeBERTa v3: keras_diet, KerasHub and `transformers`, side by side.

All have the sizes of DeBERTa-v3-small and random weights. `transformers` runs on PyTorch, also
beside the other backends. Steps alternate, and begin and end with NumPy arrays. Training has AdamW.

    KERAS_BACKEND=jax python -m benchmarks.deberta --output runs/deberta_jax.json
"""

import functools
import gc
from collections.abc import Callable, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np

from benchmarks import bert_models, measure
from benchmarks.results import (
    make_parser,
    markdown_table,
    measure_cells,
    page_of,
    parse,
    start,
)
from keras_diet import models

MODULE = "benchmarks.deberta"
SIZES = {
    "small": {"num_layers": 6, "hidden_dim": 768, "num_heads": 12, "intermediate_dim": 3072},
    "tiny": {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "intermediate_dim": 32},
}
VOCABULARY_SIZE = {"small": 128_100, "tiny": 50}
SHAPES = ("8x128", "2x512")
STEPS = ("inference", "training")


def make_models(size: str) -> dict[str, Any]:
    """Return the three models."""
    import transformers

    sizes = {**SIZES[size], "vocabulary_size": VOCABULARY_SIZE[size], "dropout": 0.1}
    config = transformers.DebertaV2Config(
        vocab_size=sizes["vocabulary_size"],
        hidden_size=sizes["hidden_dim"],
        num_hidden_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=sizes["intermediate_dim"],
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
    )
    return {
        "keras_diet": models.DietBertBackbone(
            **sizes, position_encoding="deberta", segment_encoding="none"
        ),
        "kerashub": keras_hub.models.DebertaV3Backbone(**sizes, bucket_size=256),
        "transformers": transformers.DebertaV2Model(config),
    }


def make_step(name: str, model: Any, step: str, size: str, shape: str) -> Callable[[], Any]:
    """Return a step of a model, from NumPy arrays to NumPy arrays or to its loss."""
    batch_size, length = map(int, shape.split("x"))
    rng = np.random.default_rng(0)
    valid = np.full((batch_size, 1), length)
    valid[1::2] = length * 3 // 4
    mask = (np.arange(length) < valid).astype("int32")
    ids = mask * rng.integers(1, VOCABULARY_SIZE[size], mask.shape).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": mask}
    targets: Any = np.zeros((*ids.shape, SIZES[size]["hidden_dim"]), "float32")
    if name == "transformers":
        model.train(step == "training")
        outputs = {"sequence_output": targets}
        parameters = list(model.parameters())
        return bert_models.make_torch_step(
            functools.partial(forward, model), parameters, step, inputs, outputs
        )
    if name == "keras_diet":
        inputs["segment_ids"] = 0 * ids
        targets = {"sequence_output": targets, "pooled_output": targets[:, 0]}
    model.compile("adamw", "mse", jit_compile=keras.config.backend() != "torch")
    if step == "training":
        return lambda: model.train_on_batch(inputs, targets)
    return lambda: model.predict_on_batch(inputs)


def forward(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    import torch

    ids, mask = (torch.as_tensor(inputs[name]) for name in ("token_ids", "padding_mask"))
    return {"sequence_output": model(ids, attention_mask=mask).last_hidden_state}


def measure_cell(size: str, shape: str, step: str, rounds: int) -> dict[str, Any]:
    of_libraries = make_models(size)
    steps = {
        name: make_step(name, model, step, size, shape) for name, model in of_libraries.items()
    }
    rows = measure.compare(steps, rounds, "keras_diet")
    gc.collect()
    return {
        "milliseconds": {name: row["milliseconds"] for name, row in rows.items()},
        "seconds": {name: row["seconds"] for name, row in rows.items()},
        "ratio": {
            name: measure.ratio(rows["keras_diet"]["seconds"], rows[name]["seconds"])
            for name in ("kerashub", "transformers")
        },
    }


def make_page(runs: dict[str, Any]) -> str:
    introduction = (
        "Milliseconds of a step, and the time of keras_diet beside the others. `transformers` runs "
        "on PyTorch."
    )
    return page_of("DeBERTa v3", introduction, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    columns = ["step", "keras_diet", "KerasHub", "transformers", "beside KerasHub"]
    rows = [
        [
            name,
            *(f"{value:.0f}" for value in cell["milliseconds"].values()),
            *(f"{ratio:.2f}" for ratio, _ in cell["ratio"].values()),
        ]
        for name, cell in run["cells"].items()
    ]
    return markdown_table([*columns, "beside transformers"], rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), help="batch size x length")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=7, help="steps of each library")
    options = parse(parser, argv)
    run = start(MODULE, options, ("size", "rounds"))
    cells = {
        f"{shape}, {step}": functools.partial(
            measure_cell, options.size, shape, step, options.rounds
        )
        for step in options.steps
        for shape in options.shapes
    }
    measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
