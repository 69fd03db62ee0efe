"""Fine-tuning on GLUE: `finetune_glue.py`, `glue_data.py` and `glue_results.py` in `examples/`."""

import csv

import numpy as np
import pytest

from examples.paper.tests.helpers import Crash, add_to_fit, fixture_of, save_preset
from tests.models.tiny import VOCABULARY

pytestmark = pytest.mark.any_backend
script = fixture_of("finetune_glue")
data = fixture_of("finetune_glue", "glue_data")
results = fixture_of("finetune_glue", "glue_results")

FILES_OF_THE_AUTHORS = {
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
FILES_OF_GLUE = {
    "CoLA/train.tsv": "gj04\t1\t\tA fox sleeps.\n",
    "CoLA/dev.tsv": "gj04\t0\t*\tFox the sleeps.\n",
    "SST-2/train.tsv": "sentence\tlabel\na quick fox \t1\n",
    "SST-2/dev.tsv": "sentence\tlabel\na slow cat \t0\n",
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA fox.\tA cat.\tnot_entailment\n",
    "RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA fox.\tA fox.\tentailment\n",
    "QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n0\tA fox?\tA cat.\tnot_entailment\n",
    "QNLI/dev.tsv": "index\tquestion\tsentence\tlabel\n0\tA fox?\tA fox.\tentailment\n",
    # The second line of the training file is cut after the first question.
    "QQP/train.tsv": "id\ta\tb\tquestion1\tquestion2\tlabel\n7\t1\t2\tA fox\n8\t3\t4\tA?\tB?\t1\n",
    "QQP/dev.tsv": "id\ta\tb\tquestion1\tquestion2\tlabel\n7\t1\t2\tA?\tA fox?\t0\n",
    "MNLI/train.tsv": "header\n" + "x\t" * 8 + "A fox.\tA cat.\tentailment\tcontradiction\n",
    "MNLI/dev_matched.tsv": "header\n" + "x\t" * 8 + "A.\tB.\tneutral\tneutral\tentailment\n",
    "MNLI/dev_mismatched.tsv": "header\n" + "x\t" * 8 + "C.\tD.\tentailment\tneutral\n",
    "STS-B/train.tsv": "index\tgenre\n0\tmain\tMSR\t2012\t0001\tn\tn\tA fox.\tA red fox.\t4.500\n",
    "STS-B/dev.tsv": "index\tgenre\n0\tmain\tMSR\t2012\t0001\tn\tn\tA fox.\tThe tree.\t0.250\n",
}
TEXTS_OF_THE_AUTHORS = [
    ("cola", "train", ['The "fox sleeps.', "Fox the sleeps."], [1, 0]),
    ("cola", "validation", ["A cat sings.", "Cat sings a."], [1, 0]),
    ("sst2", "train", ["a quick fox "], [1]),
    ("sst2", "validation", ["a slow cat "], [0]),
    ("rte", "train", (["A fox."], ["A cat."]), [1]),
    ("rte", "validation", (["A fox."], ["A fox."]), [0]),
    ("stsb", "train", (["A fox."], ["A red fox."]), [4.5]),
    ("stsb", "validation", (["A fox."], ["The tree."]), [0.25]),
]
TEXTS_OF_GLUE = [
    ("cola", "train", ["A fox sleeps."], [1]),
    ("cola", "validation", ["Fox the sleeps."], [0]),
    *TEXTS_OF_THE_AUTHORS[2:],
    ("qnli", "train", (["A fox?"], ["A cat."]), [1]),
    ("qnli", "validation", (["A fox?"], ["A fox."]), [0]),
    ("qqp", "train", (["A?"], ["B?"]), [1]),
    ("qqp", "validation", (["A?"], ["A fox?"]), [0]),
    ("mnli", "train", (["A fox."], ["A cat."]), [2]),
    ("mnli", "validation_matched", (["A."], ["B."]), [0]),
    ("mnli", "validation_mismatched", (["C."], ["D."]), [1]),
]


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, FILES_OF_THE_AUTHORS)
    return tmp_path


