"""What only a GPU shows about one attention layer: kernels with a bias, and their gradients.

The parts are:

- `indexed`: gradients of the kernels of `attention_implementation="indexed"` in bfloat16, compared
  with scores in float32, and whether two runs have equal gradients;
- `gradients`: gradients of a bias from the backend's kernel in bfloat16, compared with scores in
  float32, for each shape of a bias, and for lengths that 8 does not divide;
- `attention`: time and memory of one attention layer with each bias by distance, forward and
  backward, by length. On PyTorch also without a bias (`sdpa`), with FlexAttention, and with the
  bias of T5 and MPNet in Hugging Face's library;
- `packed`: the same for sequences of one document, of 16 documents, and with a window.

A row alternates with the first row of its table. The last table says whether "auto" may choose
`"indexed"`. What it needs is measured first. A row that does not fit into memory is marked. The
results are written after each row. After `--minutes` no row begins. `--resume` continues, and
repeats rows with an error. It also runs without a GPU, for which the last command has small sizes.
TensorFlow has no results.

    KERAS_BACKEND=torch python -m benchmarks.gpu --rounds 10 --minutes 9 --resume \\
        --output runs/gpu_torch.json
    KERAS_BACKEND=jax python -m benchmarks.gpu --rounds 10 --minutes 9 --resume \\
        --output runs/gpu_jax.json
    KERAS_BACKEND=torch python -m benchmarks.gpu --size tiny --lengths 64 \\
        --packed 2x64 --indexed 61x83 --rounds 2
"""

import argparse
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from benchmarks import bert_models, measure, results
from keras_diet import layers
from keras_diet.layers import BiasedMultiHeadAttention, ScoreTerms
from keras_diet.layers.attention.dot_product import attend
from keras_diet.layers.attention.plan import INDEXED, AttentionPlan
from keras_diet.layers.attention.prepared_terms import PreparedTerms, prepare
from keras_diet.layers.position.relative_shift import scores_of_distances

PARTS = ("indexed", "attention", "packed", "gradients")
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
PACKED_ROWS = (
    *("diet_rel", "diet_rel_documents", "diet_rel_window"),
    *("diet_rel_indexed", "diet_rel_documents_indexed", "diet_rel_window_indexed"),
)


def has_row(row: str) -> bool:
    """Whether this backend has a row here. On a CPU FlexAttention has no gradients."""
    if keras.config.backend() == "torch":
        return measure.device() != "cpu" or not row.endswith(("indexed", "flex_attention"))
    return row not in ROWS_ON_TORCH


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
    # A layer that returns probabilities computes scores.
    found = gradients(loss(attention, False), bias, query, value)
    expected = gradients(loss(reference, True), bias, query, value)
    return {
        "program": attention.plan(terms, query.shape).program,
        **largest_differences(("bias", "query", "value"), found, expected),
    }


def largest_differences(
    names: Iterable[str], found: Iterable[np.ndarray], expected: Iterable[np.ndarray]
) -> dict[str, float]:
    return {
        name: float(np.abs(ours - right).max() / np.abs(right).max())
        for name, ours, right in zip(names, found, expected, strict=True)
    }


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
    differences = largest_differences((*lengths, "bias"), first, right)
    return {"program": program, "two_runs_are_equal": equal, **differences}


# === One attention layer ===


