"""Fine-tuning on MNLI and XNLI: `finetune_xnli.py` and `xnli_data.py` in `examples/`."""

import csv
import re
import sys

import keras
import numpy as np
import pytest

from keras_diet import models
from tests.examples import Crash, add_to_fit, imported
from tests.models.multilingual import multilingual_tokenizer
from tests.models.tiny import VOCABULARY, tiny_backbone

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def script():
    with imported("finetune_xnli") as module:
        yield module


@pytest.fixture(scope="module")
def data(script):
    return sys.modules["xnli_data"]


ROWS = [
    ("the red cat", "a cat", "entailment"),
    ("the\x85dog\u2028sleeps", 'the "dog', "contradiction"),
    ("a fox", "a tall\rtree", "neutral"),
]
# The places of their labels in MNLI: entailment, neutral, contradiction.
LABELS = [0, 2, 1]


def write(path, rows):
    """Write rows as XNLI does, with a carriage return and a line feed after each line."""
    path.write_bytes("".join("\t".join(row) + "\r\n" for row in rows).encode())
    return path


@pytest.fixture
def folder(tmp_path):
    """XNLI's files with labels, and those of XTREME's test split without labels."""
    for name in ("dev-en.tsv", "dev-sw.tsv", "dev-zh.tsv"):
        write(tmp_path / name, ROWS)
    for name in ("test-en.tsv", "test-de.tsv"):
        write(tmp_path / name, [row[:2] for row in ROWS])
    (tmp_path / "test-labels.txt").write_text("".join(f"{row[2]}\n" for row in ROWS))
    return tmp_path


# === Data ===


def test_files_with_labels_are_read(data, folder):
    pairs = data.read(folder / "dev-en.tsv")
    assert pairs.premises == [row[0] for row in ROWS]
    assert pairs.hypotheses == [row[1] for row in ROWS]
    assert pairs.labels == LABELS
    assert data.read(folder / "dev-en.tsv", most=2).labels == LABELS[:2]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_labels_may_be_in_another_file(data, folder, line_end):
    labels = folder / "labels.txt"
    labels.write_bytes(line_end.join(row[2] for row in reversed(ROWS)).encode())
    pairs = data.read(folder / "test-en.tsv", labels)
    assert (pairs.premises[0], pairs.labels) == ("the red cat", LABELS[::-1])
    # The third column does not count if there is another file.
    assert data.read(folder / "dev-en.tsv", labels).labels == LABELS[::-1]


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("test-en.tsv", None, r"test-en\.tsv, line 1 must have a premise.*--test-labels"),
        ("three.tsv", None, r"three\.tsv, line 2 must have .* entailment, neutral, contradiction"),
        ("four.tsv", None, r"four\.tsv, line 1 must have"),
        ("empty.tsv", None, r"empty\.tsv, line 1 must have .*Received: \[''\]"),
        ("test-en.tsv", "two.txt", r"two\.txt must have a label .*2 labels and 3 lines"),
        ("test-en.tsv", "wrong.txt", r"test-en\.tsv, line 3 must have .*'maybe'"),
        ("one.tsv", "one.txt", r"one\.tsv, line 1 must have .*\['a fox', 'neutral'\]"),
    ],
)
def test_wrong_files_are_named(data, folder, name, labels, message):
    write(folder / "three.tsv", [ROWS[0], ("a", "b", "Neutral")])
    write(folder / "four.tsv", [("a", "b", "neutral", "neutral")])
    write(folder / "one.tsv", [("a fox",)])
    (folder / "empty.tsv").touch()
    (folder / "one.txt").write_text("neutral\n")
    (folder / "two.txt").write_text("neutral\nneutral\n")
    (folder / "wrong.txt").write_text("neutral\nneutral\nmaybe\n")
    with pytest.raises(ValueError, match=message):
        data.read(folder / name, labels and folder / labels)


def test_files_have_languages(data):
    files = ["x/test-sw.tsv", "x-de.tsv/dev-zh.tsv"]
    assert data.by_language(files) == {"sw": files[0], "zh": files[1]}
    for name in ("test.tsv", "test-swa.tsv", "test-sw.tsv.gz", "test_sw.tsv"):
        with pytest.raises(ValueError, match=f"{name} must have a name such as"):
            data.by_language([name])
    for repeated in ("dev-sw.tsv", files[0]):
        with pytest.raises(ValueError, match=r"one file for each language.*sw\.tsv.*sw\.tsv"):
            data.by_language([files[0], repeated])


