"""Tables and sentences of pages that copy results of the benchmarks."""

import json

import pytest

from tests.copied_tables import (
    BACKENDS,
    BENCHMARKS,
    cells_of,
    check_all_sentences,
    check_all_tables,
    check_cells,
    check_sentence,
    numbers_of,
    printed,
    tables_of,
)

pytestmark = pytest.mark.any_backend
LIBRARIES = ("keras_diet", "sentence-transformers")
PLAN = "docs/contribute/attention_plan"


def recomputation():
    runs = {"PyTorch": "PyTorch", "TensorFlow": "TensorFlow"}
    runs["JAX with the flag"] = "JAX with a flag of XLA"
    return {
        (f'`"{name}"`', column): [row["mib"], row["ratio"]]
        for column, run in runs.items()
        for cell in cells_of("recomputation", run).values()
        for name, row in cell.items()
    }


def encoders():
    names = ("Spearman", "in `transformers`", "largest difference", "time, one text")
    cells = {}
    for run in BACKENDS.values():
        for encoder, cell in cells_of("trained_encoders", run).items():
            ratios = [cell["ratio"][size][0] for size in ("1", "32")]
            values = [*cell["spearman"].values(), cell["largest_difference"], *ratios]
            for name, value in zip((*names, "time, 32 texts"), values, strict=True):
                cells[f"{encoder}, {run}", name] = [value]
    return cells


def types():
    runs = json.loads((BENCHMARKS / "trained_encoders.json").read_text(encoding="utf-8"))
    return {
        (f'`"{name}"`', run): [value]
        for run, results in runs.items()
        for name, value in results["types"].items()
    }


def packed():
    columns = {"padded": "padded", "`length_buckets`": "length_buckets", "packed": "packed"}
    columns["`length_buckets`, texts sorted"] = "length_buckets, sorted"
    ((_, _, rows),) = tables_of(BENCHMARKS / "packed_texts.md")
    return {
        (f"{row['batch']}, {row['step']}", column): numbers_of(row["texts/s"])
        for row in rows
        for column, name in columns.items()
        if row["texts"] == name
    }


def served_scores():
    """Scores and sizes of programs of the packaged model."""
    cells, found = cells_of("serving", "PyTorch"), {}
    rows = {
        "SST-2, accuracy": ("20,000 phrases of SST-2: accuracy on 872 sentences", "SST-2"),
        "STS-B, Spearman": ("STS-B: Spearman correlation", "STS-B"),
    }
    for name, (row, data) in rows.items():
        for kind, column in (("float32", "`model.onnx`"), ("int8", "`model_quantized.onnx`")):
            found[row, column] = [cells[name][kind]["score"]]
            found[f"{data}: size, MB", column] = [cells[name][kind]["size"] / 1e6]
    return found


def beside_full(run, tokens, encoding, implementation):
    """The memory and the time of an implementation, relative to all scores at once."""
    cells = cells_of("attention_implementations", run)
    cell = cells[f"{encoding}, 1 x {tokens} tokens, inference"]
    return [cell[implementation]["mib"] / cell["full"]["mib"], cell[implementation]["ratio"]]


def on_a_gpu(tokens, *names):
    """Milliseconds, or MiB with a star, of rows of attention on PyTorch."""
    result = cells_of("gpu", "PyTorch")[f"attention, {tokens}"]
    return [result[name.strip("*")]["mib" if "*" in name else "milliseconds"] for name in names]


def gradients_on_a_gpu():
    errors = [
        cell[name]
        for run in ("PyTorch", "JAX")
        for key, cell in cells_of("gpu", run).items()
        if key.startswith("gradients")
        for name in ("bias", "query", "value")
    ]
    return [100 * max(errors)]


def cached_positions():
    numbers = []
    for run in ("torch", "jax", "tensorflow"):
        (cell,) = cells_of(f"step_time_{run}", "One sequence").values()
        numbers += [cell[row]["ratio"] for row in ("diet_abs", "diet_abs_cached")]
    return numbers


def bytes_on_a_tpu():
    rows = cells_of("tpu_compile", "128 tokens")["base, inference"]
    return [rows["diet_abs"]["bytes_accessed"] / rows["input"]["bytes_accessed"]]


def packed_training():
    ((_, _, rows),) = tables_of(BENCHMARKS / "packed_texts.md")
    found = {(row["batch"], row["step"], row["texts"]): row for row in rows}
    column = "time / padded (quartiles)"
    return [numbers_of(found[size, "training", "packed"][column])[0] for size in ("32", "128")]


def largest_difference():
    runs = json.loads((BENCHMARKS / "trained_encoders.json").read_text(encoding="utf-8"))
    return [max(value for run in runs.values() for value in run["types"].values())]


