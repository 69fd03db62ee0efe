"""What only a GPU shows: kernels with a bias, their gradients, and training steps in bfloat16.

The parts are:

- `indexed`: gradients of the kernels of `attention_implementation="indexed"` in bfloat16, compared
  with scores in float32, and whether two runs have equal gradients;
- `gradients`: gradients of a bias from the backend's kernel in bfloat16, compared with scores in
  float32, for each shape of a bias, and for lengths that 8 does not divide;
- `attention`: time and memory of one attention layer with each bias by distance, forward and
  backward, by length. On PyTorch also without a bias (`sdpa`), with FlexAttention, and with the
  bias of T5 and MPNet in Hugging Face's library;
- `packed`: the same for sequences of one document, of 16 documents, and with a window;
- `training`: a training step of BERT, beside KerasHub's BERT, and on PyTorch beside Hugging Face's
  BERT with two of its implementations of attention.

The last table says whether "auto" may choose `"indexed"`. What it needs is measured first. A row
that does not fit into memory is marked. The results are written after each row. After `--minutes`
no row begins. `--resume` continues, and repeats rows with an error. It also runs without a GPU, for
which the last command has small sizes. TensorFlow has no results.

    KERAS_BACKEND=torch python -m benchmarks.gpu --rounds 10 --minutes 9 --resume \\
        --output runs/gpu_torch.json
    KERAS_BACKEND=jax python -m benchmarks.gpu --rounds 10 --minutes 9 --resume \\
        --output runs/gpu_jax.json
    KERAS_BACKEND=torch python -m benchmarks.gpu --size tiny --batches 2x32 --lengths 64 \\
        --packed 2x64 --indexed 61x83 --rounds 2
"""

import argparse
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from benchmarks import bert_models, measure
from benchmarks.results import (
    make_parser,
    markdown_table,
    page_of,
    parse,
    save,
    start,
)
from keras_diet import layers
from keras_diet.layers import BiasedMultiHeadAttention, ScoreTerms
from keras_diet.layers.attention.dot_product import attend
from keras_diet.layers.attention.plan import INDEXED, AttentionPlan
from keras_diet.layers.attention.prepared_terms import PreparedTerms, prepare
from keras_diet.layers.position.relative_shift import scores_of_distances

MODULE = "benchmarks.gpu"
PARTS = ("indexed", "attention", "packed", "training", "gradients")
# Parts that have one result in a cell, and not one for each row.
COMPARISONS = ("indexed", "gradients")
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
# The bias layers by name. A name may end with an `attention_implementation` other than "auto".
BIASES: dict[str, Callable[..., Any]] = {
    "diet_abs": functools.partial(layers.AbsolutePositionBias, rank=64),
    "diet_rel": layers.RelativePositionBias,
    "t5": layers.BucketedRelativePositionBias,
    "alibi": layers.AlibiPositionBias,
    "kerple": layers.KerplePositionBias,
    "sandwich": layers.SandwichPositionBias,
    "tupe": functools.partial(
        layers.UntiedPositionBias, key_dim=64, position_dim=768, relative=True
    ),
    "fire": layers.FirePositionBias,
}
IMPLEMENTATIONS = ("full", "features", "indexed")
# Rows that other rows are compared with come first.
ATTENTION_ROWS = (
    *("no_bias", "diet_rel", "diet_rel_indexed", "t5", "t5_indexed", "diet_abs"),
    *("diet_abs_features", *ROWS_ON_TORCH, "alibi", "alibi_indexed", "kerple", "kerple_indexed"),
    *("sandwich", "sandwich_indexed", "tupe", "tupe_indexed", "fire", "diet_rel_full"),
)
NUM_DOCUMENTS, WINDOW = 16, 65
PACKED_ROWS = {
    f"{name}{ending}": terms
    for ending in ("", "_indexed")
    for name, terms in {
        "diet_rel": {},
        "diet_rel_documents": {"num_documents": NUM_DOCUMENTS},
        "diet_rel_window": {"sliding_window": WINDOW},
    }.items()
}
TRAINING_ROWS = (
    *("input", "diet_rel", "diet_abs", "hugging_face", "hugging_face_flex", "kerashub", "t5"),
    "diet_rel_indexed",
)


