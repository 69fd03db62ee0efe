"""What only a GPU shows: kernels with a bias, their gradients, and training steps in bfloat16.

The parts are:

- `gradients`: gradients of a bias from the backend's kernel in bfloat16, compared with scores in
  float32, for each shape of a bias, and for lengths that 8 does not divide;
- `attention`: time and memory of one attention layer with a learned bias, forward and backward, by
  length. On PyTorch also without a bias (`sdpa`), with FlexAttention, and with the bias of T5 and
  MPNet in Hugging Face's library;
- `training`: a training step of BERT, on PyTorch beside Hugging Face's BERT.

A cell that does not fit into memory is marked. The results are written after each cell, so
`--resume` continues. It takes about 20 minutes on one GPU for both backends. It also runs without a
GPU, for which the last command has small sizes. TensorFlow has no results.

    KERAS_BACKEND=torch python -m benchmarks.gpu --output runs/gpu_torch.json
    KERAS_BACKEND=jax python -m benchmarks.gpu --output runs/gpu_jax.json
    KERAS_BACKEND=torch python -m benchmarks.gpu --size tiny --batches 2x32 --lengths 64 --rounds 2
"""

import argparse
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from benchmarks import bert_models, measure
from benchmarks.results import (
    make_parser,
    markdown_table,
    measure_cells,
    page_of,
    parse,
    start,
)
from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    BucketedRelativePositionBias,
    RelativePositionBias,
    ScoreTerms,
)
from keras_diet.layers.attention.prepared_terms import prepare
from keras_diet.layers.position.relative_shift import scores_of_distances

MODULE = "benchmarks.gpu"
PARTS = ("gradients", "attention", "training")
DTYPE = "mixed_bfloat16"
# The axes of a bias of each shape that are not 1: batch, heads, queries, keys.
SHAPES = {
    "(1, H, T, S)": (False, True, True, True),
    "(B, H, T, S)": (True, True, True, True),
    "(B, 1, T, S)": (True, False, True, True),
    "(1, 1, T, S)": (False, False, True, True),
    "(B, 1, 1, S)": (True, False, False, True),
}
# Its bias is made of one score for each distance.
DISTANCES = "DIET-REL"
LENGTHS_OF_GRADIENTS = ((128, 128), (100, 100), (61, 83))
ROWS_ON_TORCH = ("sdpa", "flex_attention", "hugging_face_t5", "hugging_face_mpnet")
TRAINING_ROWS = ("hugging_face", "input", "diet_abs", "diet_rel")


def make_bias(name: str, num_heads: int, length: int) -> keras.layers.Layer | None:
    arguments = {"num_heads": num_heads, "dtype": DTYPE}
    if name.startswith("diet_abs"):
        return AbsolutePositionBias(max_length=length, rank=64, **arguments)
    if name == "diet_rel":
        return RelativePositionBias(max_length=length, **arguments)
    if name == "t5":
        return BucketedRelativePositionBias(**arguments)
    return None


BIASES = ("no_bias", "diet_abs", "diet_abs_features", "diet_rel", "t5")


# === Gradients of a bias ===


