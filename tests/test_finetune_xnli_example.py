"""Fine-tuning on MNLI for XNLI: `finetune_xnli.py` and `xnli_data.py` in `examples/`."""

import csv
import importlib
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_diet import models
from tests.models.multilingual import multilingual_tokenizer
from tests.models.tiny import VOCABULARY, tiny_backbone

EXAMPLES = Path(__file__).parents[1] / "examples"
pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        eager = property(lambda trainer: True, lambda trainer, value: None)
        if keras.backend.backend() != "jax":
            patch.setattr(keras.Model, "run_eagerly", eager)
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("finetune_xnli")


@pytest.fixture(scope="module")
def data(script):
    return sys.modules["xnli_data"]


TRAIN = (
    "a fox\ta cat\tneutral\r\nthe dog\tthe dog\tentailment\r\na tree\tno tree\tcontradiction\r\n"
)
TESTS = {"sw": "a red fox\ta fox\r\nthe cat\ta dog\r\n", "de": "the fox\ta fox\r\na cat\ta cat\r\n"}
LABELS = "contradiction\nentailment\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.tsv").write_bytes(TRAIN.encode())
    for language, text in TESTS.items():
        (tmp_path / f"test-{language}.tsv").write_bytes(text.encode())
    (tmp_path / "labels.txt").write_text(LABELS)
    tiny_backbone(num_layers=1, segment_encoding="none").save_to_preset(tmp_path / "preset")
    models.DietBertTokenizer(VOCABULARY).save_to_preset(tmp_path / "preset")
    return tmp_path


# === Data ===


def test_files_of_xnli_are_read(data, folder):
    pairs = data.read(folder / "train.tsv")
    assert pairs.premises == ["a fox", "the dog", "a tree"]
    assert pairs.hypotheses == ["a cat", "the dog", "no tree"]
    assert [data.CLASSES[label] for label in pairs.labels] == [
        *("neutral", "entailment", "contradiction"),
    ]
    assert data.read(folder / "train.tsv", most=2).premises == ["a fox", "the dog"]


def test_labels_may_be_in_another_file(data, folder):
    pairs = data.read(folder / "test-sw.tsv", folder / "labels.txt")
    assert pairs.hypotheses == ["a fox", "a dog"]
    assert [data.CLASSES[label] for label in pairs.labels] == ["contradiction", "entailment"]


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        (
            "a\tb\tneutral\na\tb\tmaybe\n",
            None,
            r"fr\.tsv, line 2 must have .*'b', 'maybe'\]",
        ),
        ("a\tb\n", None, r"line 1 must have .* pass it as --test-labels"),
        ("a\tb\n", "neutral\nneutral\n", "for each line of .*test-fr.* 2 labels and 1 lines"),
        ("", None, "line 1 must have"),
    ],
)
def test_other_files_are_named(data, tmp_path, text, labels, message):
    (tmp_path / "test-fr.tsv").write_text(text)
    if labels:
        (tmp_path / "labels.txt").write_text(labels)
    with pytest.raises(ValueError, match=message):
        data.read(tmp_path / "test-fr.tsv", labels and tmp_path / "labels.txt")


def test_languages_of_file_names(data):
    assert data.language_of("folder-de.tsv/test-sw.tsv") == "sw"
    with pytest.raises(ValueError, match=r"dev\.tsv must have a name such as `test-sw\.tsv`"):
        data.language_of("dev.tsv")


def test_mnli_is_read_from_the_files_of_glue(data, tmp_path):
    (tmp_path / "MNLI").mkdir()
    header, start = "header\n", "x\t" * 8
    rows = [f"{start}A {i}.\tB {i}.\tx\t{label}\n" for i, label in enumerate(data.CLASSES)]
    (tmp_path / "MNLI" / "train.tsv").write_text(header + "".join(rows))
    pairs = data.read_mnli(tmp_path, most=2)
    assert (pairs.premises, pairs.hypotheses) == (["A 0.", "A 1."], ["B 0.", "B 1."])
    assert pairs.labels == [0, 1]


