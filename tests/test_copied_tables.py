"""Tables and sentences that copy results have the numbers of the files.

`COPIES` has a row for each table: the page, the columns of the table, and a function that returns
the numbers of each cell, by the names of its row and its column. `CLAIMS` has a row for each
sentence with a link to a result: the page, the text around the numbers, and the numbers.
"""

import csv
import itertools
import json
import os
import re
import statistics
from pathlib import Path

import pytest
import scipy.stats

pytestmark = pytest.mark.any_backend
DOCS = Path(__file__).parents[1] / "docs"
PAPER = DOCS.parent / "examples" / "paper"
BENCHMARKS, RESULTS = DOCS / "benchmarks", PAPER / "results"
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
SCALES = {"0.002": 0.002, "0.02": 0.02, "0.1": 0.1, "0.5": 0.5, "1": 1.0, "2": 2.0}


def words_of(cell):
    return re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?", cell.replace(",", ""))


def numbers_of(cell):
    return list(map(float, words_of(cell)))


def tables_of(path):
    """The tables of a page, each as its columns, its rows by name, and its rows."""
    tables = []
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        if block.startswith("|"):
            lines = [line.strip()[1:-1].split("|") for line in block.splitlines()]
            columns, _, *rows = [[cell.strip() for cell in line] for line in lines]
            cells = [dict(zip(columns, row, strict=True)) for row in rows]
            tables.append((columns, dict(zip((row[0] for row in rows), cells, strict=True)), cells))
    return tables


def printed(path, rows, columns):
    """The numbers of a page of results, under other names of rows and columns."""
    for found, by_name, _ in tables_of(path):
        if set(columns.values()) <= set(found) and set(rows.values()) <= set(by_name):
            return {
                (row, column): numbers_of(by_name[of_row][of_column])
                for (row, of_row), (column, of_column) in itertools.product(
                    rows.items(), columns.items()
                )
                if by_name[of_row][of_column]
            }
    raise AssertionError(f"{path} has no table with {rows} and {columns}")


def cells_of(name, run):
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))[run]["cells"]


def rows_of(name):
    return list(csv.DictReader((RESULTS / name).read_text(encoding="utf-8").splitlines()))


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


def pretraining():
    columns = {"diet_abs": "DIET-ABS", "input": "positions at the input"}
    # The last epoch is the last row.
    return {
        (BACKENDS[row["backend"]], columns[row["encoding"]]): [float(row["val_loss"])]
        for row in rows_of("pretraining.csv")
    }


def finetuning():
    names = {("embedded en", "f1"): "questions, F1", ("de", "accuracy"): "pairs, German"}
    names |= {("embedded en", "exact_match"): "questions, exact match"}
    names |= {("en", "accuracy"): "pairs, English accuracy (chance: 33)"}
    names |= {("es", "accuracy"): "pairs, Spanish"}
    columns = {"diet_rel": "DIET-REL", "diet_abs": "DIET-ABS", "input": "input"}
    return {
        (names[row["task"], row["metric"]], columns[row["model"]]): [float(row["median"])]
        for row in rows_of("finetune.csv")
        if (row["task"], row["metric"]) in names
    }


def conversion():
    names = {"shuffled positions": "the original, positions shuffled", "none": "no positions"}
    names |= {"diet_abs": "DIET-ABS, no sharing", "diet_rel": "DIET-REL, no sharing"}
    columns = {"before": "before healing", "after_100_steps": "after 100 steps"}
    return {
        (names[row["model"]], column): [float(row[name])]
        for row in rows_of("convert_bert.csv")
        for name, column in columns.items()
        if row[name]
    }


def multilingual():
    path = RESULTS / "multilingual.md"
    accuracy = printed(path, {"XNLI, accuracy": "mean"}, {"DIET-ABS": "diet_abs", "input": "input"})
    columns = {"DIET-ABS": "diet_abs, F1", "input": "input, F1"}
    f1 = printed(path, {"XQuAD, F1": "mean"}, columns)
    return {**accuracy, **f1, ("XNLI, accuracy", "chance"): [100 / 3]}