def gradients(function: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the gradients of a scalar function of arrays, as arrays."""
    if keras.config.backend() == "jax":
        import jax

        found = jax.jit(jax.grad(function, argnums=tuple(range(len(arrays)))))(*arrays)
        return [np.asarray(gradient, "float32") for gradient in found]
    tensors = [ops.convert_to_tensor(array).requires_grad_() for array in arrays]
    function(*tensors).backward()
    return [tensor.grad.float().cpu().numpy() for tensor in tensors]


def compare_gradients(shape: str, query_length: int, key_length: int) -> dict[str, Any]:
    """Return the largest differences of gradients, relative to the largest gradient."""
    rng = np.random.default_rng(bert_models.SEED)
    sizes = (3, 4, query_length, key_length)
    bias_shape = [query_length + key_length - 1, 4]
    if shape != DISTANCES:
        bias_shape = [size if has else 1 for size, has in zip(sizes, SHAPES[shape], strict=True)]
    bias = rng.normal(size=bias_shape).astype("float32")
    query, value = (
        rng.normal(size=(3, length, 64)).astype("float32") for length in (query_length, key_length)
    )
    weights = rng.normal(size=query.shape).astype("float32")
    attention = BiasedMultiHeadAttention(4, 16, dtype=DTYPE)
    reference = BiasedMultiHeadAttention(4, 16, dtype="float32")
    for layer in (attention, reference):
        layer.build(query.shape, value.shape)
    # Rounded once, so that both layers have the same weights.
    rounded = [ops.cast(ops.cast(w, "bfloat16"), "float32") for w in attention.weights]
    for layer in (attention, reference):
        layer.set_weights(list(map(ops.convert_to_numpy, rounded)))

    def loss(layer, returns_scores):
        def function(bias, query, value):
            if shape == DISTANCES:
                bias = scores_of_distances(bias, query_length, key_length)
            output = layer(
                query, value, attention_bias=bias, return_attention_scores=returns_scores
            )
            output = output[0] if returns_scores else output
            return ops.sum(ops.multiply(ops.cast(output, "float32"), weights))

        return function

    terms = ScoreTerms(bias=ops.ones((1, 4, query_length, key_length)))
    result: dict[str, Any] = {"program": attention.plan(terms, query.shape).program}
    # A layer that returns probabilities computes scores.
    found = gradients(loss(attention, False), bias, query, value)
    expected = gradients(loss(reference, True), bias, query, value)
    for name, ours, right in zip(("bias", "query", "value"), found, expected, strict=True):
        result[name] = float(np.abs(ours - right).max() / np.abs(right).max())
    return result


# === One attention layer ===


def make_attention_step(row: str, length: int, options: argparse.Namespace) -> Callable[[], Any]:
    """Return a function that runs attention and its gradients for one sequence."""
    sizes = bert_models.SIZES[options.size]
    hidden_dim, num_heads = sizes["hidden_dim"], sizes["num_heads"]
    rng = np.random.default_rng(bert_models.SEED)
    inputs = rng.normal(size=(1, length, hidden_dim)).astype("float32")
    if row in ROWS_ON_TORCH:
        return make_torch_attention_step(row, inputs, num_heads)
    attention = BiasedMultiHeadAttention(num_heads, hidden_dim // num_heads, dtype=DTYPE)
    bias = make_bias(row, num_heads, length)
    terms = ScoreTerms(bias=bias)
    implementation = "features" if row.endswith("features") else "auto"
    arguments = {"training": True, "implementation": implementation}
    plan = attention.plan(terms, inputs.shape, **arguments)
    inputs = ops.cast(inputs, "bfloat16")

    def forward(inputs):
        prepared = prepare(terms, plan, inputs, None)
        return attention(inputs, inputs, score_terms=prepared, training=True)

    forward(inputs)
    layers = [layer for layer in (attention, bias) if layer is not None]
    if keras.config.backend() == "jax":
        return make_jax_gradients(forward, layers, inputs)
    parameters = [variable.value for layer in layers for variable in layer.trainable_variables]
    return make_torch_gradients(forward, parameters, inputs)


def make_jax_gradients(forward, layers, inputs):
    import jax

    variables = [variable for layer in layers for variable in layer.trainable_variables]
    values = [variable.value for variable in variables]

    def loss(values, inputs):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return ops.mean(ops.cast(forward(inputs), "float32") ** 2)

    step = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(values, inputs).compile()

    def run():
        return jax.block_until_ready(step(values, inputs))

    run.memory = step.memory_analysis().temp_size_in_bytes / 2**20
    return run


def make_torch_gradients(forward, parameters, inputs):
    inputs = inputs.detach().requires_grad_()

    def run():
        for tensor in (inputs, *parameters):
            tensor.grad = None
        (forward(inputs).float() ** 2).mean().backward()

    return run


def make_torch_attention_step(row: str, inputs: np.ndarray, num_heads: int) -> Callable[[], Any]:
    """Return attention as others have it on PyTorch, with as many projections as ours."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    make = {"hugging_face_t5": _t5_attention, "hugging_face_mpnet": _mpnet_attention}
    make_forward = make.get(row, _torch_attention)
    module, forward = make_forward(row, inputs.shape[1], inputs.shape[2], num_heads)
    module.to(device=device, dtype=torch.bfloat16)
    tensor = torch.as_tensor(inputs, device=device, dtype=torch.bfloat16)
    return make_torch_gradients(forward, list(module.parameters()), tensor)


def _torch_attention(row, length, hidden_dim, num_heads):
    import torch
    from torch.nn import functional
    from torch.nn.attention.flex_attention import flex_attention

    module = torch.nn.ModuleDict(
        {name: torch.nn.Linear(hidden_dim, hidden_dim) for name in ("q", "k", "v", "o")}
    )
    module.table = torch.nn.Parameter(0.02 * torch.randn(num_heads, 2 * length - 1))
    # Without compilation it computes all scores.
    fused = torch.compile(flex_attention)

    def add_bias(score, batch, head, query, key):
        return score + module.table[head, query - key + length - 1]

    def forward(inputs):
        heads = [
            module[name](inputs).unflatten(-1, (num_heads, -1)).transpose(1, 2) for name in "qkv"
        ]
        if row == "sdpa":
            output = functional.scaled_dot_product_attention(*heads)
        else:
            output = fused(*heads, score_mod=add_bias)
        return module["o"](output.transpose(1, 2).flatten(2))

    return module, forward


def _t5_attention(row, length, hidden_dim, num_heads):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=hidden_dim, d_kv=hidden_dim // num_heads, num_heads=num_heads)
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    return module, lambda inputs: module(inputs)[0]


def _mpnet_attention(row, length, hidden_dim, num_heads):
    from transformers import MPNetConfig
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    config = MPNetConfig(
        hidden_size=hidden_dim, num_attention_heads=num_heads, num_hidden_layers=1,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    module = MPNetEncoder(config)
    attention = module.layer[0].attention.attn

    def forward(inputs):
        return attention(inputs, position_bias=module.compute_position_bias(inputs))[0]

    return module, forward


def measure_attention(length: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return milliseconds and memory of each row that fits into memory."""
    rows = [*BIASES, *(ROWS_ON_TORCH if keras.config.backend() == "torch" else ())]
    if measure.device() == "cpu" and "flex_attention" in rows:
        # It has no gradients on a CPU.
        rows.remove("flex_attention")
    steps, results = {}, {}
    for row in rows:
        try:
            step = make_attention_step(row, length, options)
            step()
            memory = getattr(step, "memory", None)
            results[row] = {"mib": measure.memory_of(step) if memory is None else memory}
            steps[row] = step
        except Exception as error:
            if "memory" not in str(error).lower():
                raise
            results[row] = {"failed": "out of memory"}
    times = measure.time_in_turn(steps, options.rounds)
    for row, seconds in times.items():
        results[row] |= _times(seconds, times["no_bias"])
    return results


def _times(seconds, reference):
    median, _ = measure.median_and_quartiles(seconds)
    ratio, quartiles = measure.ratio(seconds, reference)
    return {"milliseconds": 1000 * median, "ratio": ratio, "ratio_quartiles": quartiles}


# === Training steps ===


def measure_training(batch: str, options: argparse.Namespace) -> dict[str, Any]:
    batch_size, length = map(int, batch.split("x"))
    inputs = bert_models.make_inputs(batch_size, length)
    targets = bert_models.make_targets(options.size, batch_size, length)
    steps = {}
    for row in TRAINING_ROWS:
        if bert_models.has_row(row, "training"):
            model = bert_models.make_model(row, options.size, length, DTYPE, options.dropout)
            steps[row] = bert_models.make_step(row, model, "training", inputs, targets, DTYPE)
            steps[row]()
    times = measure.time_in_turn(steps, options.rounds)
    return {row: _times(seconds, times["input"]) for row, seconds in times.items()}


# === The program ===

INTRODUCTION = """\
- *diet_abs_features* computes all terms in one product of queries and keys.
- *Gradients*: the largest difference from scores in float32, relative to the largest gradient. One
  rounding to bfloat16 is up to 0.004.
- *Milliseconds* is the median of the rounds.
- *Ratio* is the median of the ratios in each round, with quartiles: of a layer to attention
  without a bias, of a training step to BERT with positions at the input.
- *MiB* is the memory that a step adds.
"""


def make_page(runs: dict[str, Any]) -> str:
    return page_of("One attention layer on a GPU", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    tables: dict[str, list[list[str]]] = {part: [] for part in PARTS}
    for cell in run["cells"].values():
        if cell["part"] == "gradients":
            row = cell["result"]
            errors = [f"{row[name]:.4f}" for name in ("bias", "query", "value")]
            tables["gradients"].append([cell["name"], row["program"], *errors])
            continue
        for name, row in cell["result"].items():
            mib = [f"{row['mib']:.0f}" if "mib" in row else "-"]
            cells = [cell["name"], name, *_cells_of_times(row)]
            tables[cell["part"]].append(cells + (mib if cell["part"] == "attention" else []))
    times = ["milliseconds", "ratio"]
    columns = {
        "gradients": ["bias, lengths", "program", "bias", "query", "value"],
        "attention": ["tokens", "row", *times, "MiB"],
        "training": ["sequences x tokens", "row", *times],
    }
    for part, rows in tables.items():
        if rows:
            lines += [f"### {part.capitalize()}", "", *markdown_table(columns[part], rows), ""]
    return lines[:-1]


def _cells_of_times(row):
    if "failed" in row:
        return [row["failed"], "-"]
    low, high = row["ratio_quartiles"]
    return [f"{row['milliseconds']:.2f}", f"{row['ratio']:.2f} ({low:.2f} - {high:.2f})"]


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    lengths = [512, 1024, 2048, 4096, 8192, 16384]
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--size", choices=bert_models.SIZES, default="base", help="size of BERT")
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="of attention")
    batches = ["32x128", "8x512"]
    parser.add_argument("--batches", nargs="+", default=batches, help="sequences x tokens")
    parser.add_argument("--dropout", type=float, default=0.0, help="of the training step")
    parser.add_argument("--rounds", type=int, default=15, help="timed steps of each kind")
    return parse(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    keras.utils.set_random_seed(bert_models.SEED)
    run = start(MODULE, options, ("size", "rounds", "dropout"), seed=bert_models.SEED)
    cells: dict[tuple[str, str], Callable[[], Any]] = {}
    if "gradients" in options.parts:
        for shape in (*SHAPES, DISTANCES):
            for lengths in LENGTHS_OF_GRADIENTS:
                name = f"{shape}, {lengths[0]} x {lengths[1]}"
                cells["gradients", name] = functools.partial(compare_gradients, shape, *lengths)
    if "attention" in options.parts:
        for length in options.lengths:
            measured = functools.partial(measure_attention, length, options)
            cells["attention", str(length)] = measured
    if "training" in options.parts:
        for batch in options.batches:
            cells["training", batch] = functools.partial(measure_training, batch, options)

    def measure_cell(part: str, name: str) -> dict[str, Any]:
        keras.backend.clear_session()
        return {"part": part, "name": name, "result": cells[part, name]()}

    named = {", ".join(cell): functools.partial(measure_cell, *cell) for cell in cells}
    measure_cells(options, run, named, make_page)


if __name__ == "__main__":
    main()