@pytest.mark.parametrize(
    "files, expected",
    [(FILES_OF_THE_AUTHORS, TEXTS_OF_THE_AUTHORS), (FILES_OF_GLUE, TEXTS_OF_GLUE)],
    ids=["authors", "GLUE"],
)
def test_files_are_read(data, tmp_path, files, expected):
    write(tmp_path, files)
    for task, split, texts, labels in expected:
        found, found_labels = data.load(task, split, tmp_path)
        assert found == texts
        assert found_labels.tolist() == labels
        assert found_labels.dtype == ("float32" if task == "stsb" else "int32")
        assert split == "train" or split in data.TASKS[task].validation
    with pytest.raises(ValueError, match=r"QQP/train.tsv must exist"):
        data.load("qqp", "train", tmp_path / "elsewhere")


def test_embedded_sentences_have_the_same_words_in_and_out_of_order(data):
    texts, labels = data.load("embedded", "train", None)
    assert len(texts) == len(labels) == 2000
    assert 0.45 < labels.mean() < 0.55
    determiners = ("the", "a", "every")
    in_order = [text.split()[0] in determiners and text.split()[4] in determiners for text in texts]
    assert all(np.array(in_order)[labels == 1])
    assert set(texts) != set(data.load("embedded", "validation", None)[0])


def test_metrics_have_the_values_of_their_formulas(results, data):
    logits = np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0], [5.0, 1.0]])
    # 2 true positives, 1 true negative, no false positive, 1 false negative.
    labels = np.array([0, 1, 1, 1])
    found = results.evaluate(logits, labels, data.TASKS["embedded"])
    assert found["accuracy"] == 0.75
    assert found["matthews"] == pytest.approx((2 * 1 - 1 * 0) / np.sqrt(2 * 3 * 1 * 2))
    # Precision 1, recall 2 / 3.
    found = results.evaluate(logits, labels, data.TASKS["qqp"])
    assert found == {"accuracy": 0.75, "f1": pytest.approx(0.8)}
    scores = np.array([[1.0], [2.0], [4.0], [3.0]])
    found = results.evaluate(scores, np.array([1.0, 2.0, 3.0, 4.0]), data.TASKS["stsb"])
    assert found["pearson"] == pytest.approx(0.8)
    assert found["spearman"] == pytest.approx(0.8)


def run_of(model, task, rate, seed, **metrics):
    text = " ".join(f"{name}={value}" for name, value in metrics.items())
    values = (model, "unchanged", task, rate, seed)
    names = ("model", "segments", "task", "learning_rate", "seed")
    return {**dict(zip(names, values, strict=True)), "metrics": text}


def test_the_rate_with_the_best_median_is_reported(results):
    runs = [
        run_of("a", "stsb", "1e-4", "0", pearson=0.1, spearman=0.3),
        run_of("a", "stsb", "1e-4", "1", pearson=0.9, spearman=0.2),
        run_of("a", "stsb", "1e-4", "2", pearson=0.2, spearman=0.4),
        run_of("a", "stsb", "3e-4", "0", pearson=0.5, spearman=0.6),
        run_of("a", "stsb", "3e-4", "1", pearson=0.4, spearman=0.6),
        run_of("a", "stsb", "3e-4", "2", pearson=0.6, spearman=0.6),
        run_of("b", "stsb", "1e-4", "0", pearson=0.7, spearman=0.8),
    ]
    rows = results.summarize(runs)
    assert [(row["model"], row["metric"], row["median"]) for row in rows] == [
        ("a", "pearson", "50.0"),
        ("b", "pearson", "70.0"),
        ("a", "spearman", "60.0"),
        ("b", "spearman", "80.0"),
    ]
    assert rows[0]["learning_rate"] == "3e-4"
    (pearson, _) = results.summarize(runs[:3])
    assert (pearson["median"], pearson["lowest"], pearson["highest"]) == ("20.0", "10.0", "90.0")