def test_sentences_of_all_languages_say_the_same(data):
    sets = {language: data.embedded("test", language) for language in data.WORDS}
    words = {name: text.replace("|", "").split() for name, text in data.WORDS.items()}
    for language, pairs in sets.items():
        assert pairs.labels == sets["en"].labels
        translated = dict(zip(words["en"], words[language], strict=True))
        for column in ("premises", "hypotheses"):
            expected = [
                " ".join(translated[word] for word in text.split())
                for text in getattr(sets["en"], column)
            ]
            assert getattr(pairs, column) == expected
    assert len(data.embedded("train", "en", 7).labels) == 7
    assert data.embedded("train", "en").premises[:500] != sets["en"].premises


def test_the_labels_of_the_embedded_task_follow_from_its_sentences(data):
    properties = data.WORDS["en"].split("|")[1].split()
    opposite = {word: properties[i ^ 1] for i, word in enumerate(properties)}
    pairs = data.embedded("train", "en", 300)
    for premise, hypothesis, label in zip(
        pairs.premises, pairs.hypotheses, pairs.labels, strict=True
    ):
        *_, known = premise.split()
        person, _, claimed = hypothesis.split()
        assert person in premise.split()
        by_claim = {known: "entailment", opposite[known]: "contradiction"}
        assert data.CLASSES[label] == by_claim.get(claimed, "neutral")
    assert min(pairs.labels.count(label) for label in range(3)) > 80


# === Runs ===

QUICK = ["--epochs", "1", "--sequence-length", "11", "--batch-size", "2"]


def files(folder):
    arguments = ["--train", str(folder / "train.tsv"), "--test-labels", str(folder / "labels.txt")]
    return [*arguments, "--test", *(str(folder / f"test-{name}.tsv") for name in ("sw", "de"))]