def test_mnli_is_read_from_files_of_glue(data, tmp_path):
    (tmp_path / "MNLI").mkdir()
    line = "x\t" * 8 + "A fox.\tA cat.\tneutral\t{}\n"
    lines = ["header\n", *(line.format(row[2]) for row in ROWS)]
    (tmp_path / "MNLI" / "train.tsv").write_text("".join(lines))
    assert data.read_mnli(tmp_path) == data.Pairs(["A fox."] * 3, ["A cat."] * 3, LABELS)
    assert data.read_mnli(tmp_path, most=2).labels == LABELS[:2]


def class_of(premise, hypothesis, words):
    """The class by the rule of the embedded task, from the words of its language."""
    names, properties, (and_, are, is_) = (part.split() for part in words.split("|"))
    first, second, third = properties.index, premise.split(), hypothesis.split()
    assert {second[0], second[2]} <= set(names)
    assert second[0] != second[2]
    assert (second[1], second[3], third[1]) == (and_, are, is_)
    assert third[0] in (second[0], second[2])
    said, asked = first(second[4]), first(third[2])
    return 0 if said == asked else 2 if said // 2 == asked // 2 else 1


def test_embedded_pairs_follow_their_rule(data):
    pairs = {name: data.embedded("train", name) for name in data.WORDS}
    for name, words in data.WORDS.items():
        assert pairs[name].labels == pairs["en"].labels
        for *texts, label in zip(
            pairs[name].premises, pairs[name].hypotheses, pairs[name].labels, strict=True
        ):
            assert class_of(*texts, words) == label
    counts = np.bincount(pairs["en"].labels)
    assert counts.sum() == 2000
    assert counts.min() > 600
    # The languages share some properties, and each property has one opposite.
    assert len({part.split("|")[1] for part in data.WORDS.values()}) == 3
    test = data.embedded("test", "de")
    assert len(test.labels) == 500
    seen = set(zip(pairs["de"].premises, pairs["de"].hypotheses, strict=True))
    repeated = [pair in seen for pair in zip(test.premises, test.hypotheses, strict=True)]
    assert np.mean(repeated) < 0.3
    assert data.embedded("test", "es", 7).labels == test.labels[:7]


def test_hypotheses_alone_say_nothing(data):
    pairs = data.embedded("train", "en")
    by_property = {}
    for hypothesis, label in zip(pairs.hypotheses, pairs.labels, strict=True):
        by_property.setdefault(hypothesis.split()[2], []).append(label)
    assert len(by_property) == 8
    for labels in by_property.values():
        assert np.bincount(labels).max() / len(labels) < 0.45


# === Runs ===

QUICK = ["--epochs", "1", "--sequence-length", "11", "--batch-size", "2"]


@pytest.fixture
def presets(tmp_path):
    """Two presets without segments, one with WordPiece and one with SentencePiece."""
    tokenizers = {"words": models.DietBertTokenizer(VOCABULARY), "pieces": multilingual_tokenizer()}
    for name, tokenizer in tokenizers.items():
        backbone = tiny_backbone(
            vocabulary_size=tokenizer.vocabulary_size(), num_layers=1, segment_encoding="none"
        )
        backbone.save_to_preset(tmp_path / name)
        tokenizer.save_to_preset(tmp_path / name)
    return [str(tmp_path / name) for name in tokenizers]


