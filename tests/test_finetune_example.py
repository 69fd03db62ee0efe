"""Fine-tuning on GLUE: `examples/finetune_glue.py` and `examples/glue_data.py`."""

import csv
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from keras_diet import models
from tests.models.tiny import VOCABULARY, tiny_backbone

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(EXAMPLES))
    import finetune_glue

    yield finetune_glue
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="module")
def data(script):
    return sys.modules["glue_data"]


FILES = {
    "cola/in_domain_train.tsv": 'gj04\t1\t\tThe "fox sleeps.\ngj04\t0\t*\tFox the sleeps.\n',
    "cola/in_domain_dev.tsv": "gj04\t1\t\tA cat sings.\n",
    "cola/out_of_domain_dev.tsv": "ab\t0\t*\tCat sings a.",
    "sst2_glue/train.tsv": "sentence\tlabel\na quick fox \t1\n",
    "sst2_glue/test.tsv": "sentence\tlabel\na slow cat \t0\n",
    "rte/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA fox.\tA cat.\tnot_entailment\n",
    "rte/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA fox.\tA fox.\tentailment\n",
    "stsb/sts-train.tsv": "main\tMSR\t2012\t0001\t4.500\tA fox.\tA red fox.\tlicence\tmore\n",
    "stsb/sts-dev.tsv": "main\tMSR\t2012\t0001\t0.250\tA fox.\tThe tree.\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "task, split, texts, labels",
    [
        ("cola", "train", ['The "fox sleeps.', "Fox the sleeps."], [1, 0]),
        ("cola", "validation", ["A cat sings.", "Cat sings a."], [1, 0]),
        ("sst2", "train", ["a quick fox "], [1]),
        ("sst2", "validation", ["a slow cat "], [0]),
        ("rte", "train", (["A fox."], ["A cat."]), [1]),
        ("rte", "validation", (["A fox."], ["A fox."]), [0]),
        ("stsb", "train", (["A fox."], ["A red fox."]), [4.5]),
        ("stsb", "validation", (["A fox."], ["The tree."]), [0.25]),
    ],
)
def test_files(data, folder, task, split, texts, labels):
    found, found_labels = data.load(task, split, folder)
    assert found == texts
    np.testing.assert_array_equal(found_labels, labels)
    assert found_labels.dtype == ("float32" if task == "stsb" else "int32")


def test_missing_files_are_named(data, tmp_path):
    with pytest.raises(ValueError, match=r"in_domain_train.tsv is missing.*holds cola/"):
        data.load("cola", "train", tmp_path)


def test_other_sources(data, monkeypatch):
    """Stand-ins for TFDS and `datasets`, which load from the network."""
    example = {"sentence1": b"A fox.", "sentence2": b"A cat.", "label": 1}
    tfds = types.SimpleNamespace(
        load=lambda name, split: [(name, split)], as_numpy=lambda rows: [example] * len(rows)
    )
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", tfds)
    texts = {**example, "sentence1": "A fox.", "sentence2": "A cat."}
    calls = []
    datasets = types.SimpleNamespace(load_dataset=lambda *a, split: calls.append(a) or [texts])
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    for source in ("tfds", "datasets"):
        found, labels = data.load("rte", "validation", source)
        assert found == (["A fox."], ["A cat."])
        np.testing.assert_array_equal(labels, [1])
    assert calls == [("nyu-mll/glue", "rte")]


def test_embedded_sentences_have_the_same_words_in_and_out_of_order(data):
    texts, labels = data.load("embedded", "train", None)
    assert len(texts) == len(labels) == 2000
    assert 0.45 < labels.mean() < 0.55
    determiners = ("the", "a", "every")
    in_order = [text.split()[0] in determiners and text.split()[4] in determiners for text in texts]
    assert all(np.array(in_order)[labels == 1])
    assert set(texts) != set(data.load("embedded", "validation", None)[0])


def test_metrics(script, data):
    logits = np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0], [5.0, 1.0]])
    # One of two wrong in each class but one: counts 2, 1, 0, 1.
    labels = np.array([0, 1, 1, 1])
    found = script.evaluate(logits, labels, data.TASKS["embedded"])
    assert found["accuracy"] == 0.75
    assert found["matthews"] == pytest.approx((2 * 1 - 1 * 0) / np.sqrt(2 * 3 * 1 * 2))
    scores = np.array([[1.0], [2.0], [4.0], [3.0]])
    found = script.evaluate(scores, np.array([1.0, 2.0, 3.0, 4.0]), data.TASKS["stsb"])
    assert found["pearson"] == pytest.approx(0.8)
    assert found["spearman"] == pytest.approx(0.8)