def answers():
    models = {
        "`transformers.BertForQuestionAnswering`, all positions": "hugging_face",
        "the same, context": "hugging_face_context",
        '`from_bert(bert, "input")`, context': "input",
        '`from_bert(bert, "diet_abs", sharing="layer-wise")`, context': "diet_abs",
        '`from_bert(bert, "diet_rel")`, context': "diet_rel",
    }
    columns = {name: name for name in ("seeds", "F1", "exact match")}
    found = printed(RESULTS / "question_answering.md", models, columns)
    # The page has the number of seeds, and means without deviations.
    return {
        (row, name): [len(values) if name == "seeds" else values[0]]
        for (row, name), values in found.items()
    }


def losses(name, row, stddev, width=128, rate=0.002):
    """The last losses of the seeds."""
    runs = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["runs"]
    setting = (row, stddev, width, rate)
    return [
        run["losses"][-1]
        for run in sorted(runs, key=lambda run: run["seed"])
        if (run["row"], run["stddev"], run["width"], run["learning_rate"]) == setting
    ]


def mean_losses(cells):
    return {cell: [statistics.mean(found)] for cell, found in cells.items() if found}


ROWS = {f"DIET-ABS, rank {rank}": f"diet_abs, rank {rank}" for rank in (8, 16, 32, 64, 128)}
ROWS |= {"DIET-REL": "diet_rel", "T5": "t5", "FIRE": "fire", "TUPE-A": "tupe_abs"}
ROWS |= {"positions at the input": "input"}


def scales():
    return mean_losses(
        {
            (row, column): losses("initial_scores", name, stddev)
            for row, name in ROWS.items()
            for column, stddev in SCALES.items()
        }
    )


def four_layers():
    columns = {"BERT's": None, "0.5": 0.5, "1": 1.0, "2": 2.0}
    found = {
        (row, column): losses("initial_scores_4_layers", name, stddev, 256, 0.001)
        for row, name in ROWS.items()
        for column, stddev in columns.items()
    }
    tests = {
        (row, "p (BERT's and 1)"): [p_of(found[row, "BERT's"], found[row, "1"])]
        for row in ROWS
        if found[row, "1"]
    }
    return mean_losses(found) | tests


def p_of(first, second):
    return scipy.stats.ttest_rel(first, second).pvalue


def documents():
    rows = {"no positions": ("none", None), "positions at the input": ("input", None)}
    for name, row in (("DIET-ABS", "diet_abs, rank 32"), ("DIET-REL", "diet_rel")):
        rows[f"{name}, BERT's initial values"] = (row, None)
        rows[f"{name}, scores of 1"] = (row, 1.0)
    rows |= {"T5": ("t5", None), "TUPE-A": ("tupe_abs", None), "ALiBi": ("alibi", None)}
    rows["rotary positions"] = ("rotary", None)
    columns = {"alone": "", "masks": ", document masks"}
    columns |= {
        f"segments {where}": f", segments {where}" for where in ("at the input", "per head")
    }
    found = {
        (row, column): losses("initial_scores_documents", name + suffix, stddev)
        for row, (name, stddev) in rows.items()
        for column, suffix in columns.items()
    }
    tests = {
        (row, "p (alone and masks)"): [p_of(found[row, "alone"], found[row, "masks"])]
        for row in rows
    }
    return mean_losses(found) | tests


TRANSLATORS = {
    "sinusoids": "sinusoidal",
    "Shaw et al. (2018)": "shaw",
    "DIET-REL": "diet_rel",
    "DIET-ABS": "diet_abs",
    "Marian (sinusoids, post-norm)": "marian",
    "our model with Marian's blocks": "sinusoidal_post_norm",
    "the same, with Marian's initial weights": "sinusoidal_from_marian",
}


def four_layers_of_pretraining():
    columns = {"BERT's initial values": None, "scores of 1": 1.0}
    rows = ("DIET-ABS, rank 128", "DIET-REL", "positions at the input")
    return mean_losses(
        {
            (row, column): losses("initial_scores_4_layers", ROWS[row], stddev, 256, 0.001)
            for row in rows
            for column, stddev in columns.items()
        }
    )


def figure_losses():
    columns = {"input": "BERT", "diet_abs": "DIET-ABS", "diet_rel": "DIET-REL"}
    columns["diet_abs_input"] = "DIET-ABS and input"
    return {
        (row["steps"], columns[row["encoding"]]): [float(row["val_loss"])]
        for row in rows_of("figures.csv")
    }


def sharing():
    names = {"diet_rel": "DIET-REL", "diet_abs": "DIET-ABS"}
    return {
        (names[row["model"]], f'`"{row["sharing"]}"`'): [float(row["before"])]
        for row in rows_of("convert_bert_sharing.csv")
        if row["model"] in names
    }


