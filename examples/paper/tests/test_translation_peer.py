"""The Marian model of `transformers` that is trained like our translators."""

import csv
import importlib
import json

import keras
import pytest

pytest.importorskip("sacrebleu")


pytestmark = pytest.mark.any_backend
SMALL = [
    *("--vocabulary-size", "45", "--sequence-length", "40", "--num-layers", "1"),
    *("--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32", "--seed", "3"),
    *("--averaged-epochs", "2", "--tokens-per-batch", "640", "--warmup-steps", "3"),
    *("--num-beams", "2", "--length-penalty", "0.7", "--learning-rate", "0.01"),
]


@pytest.fixture(scope="module")
def peer():
    if keras.backend.backend() != "torch":
        pytest.skip("the peer runs on PyTorch")
    return importlib.import_module("examples.paper.translation_peer")


def few_numbers(arguments):
    """Few numbers in words and in digits, as in the example."""
    data = importlib.import_module("examples.paper.translate_data")
    numbers = [*range(1, 100, 3), *range(100, 999, 37)]
    pairs = [(data.in_words(number), " ".join(str(number))) for number in numbers]
    splits = [pairs[:-5], pairs[-5:], pairs[-5:]]
    return [[list(column) for column in zip(*split, strict=True)] for split in splits]


@pytest.fixture
def numbers(peer, monkeypatch):
    monkeypatch.setattr(peer.translate, "load_text", few_numbers)


def run(peer, folder, epochs):
    peer.main([*SMALL, "--epochs", str(epochs), "--output-dir", str(folder)])
    with open(folder / "history.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("numbers")
def test_it_learns_and_resumes_with_the_same_numbers(peer, tmp_path):
    whole = run(peer, tmp_path / "whole", 3)
    assert float(whole[2]["val_loss"]) < float(whole[0]["val_loss"]) - 0.1
    run(peer, tmp_path / "parts", 2)
    assert run(peer, tmp_path / "parts", 3) == whole
    folder = tmp_path / "whole"
    assert sorted(file.name for file in folder.glob("*.pt")) == ["epoch_0001.pt", "epoch_0002.pt"]
    for search in (folder, folder / "transformers"):
        assert len((search / "translations.txt").read_text().splitlines()) == 5
        keys = json.loads((search / "bleu.json").read_text()).keys()
        assert keys == {"bleu", "exact", "signature"}