def run_of(model, task, rate, seed, **metrics):
    text = " ".join(f"{name}={value}" for name, value in metrics.items())
    return {"model": model, "task": task, "learning_rate": rate, "seed": seed, "metrics": text}


def test_the_rate_with_the_best_median_is_reported(script):
    runs = [
        run_of("a", "stsb", "1e-4", "0", pearson=0.1, spearman=0.3),
        run_of("a", "stsb", "1e-4", "1", pearson=0.9, spearman=0.2),
        run_of("a", "stsb", "1e-4", "2", pearson=0.2, spearman=0.4),
        run_of("a", "stsb", "3e-4", "0", pearson=0.5, spearman=0.6),
        run_of("b", "stsb", "1e-4", "0", pearson=0.7, spearman=0.8),
    ]
    rows = script.summarize(runs)
    assert [(row["model"], row["metric"], row["median"]) for row in rows] == [
        ("a", "pearson", "50.0"),
        ("b", "pearson", "70.0"),
        ("a", "spearman", "60.0"),
        ("b", "spearman", "80.0"),
    ]
    assert rows[0]["learning_rate"] == "3e-4"
    (pearson, _) = script.summarize(runs[:3])
    assert (pearson["median"], pearson["lowest"], pearson["highest"]) == ("20.0", "10.0", "90.0")


@pytest.fixture
def preset(tmp_path):
    tiny_backbone(num_layers=1, segment_encoding="none").save_to_preset(tmp_path / "preset")
    tokenizer = models.DietBertTokenizer(VOCABULARY, lowercase=True)
    tokenizer.save_to_preset(tmp_path / "preset")
    return str(tmp_path / "preset")


QUICK = ["--epochs", "1", "--sequence-length", "9", "--batch-size", "2"]


def test_presets_are_fine_tuned_and_runs_resumed(script, folder, preset, tmp_path, monkeypatch):
    output = tmp_path / "output"
    arguments = [*QUICK, "--presets", preset, "--add-segments", "--data", str(folder)]
    arguments += ["--tasks", "cola", "rte", "--output-dir", str(output)]
    script.main([*arguments, "--seeds", "0"])
    assert len(script.read_runs(output / "runs.csv")) == 2
    trained = []
    train = script.train_and_evaluate
    monkeypatch.setattr(script, "train_and_evaluate", lambda *a: trained.append(a[4]) or train(*a))
    script.main([*arguments, "--seeds", "0", "1"])
    # Seed 0 is there.
    assert trained == [1, 1]
    assert len(script.read_runs(output / "runs.csv")) == 4
    with (output / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["seeds"]) for row in rows] == [("cola", "2"), ("rte", "2")]
    assert (output / "results.md").read_text().count("\n| rte | accuracy | ") == 1
    assert (output / "results.png").stat().st_size > 1000


def test_scores_are_regressed_from_at_most_the_examples_asked_for(
    script, folder, preset, tmp_path, monkeypatch
):
    for name in ("sts-train", "sts-dev"):
        path = folder / "stsb" / f"{name}.tsv"
        genre, file, year, index, _, *rest = path.read_text().split("\t")
        lines = ["\t".join((genre, file, year, index, f"{i}.5", *rest)) for i in range(4)]
        path.write_text("".join(lines))
    sizes = []
    train = script.train_and_evaluate
    monkeypatch.setattr(
        script, "train_and_evaluate", lambda *a: sizes.append(len(a[2]["train"][1])) or train(*a)
    )
    arguments = ["--presets", preset, "--tasks", "stsb", "--data", str(folder), "--seeds", "0"]
    output = ["--output-dir", str(tmp_path / "output")]
    script.main([*QUICK, *arguments, *output, "--examples", "3", "--add-segments"])
    assert sizes == [3]
    (run,) = script.read_runs(tmp_path / "output" / "runs.csv")
    assert set(script.metrics_of(run)) == {"pearson", "spearman"}


def test_random_models_of_the_embedded_task(script, tmp_path):
    arguments = [*QUICK, "--position-encoding", "diet_rel", "--seeds", "0", "--examples", "6"]
    script.main([*arguments, "--output-dir", str(tmp_path)])
    (run,) = script.read_runs(tmp_path / "runs.csv")
    assert run["task"] == "embedded"
    assert 0 <= script.metrics_of(run)["accuracy"] <= 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--tasks", "cola"], "need --data"),
        (["--epochs", "0"], "--epochs must be positive"),
        (["--tasks", "mnli"], "invalid choice: 'mnli'"),
    ],
)
def test_bad_command_lines_are_explained(script, capsys, arguments, message):
    with pytest.raises(SystemExit):
        script.parse_arguments(arguments)
    assert message in capsys.readouterr().err