def packaged_preset():
    return {
        (
            row["learning_rate"].replace("0.0005", "5e-4").replace("e-05", "e-5"),
            f"seed {row['seed']}",
        ): [100 * float(row["metrics"].partition("=")[2])]
        for row in rows_of("packaged_preset.csv")
    }


def choices():
    """Losses as made, with the best first scores and with longer texts; times of 512 tokens."""
    path, found = RESULTS / "study.md", {}
    study = next(rows for columns, rows, _ in tables_of(path) if "loss" in columns)
    of_scales = next(
        rows for columns, rows, _ in tables_of(RESULTS / "initial_scores.md") if "64" in columns
    )
    for name, cells in study.items():
        row = f'`"{name}"`'
        found[row, "loss"] = numbers_of(cells["loss"])[:1]
        scaled = of_scales.get({"diet_abs": "diet_abs, rank 128"}.get(name, name), {})
        for column, size in (("best first scores", "64"), ("512 tokens", "512")):
            if scaled:
                found[row, column] = numbers_of(scaled[size])[:1]
        for backend, label in (("torch", "PyTorch"), ("jax", "JAX")):
            for run in ("BERT-small, inference", "Other encodings", "Newer encodings"):
                times = cells_of(f"step_time_{backend}", run)["small, 2 x 512 tokens, inference"]
                if name in times:
                    found[row, f"time, {label}"] = [times[name]["ratio"]]
    return found


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


EMBEDDED = {
    "before": "before",
    "after 830 entailment pairs of XNLI": "after entailment",
    "after 5,749 scored pairs of STS-B": "after scores",
}
LIBRARIES = ("keras_diet", "sentence-transformers")
PRESET = "../keras_diet/models/diet_bert/presets/diet_bert_tiny_en/README"
COPIES = {
    ("get_started/cost_and_speed", "PyTorch"): recomputation,
    ("guides/trained_encoders", "Spearman"): encoders,
    ("guides/trained_encoders", "JAX"): types,
    ("encodings/README", "best first scores"): choices,
    ("guides/data_and_presets", "padded"): packed,
    ("guides/pretraining", "DIET-ABS"): pretraining,
    ("guides/finetuning", "DIET-REL"): finetuning,
    ("guides/serve", "`model_quantized.onnx`"): served_scores,
    ("guides/from_bert", "before healing"): conversion,
    ("guides/multilingual", "chance"): multilingual,
    ("guides/question_answering", "exact match"): answers,
    ("guides/embeddings", "Pearson"): lambda: printed(
        PAPER / "README.md", EMBEDDED, {"Pearson": "pearson", "Spearman": "spearman"}
    ),
    ("guides/embeddings", "our step time divided by the other"): lambda: printed(
        BENCHMARKS / "train_embedders.md",
        {"0": "0", "1": "1"},
        {"before": "before", "our step time divided by the other": "time of a step"}
        | {name: f"after, {name}" for name in LIBRARIES},
    ),
    ("guides/translation", "CS-EN"): lambda: printed(
        RESULTS / "translation.md",
        TRANSLATORS,
        {name.upper(): name for name in ("en-de", "de-en", "en-cs", "cs-en")},
    ),
    ("guides/pretraining", "scores of 1"): four_layers_of_pretraining,
    ("guides/from_bert", '`"layer-wise"`'): sharing,
    ("reproduction/figures", "DIET-ABS and input"): figure_losses,
    (PRESET, "seed 0"): packaged_preset,
    ("reproduction/initial_scores", "0.002"): scales,
    ("reproduction/initial_scores", "BERT's"): four_layers,
    ("reproduction/documents", "masks"): documents,
}


def shown_cells(page, column, expected):
    """The cells of a table of a page with numbers: the table that has the most of the rows."""
    tables = [table for table in tables_of(DOCS / f"{page}.md") if column in table[0]]
    names = {row for row, _ in expected}
    table = max(tables, key=lambda table: len(names & set(row_names(table, names))))
    return {
        (row, name): text
        for row, cells in zip(row_names(table, names), table[2], strict=True)
        for name, text in list(cells.items())[1:]
        if numbers_of(text) and name in {column for _, column in expected}
    }