def test_presets_are_fine_tuned_and_runs_resumed(script, folder, presets, monkeypatch):
    output = folder / "output"
    arguments = [*QUICK, "--presets", *presets, "--train", str(folder / "dev-en.tsv")]
    arguments += ["--test", *(str(folder / f"test-{name}.tsv") for name in ("en", "de"))]
    arguments += ["--test-labels", str(folder / "test-labels.txt"), "--add-segments"]
    arguments += ["--output-dir", str(output)]
    trained, train = [], script.train_model

    def spy(run, *others):
        classifier = train(run, *others)
        trained.append((run["model"], run["seed"], classifier))
        return classifier

    monkeypatch.setattr(script, "train_model", spy)
    script.main(arguments)
    tokenizers = [classifier.preprocessor.tokenizer for *_, classifier in trained]
    assert [type(tokenizer) for tokenizer in tokenizers] == [
        models.DietBertTokenizer,
        models.DietBertSentencePieceTokenizer,
    ]
    for *_, classifier in trained:
        assert classifier.backbone.segment_encoding == "per-head"
        assert (classifier.num_classes, classifier.preprocessor.sequence_length) == (3, 11)
    runs = script.TABLE.read(output / "runs.csv")
    assert [list(script.run_table.metrics_of(run)) for run in runs] == [["en", "de"]] * 2

    # The runs with seed 0 are finished.
    trained.clear()
    seeds = []
    monkeypatch.setattr(keras.utils, "set_random_seed", seeds.append)
    script.main([*arguments, "--seeds", "0", "3"])
    assert [run[:2] for run in trained] == [(preset, 3) for preset in presets]
    assert seeds == [3, 3]
    with (output / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [(name, preset) for preset in presets for name in ("en", "de", "mean")]
    assert [(row["task"], row["model"]) for row in rows] == expected
    assert {row["seeds"] for row in rows} == {"2"}
    # Both files have the same sentences.
    assert rows[0]["median"] == rows[1]["median"] == rows[2]["median"]
    assert f"| de | accuracy | {presets[1]} |" in (output / "results.md").read_text()
    assert (output / "results.png").stat().st_size > 1000

    # The summary has the models of the command.
    script.main([*arguments, "--presets", presets[1]])
    assert presets[0] not in (output / "results.md").read_text()


def test_an_interrupted_run_continues(script, folder, presets, monkeypatch):
    arguments = [*QUICK, "--presets", presets[0], "--train", str(folder / "dev-en.tsv")]
    arguments += ["--test", str(folder / "dev-sw.tsv"), "--epochs", "4", "--batch-size", "2"]
    arguments += ["--recompute", "block", "--save-every", "3", "--output-dir", str(folder / "out")]
    crash = Crash(5)
    add_to_fit(monkeypatch, crash)
    with pytest.raises(KeyboardInterrupt):
        script.main(arguments)
    assert len(list((folder / "out" / "checkpoints").iterdir())) == 1
    assert crash.model.backbone.recompute == "block"
    crash.step = None
    script.main(arguments)
    # Two batches in each of four epochs. The last checkpoint was saved after three.
    assert crash.begun == [*range(6), *range(3, 8)]
    assert crash.model.backbone.recompute == "block"
    assert not list((folder / "out" / "checkpoints").iterdir())


def test_random_models_of_the_embedded_task(script, tmp_path):
    arguments = ["--epochs", "1", "--position-encoding", "input", "--examples", "6"]
    script.main([*arguments, "--output-dir", str(tmp_path)])
    (run,) = script.TABLE.read(tmp_path / "runs.csv")
    assert list(script.run_table.metrics_of(run)) == ["en", "de", "es"]


def test_embedded_task_has_three_languages(script, data):
    train, tests = script.load_data(script.parse_arguments(["--examples", "7"]))
    assert train == data.embedded("train", "en", 7)
    assert tests == {name: data.embedded("test", name) for name in ("en", "de", "es")}


def test_training_data_are_mnli_or_a_file(script, folder, monkeypatch):
    calls = []
    monkeypatch.setattr(script.xnli_data, "read_mnli", lambda *a: calls.append(a) or "MNLI")
    files = [str(folder / f"dev-{name}.tsv") for name in ("zh", "sw")]
    arguments = script.parse_arguments(["--mnli", "tfds", "--test", *files, "--examples", "5"])
    train, tests = script.load_data(arguments)
    assert (train, calls) == ("MNLI", [("tfds", 5)])
    assert list(tests) == ["zh", "sw"]
    # `--examples` is about training.
    assert tests["sw"].labels == LABELS
    arguments = script.parse_arguments(["--train", files[0], "--test", *files, "--examples", "2"])
    train, tests = script.load_data(arguments)
    assert (train.labels, tests["zh"].labels) == (LABELS[:2], LABELS)


def test_accuracy_is_the_share_of_correct_classes(script, data):
    class Classifier:
        def predict(self, texts, verbose):
            assert texts == (["p"] * 4, ["h"] * 4)
            return np.eye(3)[[0, 2, 1, 1]]

    assert script.accuracy(Classifier(), data.Pairs(["p"] * 4, ["h"] * 4, [0, 2, 1, 2])) == 75


def test_the_rate_with_the_best_median_of_the_first_language_is_reported(script):
    def run_of(model, rate, seed, **values):
        text = " ".join(f"{name}={value}" for name, value in values.items())
        return {"model": model, "learning_rate": rate, "seed": seed, "metrics": text}

    runs = [
        run_of("a", "1e-5", "0", en=10, de=95),
        run_of("a", "1e-5", "1", en=90, de=96),
        run_of("a", "1e-5", "2", en=20, de=97),
        run_of("a", "4e-5", "0", en=30, de=10),
        run_of("a", "4e-5", "1", en=40, de=60),
        run_of("a", "4e-5", "2", en=50, de=17),
        run_of("b", "1e-5", "0", en=33, de=34),
    ]
    rows = {(row["task"], row["model"]): row for row in script.summarize(runs)}
    assert [rows[name, "a"]["learning_rate"] for name in ("en", "de", "mean")] == ["4e-5"] * 3
    assert [rows["de", "a"][name] for name in ("median", "lowest", "highest")] == [
        *("17.0", "10.0", "60.0"),
    ]
    # The means of the languages in each run are 20, 50 and 33.5.
    assert rows["mean", "a"]["median"] == "33.5"
    assert (rows["en", "b"]["median"], rows["en", "b"]["seeds"]) == ("33.0", 1)


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
    "mnli": ["--mnli", "FILE", "--test", "FILE"],
    "train": ["--train", "FILE", "--test", "FILE"],
    "test": ["--train", "FILE", "--test", "OTHER"],
    "test_labels": ["--train", "FILE", "--test", "FILE", "--test-labels", "FILE"],
}