def has_row(row: str) -> bool:
    """Whether this backend has a row here. On a CPU FlexAttention has no gradients."""
    # A row, or the part of a kernel of indices.
    is_flex = row.endswith(("indexed", "flex", "flex_attention"))
    if keras.config.backend() == "torch":
        return not (is_flex and measure.device() == "cpu")
    return row not in ROWS_ON_TORCH and not row.startswith("hugging_face")


def implementation_of(row: str) -> tuple[str, str]:
    """Return the name of a row without its implementation, and the implementation."""
    for name in IMPLEMENTATIONS:
        if row.endswith(f"_{name}"):
            return row.removesuffix(f"_{name}"), name
    return row, "auto"


def make_bias(name: str, num_heads: int, length: int) -> keras.layers.Layer | None:
    make = BIASES.get(name)
    return None if make is None else make(num_heads=num_heads, max_length=length, dtype=DTYPE)


# === Gradients of a bias ===


def to_array(tensor: Any) -> np.ndarray:
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


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


def compare_indexed(query_length: int, key_length: int) -> dict[str, Any]:
    """Return the same for a kernel of indices, and whether two runs have equal gradients."""
    rng = np.random.default_rng(bert_models.SEED)
    lengths = {"query": query_length, "key": key_length, "value": key_length}
    arrays = [rng.normal(size=(2, length, 4, 64)) for length in lengths.values()]
    arrays = [to_array(ops.cast(array.astype("float32"), "bfloat16")) for array in arrays]
    table = rng.normal(size=(4, query_length + key_length - 1)).astype("float32")
    weights = rng.normal(size=arrays[0].shape).astype("float32")
    program = INDEXED[keras.config.backend()]

    def indexed(query, key, value, table):
        plan = AttentionPlan(program, "distances", masks_padding=True)
        heads = [ops.cast(tensor, "bfloat16") for tensor in (query, key, value)]
        return attend(*heads, PreparedTerms(plan=plan, by_distance=table, scale=0.125))[0]

    def by_scores(query, key, value, table):
        bias = scores_of_distances(ops.transpose(table), query_length, key_length)
        terms = PreparedTerms(plan=AttentionPlan("scores"), bias=bias, scale=0.125)
        return attend(query, key, value, terms)[0]

    first, second, right = (
        gradients(lambda *x, of=of: ops.sum(ops.cast(of(*x), "float32") * weights), *arrays, table)
        for of in (indexed, indexed, by_scores)
    )
    equal = all(np.array_equal(*pair) for pair in zip(first, second, strict=True))
    result: dict[str, Any] = {"program": program, "two_runs_are_equal": equal}
    for name, ours, exact in zip((*lengths, "bias"), first, right, strict=True):
        result[name] = float(np.abs(ours - exact).max() / np.abs(exact).max())
    return result


# === One attention layer ===