def row_names(table, names):
    """The names of rows: the first cell, or the first two."""
    rows = [list(cells.values()) for cells in table[2]]
    pairs = [", ".join(row[:2]) for row in rows]
    return pairs if set(pairs) & names else [row[0] for row in rows]


@pytest.mark.parametrize("page, column", COPIES, ids=lambda text: text.replace("/", " "))
def test_cells_are_those_of_the_files(page, column):
    expected = COPIES[page, column]()
    shown = shown_cells(page, column, expected)
    assert shown.keys() == expected.keys()
    for cell, text in shown.items():
        for word, value in zip(words_of(text), expected[cell], strict=True):
            compare(word, value, (cell, text))


# === Sentences ===


def lengths_of(run, tokens, *rows):
    """The rows of a length in the benchmark of implementations, and a function of their ratios."""
    return [
        cells_of("attention_implementations", run)[f"{encoding}, 1 x {tokens} tokens, inference"][
            implementation
        ]
        for encoding, implementation in rows
    ]


def blocks_on_jax():
    pairs = ("diet_abs", "blockwise"), ("diet_abs", "full"), ("diet_rel", "blockwise")
    absolute, full, relative, whole = lengths_of("JAX", 2048, *pairs, ("diet_rel", "full"))
    ratios = absolute["mib"] / full["mib"], absolute["ratio"]
    return [*ratios, relative["mib"] / whole["mib"], relative["ratio"]]


def features_on_torch():
    pairs = ("diet_abs", "features"), ("diet_abs", "full")
    features, full = lengths_of("PyTorch", 8192, *pairs)
    return [features["ratio"], features["mib"] / full["mib"]]


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


def lesson():
    last = {(row["encoding"], row["initial_score_stddev"]): row for row in rows_of("lesson.csv")}
    return [float(last[key]["val_loss"]) for key in (("diet_abs", "1"), ("input", ""))]


def packed_training():
    ((_, _, rows),) = tables_of(BENCHMARKS / "packed_texts.md")
    found = {(row["batch"], row["step"], row["texts"]): row for row in rows}
    column = "time / padded (quartiles)"
    return [numbers_of(found[size, "training", "packed"][column])[0] for size in ("32", "128")]


def masked_rotary():
    name = "with masks"
    columns = [f"trained {each}" for each in ("without masks", name)] + ["p"]
    tables = tables_of(RESULTS / "document_masks.md")
    (row,) = (row for _, _, rows in tables for row in rows if row.get("evaluated") == name)
    return [numbers_of(row[column])[0] for column in columns]


def translated():
    runs = json.loads((RESULTS / "translation_initial_scores.json").read_text())["runs"]
    found = {(run["encoding"], run["seed"]): run["bleu"] for run in runs}
    return [found["diet_abs", 0], found["diet_rel", 0]]


def longer_texts():
    cells = choices()
    names = [f'`"{name}"`' for name in ("t5", "rotary")]
    return [cells[row, "512 tokens"][0] - cells[row, "best first scores"][0] for row in names]


def largest_difference():
    runs = json.loads((BENCHMARKS / "trained_encoders.json").read_text(encoding="utf-8"))
    return [max(value for run in runs.values() for value in run["types"].values())]


def frequencies():
    text = (RESULTS / "study.md").read_text(encoding="utf-8")
    return numbers_of(re.search(r"occurs has a loss of (\S+)\.\n", text)[1])


PLAN, NUMBER = "docs/contribute/attention_plan", r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)"


# The page, the sentence with # for each number of a result, and the numbers.
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


CLAIMS = [
    (PLAN, "the compiler adds sums inside the softmax: # times the bytes", bytes_on_a_tpu),
    (
        PLAN,
        "DIET-ABS in blocks takes # of the memory and # of the time, and DIET-REL # of the memory "
        "and # of the time",
        blocks_on_jax,
    ),
    (PLAN, "features take # times as long as a full bias, and # of the memory", features_on_torch),
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
    ("docs/encodings/README", "T5 loses #, rotary positions #,", longer_texts),
    (
        "docs/encodings/deberta",
        "inference takes # of the time without the scores of positions, # of KerasHub's time and # "
        "of that of `transformers`. A training step takes #, # and # of them. With PyTorch's own "
        "loop and optimizer, our step takes # ms, and that of `transformers` # ms.",
        of_deberta,
    ),
    ("docs/guides/pretraining", "rotary positions only: # and # (p = #,", masked_rotary),
    (
        "docs/guides/serve",
        "takes # ms for one sentence in ONNX Runtime, and # ms in int8. In batches of 32, ONNX "
        "Runtime embeds # sentences a second, and # in int8, probably because this processor has "
        "no instructions for products in int8. With the graph of Hugging Face it embeds #, and # "
        "in int8. `encode_text` embeds # on PyTorch and # on JAX, and sentence-transformers embeds "
        "#.",
        served,
    ),
    ("docs/guides/translation", "gave # for DIET-ABS and # for DIET-REL", translated),
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
    ("docs/reproduction/study", "knows only how often each token occurs has #.", frequencies),
    ("README", "the validation loss of DIET-ABS is #, and # with positions at the input", lesson),
]