def test_presets_are_fine_tuned_and_runs_resumed(script, folder, monkeypatch):
    output = folder / "output"
    arguments = [*QUICK, *files(folder), "--presets", str(folder / "preset"), "--add-segments"]
    arguments += ["--output-dir", str(output)]
    script.main(arguments)
    (run,) = script.TABLE.read(output / "runs.csv")
    found = sys.modules["run_table"].metrics_of(run)
    assert list(found) == ["sw", "de"]
    assert set(found.values()) <= {0.0, 50.0, 100.0}

    trained, train = [], script.train_model

    def recorded(run, *others):
        classifier = train(run, *others)
        trained.append((run["seed"], classifier.backbone.segment_encoding))
        return classifier

    monkeypatch.setattr(script, "train_model", recorded)
    script.main([*arguments, "--seeds", "0", "1"])
    # The run with seed 0 is finished.
    assert trained == [(1, "per-head")]
    assert not list((output / "checkpoints").iterdir())
    with (output / "results.csv").open(newline="") as file:
        rows = {row["task"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["sw", "de", "mean"]
    assert {(row["metric"], row["seeds"]) for row in rows.values()} == {("accuracy", "2")}
    assert (output / "results.png").stat().st_size > 1000


def test_the_accuracy_counts_pairs_of_the_right_class(script, data):
    class Classifier:
        def predict(self, texts, verbose):
            assert texts == (["p"] * 4, ["h"] * 4)
            return np.array([[0.1, 0.3, 0.2], [5, 1, 1], [0, 1, 2], [-1, -3, -2]])

    pairs = data.Pairs(["p"] * 4, ["h"] * 4, [1, 0, 1, 0])
    assert script.accuracy(Classifier(), pairs) == 75.0


def test_the_rate_is_chosen_by_the_first_language(script):
    def run(rate, seed, **values):
        text = " ".join(f"{name}={value}" for name, value in values.items())
        return {"model": "a", "learning_rate": rate, "seed": seed, "metrics": text}

    rows = script.summarize(
        [
            run("1e-5", "0", en=70, sw=40),
            run("1e-5", "1", en=60, sw=50),
            run("3e-5", "0", en=80, sw=33),
            run("3e-5", "1", en=64, sw=35),
        ]
    )
    assert {row["learning_rate"] for row in rows} == {"3e-5"}
    assert {row["task"]: row["median"] for row in rows} == {
        "en": "72.0",
        "sw": "34.0",
        "mean": "53.0",
    }


def test_an_interrupted_run_continues(script, folder, monkeypatch):
    arguments = [*QUICK, *files(folder), "--presets", str(folder / "preset"), "--epochs", "4"]
    arguments += ["--save-every", "3", "--output-dir", str(folder / "output")]
    fit, begun, stop = keras.Model.fit, [], [5]

    class Crash(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            begun.append(int(self.model.optimizer.iterations))
            if begun[-1] == stop[0]:
                raise KeyboardInterrupt

    def patched(*args, callbacks, **options):
        return fit(*args, callbacks=[*callbacks, Crash()], **options)

    monkeypatch.setattr(keras.Model, "fit", patched)
    with pytest.raises(KeyboardInterrupt):
        script.main(arguments)
    stop[0] = None
    script.main(arguments)
    # Two batches in each of four epochs. The last checkpoint was saved after three.
    assert begun == [*range(6), *range(3, 8)]


def test_a_preset_with_sentence_piece(script, folder):
    tokenizer = multilingual_tokenizer()
    preset = folder / "multilingual"
    tiny_backbone(vocabulary_size=tokenizer.vocabulary_size()).save_to_preset(preset)
    tokenizer.save_to_preset(preset)
    arguments = script.parse_arguments([*QUICK, *files(folder), "--recompute", "attention"])
    arguments.presets = [str(preset)]
    classifier = script.make_classifier(str(preset), arguments)
    assert type(classifier.preprocessor.tokenizer) is models.DietBertSentencePieceTokenizer
    assert classifier.preprocessor.sequence_length == 11
    assert classifier.backbone.recompute == "attention"
    assert classifier.num_classes == 3


def test_random_models_of_the_embedded_task(script, tmp_path):
    arguments = ["--epochs", "1", "--position-encoding", "diet_rel", "--examples", "9"]
    script.main([*arguments, "--output-dir", str(tmp_path)])
    (run,) = script.TABLE.read(tmp_path / "runs.csv")
    assert set(sys.modules["run_table"].metrics_of(run)) == {"en", "de", "es"}


CHANGED_OPTIONS = {
    "epochs": ["--epochs", "2"],
    "batch_size": ["--batch-size", "3"],
    "sequence_length": ["--sequence-length", "39"],
    "warmup_proportion": ["--warmup-proportion", "0.2"],
    "weight_decay": ["--weight-decay", "0.1"],
    "optimizer": ["--optimizer", "lamb"],
    "accumulation_steps": ["--accumulation-steps", "2"],
    "examples": ["--examples", "5"],
    "add_segments": ["--add-segments"],
    "backend": [],
    "mnli": ["--mnli", "FOLDER", "--test", "FILE"],
    "train": ["--train", "FILE", "--test", "FILE"],
    "test": ["--train", "FILE", "--test", "OTHER"],
    "test_labels": ["--test-labels", "FILE"],
}


@pytest.mark.parametrize("name", CHANGED_OPTIONS)
def test_a_run_with_another_option_is_another_run(script, tmp_path, monkeypatch, name):
    path, grid = tmp_path / "runs.csv", [("input", 0.002, 0)]
    (run,) = script.TABLE.missing(path, script.parse_arguments([]), grid)
    script.TABLE.append(path, run, {"en": 50.0})
    assert not script.TABLE.missing(path, script.parse_arguments([]), grid)
    if name == "backend":
        monkeypatch.setattr(keras.config, "backend", lambda: "another")
    changed = script.parse_arguments(CHANGED_OPTIONS[name])
    (other,) = script.TABLE.missing(path, changed, grid)
    assert script.TABLE.checkpoints(path, other) != script.TABLE.checkpoints(path, run)
    assert script.TABLE.with_options(path, changed) == []


def test_every_option_is_shared_by_runs_or_chooses_them(script):
    choices = {"presets", "position_encoding", "models", "learning_rates", "seeds"}
    others = {"output_dir", "verbose", "strategy", "save_every", "recompute"}
    assert set(vars(script.parse_arguments([]))) == {*CHANGED_OPTIONS, *choices, *others}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mnli", "a", "--train", "b"], "--mnli and --train exclude each other"),
        (["--train", "a.tsv"], "need --test, and the reverse"),
        (["--test", "a.tsv"], "need --test, and the reverse"),
        (["--epochs", "0"], "--epochs: must be a positive integer. Received: 0"),
    ],
)
def test_bad_command_lines_are_explained(script, capsys, arguments, message):
    with pytest.raises(SystemExit):
        script.parse_arguments(arguments)
    assert message in capsys.readouterr().err