def of_deberta():
    """Times of inference and of a training step, relative to other rows; then milliseconds."""
    cells = cells_of("deberta", "PyTorch")
    inference, training = (cells[f"{step}, 2x512"] for step in ("inference", "training"))
    rows, loops = ("no_positions", "kerashub", "hugging_face"), ("deberta_in_torch_loop",)
    return [
        *(1 / step[row]["ratio"] for step in (inference, training) for row in rows),
        *(training[row]["milliseconds"] for row in (*loops, "hugging_face")),
    ]


def served():
    """Milliseconds of one sentence, then sentences a second of batches."""
    cells = cells_of("serving", "PyTorch")
    programs = [
        cells[f"ONNX Runtime, {graph}{kind}"]
        for graph in ("our file", "Hugging Face's graph")
        for kind in ("", " in int8")
    ]
    names = ("keras_diet, PyTorch", "keras_diet, JAX", "sentence-transformers")
    rates = [cell["sentences"] for cell in (*programs, *(cells[name] for name in names))]
    return [*(cell["milliseconds"] for cell in programs[:2]), *rates]


COPIES = {
    ("get_started/cost_and_speed", "PyTorch"): recomputation,
    ("guides/trained_encoders", "Spearman"): encoders,
    ("guides/trained_encoders", "JAX"): types,
    ("guides/data_and_presets", "padded"): packed,
    ("guides/serve", "`model_quantized.onnx`"): served_scores,
    ("guides/embeddings", "our step time divided by the other"): lambda: printed(
        BENCHMARKS / "train_embedders.md",
        {"0": "0", "1": "1"},
        {"before": "before", "our step time divided by the other": "time of a step"}
        | {name: f"after, {name}" for name in LIBRARIES},
    ),
}
CLAIMS = [
    (PLAN, "the compiler adds sums inside the softmax: # times the bytes", bytes_on_a_tpu),
    (
        PLAN,
        "DIET-ABS in blocks takes # of the memory and # of the time, and DIET-REL # of the memory "
        "and # of the time",
        lambda: [
            number
            for encoding in ("diet_abs", "diet_rel")
            for number in beside_full("JAX", 2048, encoding, "blockwise")
        ],
    ),
    (
        PLAN,
        "features take # times as long as a full bias, and # of the memory",
        lambda: beside_full("PyTorch", 8192, "diet_abs", "features")[::-1],
    ),
    (
        PLAN,
        "with 4096 tokens they take # ms and # MiB, a full bias # ms and # MiB",
        lambda: on_a_gpu(4096, "diet_abs_features", "diet_abs_features*", "diet_abs", "diet_abs*"),
    ),
    (PLAN, "by at most # % of the largest gradient", gradients_on_a_gpu),
    (
        PLAN,
        "FlexAttention took # ms, and DIET-REL in a kernel with a bias # ms",
        lambda: on_a_gpu(2048, "flex_attention", "diet_rel"),
    ),
    (
        "docs/get_started/cost_and_speed",
        "It falls from # to # on PyTorch, from # to # on JAX, and from # to # on TensorFlow",
        cached_positions,
    ),
    (
        "docs/encodings/deberta",
        "inference takes # of the time without the scores of positions, # of KerasHub's time and # "
        "of that of `transformers`. A training step takes #, # and # of them. With PyTorch's own "
        "loop and optimizer, our step takes # ms, and that of `transformers` # ms.",
        of_deberta,
    ),
    (
        "docs/guides/serve",
        "takes # ms for one sentence in ONNX Runtime, and # ms in int8. In batches of 32, ONNX "
        "Runtime embeds # sentences a second, and # in int8, probably because this processor has "
        "no instructions for products in int8. With the graph of Hugging Face it embeds #, and # "
        "in int8. `encode_text` embeds # on PyTorch and # on JAX, and sentence-transformers embeds "
        "#.",
        served,
    ),
    ("docs/index", "Outputs differ by at most # from `transformers`", largest_difference),
    (
        "docs/index",
        "a layer takes # ms. In `transformers`, T5's takes # ms and MPNet's # ms",
        lambda: on_a_gpu(2048, "t5", "hugging_face_t5", "hugging_face_mpnet"),
    ),
    (
        "docs/index",
        "takes # of the time in batches of 32, and # in batches of 128",
        packed_training,
    ),
]


@pytest.mark.parametrize("page, column", COPIES, ids=lambda text: text.replace("/", " "))
def test_cells_are_those_of_the_files(page, column):
    check_cells(page, column, COPIES[page, column]())


@pytest.mark.parametrize("page, text, numbers", CLAIMS, ids=[page for page, *_ in CLAIMS])
def test_sentences_have_the_numbers_of_the_files(page, text, numbers):
    check_sentence(page, text, numbers())


def test_all_tables_and_sentences_are_compared():
    check_all_tables("benchmarks", COPIES)
    check_all_sentences("benchmarks", CLAIMS)