def compare(word, value, where):
    number, _, exponent = word.replace(",", "").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(number.partition(".")[2]))
    assert abs(float(word.replace(",", "")) - value) <= 0.5001 * unit, (where, word, value)


@pytest.mark.parametrize("page, text, numbers", CLAIMS, ids=[page for page, *_ in CLAIMS])
def test_sentences_have_the_numbers_of_the_files(page, text, numbers):
    prose = " ".join((DOCS.parent / f"{page}.md").read_text(encoding="utf-8").split())
    found = re.search(re.escape(text).replace(re.escape("#"), NUMBER), prose)
    assert found, f"{page}.md has no sentence: {text}"
    for word, value in zip(found.groups(), numbers(), strict=True):
        compare(word, value, text)


RESULT = r"\]\([^)]*(?:benchmarks/(?!README)|examples/paper/results/)[^)]*\)"


def pages():
    """All pages but those of results, by their names."""
    files = [DOCS.parent / "README.md", *DOCS.rglob("*.md"), DOCS / f"{PRESET}.md"]
    texts = {path.resolve(): path.read_text(encoding="utf-8") for path in files}
    return {path: text for path, text in texts.items() if "\n- Started: " not in text}


def test_each_sentence_with_a_result_is_compared():
    """Numbers with a point in a sentence, or in a cell of a table of words, that links a result."""
    claimed, unknown = 0, []
    for path, text in pages().items():
        page = path.relative_to(DOCS.parent.resolve()).with_suffix("").as_posix()
        text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for block in re.split(r"\n\s*\n|\n(?=- |\d\. |\|)", text):
            is_row = block.startswith("|")
            parts = block.split("|") if is_row else [" ".join(block.split())]
            for part in parts:
                for sentence in re.split(r"(?<=[.!?:]) +(?=[A-Z`\"'(*])", part):
                    rest = re.sub(r"\]\([^)]*\)|`[^`]*`", "", sentence)
                    rest = re.sub(r"(?:PyTorch|JAX|SQuAD|Python|Keras) \d+\.\d+", "", rest)
                    if not re.search(RESULT, sentence) or not re.search(r"\d\.\d", rest):
                        continue
                    if any(
                        claim_page == page and claim_words(claim, block)
                        for claim_page, claim, _ in CLAIMS
                    ):
                        claimed += 1
                    else:
                        unknown.append((page, sentence))
    assert not unknown
    assert claimed > 8


def claim_words(claim, block):
    return re.search(re.escape(claim).replace(re.escape("#"), NUMBER), " ".join(block.split()))


def test_each_table_beside_a_result_is_compared():
    """A table of numbers whose text links a file of results."""
    found = set()
    for path, text in pages().items():
        name = relative_name(path)
        blocks = re.split(r"\n\s*\n", text)
        for i, block in enumerate(blocks):
            near = blocks[max(0, i - 2) : i] + blocks[i + 1 : i + 2]
            around = "".join(each for each in near if not each.startswith("|"))
            if block.startswith("|") and re.search(RESULT, around) and has_results(block):
                found.add((name, block.splitlines()[0]))
    compared = {
        (page, line)
        for page, line in found
        for other, column in COPIES
        if page == other and column in line
    }
    assert found == compared
    assert len(found) >= 12


def relative_name(path):
    return Path(os.path.relpath(path, DOCS)).with_suffix("").as_posix()


def has_results(block):
    """Whether a table has numbers of results: with a point, or of three digits, in its cells."""
    rows = block.splitlines()[2:]
    words = re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", "", "".join(rows))
    return re.search(r"\d\.\d|\d{3}", words)
