"""The runs of the sweep: they train like the example, and a file keeps them."""

import csv
import json
import re

import keras
import numpy as np
import pytest

from examples.paper import initial_scores, initial_scores_runs
from examples.paper.example_runs import as_options
from examples.paper.tests.helpers import TEXT
from keras_diet import models, pretraining

pytestmark = pytest.mark.any_backend("jax")
RECIPE = {
    **{"num-layers": 1, "num-heads": 2, "vocabulary-size": 300, "sequence-length": 16},
    **{"batch-size": 8, "steps": 12, "validation-interval": 6},
}


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Options of the command, for a small text."""
    monkeypatch.setattr(initial_scores_runs, "LENGTHS", (16, 40))
    monkeypatch.setattr(initial_scores_runs, "EVALUATED", 640)
    monkeypatch.setattr(initial_scores_runs, "BATCH", 160)
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    changes = [f"{name}={value}" for name, value in RECIPE.items()]
    return [
        *("--text", str(path), "--validation-text", str(path), "--runs", str(tmp_path / "runs")),
        *("--output", str(tmp_path / "scores.json"), "--change", *changes, "--widths", "16"),
        *("--rows", "diet_abs, rank 8", "--stddevs", "0.7", "default", "--seeds", "3", "5"),
    ]


@pytest.mark.usefixtures("unpatched")
def test_runs_train_like_the_example(words, tmp_path, monkeypatch):
    options = initial_scores.parse_arguments([*words, "--lengths", "--glue", "unused"])
    runs = list(initial_scores.runs_of(options))
    # The place of a run does not tell the data of its seed.
    runs.append(dict(runs[3]))
    monkeypatch.setattr(initial_scores_runs.study, "TASKS", ("rte",))
    evaluated = []
    monkeypatch.setattr(
        initial_scores_runs.glue_results,
        "evaluate",
        lambda outputs, labels, task: evaluated.append((outputs, labels)) or {"accuracy": 0.5},
    )
    splits = make_task(options.runs)
    initial_scores_runs.pack(runs[0], options)
    trained = initial_scores_runs.train(runs, options)
    assert [(run["seed"], run["stddev"]) for run in trained] == [
        *((3, 0.7), (3, None)),
        *((5, 0.7), (5, None), (5, None)),
    ]
    for name in ("losses", "lengths"):
        assert trained[4][name] == pytest.approx(trained[3][name], rel=1e-6)
    np.testing.assert_allclose(evaluated[4][0], evaluated[3][0], rtol=1e-5)
    # The seeds and the scales give different losses.
    assert len({run["losses"][-1] for run in trained}) == 4
    assert trained[2]["first_scores"] == pytest.approx(0.7, rel=1e-4)
    output = train_with_the_example(options, trained[3], tmp_path / "example")
    assert trained[3]["losses"] == pytest.approx(losses_of(output), rel=1e-4)
    masked_lm = evaluate_lengths(trained[3], output)
    assert [run["glue"] for run in trained] == [{"rte": {"accuracy": 0.5}}] * 5
    found, labels = evaluated[3]
    np.testing.assert_array_equal(labels, splits["validation/labels"])
    expected = finetuned_outputs(masked_lm.backbone, splits, options, seed=5)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "suffix, example_options, dataset_options",
    [
        ("document masks", ("--document-masks",), {"document_masks": True}),
        (
            "segments at the input",
            ("--document-segments", "--segment-encoding", "input"),
            {"num_segments": 2},
        ),
        ("segments per head", ("--document-segments",), {"num_segments": 2}),
    ],
)
@pytest.mark.usefixtures("unpatched")
def test_rows_with_masks_and_segments_train_like_the_example(
    words, tmp_path, suffix, example_options, dataset_options
):
    short_documents = "\n\n".join(re.findall(r"\S+ \S+ \S+", TEXT))
    (tmp_path / "corpus.txt").write_text(short_documents, encoding="utf-8")
    # Training makes attention matter for the loss.
    recipe = RECIPE | {"steps": 40, "validation-interval": 20}
    changes = [f"{name}={value}" for name, value in recipe.items()]
    options = initial_scores.parse_arguments(
        [
            *(*words, "--rows", f"diet_abs, rank 32, {suffix}", "--stddevs", "default"),
            *("--seeds", "3", "--lengths", "--change", *changes, "--learning-rates", "0.02"),
        ]
    )
    (run,) = initial_scores.runs_of(options)
    initial_scores_runs.pack(run, options)
    (trained,) = initial_scores_runs.train([run], options)
    example_options += ("--rank", "32", *map(str, as_options(recipe)), "--learning-rate", "0.02")
    output = train_with_the_example(options, trained, tmp_path / "example", example_options)
    assert trained["losses"] == pytest.approx(losses_of(output), rel=1e-4)
    evaluate_lengths(trained, output, **dataset_options)


def evaluate_lengths(run, folder, **dataset_options):
    """Compare the losses by length with those of the example's preset, and return its model."""
    masked_lm = models.DietBertMaskedLM.from_preset(str(folder / "preset"))
    tokenizer, masked_lm.preprocessor = masked_lm.preprocessor.tokenizer, None
    longer = models.extend_positions(masked_lm, 40, "repeat")
    for model, length in ((masked_lm, 16), (longer, 40)):
        batches = pretraining.masked_lm_dataset(
            np.load(folder.parent / f"evaluation_{length}.npy"),
            *(tokenizer, 160 // length),
            shuffle=False,
            seed=run["seed"],
            **dataset_options,
        )
        loss, _ = model.evaluate(batches[:4], verbose=0)
        assert run["lengths"][str(length)] == pytest.approx(loss, rel=1e-4)
    return masked_lm


def make_task(folder):
    """Write token ids of a task with 72 and 7 examples."""
    rng, splits = np.random.default_rng(0), {}
    for split, count in (("train", 72), ("validation", 7)):
        padding = np.arange(16) < rng.integers(4, 17, (count, 1))
        splits[f"{split}/token_ids"] = np.where(padding, rng.integers(5, 99, (count, 16)), 0)
        splits[f"{split}/segment_ids"] = np.zeros((count, 16), "int32")
        splits[f"{split}/padding_mask"] = padding.astype("int32")
        splits[f"{split}/labels"] = rng.integers(2, size=count)
    folder.mkdir()
    np.savez(folder / "glue_rte.npz", **splits)
    return splits


def finetuned_outputs(backbone, splits, options, seed):
    """Fine-tune with `train_on_batch`."""
    from examples.paper import common

    arguments = initial_scores_runs.glue_arguments(options)
    keras.utils.set_random_seed(seed)
    classifier = models.DietBertTextClassifier(backbone, num_classes=2)
    common.compile_for_training(classifier, arguments.learning_rates[0], 6, arguments)
    rng = np.random.default_rng(seed)
    names = ("token_ids", "segment_ids", "padding_mask")
    # 3 epochs of two batches.
    for _ in range(3):
        for order in rng.permutation(72)[:64].reshape(2, 32):
            inputs = {name: splits[f"train/{name}"][order] for name in names}
            classifier.train_on_batch(inputs, splits["train/labels"][order])
    return classifier.predict({name: splits[f"validation/{name}"] for name in names}, verbose=0)


def losses_of(folder):
    with open(folder / "history.csv", newline="") as file:
        return [float(row["val_loss"]) for row in csv.DictReader(file)]


def train_with_the_example(options, run, folder, words=()):
    """Train with `fit`, and return the folder of the model."""
    from examples.paper import pretrain_masked_lm

    packed = options.runs / ("document_masks" if "--document-masks" in words else "")
    folder.mkdir()
    names = "train.npy", "validation.npy", "evaluation_16.npy", "evaluation_40.npy"
    for name in (*names, "vocabulary.txt"):
        (folder / name).write_bytes((packed / name).read_bytes())
    recipe = [word for name, value in RECIPE.items() for word in (f"--{name}", str(value))]
    pretrain_masked_lm.main(
        [
            *("--text", *options.text, "--validation-text", *options.validation_text),
            *("--position-encoding", "diet_abs", "--rank", "8", "--output-dir", str(folder)),
            *("--initial-score-stddev", "bert"),
            *("--hidden-dim", "16", "--intermediate-dim", "64", "--dropout", "0"),
            *("--warmup-proportion", "0.05", "--learning-rate", "0.002"),
            *("--seed", str(run["seed"]), *recipe, *words),
        ]
    )
    return folder / "diet_abs"


def test_finished_runs_are_kept_and_files_are_merged(words, tmp_path, monkeypatch):
    """Runs are trained in processes, which this test leaves out."""
    packed = []
    monkeypatch.setattr(initial_scores, "pack", lambda run, options: packed.append(run["row"]))
    monkeypatch.setattr(
        initial_scores.concurrent.futures,
        "ProcessPoolExecutor",
        lambda *_: initial_scores.concurrent.futures.ThreadPoolExecutor(1),
    )
    groups = []

    def train(group, options):
        groups.append([(run["learning_rate"], run["seed"], run["stddev"]) for run in group])
        return [
            {**run, "losses": [run["seed"] / 4], "first_scores": 0.5, "lengths": {}}
            for run in group
        ]

    monkeypatch.setattr(initial_scores, "train_on_device", train)
    initial_scores.main(words)
    assert packed == ["diet_abs, rank 8"] * 4
    assert groups.pop() == [
        *((0.002, 3, 0.7), (0.002, 3, None)),
        *((0.002, 5, 0.7), (0.002, 5, None)),
    ]
    initial_scores.main([*words, "--seeds", "5", "7"])
    assert groups.pop() == [(0.002, 7, 0.7), (0.002, 7, None)]
    results = json.loads((tmp_path / "scores.json").read_text())
    assert [run["losses"] for run in results["runs"]] == [[0.75], [1.25], [1.75]] * 2
    assert len(results["commands"]) == 2
    initial_scores.main(
        [*words, "--seeds", "7", "--stddevs", "0.7", "--learning-rates", "0.002", "0.003", "0.004"]
    )
    assert groups == [[(0.003, 7, 0.7)], [(0.004, 7, 0.7)]]
    # Sinusoids are not variables, so each scale is another program.
    other = tmp_path / "other.json"
    initial_scores.main([*words, "--rows", "sinusoidal", "--output", str(other)])
    assert groups[2:] == [
        [(0.002, 3, 0.7), (0.002, 5, 0.7)],
        [(0.002, 3, None), (0.002, 5, None)],
    ]
    merge = ["--output", str(tmp_path / "all.json"), "--merge", str(tmp_path / "scores.json")]
    initial_scores.main([*merge, str(other)])
    merged = json.loads((tmp_path / "all.json").read_text())
    assert len(merged["runs"]) == 12
    assert len(merged["commands"]) == 4
    with pytest.raises(SystemExit, match="differ in nothing"):
        initial_scores.main([*merge, str(tmp_path / "scores.json")])
    changed = json.loads(other.read_text())
    changed["settings"]["steps"] = 13
    other.write_text(json.dumps(changed))
    with pytest.raises(SystemExit, match="other settings"):
        initial_scores.main([*merge, str(other)])
