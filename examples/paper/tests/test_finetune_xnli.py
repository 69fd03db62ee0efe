"""Fine-tuning on MNLI and XNLI: `finetune_xnli.py` and `xnli_data.py` in `examples/`."""

import csv

import keras
import numpy as np
import pytest

from examples.paper.tests.helpers import fixture_of, save_preset
from keras_diet import models
from tests.models.multilingual import multilingual_tokenizer

pytestmark = pytest.mark.any_backend


script = fixture_of("finetune_xnli")
data = fixture_of("finetune_xnli", "xnli_data")


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


def test_labels_may_be_in_another_file(data, folder):
    """The third column does not count then."""
    labels = folder / "labels.txt"
    labels.write_bytes("\r\n".join(row[2] for row in reversed(ROWS)).encode())
    for name in ("test-en.tsv", "dev-en.tsv"):
        pairs = data.read(folder / name, labels)
        assert (pairs.premises[0], pairs.labels) == ("the red cat", LABELS[::-1])


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
    test = data.embedded("test", "de")
    assert len(test.labels) == 500
    seen = set(zip(pairs["de"].premises, pairs["de"].hypotheses, strict=True))
    repeated = [pair in seen for pair in zip(test.premises, test.hypotheses, strict=True)]
    assert np.mean(repeated) < 0.3


# === Runs ===

QUICK = ["--epochs", "1", "--sequence-length", "11", "--batch-size", "2"]


def test_presets_are_fine_tuned(script, folder, monkeypatch):
    """A preset has WordPiece, and the other one SentencePiece."""
    output = folder / "output"
    pieces = save_preset(folder / "pieces", multilingual_tokenizer())
    presets = [save_preset(folder / "words"), pieces]
    arguments = [*QUICK, "--presets", *presets, "--train", str(folder / "dev-en.tsv")]
    arguments += ["--test", *(str(folder / f"test-{name}.tsv") for name in ("en", "de"))]
    arguments += ["--test-labels", str(folder / "test-labels.txt"), "--add-segments"]
    arguments += ["--output-dir", str(output)]
    trained, train = [], script.train_model

    def spy(*arguments):
        trained.append(train(*arguments))
        return trained[-1]

    seeds = []
    monkeypatch.setattr(keras.utils, "set_random_seed", seeds.append)
    monkeypatch.setattr(script, "train_model", spy)
    script.main([*arguments, "--seeds", "0", "3"])
    assert seeds == [0, 3, 0, 3]
    tokenizers = [models.DietBertTokenizer, models.DietBertSentencePieceTokenizer]
    assert [type(each.preprocessor.tokenizer) for each in trained[::2]] == tokenizers
    for classifier in trained:
        assert classifier.backbone.segment_encoding == "per-head"
        assert (classifier.num_classes, classifier.preprocessor.sequence_length) == (3, 11)
    with (output / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = [(name, preset) for preset in presets for name in ("en", "de", "mean")]
    assert [(row["task"], row["model"]) for row in rows] == expected
    assert {row["seeds"] for row in rows} == {"2"}
    # Both files have the same sentences.
    assert rows[0]["median"] == rows[1]["median"] == rows[2]["median"]