@pytest.mark.parametrize("name", CHANGED_OPTIONS)
def test_a_run_with_another_option_is_another_run(script, tmp_path, monkeypatch, name):
    path, runs = tmp_path / "runs.csv", [("a", 0.5, 0), ("b", 0.5, 0)]
    base = {
        "test": ["--train", "FILE", "--test", "FILE"],
        "test_labels": ["--train", "FILE", "--test", "FILE"],
        "train": ["--mnli", "FILE", "--test", "FILE"],
        "mnli": ["--train", "FILE", "--test", "FILE"],
    }
    first = script.parse_arguments(base.get(name, []))
    (run, _) = script.TABLE.missing(path, first, runs)
    script.TABLE.append(path, run, {"en": 50.0})
    assert len(script.TABLE.missing(path, first, runs)) == 1
    if name == "backend":
        monkeypatch.setattr(keras.config, "backend", lambda: "another")
    second = script.parse_arguments(CHANGED_OPTIONS[name])
    assert len(script.TABLE.missing(path, second, runs)) == 2
    assert script.TABLE.with_options(path, second) == []


def test_every_option_is_shared_by_runs_or_chooses_them(script):
    choices = {"presets", "position_encoding", "models", "learning_rates", "seeds"}
    others = {"output_dir", "verbose", "strategy", "save_every", "recompute"}
    options = set(vars(script.parse_arguments([])))
    assert options == {*CHANGED_OPTIONS, *choices, *others}
    assert set(script.TABLE.options) == set(CHANGED_OPTIONS)


def test_files_have_longer_sequences(script):
    assert script.parse_arguments([]).sequence_length == 16
    files = ["--train", "a.tsv", "--test", "b.tsv"]
    assert script.parse_arguments(files).sequence_length == 128
    assert script.parse_arguments([*files, "--sequence-length", "7"]).sequence_length == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mnli", "a", "--train", "b", "--test", "c"], "--mnli and --train exclude each other"),
        (["--mnli", "a"], "--mnli and --train need --test"),
        (["--train", "a"], "--mnli and --train need --test"),
        (["--test", "a"], "--mnli and --train need --test"),
        (["--test-labels", "a"], "--test-labels needs --test"),
        (["--epochs", "0"], "--epochs: must be a positive integer. Received: 0"),
        (["--optimizer", "sgd"], "invalid choice: 'sgd'"),
    ],
)
def test_bad_command_lines_are_explained(script, capsys, arguments, message):
    with pytest.raises(SystemExit):
        script.parse_arguments(arguments)
    assert re.search(re.escape(message), capsys.readouterr().err)
