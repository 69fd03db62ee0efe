"""Tables and sentences of pages that copy results of the paper's experiments."""

import json
import re
import statistics

import pytest
import scipy.stats

from tests.copied_tables import (
    BACKENDS,
    PAPER,
    PRESET,
    RESULTS,
    cells_of,
    check_all_sentences,
    check_all_tables,
    check_cells,
    check_sentence,
    numbers_of,
    printed,
    rows_of,
    tables_of,
)

pytestmark = pytest.mark.any_backend
SCALES = {"0.002": 0.002, "0.02": 0.02, "0.1": 0.1, "0.5": 0.5, "1": 1.0, "2": 2.0}
ROWS = {f"DIET-ABS, rank {rank}": f"diet_abs, rank {rank}" for rank in (8, 16, 32, 64, 128)}
ROWS |= {"DIET-REL": "diet_rel", "T5": "t5", "FIRE": "fire", "TUPE-A": "tupe_abs"}
ROWS |= {"positions at the input": "input"}
TRANSLATORS = {
    "sinusoids": "sinusoidal",
    "Shaw et al. (2018)": "shaw",
    "DIET-REL": "diet_rel",
    "DIET-ABS": "diet_abs",
    "Marian (sinusoids, post-norm)": "marian",
    "our model with Marian's blocks": "sinusoidal_post_norm",
    "the same, with Marian's initial weights": "sinusoidal_from_marian",
}
EMBEDDED = {
    "before": "before",
    "after 830 entailment pairs of XNLI": "after entailment",
    "after 5,749 scored pairs of STS-B": "after scores",
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


def lesson():
    last = {(row["encoding"], row["initial_score_stddev"]): row for row in rows_of("lesson.csv")}
    return [float(last[key]["val_loss"]) for key in (("diet_abs", "1"), ("input", ""))]


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


def frequencies():
    text = (RESULTS / "study.md").read_text(encoding="utf-8")
    return numbers_of(re.search(r"occurs has a loss of (\S+)\.\n", text)[1])


COPIES = {
    ("encodings/README", "best first scores"): choices,
    ("guides/pretraining", "DIET-ABS"): pretraining,
    ("guides/finetuning", "DIET-REL"): finetuning,
    ("guides/from_bert", "before healing"): conversion,
    ("guides/multilingual", "chance"): multilingual,
    ("guides/question_answering", "exact match"): answers,
    ("guides/embeddings", "Pearson"): lambda: printed(
        PAPER / "README.md", EMBEDDED, {"Pearson": "pearson", "Spearman": "spearman"}
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
CLAIMS = [
    ("docs/encodings/README", "T5 loses #, rotary positions #,", longer_texts),
    ("docs/guides/pretraining", "rotary positions only: # and # (p = #,", masked_rotary),
    ("docs/guides/translation", "gave # for DIET-ABS and # for DIET-REL", translated),
    ("docs/reproduction/study", "knows only how often each token occurs has #.", frequencies),
    ("README", "the validation loss of DIET-ABS is #, and # with positions at the input", lesson),
]


@pytest.mark.parametrize("page, column", COPIES, ids=lambda text: text.replace("/", " "))
def test_cells_are_those_of_the_files(page, column):
    check_cells(page, column, COPIES[page, column]())


@pytest.mark.parametrize("page, text, numbers", CLAIMS, ids=[page for page, *_ in CLAIMS])
def test_sentences_have_the_numbers_of_the_files(page, text, numbers):
    check_sentence(page, text, numbers())


def test_all_tables_and_sentences_are_compared():
    check_all_tables("paper", COPIES)
    check_all_sentences("paper", CLAIMS)