# The first row of Table 2 of the paper.
DEVLIN = {
    "mnli": {"accuracy_matched": 0.858, "accuracy_mismatched": 0.859},
    "qqp": {"accuracy": 0.911, "f1": 0.3},
    "qnli": {"accuracy": 0.899},
    "sst2": {"accuracy": 0.932},
    "cola": {"matthews": 0.587},
    "stsb": {"pearson": 0.890, "spearman": 0.4},
    "rte": {"accuracy": 0.2},
}


def test_the_mean_is_that_of_the_paper(results):
    runs = [run_of("a", task, "1e-4", "0", **values) for task, values in DEVLIN.items()]
    # Without one of the tasks, a model has no mean.
    runs += [{**run, "model": "b"} for run in runs if run["task"] != "qnli"]
    means = results.means(results.summarize(runs))
    assert means == [{"model": "a", "segments": "unchanged", "mean": "84.8"}]


def test_presets_are_fine_tuned_and_interrupted_runs_continue(
    script, results, folder, tmp_path, monkeypatch
):
    """Nine examples in batches of two are five steps. The run stops in the second of two epochs."""
    header = FILES_OF_THE_AUTHORS["rte/train.tsv"]
    rows = [f"{i}\tA {word}.\tA cat.\tentailment\n" for i, word in enumerate(VOCABULARY[5:13])]
    (folder / "rte" / "train.tsv").write_text(header + "".join(rows))
    arguments = ["--epochs", "2", "--sequence-length", "9", "--batch-size", "2"]
    preset = save_preset(tmp_path / "preset")
    arguments += ["--presets", preset, "--segment-encoding", "per-head", "--data", str(folder)]
    arguments += ["--tasks", "rte", "--learning-rates", "0.01", "--checkpoint-interval", "2"]
    arguments += ["--recompute", "block", "--seeds", "0"]
    # After steps 2, 4 and 6, then 8 and 10, of each run.
    values = [0.25, 0.5, 0.75, 0.125, 0.0]
    evaluated, crash = [], Crash(7)

    def evaluate(logits, labels, task):
        evaluated.append(logits)
        return {"accuracy": values[(len(evaluated) - 1) % 5]}

    add_to_fit(monkeypatch, crash)
    monkeypatch.setattr(script, "evaluate", evaluate)
    crashed, once = tmp_path / "crashed", tmp_path / "once"
    with pytest.raises(KeyboardInterrupt):
        script.main([*arguments, "--save-every", "2", "--output-dir", str(crashed)])
    (checkpoints,) = (crashed / "checkpoints").iterdir()
    saved = sorted(path.name for path in checkpoints.iterdir())
    assert saved == ["evaluations.json", "step_000000000004.npz", "step_000000000006.npz"]
    crash.step = None
    script.main([*arguments, "--save-every", "3", "--output-dir", str(crashed)])
    assert crash.begun == [*range(8), *range(6, 10)]
    backbone = crash.model.backbone
    assert (backbone.recompute, backbone.segment_encoding) == ("block", "per-head")
    assert not checkpoints.exists()
    script.main([*arguments, "--output-dir", str(once)])
    for logits, others in zip(evaluated[:5], evaluated[5:], strict=True):
        np.testing.assert_array_equal(logits, others)

    # The run with seed 0 is finished. The best checkpoint of a run counts.
    crash.begun.clear()
    script.main([*arguments, "1", "--output-dir", str(crashed)])
    assert len(crash.begun) == 10
    runs = results.TABLE.read(crashed / "runs.csv")
    assert [run["metrics"] for run in runs] == ["accuracy=0.750000"] * 2
    with (crashed / "results.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["task"], row["seeds"], row["median"]) == ("rte", "2", "75.0")
    assert (crashed / "results.md").read_text().count("\n| rte | accuracy | ") == 1
    assert (crashed / "results.png").stat().st_size > 1000