def make_attention_step(row: str, batch_size: int, length: int, size: str) -> Callable[[], Any]:
    """Return a function that runs attention and its gradients."""
    sizes = bert_models.SIZES[size]
    hidden_dim, num_heads = sizes["hidden_dim"], sizes["num_heads"]
    rng = np.random.default_rng(bert_models.SEED)
    inputs = rng.normal(size=(batch_size, length, hidden_dim)).astype("float32")
    if row in ROWS_ON_TORCH:
        return make_torch_attention_step(row, inputs, num_heads)
    name, _, implementation = row.rpartition("_")
    if implementation not in IMPLEMENTATIONS:
        name, implementation = row, "auto"
    make_bias = BIASES.get(name.removesuffix("_documents").removesuffix("_window"))
    bias = make_bias and make_bias(num_heads=num_heads, max_length=length, dtype=DTYPE)
    ids = None
    if "documents" in name:
        ids = np.arange(length) * NUM_DOCUMENTS // length
        ids = ops.convert_to_tensor(np.tile(ids, (batch_size, 1)), "int32")
    attention = BiasedMultiHeadAttention(num_heads, hidden_dim // num_heads, dtype=DTYPE)
    window = WINDOW if "window" in name else None
    terms = ScoreTerms(bias=bias, sliding_window=window, document_ids=ids)
    plan = attention.plan(terms, inputs.shape, training=True, implementation=implementation)
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


# === Times of rows ===


def measure_row(
    makers: dict[str, Callable[[], Callable[[], Any]]], row: str, rounds: int
) -> dict[str, Any]:
    """Return times and memory of a step that alternates with the first one, if memory is enough."""
    keras.backend.clear_session()
    make_first = next(iter(makers.values()))
    try:
        reference = measure.make_reference(make_first)
        step = reference if makers[row] is make_first else makers[row]()
        memory = getattr(step, "memory", None)
        memory = measure.memory_of(step) if memory is None else memory
        return {"mib": memory, **measure.compare_with(reference, step, rounds)}
    except Exception as error:
        # Of PyTorch and of JAX. An illegal memory access is another error.
        is_full = type(error).__name__ == "OutOfMemoryError" or "RESOURCE_EXHAUSTED" in str(error)
        if not is_full:
            raise
        return {"failed": "out of memory"}


# === The program ===

INTRODUCTION = """\
- *diet_abs_features* computes all terms in one product of queries and keys.
- *Indexed* and *Gradients*: the largest difference from scores in float32, relative to the largest
  gradient. One rounding to bfloat16 is up to 0.004. *Indexed* has no projections.
- *Milliseconds* is the median of the rounds.
- *Ratio* is the time relative to attention without a bias or to the first row, with quartiles.
- *MiB* is the memory that a step adds.
"""


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("One attention layer on a GPU", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for key, cell in run["cells"].items():
        part, name = key.split(", ", 1)
        parts[part][name] = cell
    lines, errors, times = [], ["bias", "query", "value"], ["row", "milliseconds", "ratio", "MiB"]
    columns = {
        "indexed": ["lengths", "program", *errors, "key", "two runs are equal"],
        "attention": ["tokens", *times],
        "packed": ["sequences x tokens", *times],
        "gradients": ["bias, lengths", "program", *errors],
    }
    for part, cells in parts.items():
        names = sorted(cells, key=int) if part == "attention" else cells
        rows = [[name, *row] for name in names for row in rows_of_cell(part, cells[name])]
        if rows:
            table = results.markdown_table(columns[part], rows)
            lines += [f"### {part.capitalize()}", "", *table, ""]
    missing = ", ".join(f"*{part}*" for part, cells in parts.items() if not cells)
    if missing:
        lines += [f"Not measured: {missing}.", ""]
    if parts["indexed"]:
        lines += conclusion(parts, run["machine"]["backend"])
    return lines[:-1]


def rows_of_cell(part: str, cell: dict[str, Any]) -> list[list[str]]:
    if part == "gradients":
        return [[cell["program"], *(f"{cell[name]:.4f}" for name in ("bias", "query", "value"))]]
    if part == "indexed":
        errors = [f"{cell[name]:.4f}" for name in ("bias", "query", "value", "key")]
        return [[cell["program"], *errors, "yes" if cell["two_runs_are_equal"] else "no"]]
    return [
        [name, row["failed"], "-", "-"]
        if "failed" in row
        else [name, f"{row['milliseconds']:.2f}", results.ratio_of(row), f"{row['mib']:.0f}"]
        for name, row in cell.items()
    ]


def conclusion(parts: dict[str, dict[str, Any]], backend: str) -> list[str]:
    """Return a table of what `"indexed"` needs so that "auto" may choose it."""

    def find(part, cell, row, figure):
        return parts[part].get(cell, {}).get(row, {}).get(figure)

    def quotient(value, of_value):
        return value / of_value if value is not None and of_value else None

    tokens = next(iter(parts["attention"]), "8192")
    batch = next(iter(parts["packed"]), "8x4096")
    lengths = (str(2 * int(tokens)), tokens)
    memory = [find("attention", length, "diet_rel_indexed", "mib") for length in lengths]
    rows = ("diet_rel_documents_indexed", "diet_rel_indexed")
    times = [find("packed", batch, row, "milliseconds") for row in rows]
    indexed = parts["indexed"].values()
    errors = [cell[name] for cell in indexed for name in ("bias", "query", "key", "value")]
    # What is compared, the largest value that is allowed, and the value.
    needs = [
        *(
            (f"{tokens} tokens: time of {row}, relative to no bias", 2.5, ratio)
            for row in ("diet_rel_indexed", "t5_indexed")
            for ratio in [find("attention", tokens, row, "ratio")]
        ),
        ("memory of diet_rel_indexed, relative to half the tokens", 2.2, quotient(*memory)),
        (f"{batch} tokens: time with 16 documents, relative to one", 0.5, quotient(*times)),
        ("difference of gradients, two roundings", 2 * 2**-8, max(errors)),
    ]
    if backend == "jax":
        differ = sum(not cell["two_runs_are_equal"] for cell in indexed)
        needs.append(("lengths with other gradients in a second run", 0, differ))
    table = [
        [text, f"{limit:.4g}", "not measured" if value is None else f"{value:.4g}"]
        for text, limit, value in needs
    ]
    is_known = all(value is not None for *_, value in needs)
    fits = is_known and all(value <= limit for _, limit, value in needs)
    answer = "yes" if fits else "no" if is_known else "not known"
    return [
        '### May "auto" choose "indexed"?',
        *("", *results.markdown_table(["what it needs", "at most", "found"], table), ""),
        *(f"**Answer: {answer}.**", ""),
    ]


def cells_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return a function for each comparison, and for each row of the tables of times.

    What the last table needs is first.
    """

    def rows_of(rows, batch_size, length):
        makers = {
            row: functools.partial(make_attention_step, row, batch_size, length, options.size)
            for row in rows
            if has_row(row)
        }
        return {row: functools.partial(measure_row, makers, row, options.rounds) for row in makers}

    indexed = {
        f"indexed, {lengths[0]}x{lengths[1]}": functools.partial(compare_indexed, *lengths)
        for lengths in options.indexed
        if has_row("indexed")
    }
    attention = {f"attention, {n}": rows_of(ATTENTION_ROWS, 1, n) for n in options.lengths}
    packed = {f"packed, {n}x{t}": rows_of(PACKED_ROWS, n, t) for n, t in options.packed}
    gradients = {
        f"gradients, {shape}, {lengths[0]} x {lengths[1]}": functools.partial(
            compare_gradients, shape, *lengths
        )
        for shape in (*SHAPES, DISTANCES)
        for lengths in LENGTHS_OF_GRADIENTS
    }
    first = dict(list(attention.items())[:1])
    cells = indexed | first | packed | attention | gradients
    return {name: cell for name, cell in cells.items() if name.split(", ")[0] in options.parts}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = results.make_parser(__doc__)
    add, shape = parser.add_argument, results.shape
    lengths = [8192, 16384, 512, 2048, 4096, 1024]
    indexed = [(1024, 1024), (1000, 1000), (611, 833)]
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--size", choices=bert_models.SIZES, default="base", help="BERT that has the layer")
    add("--lengths", type=int, nargs="+", default=lengths, help="of attention")
    add("--indexed", type=shape, nargs="+", default=indexed, help="queries x keys")
    add("--packed", type=shape, nargs="+", default=[(8, 4096)], help="sequences x tokens")
    add("--rounds", type=int, default=15, help="timed steps of each row")
    add("--minutes", type=float, default=math.inf, help="then no row begins")
    return results.parse(parser, argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    keras.utils.set_random_seed(bert_models.SEED)
    run = results.start(__spec__.name, options, ("size", "rounds"), seed=bert_models.SEED)
    results.measure_cells(options, run, cells_of(options), make_page, options.minutes)


if __name__ == "__main__":
    main()
