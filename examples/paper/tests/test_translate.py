"""Translation on a small scale: `translate.py` and its two modules in `examples/`."""

import contextlib
import csv
import io
import json
import sys

import keras
import pytest

from examples.paper.tests.helpers import fixture_of
from keras_diet.models import DietTransformerSeq2SeqLM

pytest.importorskip("sacrebleu")
NUMBERS = [*range(1, 100, 3), *range(100, 999, 37)]
SMALL = [
    *("--vocabulary-size", "45", "--sequence-length", "40", "--num-layers", "1"),
    *("--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"),
    *("--epochs", "2", "--averaged-epochs", "2", "--tokens-per-batch", "640"),
    *("--warmup-steps", "3", "--save-every", "1", "--num-beams", "2"),
    *("--position-encoding", "diet_abs"),
]


script = fixture_of("translate")
data = fixture_of("translate", "translate_data")


def write_texts(data, folder):
    pairs = [(data.in_words(number), " ".join(str(number))) for number in NUMBERS]
    for split, rows in (("train", pairs[:-5]), ("validation", pairs[-5:])):
        for side, texts in zip(("source", "target"), zip(*rows, strict=True), strict=True):
            (folder / f"{split}.{side}").write_text("".join(f"{text}\n" for text in texts))


def run(script, folder, *options):
    """Run the script with output in `folder`, and return what it prints."""
    arguments = [*SMALL, "--output-dir", str(folder / "out")]
    for name, split in (("--text", "train"), ("--validation-text", "validation")):
        arguments += [name, *(str(folder / f"{split}.{side}") for side in ("source", "target"))]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        script.main([*arguments, *options])
    return output.getvalue()


@pytest.fixture(scope="module")
def finished(script, data, tmp_path_factory):
    """The folder of a finished run, and what the run printed."""
    folder = tmp_path_factory.mktemp("translate")
    write_texts(data, folder)
    return folder, run(script, folder)


def test_a_run(finished):
    folder, output = finished
    results = json.loads((folder / "out" / "bleu.json").read_text())
    assert "BLEU = " in output
    assert results["signature"] in output
    assert set(results) == {"bleu", "exact", "signature"}
    assert len((folder / "out" / "translations.txt").read_text().splitlines()) == 5
    assert (folder / "out" / "cross_attention.png").read_bytes().startswith(b"\x89PNG")
    with (folder / "out" / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert float(rows[1]["val_loss"]) < float(rows[0]["val_loss"])


@pytest.mark.any_backend
def test_the_preset_is_the_mean_of_the_last_epochs(finished):
    folder, _ = finished
    preset = DietTransformerSeq2SeqLM.from_preset(str(folder / "out" / "preset"))
    assert preset.preprocessor.length_buckets == (16, 24, 32, 40)
    path = "token_embedding/embeddings"

    def values(model):
        return keras.ops.convert_to_numpy({w.path: w for w in model.weights}[path])

    mean = values(preset)
    files = sorted((folder / "out").glob("epoch_*.weights.h5"))
    assert [file.name for file in files] == ["epoch_0000.weights.h5", "epoch_0001.weights.h5"]
    total = 0
    for file in files:
        preset.load_weights(file)
        total = total + values(preset)
    assert abs(mean - total / 2).max() < 1e-6
    assert abs(mean - values(preset)).max() > 1e-5


@pytest.mark.any_backend
def test_lines_are_translated(script, finished, monkeypatch):
    folder, _ = finished
    generate = DietTransformerSeq2SeqLM.generate

    def marked(self, texts, **kwargs):
        translations = generate(self, texts, **kwargs)
        return [f"{text}: {each}" for text, each in zip(texts, translations, strict=True)]

    monkeypatch.setattr(DietTransformerSeq2SeqLM, "generate", marked)
    lines = "ninety\n\n  one hundred and two \n"
    (folder / "lines.txt").write_text(lines)
    from_file = run(script, folder, "--translate", str(folder / "lines.txt"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert run(script, folder, "--translate", "-") == from_file
    first, second, third = from_file.splitlines()
    assert second == ""
    assert first.startswith("ninety: ")
    assert third.startswith("one hundred and two: ")


# === Data ===


@pytest.mark.any_backend
def test_only_line_feeds_end_lines(data, tmp_path):
    """Texts of the web hold other separators, at which `str.splitlines` splits."""
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_bytes("\ufeffa\u2028b\x85c\x0cd\x1ee\rf\r\n\u65e5\n".encode())
    target.write_text("x\n\u00e9", encoding="utf-8")
    pairs = (["a\u2028b\x85c\x0cd\x1ee\rf", "\u65e5"], ["x", "\u00e9"])
    assert data.read_pairs(source, target) == pairs
    target.write_bytes(b"x\n\xe9")
    with pytest.raises(SystemExit, match=r"a\.de must be UTF-8"):
        data.read_pairs(source, target)