def make_attention_step(
    row: str,
    batch_size: int,
    length: int,
    options: argparse.Namespace,
    num_documents: int | None = None,
    sliding_window: int | None = None,
) -> Callable[[], Any]:
    """Return a function that runs attention and its gradients."""
    sizes = bert_models.SIZES[options.size]
    hidden_dim, num_heads = sizes["hidden_dim"], sizes["num_heads"]
    rng = np.random.default_rng(bert_models.SEED)
    inputs = rng.normal(size=(batch_size, length, hidden_dim)).astype("float32")
    if row in ROWS_ON_TORCH:
        return make_torch_attention_step(row, inputs, num_heads)
    name, implementation = implementation_of(row)
    attention = BiasedMultiHeadAttention(num_heads, hidden_dim // num_heads, dtype=DTYPE)
    bias = make_bias(name, num_heads, length)
    ids = None
    if num_documents is not None:
        ids = np.arange(length) * num_documents // length
        ids = ops.convert_to_tensor(np.tile(ids, (batch_size, 1)), "int32")
    terms = ScoreTerms(bias=bias, sliding_window=sliding_window, document_ids=ids)
    arguments = {"training": True, "implementation": implementation}
    plan = attention.plan(terms, inputs.shape, **arguments)
    inputs = ops.cast(inputs, "bfloat16")

    def forward(inputs):
        prepared = prepare(terms, plan, inputs, None)
        return attention(inputs, inputs, score_terms=prepared, training=True)

    forward(inputs)
    trained = [layer for layer in (attention, bias) if layer is not None]
    if keras.config.backend() == "jax":
        return make_jax_gradients(forward, trained, inputs)
    parameters = [variable.value for layer in trained for variable in layer.trainable_variables]
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


# === Training steps ===


def make_training_step(
    row: str, batch_size: int, length: int, options: argparse.Namespace
) -> Callable[[], Any]:
    inputs = bert_models.make_inputs(batch_size, length)
    targets = bert_models.make_targets(options.size, batch_size, length)
    arguments = {}
    name, implementation = implementation_of(row)
    if row == "hugging_face_flex":
        name, arguments = "hugging_face", {"attn_implementation": "flex_attention"}
    elif implementation != "auto":
        arguments = {"attention_implementation": implementation}
    model = bert_models.make_model(name, options.size, length, DTYPE, options.dropout, **arguments)
    return bert_models.make_step(name, model, "training", inputs, targets, DTYPE)


# === Times of rows ===


def measure_row(
    make_step: Callable[[], Callable[[], Any]], reference: dict[str, Any] | None, rounds: int
) -> dict[str, Any]:
    """Return milliseconds and memory of a step, if it fits into memory.

    Args:
        make_step: Makes the step.
        reference: The results of the row that times are compared with, or `None` for that row.
        rounds: Number of times.
    """
    try:
        step = make_step()
        step()
        memory = getattr(step, "memory", None)
        memory = measure.memory_of(step) if memory is None else memory
    except Exception as error:
        # Of PyTorch and of JAX. Other errors may speak of memory, too.
        is_full = type(error).__name__ == "OutOfMemoryError" or "RESOURCE_EXHAUSTED" in str(error)
        if not is_full:
            raise
        return {"failed": "out of memory"}
    (seconds,) = measure.time_in_turn({"step": step}, rounds).values()
    median, quartiles = measure.median_and_quartiles(seconds)
    found = {"mib": memory, "milliseconds": 1000 * median}
    of_reference = (reference or found).get("milliseconds")
    if of_reference is None:
        return found
    ratios = [1000 * each / of_reference for each in (median, *quartiles)]
    return {**found, "ratio": ratios[0], "ratio_quartiles": ratios[1:]}


# === The program ===

INTRODUCTION = """\
- *diet_abs_features* computes all terms in one product of queries and keys.
- *Indexed* and *Gradients*: the largest difference from scores in float32, relative to the largest
  gradient. One rounding to bfloat16 is up to 0.004. *Indexed* has no projections.
- *Milliseconds* is the median of the rounds.
- *Ratio* is the time relative to attention without a bias or to the first row, and of a training
  step to BERT with positions at the input, with quartiles.
- *MiB* is the memory that a step adds.
"""


def make_page(runs: dict[str, Any]) -> str:
    return page_of("One attention layer on a GPU", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    lines = []
    tables: dict[str, list[list[str]]] = {part: [] for part in PARTS}
    # Lengths are not measured in their order.
    cells = sorted(
        run["cells"].values(),
        key=lambda cell: int(cell["name"]) if cell["part"] == "attention" else 0,
    )
    for cell in cells:
        if cell["part"] in ("indexed", "gradients"):
            row, names = cell["result"], ["bias", "query", "value"]
            names += ["key"] if cell["part"] == "indexed" else []
            errors = [f"{row[name]:.4f}" for name in names]
            if cell["part"] == "indexed":
                errors.append("yes" if row["two_runs_are_equal"] else "no")
            tables[cell["part"]].append([cell["name"], row["program"], *errors])
            continue
        for name, row in cell["result"].items():
            mib = [f"{row['mib']:.0f}" if "mib" in row else "-"]
            tables[cell["part"]].append([cell["name"], name, *_cells_of_times(row), *mib])
    times = ["milliseconds", "ratio"]
    columns = {
        "indexed": ["lengths", "program", "bias", "query", "value", "key", "two runs are equal"],
        "gradients": ["bias, lengths", "program", "bias", "query", "value"],
        "attention": ["tokens", "row", *times, "MiB"],
        "packed": ["sequences x tokens", "row", *times, "MiB"],
        "training": ["sequences x tokens", "row", *times, "MiB"],
    }
    for part, rows in tables.items():
        if rows:
            lines += [f"### {part.capitalize()}", "", *markdown_table(columns[part], rows), ""]
    missing = ", ".join(f"*{part}*" for part, rows in tables.items() if not rows)
    if missing:
        lines += [f"Not measured: {missing}.", ""]
    if tables["indexed"]:
        lines += conclusion(run["cells"], run["machine"]["backend"])
    return lines[:-1]


def conclusion(cells: dict[str, Any], backend: str) -> list[str]:
    """Return a table of what `"indexed"` needs so that "auto" may choose it."""
    of_part: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for cell in cells.values():
        of_part[cell["part"]][cell["name"]] = cell["result"]
    lengths = list(of_part["attention"]) or ["8192"]
    rows, twice = (of_part["attention"].get(str(n * int(lengths[0])), {}) for n in (1, 2))
    packed = list(of_part["packed"]) or ["8x4096"]
    of_packed = of_part["packed"].get(packed[0], {})
    found = [
        (
            f"{lengths[0]} tokens: time of {row}, relative to no bias",
            2.5,
            _value(rows, row, "ratio"),
        )
        for row in ("diet_rel_indexed", "t5_indexed")
    ]
    memory = [_value(each, "diet_rel_indexed", "mib") for each in (twice, rows)]
    found.append(("memory of diet_rel_indexed, relative to half the tokens", 2.2, _ratio(*memory)))
    times = [
        _value(of_packed, row, "milliseconds")
        for row in ("diet_rel_documents_indexed", "diet_rel_indexed")
    ]
    text = f"{packed[0]} tokens: time with {NUM_DOCUMENTS} documents, relative to one"
    found.append((text, 0.5, _ratio(*times)))
    results = of_part["indexed"].values()
    errors = [row[name] for row in results for name in ("bias", "query", "key", "value")]
    found.append(("difference of gradients, two roundings", 2 * 2**-8, max(errors)))
    if backend == "jax":
        differ = sum(not row["two_runs_are_equal"] for row in results)
        found.append(("lengths with other gradients in a second run", 0, differ))
    table = [
        [text, f"{limit:.4g}", "not measured" if value is None else f"{value:.4g}"]
        for text, limit, value in found
    ]
    fits = [value is not None and value <= limit for _, limit, value in found]
    is_open = any(value is None for _, _, value in found)
    answer = "yes" if all(fits) else "not known" if is_open else "no"
    return [
        '### May "auto" choose "indexed"?',
        *("", *markdown_table(["what it needs", "at most", "found"], table), ""),
        *(f"**Answer: {answer}.**", ""),
    ]


def _value(rows, row, name):
    return rows.get(row, {}).get(name)


def _ratio(value, of_value):
    return value / of_value if value is not None and of_value else None


def _cells_of_times(row):
    if "failed" in row:
        return [row["failed"], "-"]
    if "ratio" not in row:
        return [f"{row['milliseconds']:.2f}", "-"]
    low, high = row["ratio_quartiles"]
    return [f"{row['milliseconds']:.2f}", f"{row['ratio']:.2f} ({low:.2f} - {high:.2f})"]


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    lengths = [8192, 16384, 512, 2048, 4096, 1024]
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--size", choices=bert_models.SIZES, default="base", help="size of BERT")
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="of attention")
    batches = ["8x512", "1x8192"]
    indexed = ["1024x1024", "1000x1000", "611x833"]
    parser.add_argument("--indexed", nargs="+", default=indexed, help="queries x keys")
    parser.add_argument("--packed", nargs="+", default=["8x4096"], help="sequences x tokens")
    parser.add_argument("--batches", nargs="+", default=batches, help="of the training step")
    parser.add_argument("--dropout", type=float, default=0.0, help="of the training step")
    parser.add_argument("--rounds", type=int, default=15, help="timed steps of each kind")
    parser.add_argument("--minutes", type=float, default=math.inf, help="then no row begins")
    return parse(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    keras.utils.set_random_seed(bert_models.SEED)
    run = start(MODULE, options, ("size", "rounds", "dropout"), seed=bert_models.SEED)
    end, left, failed = time.monotonic() + 60 * options.minutes, 0, []
    for part, name, rows in cells_of(options):
        key = f"{part}, {name}"
        cell = run["cells"].get(key, {"part": part, "name": name, "result": {}})
        result, compares = cell["result"], part in COMPARISONS
        for row, measure_one in tqdm(rows.items(), desc=key, unit="row"):
            if row in result or (compares and result):
                continue
            if time.monotonic() > end:
                left += 1
                continue
            keras.backend.clear_session()
            first = next(iter(rows))
            try:
                if compares:
                    result |= measure_one()
                else:
                    reference = None if row == first else result.get(first, {"failed": "later"})
                    result[row] = measure_row(measure_one, reference, options.rounds)
            except Exception as error:
                # The time on a GPU is short, so the other rows are measured.
                failed.append(f"{key}, {row}: {type(error).__name__}: {error}")
                continue
            run["cells"][key] = cell
            save(options, run, make_page)
    print(make_page({options.name: run}))
    print(*failed, sep="\n")
    if left:
        print(f"The time is over. {left} rows are left for the same command with --resume.")


def cells_of(options: argparse.Namespace) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield part, name and rows of each cell, with a function for each row.

    What the last table needs is first.
    """
    if "indexed" in options.parts and has_row("indexed"):
        for lengths in options.indexed:
            compare = functools.partial(compare_indexed, *map(int, lengths.split("x")))
            yield "indexed", lengths, {"indexed": compare}

    def attention(length):
        make = functools.partial(make_attention_step, batch_size=1, length=length)
        return "attention", str(length), steps_of(ATTENTION_ROWS, make, options)

    lengths = options.lengths if "attention" in options.parts else []
    yield from map(attention, lengths[:1])
    if "packed" in options.parts:
        for batch in options.packed:
            batch_size, length = map(int, batch.split("x"))
            steps = {}
            for row, terms in PACKED_ROWS.items():
                make = functools.partial(
                    make_attention_step, batch_size=batch_size, length=length, **terms
                )
                name = row.replace("_documents", "").replace("_window", "")
                if has_row(row):
                    steps[row] = functools.partial(make, name, options=options)
            yield "packed", batch, steps
    yield from map(attention, lengths[1:])
    if "training" in options.parts:
        for batch in options.batches:
            batch_size, length = map(int, batch.split("x"))
            make = functools.partial(make_training_step, batch_size=batch_size, length=length)
            yield "training", batch, steps_of(TRAINING_ROWS, make, options)
    if "gradients" in options.parts:
        for shape in (*SHAPES, DISTANCES):
            for lengths in LENGTHS_OF_GRADIENTS:
                name = f"{shape}, {lengths[0]} x {lengths[1]}"
                compare = functools.partial(compare_gradients, shape, *lengths)
                yield "gradients", name, {"gradients": compare}


def steps_of(
    rows: Sequence[str], make: Callable[..., Any], options: argparse.Namespace
) -> dict[str, Callable[[], Any]]:
    """Return a function for each row of this backend, which makes the step of the row."""
    return {row: functools.partial(make, row, options=options) for row in rows if has_row(row)}


if __name__ == "__main__":
    main()
